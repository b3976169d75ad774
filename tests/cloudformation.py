#!/usr/bin/env python3
"""Makes and deletes a stack with the boto3 of LocalStack's environment; prints JSON.

    cloudformation.py create ENDPOINT STACK TEMPLATE [PARAMETER=VALUE ...]    its outputs and resources
    cloudformation.py delete ENDPOINT STACK
"""

import json
import pathlib
import sys
import time

import boto3
from botocore.exceptions import ClientError

LIMIT_S = 180


def ended(cloudformation, stack):
    """Waits for the end of what goes on: the stack, or nothing when it is gone."""
    give_up = time.monotonic() + LIMIT_S
    while True:
        try:
            now = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise
        if not now["StackStatus"].endswith("_IN_PROGRESS"):
            return now
        if time.monotonic() > give_up:
            sys.exit(f"{stack}: {now['StackStatus']} for {LIMIT_S} s")
        time.sleep(0.1)


def create(cloudformation, stack, template, *parameters):
    pairs = [parameter.split("=", 1) for parameter in parameters]
    cloudformation.create_stack(
        StackName=stack,
        TemplateBody=pathlib.Path(template).read_text(),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in pairs],
        Capabilities=["CAPABILITY_IAM"],
    )
    made = ended(cloudformation, stack)
    resources = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    if made is None or made["StackStatus"] != "CREATE_COMPLETE":
        sys.exit(f"{made and made['StackStatus']}: {[r for r in resources if r['ResourceStatus'] != 'CREATE_COMPLETE']}")
    return {
        "outputs": {output["OutputKey"]: output["OutputValue"] for output in made["Outputs"]},
        "resources": {resource["LogicalResourceId"]: resource["ResourceType"] for resource in resources},
    }


def delete(cloudformation, stack):
    cloudformation.delete_stack(StackName=stack)
    left = ended(cloudformation, stack)
    if left is not None and left["StackStatus"] != "DELETE_COMPLETE":
        sys.exit(f"{left['StackStatus']}: {left.get('StackStatusReason')}")
    return {}


if __name__ == "__main__":
    command, endpoint, *rest = sys.argv[1:]
    client = boto3.client(
        "cloudformation",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    print(json.dumps({"create": create, "delete": delete}[command](client, *rest)))
