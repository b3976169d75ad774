#!/usr/bin/env python3
"""How much of the limit is used, by headroom, while workers are late: runs the demo in each regime and prints a table.

usage: python3 tests/regimes.py [--regimes calm,stalls,…] [--headrooms 0.95,…] [--runs 3] [--also] … [-- further demo options]
regimes (other numbers will do as well):
  calm
  redis 20 ms  a round trip to Redis takes so long, for the scheduler and the workers
  15% cpu      each worker process runs 15 ms of every 100 ms, at a phase of its own (SIGSTOP, SIGCONT)
  15% quota    each worker process has this part of a core (a CFS quota; needs a writable cgroup of the cpu controller)
  stalls       all worker processes stand still for 200 ms each 5 s
Exits with 1 when a run missed what is asked of each: nothing lost or twice, 99.5% of the headroom used, at most 0.5% booked
again, and no 429 up to a headroom of 0.97. Linux only. Build first: cargo build --release -p sendslot-cli -p sendslot-worker
"""
import argparse
import asyncio
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import selectors
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/sendslot"
# The servers of each run are its own.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "AWS_ENDPOINT_URL")}
# Redis and its directory go with the pipe that this process holds open.
GUARDIAN = 'directory=$1; shift; "$@" & read -r _; kill -9 $!; wait; rm -rf "$directory"'
WORKER = "sendslot-worker"
# Of version 1, of version 2.
CGROUPS = max(pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup"), key=pathlib.Path.is_dir)
COLUMNS = "used,of the headroom,booked again,refused,lost,twice,most in a rolling second,late p50 ms,late p99 ms".split(",")


def below(root, name):
    """The processes below one that are called so."""
    parents, found = {}, set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it ended
            called, _, rest = pathlib.Path("/proc", pid, "stat").read_text().partition("(")[2].rpartition(")")
            parents[int(pid)] = int(rest.split()[1])
            found |= {int(pid)} if re.fullmatch(name, called) else set()

    def is_below(pid):
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return set(filter(is_below, found))


@contextlib.contextmanager
def stopped(pids):
    def tell(word):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, word)

    try:
        tell(signal.SIGSTOP)
        yield
    finally:
        tell(signal.SIGCONT)


async def until(instant):
    await asyncio.sleep(instant - asyncio.get_running_loop().time())


async def each_worker(root, begin):
    """Begins something with each worker as it comes; `begin` gets the set of those that live, too."""
    alive = set()
    while True:
        now = below(root, WORKER)
        new = now - alive
        alive &= now
        alive |= new
        for pid in new:
            begin(pid, alive)
        await asyncio.sleep(0.1)


async def cpu(root, percent):
    async def take_turns(pid, alive):
        at = asyncio.get_running_loop().time() + random.random() / 10
        while pid in alive:
            await until(at)
            with stopped([pid]):
                await until(at + 0.1 - percent / 1000)
            at += 0.1

    async with asyncio.TaskGroup() as group:
        await each_worker(root, lambda pid, alive: group.create_task(take_turns(pid, alive)))


async def quota(root, percent):
    groups = []

    def bound(pid, _):
        group = CGROUPS / f"sendslot-{pid}"
        group.mkdir()
        groups.append(group)
        first = group / "cpu.cfs_quota_us"
        first.write_text(f"{percent}000") if first.exists() else (group / "cpu.max").write_text(f"{percent}000 100000")
        with contextlib.suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))

    try:
        await each_worker(root, bound)
    finally:
        for group in groups:
            for _ in range(100):
                with contextlib.suppress(OSError):  # its process is about to end
                    group.rmdir()
                    break
                await asyncio.sleep(0.02)


async def stalls(root, _):
    while not below(root, WORKER):
        await asyncio.sleep(0.05)
    at = asyncio.get_running_loop().time() + 2.5
    while True:
        await until(at)
        with stopped(below(root, WORKER)):
            await until(at + 0.2)
        at += 5


