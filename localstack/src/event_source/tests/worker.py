#!/usr/bin/env python3
"""A worker that does what each message's body says: ok, fail, fail-once, error, garbage, crash, crash-once, hang,
hang-once, sleep <seconds>, exit-after. It prints every event that it is given."""
import http.client
import json
import os
import time
from urllib.parse import urlsplit

API = urlsplit(os.environ["AWS_LAMBDA_RUNTIME_API"])
ROOT = API.path + "/2018-06-01/runtime/invocation/"


def act(record):
    """Whether this record failed."""
    word, _, rest = record["body"].partition(" ")
    if word.endswith("-once"):
        if record["attributes"]["ApproximateReceiveCount"] != "1":
            return False
        word = word.removesuffix("-once")
    if word == "crash":
        os._exit(3)
    if word == "hang":
        time.sleep(600)
    if word == "sleep":
        time.sleep(float(rest))
    return word == "fail"


def main():
    if os.environ.get("BROKEN"):
        raise SystemExit("this worker cannot start")
    connection = http.client.HTTPConnection(API.netloc)
    while True:
        connection.request("GET", ROOT + "next")
        response = connection.getresponse()
        event = json.loads(response.read())
        request_id = response.headers["lambda-runtime-aws-request-id"]
        left = int(response.headers["lambda-runtime-deadline-ms"]) - time.time() * 1000
        bodies = [record["body"] for record in event["Records"]]
        print(json.dumps({"left_ms": left, "event": event}), flush=True)
        failed = [record["messageId"] for record in event["Records"] if act(record)]
        kind, answer = "response", json.dumps({"batchItemFailures": [{"itemIdentifier": i} for i in failed]})
        if "error" in bodies:
            kind, answer = "error", json.dumps({"errorType": "Test", "errorMessage": "asked to"})
        if "garbage" in bodies:
            answer = "{no json"
        connection.request("POST", f"{ROOT}{request_id}/{kind}", answer, {"content-type": "application/json"})
        connection.getresponse().read()
        if "exit-after" in bodies:
            os._exit(0)


main()
