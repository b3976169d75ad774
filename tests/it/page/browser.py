"""A headless Chromium with one page, told by JSON lines on standard input what to do, answering each with one on standard output."""

import base64
import json
import os
import subprocess
import sys
import tempfile

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --hide-scrollbars --remote-debugging-pipe"
).split()


class Browser:
    def __init__(self, program, profile):
        to_read, self.write = os.pipe()
        self.read, to_write = os.pipe()

        def ends():
            # Chromium reads from 3 and writes to 4; first out of the way of both
            ours = [os.dup(to_read), os.dup(to_write)]
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(ours)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        arguments = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(arguments, preexec_fn=ends, close_fds=False, stdout=2, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.count, self.session, self.errors = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.buffer:
            part = os.read(self.read, 1 << 16)
            if not part:
                raise SystemExit("Chromium ended")
            self.buffer += part
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.count += 1
        asked = {"id": self.count, "method": method, "params": params}
        if self.session:
            asked["sessionId"] = self.session
        os.write(self.write, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params["args"])[:500])
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def do(self, order):
        if "open" in order:
            self.call("Page.navigate", url=order["open"])
        if "size" in order:
            width, height = order["size"]
            self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if "scheme" in order:
            feature = {"name": "prefers-color-scheme", "value": order["scheme"]}
            self.call("Emulation.setEmulatedMedia", features=[feature])
        if "shot" in order:
            shot = self.call("Page.captureScreenshot", format="png")["data"]
            with open(order["shot"], "wb") as file:
                file.write(base64.b64decode(shot))
            return shot
        if "errors" in order:
            self.evaluate("0")
            errors, self.errors = self.errors, []
            return errors
        return self.evaluate(order["run"]) if "run" in order else None


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    browser = Browser(sys.argv[1], folder)
    try:
        for line in sys.stdin:
            print(json.dumps(browser.do(json.loads(line))), flush=True)
    finally:
        browser.process.kill()
        browser.process.wait()