class Side(asyncio.Protocol):
    """One side of a connection to Redis: what it hears, the other side says later, in the same order."""

    def __init__(self, delay, path, other=None):
        self.delay, self.path, self.other, self.transport = delay, path, other, None
        self.heard, self.loop = collections.deque(), asyncio.get_running_loop()

    def connection_made(self, transport):
        self.transport = transport
        if not self.other:
            self.other = Side(self.delay, self.path, self)
            self.connecting = self.loop.create_task(self.loop.create_unix_connection(lambda: self.other, self.path))

    def data_received(self, data):
        self.heard.append(data)
        self.loop.call_later(self.delay, self.say)

    def connection_lost(self, _):
        self.data_received(b"")

    def say(self):
        if not self.other.transport:
            self.transport.close()  # there is no Redis
        elif data := self.heard.popleft():
            self.other.transport.write(data)
        else:
            self.other.transport.close()


async def redis_program():
    """The one that the demo uses: it may have to install it."""
    if "SENDSLOT_REDIS_SERVER" not in ENVIRONMENT:
        async with demo(ENVIRONMENT, "--burst", "1") as (root, output):
            while not (servers := below(root, "(redis|valkey)-server")) and not output.done():
                await asyncio.sleep(0.05)
            if not servers:
                raise SystemExit((await output)[1].decode())
            ENVIRONMENT["SENDSLOT_REDIS_SERVER"] = os.readlink(f"/proc/{servers.pop()}/exe")
    return ENVIRONMENT["SENDSLOT_REDIS_SERVER"]


@contextlib.asynccontextmanager
async def distant_redis(round_trip):
    """A Redis of its own behind a proxy: its URL."""
    program = await redis_program()
    directory = tempfile.mkdtemp(prefix="sendslot-redis-")
    path = f"{directory}/socket"
    options = f"--port 0 --unixsocket {path} --dir {directory} --appendonly no --maxmemory-policy noeviction --save".split()
    command = ["/bin/sh", "-c", GUARDIAN, "sh", directory, program, *options, ""]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    guardian = await asyncio.create_subprocess_exec(*command, start_new_session=True, **pipes)
    try:
        async with asyncio.timeout(10):
            while not os.path.exists(path):
                await asyncio.sleep(0.01)
        new_side = lambda: Side(round_trip / 2, path)
        server = await asyncio.get_running_loop().create_server(new_side, "127.0.0.1", 0, backlog=1024)
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
    finally:
        guardian.stdin.close()
        await guardian.wait()


@contextlib.asynccontextmanager
async def demo(environment, *options):
    """The process id of a running demo, and a task for what it prints. Leaving it kills the demo, and so all that it started."""
    pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(PROGRAM, "demo", *options, "--json", env=environment, **pipes)
    output = asyncio.create_task(process.communicate())
    try:
        yield process.pid, output
    finally:
        if process.returncode is None:
            process.kill()
        await output


async def run(regime, limit, burst, headroom, more):
    """The demo's report, or why there is none."""
    kind, number = re.sub(r"\d+ ?", "", regime), int("".join(filter(str.isdigit, regime)) or 0)
    options = ["--limit", limit, "--burst", burst, "--headroom", headroom, *more]
    if limit > 300:  # a local SQS takes some 1,000 messages a second
        options += ["--start-in", f"{burst * 3 // 2000 + 1}s"]
    async with distant_redis(number / 1000) if kind == "redis ms" else contextlib.nullcontext() as url:
        environment = {**ENVIRONMENT, **({"REDIS_URL": url} if url else {})}
        async with asyncio.timeout(300 + 20 * burst / limit), asyncio.TaskGroup() as group:
            async with demo(environment, *map(str, options)) as (root, output):
                disturb = {"% cpu": cpu, "% quota": quota, "stalls": stalls}.get(kind)
                task = disturb and group.create_task(disturb(root, number))
                printed, said = await asyncio.shield(output)
                if task:
                    task.cancel()
    return json.loads(printed) if printed else {"headroom": headroom, "failed": said.decode().strip().rpartition("\n")[2]}


