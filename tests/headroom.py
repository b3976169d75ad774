#!/usr/bin/env python3
"""A table of 429s and utilisation by headroom: runs the demo several times at each.

usage: python3 tests/headroom.py [--runs 3] [--limit 100] [--burst 2000] [--from 0.90] [--to 0.98] [-- further demo options]
Build first: cargo build --release -p sendslot-cli -p sendslot-worker
"""
import argparse
import json
import pathlib
import statistics
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "target/release/sendslot"


def run(limit, burst, headroom, more):
    command = [PROGRAM, "demo", "--limit", str(limit), "--burst", str(burst), "--headroom", f"{headroom:.2f}", "--json"]
    done = subprocess.run(command + more, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--burst", type=int, default=2000)
    parser.add_argument("--from", dest="first", type=float, default=0.90)
    parser.add_argument("--to", type=float, default=0.98)
    parser.add_argument("more", nargs="*")
    args = parser.parse_args()
    print("| headroom | 429s | lost | duplicates | most in a rolling second | utilisation | re-booked | lateness p99 ms |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for step in range(round((args.to - args.first) * 100) + 1):
        headroom = args.first + step / 100
        reports = [run(args.limit, args.burst, headroom, args.more) for _ in range(args.runs)]
        of = lambda name: " / ".join(str(r[name]) for r in reports)
        used = " / ".join(f"{r['utilisation'] * 100:.2f}%" for r in reports)
        late = statistics.median(r["lateness_ms"]["p99"] for r in reports)
        most = of("max_units_in_rolling_second")
        print(
            f"| {headroom:.2f} | {of('provider_429')} | {of('lost')} | {of('duplicates')} | {most} | {used} "
            f"| {of('rebooked')} | {late:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
