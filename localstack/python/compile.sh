#!/bin/sh
# Compiles the requirements: `uv` must be on the PATH. Run it after a change to one of the .in files.
set -eu
cd "$(dirname "$0")"
compile() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url "$@"
}
compile --exclude-newer 2026-03-05 localstack.in --output-file localstack.txt
compile --exclude-newer 2026-03-05 cloudformation.in --output-file cloudformation.txt
compile redis.in --output-file redis.txt
compile schemathesis.in --output-file schemathesis.txt
compile uv.in --output-file uv.txt