def cells(report):
    if "failed" in report:
        return ["-"] * len(COLUMNS)
    late, again = report["lateness_ms"] or {"p50": 0, "p99": 0}, report["rebooked"]
    used = [f"{report['utilisation']:.2%}", f"{report['utilisation'] / report['headroom']:.1%}"]
    counts = [report[name] for name in ("provider_429", "lost", "duplicates", "max_units_in_rolling_second")]
    used.append(f"{again} ({again / max(report['accepted'], 1):.1%})")
    return [*used, *map(str, counts), f"{late['p50']:.1f}", f"{late['p99']:.1f}"]


def missed(report):
    if "failed" in report:
        return report["failed"]
    tests = {
        "lost": report["lost"],
        "twice": report["duplicates"],
        "used": report["utilisation"] < 0.995 * report["headroom"],
        "booked again": report["rebooked"] > 0.005 * report["accepted"],
        "refused": report["headroom"] <= 0.97 and report["provider_429"],
    }
    return ", ".join(name for name, wrong in tests.items() if wrong)


async def table(rows, limit, burst, more, reports):
    """Each row is a regime, a headroom and its number of runs."""
    print(f"{burst:,} sends at {limit:,}/s:\n\n| {' | '.join(['regime', 'headroom', *COLUMNS])} |")
    print(f"|{'---|' * (len(COLUMNS) + 2)}", flush=True)
    for regime, headroom, runs in rows:
        done = []
        for _ in range(runs):
            try:
                report = await run(regime, limit, burst, headroom, more)
            except TimeoutError:
                report = {"headroom": headroom, "failed": "it did not end"}
            report |= {"regime": regime, "burst": burst, "missed": missed(report)}
            done.append(report)
            if report["missed"]:
                print(f"missed ({regime}, {headroom}): {report['missed']}", file=sys.stderr)
        reports += done
        print(f"| {regime} | {headroom} | {' | '.join(map(' / '.join, zip(*map(cells, done))))} |", flush=True)


async def main(args, reports):
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    rows = [(regime, headroom, args.runs) for regime in args.regimes for headroom in args.headrooms]
    if args.each:
        rows = [(*row[:2], 1) for row in rows for _ in range(args.runs)]
    if rows:
        await table(rows, args.limit, args.burst, args.more, reports)
    if args.also:
        print()
        await table([("calm", 0.97, 1)] * 5, 1000, 10_000, args.more, reports)


def regime(name):
    if not re.fullmatch(r"calm|stalls|redis \d+ ms|\d\d?% (cpu|quota)", name):
        raise ValueError
    return name


def separated(kind):
    return lambda text: [kind(part.strip()) for part in text.split(",") if part.strip()]


def loop():
    return asyncio.SelectorEventLoop(selectors.SelectSelector())  # finer than the milliseconds of epoll


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--regimes", type=separated(regime), default="calm,redis 20 ms,15% cpu,stalls")
    parser.add_argument("--headrooms", type=separated(float), default="0.95,0.96,0.97,0.98,0.99")
    parser.add_argument("--runs", type=int, default=3, help="of each regime and headroom")
    parser.add_argument("--limit", type=int, default=100, help="of the provider, a second")
    parser.add_argument("--burst", type=int, default=2000, help="sends in a run")
    parser.add_argument("--each", action="store_true", help="a row for each run")
    parser.add_argument("--also", action="store_true", help="and 10,000 at 1,000/s: calm, 0.97, five runs in a row, each shown")
    parser.add_argument("--json", metavar="FILE", help="write the demo's reports of all runs there")
    parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    arguments, reports = parser.parse_args(), []
    with contextlib.suppress(OSError):  # as root: the delays are kept on a busy machine; what it starts is scheduled as usual
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main(arguments, reports))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(130) from None
    finally:
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps(reports, indent=1) + "\n")
    sys.exit(any(report["missed"] for report in reports))
