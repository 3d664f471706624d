"""The lab's own client and the tools that people know, with the same load on the same server: the same story."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stanchion_lab import programs
from stanchion_lab.load import Offered, Target, offer
from stanchion_lab.result import OUTCOMES
from stanchion_lab.scenario import Load
from support.patience import PATIENCE_S

# In a process of its own, where no client's threads disturb it. Of a hundred requests each takes another time, 5 to
# 104 ms, and the server answers 502 to as many as its argument says.
SERVER = textwrap.dedent("""
    import asyncio, itertools, sys
    fails = int(sys.argv[1])
    numbers = itertools.count()
    async def serve(reader, writer):
        while line := (await reader.readline()).strip():
            kept = False
            while field := (await reader.readline()).strip():
                kept |= field.lower() == b"connection: keep-alive"
            number = next(numbers) % 100
            await asyncio.sleep((5 + (number * 37) % 100) / 1000)
            status = "502 Bad Gateway" if number < fails else "200 OK"
            old = line.endswith(b"1.0")
            closes = old and not kept
            ends = "close" if closes else "keep-alive"
            writer.write(f"HTTP/1.1 {status}\\r\\nConnection: {ends}\\r\\nContent-Length: 3\\r\\n\\r\\nok\\n".encode())
            if closes:
                break
        writer.close()
    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
        print("127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()
    asyncio.run(main())
""")
Start = Callable[[int], str]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a server, of which so many of a hundred requests fail; its address."""
    processes: list[subprocess.Popen[str]] = []

    def started(fails: int) -> str:
        command = [sys.executable, "-c", SERVER, str(fails)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    yield started
    for process in processes:
        process.kill()
        process.communicate()


OPEN = {"rate_per_s": 100.0, "for_s": 2.0}
CLOSED = {"requests": 200, "connections": 10}
KEPT = {"keep_alive": True}
CASES = pytest.mark.parametrize(
    ("tool", "load"),
    [
        ("oha", OPEN),
        ("oha", {**OPEN, **KEPT, "connections": 50}),
        ("oha", CLOSED),
        ("oha", {**CLOSED, **KEPT}),
        ("vegeta", OPEN),
        ("vegeta", {**OPEN, **KEPT, "connections": 50}),
        ("httperf", OPEN),
        ("ab", CLOSED),
        ("ab", {**CLOSED, **KEPT}),
        ("siege", CLOSED),
        ("siege", {**CLOSED, **KEPT}),
    ],
)


def by(tool: str, address: str, directory: Path, load: dict[str, Any]) -> Offered:
    return offer(Load(tools=[tool], patience_s=PATIENCE_S, **load), Target(address), directory, lambda share: None)


def both(tool: str, load: dict[str, Any], start: Start, fails: int, directory: Path) -> tuple[Offered, Offered]:
    if not programs.tool_of(Load(tools=[tool])):
        pytest.skip(f"{tool} is not installed")
    return by("own", start(fails), directory, load), by(tool, start(fails), directory, load)


@CASES
def test_the_same_becomes_of_requests(tool: str, load: dict[str, Any], start: Start, tmp_path: Path) -> None:
    own, other = both(tool, load, start, 10, tmp_path)
    for name in ("requests", "failed", "status.200", "status.502", *OUTCOMES):
        assert own.figures[name] == other.figures[name], name
    assert (own.figures["served"], own.figures["gateway"]) == (180, 20)


@CASES
def test_neither_flatters_the_server(tool: str, load: dict[str, Any], start: Start, tmp_path: Path) -> None:
    """Rank by rank, no latency is below the time the server took; how far above depends on the machine."""
    own, other = both(tool, load, start, 0, tmp_path)
    assert own.figures["served"] == other.figures["served"] == 200
    took_ms = sorted([*range(5, 105)] * 2)
    assert all(latency_ms >= took for latency_ms, took in zip(sorted(own.latencies_ms), took_ms, strict=True))
    # The figures go by the same ranks. The clock of a tool may tick in hundredths of a second.
    tick_ms = 10 if tool == "siege" else 1
    for got in (own, other):
        assert got.figures["latency_ms.p50"] >= took_ms[99] - tick_ms
        assert got.figures["latency_ms.max"] >= took_ms[-1] - tick_ms
