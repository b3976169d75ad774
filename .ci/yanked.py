#!/usr/bin/env python3
"""Fails when Cargo.lock names a version that was yanked: from what cargo itself last heard of its registry.

Advisories are not looked at: their database is no part of the registry.
"""

import json
import os
import pathlib
import re
import sys


def entry(name):
    """Where the registry's index keeps a crate."""
    folder = {1: "1", 2: "2", 3: f"3/{name[0]}"}.get(len(name), f"{name[:2]}/{name[2:4]}")
    return f"{folder}/{name}"


def versions(file):
    for text in re.findall(rb"\{[^\x00]*\}", file.read_bytes()):
        try:
            yield json.loads(text)
        except ValueError:
            pass


home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
caches = list(home.glob("registry/index/*/.cache"))
locked = re.findall(r'name = "(.+)"\nversion = "(.+)"\nsource', pathlib.Path("Cargo.lock").read_text())
known, yanked = 0, []
for name, version in locked:
    for file in (cache / entry(name.lower()) for cache in caches):
        if file.is_file():
            here = [found for found in versions(file) if found.get("vers") == version]
            known += bool(here)
            yanked += [f"{name} {version}" for found in here if found.get("yanked")]
print(f"{known} of {len(locked)} locked crates looked up, {len(yanked)} yanked: {', '.join(yanked) or 'none'}")
sys.exit(bool(yanked))
