#!/bin/sh
# Compiles the requirements: `uv` must be on the PATH. Run it after a change to one of the .in files.
set -eu
cd "$(dirname "$0")"
uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
    cfn-lint.in --output-file cfn-lint.txt
