#!/usr/bin/env python3
"""Prints a worker binary's size, and how long it takes from its start to its first question for an event.

    cold_start.py BINARY [RUNS]

Lambda calls this the init phase. Lambda's own part (an environment, fetching and unpacking the code) is not in it.
"""

import io
import pathlib
import socket
import statistics
import subprocess
import sys
import time
import zipfile

# what a function has; nothing of it is connected before the first event
ENVIRONMENT = {
    "AWS_LAMBDA_FUNCTION_NAME": "worker",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
    "AWS_LAMBDA_FUNCTION_VERSION": "1",
    "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
    "AWS_LAMBDA_LOG_GROUP_NAME": "group",
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "REDIS_URL": "rediss://127.0.0.1:1",
    "SENDSLOT_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/123456789012/sendslot-bulk",
    "SENDSLOT_DLQ_URL": "https://sqs.eu-west-1.amazonaws.com/123456789012/sendslot-bulk-dlq",
    "SENDSLOT_HTTP_URL": "https://provider.invalid/",
}


def init(binary):
    """Seconds until the first question, and the memory then in MB."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        api = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.perf_counter()
        worker = subprocess.Popen([binary], env=ENVIRONMENT | {"AWS_LAMBDA_RUNTIME_API": api}, stderr=subprocess.PIPE)
        try:
            connection, _ = server.accept()
            question = connection.recv(4096)
            took = time.perf_counter() - began
            assert b"/runtime/invocation/next" in question, question
            status = pathlib.Path(f"/proc/{worker.pid}/status")
            kilobytes = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS")).split()[1]
            return took, int(kilobytes) / 1024
        except TimeoutError:
            worker.kill()
            sys.exit(f"no question within 10 s; it says: {worker.communicate()[1].decode()}")
        finally:
            worker.kill()
            worker.wait()


def main(binary, runs=30):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(binary, "bootstrap")
    print(f"binary {pathlib.Path(binary).stat().st_size / 1e6:.2f} MB, zip {len(packed.getvalue()) / 1e6:.2f} MB")
    took, memory = zip(*(init(binary) for _ in range(int(runs))))
    in_ms = [f"{seconds * 1000:.1f}" for seconds in (min(took), statistics.median(took), max(took))]
    print(f"init, {runs} runs: least {in_ms[0]} ms, median {in_ms[1]} ms, most {in_ms[2]} ms; {max(memory):.1f} MB resident")


if __name__ == "__main__":
    main(*sys.argv[1:])
