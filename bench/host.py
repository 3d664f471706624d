"""The machine and the way in which the figures were taken, without naming the machine."""

import datetime
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from bench import wrk
from bench.measure import CLIENT_CORE, Plan
from bench.servers import SERVERS, Address, Launch

UNFAIR = """\
- CPU time is the time of the server's processes. The kernel does much of the work of the loopback in the context of the
  sender, so the server pays for the delivery of its answers and the client for that of its requests; equal for all.
- stanchion is two busy processes on the one core; bjoern and fastpysgi have no master, and could neither survive a
  fault of the app nor replace a worker. Where bjoern has several workers, the benchmark forks them.
- The servers of a case that take turns run all the time, the others idle while one is asked: each pays for caches that
  the others have used, and for the few wake-ups of those that idle.
- `user` and `kernel` divide the time by where the clock's ticks found the processes; the sum is exact.
- gunicorn sync and uWSGI's http-socket know no keep-alive: in the keep-alive cases each of their requests pays for a
  connection. wrk measures latency from the first write on, so the time to connect is not in it.
- gunicorn runs without its optional C parser, as `pip install gunicorn` gives it.
- wrk is done with an answer when it has read it, and the kernel takes in some MB of the next ones meanwhile. Streams
  and files are counted by the bytes that wrk has read.
- `sendfile` sends pages without copying them, and on the loopback the client's copying is all that is left. fastpysgi
  and granian have no wsgi.file_wrapper: the app reads the file in blocks there.
- fastpysgi gathers pieces of an answer before it sends them: of four of 64 KiB, half a second apart, a client saw the
  first byte after a second, from bjoern and stanchion at once. In the streams it writes a MiB by one system call, and
  reads the one piece of which the app makes it out of the core's cache.
- The memory of idle connections is the memory of the processes. The kernel's memory for each socket is the same for all
  and not in it. granian takes about 1,000 connections at a time and is left out.
- Behind nginx the server gets HTTP/1.0 and a connection per request, nginx's default; uWSGI its own protocol.
- p50 and p99 are those of a client that always has its next request ready (closed loop): they show a server at its
  limit, not one in service. `mixed` is the case for latency: an open loop with Poisson arrivals.
- wrk does not read bodies; each server's answer is checked whole before the load, and the bytes are counted during it.
- bjoern, fastpysgi and uWSGI's router leave Nagle's algorithm on by default: in the streams they wait for delayed
  acknowledgements (40 ms). Their requests/s and latency suffer from it, the CPU time hardly.
- The app of 100 MB consists of small lists, the worst case for copy-on-write. One collection of the oldest generation
  in each worker is part of the figure; servers that freeze the heap before the fork (gc.freeze) keep it shared.
- In `reload` and `upgrade` 8 clients ask without a pause, half of them with keep-alive where the server has it. HUP has
  uWSGI execute its binary again, so it has no row in `upgrade`; with a preloaded app it brings no new code to Unicorn,
  which has none in `reload`. Old masters of gunicorn and Unicorn get TERM and QUIT once the new ones answer.
- In `adversaries` a request that failed counts as one of three seconds, after which its client gives up. The row
  `beside nothing` has no attackers: it shows how much the machine itself varies between windows.
- granian cannot load the app before it forks, uWSGI and stanchion do so by default, gunicorn with `--preload`.
"""


def kind() -> str:
    """Such as 2-core-vm."""
    virtual = "hypervisor" in Path("/proc/cpuinfo").read_text()
    return f"{os.cpu_count()}-core-{'vm' if virtual else 'host'}"


def said(command: list[str], pattern: str) -> str:
    """The text that `pattern` finds in the command's output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else "unknown"


def versions() -> list[str]:
    wrk_version = said(["wrk", "-v"], r"wrk (?:debian/)?(\S+)")
    nginx_version = said(["nginx", "-v"], r"nginx/(\S+)")
    lines = [f"- Python {platform.python_version()}", f"- wrk {wrk_version}", f"- nginx {nginx_version}"]
    if SERVERS["unicorn"].version():
        lines.append(f"- unicorn {said(['unicorn', '-v'], r'v(.+)')}")
    for package in sorted({server.package for server in SERVERS.values() if server.package} | {"flask", "psutil"}):
        try:
            lines.append(f"- {package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            lines.append(f"- {package} **MISSING**")
    return lines


def machine() -> list[str]:
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory_kb = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    somaxconn = Path("/proc/sys/net/core/somaxconn").read_text().strip()
    return [
        f"- {kind()}: {model[1] if model else platform.machine()}, {int(memory_kb[1]) >> 20 if memory_kb else '?'} GiB",
        f"- Linux {platform.release()}, net.core.somaxconn={somaxconn}, TCP congestion control {congestion}",
        f"- network namespace of its own: {'yes' if os.environ.get('BENCH_NAMESPACE') else 'no'}",
        f"- load average when it began: {os.getloadavg()[0]:.2f}",
    ]


def commands() -> list[str]:
    """Each server's command for one worker on TCP and, last, the client's."""
    launch = Launch("hello:app", Address(port=8000))
    lines = [shlex.join(server.command(launch)) for server in SERVERS.values() if server.package]
    return [*(f"taskset -c 0 {line}" for line in lines), shlex.join(wrk.command(wrk.Load(), 8000, 2, CLIENT_CORE))]


README = """\
# Benchmark run of {date}

Made by `{made_by}`: {plan.rounds} rounds.

Where servers are compared under load, all of a case run at the same time and take turns, A B C, C B A, {plan.turns}
each in a round, after 1 s each to warm up; each round starts them again. A turn is one second of load (`file100`:
three). In the other cases one server runs at a time, A B C, A B C: `slow` has {plan.load_s} s a cell, `mixed`
{plan.mixed_s} s, `death` {plan.kills} kills, `reload` and `upgrade` {plan.deploys} deploys each. There is one worker,
behind nginx there are two, and the whole server is on core 0 and the client on core 1; `mixed`, `death`, `reload`,
`upgrade` and `memory` are not pinned.
`adversaries` has the attackers on core 1, and honest clients that take it from them: {plan.load_s} s alone, twice that
beside one kind of attackers, {plan.load_s} s alone, and so on, from the last kind to the first in every other round.
`raw.jsonl` has every turn or round of each server, `summary.md` the tables.

## Machine

{machine}

## Versions

{versions}

## Servers

{servers}

## Limits of the comparison

{unfair}
## Commands

With `PYTHONPATH=bench/apps PYTHONHASHSEED=0`, from the checkout.

```sh
{commands}
```
"""


def readme(arguments: Sequence[str], plan: Plan) -> str:
    return README.format(
        date=datetime.date.today().isoformat(),
        made_by=shlex.join(["bench/run.sh", *arguments]),
        plan=plan,
        machine="\n".join(machine()),
        versions="\n".join(versions()),
        servers="\n".join(f"- {server.name}: {server.note}" for server in SERVERS.values()),
        unfair=UNFAIR,
        commands="\n".join(commands()),
    )
