"""The lab's own client and oha, with the same load on the same server: they must tell the same story."""

import itertools
import os
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stanchion.lab.load import TOOLS, Offered, Target, offer
from stanchion.lab.result import OUTCOMES
from stanchion.lab.scenario import Load
from support.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(not TOOLS["oha"].installed(), reason="oha is not installed")

# A process of its own, that neither client's threads disturb; a hundred requests have their latencies in a fixed
# order, of 5 to 104 ms, and every tenth is answered 502.
SERVER = textwrap.dedent("""
    import asyncio, itertools
    numbers = itertools.count()
    async def serve(reader, writer):
        while (await reader.readline()).strip():
            while (await reader.readline()).strip():
                pass
            number = next(numbers) % 100
            await asyncio.sleep((5 + (number * 37) % 100) / 1000)
            status = "502 Bad Gateway" if number % 10 == 0 else "200 OK"
            writer.write(f"HTTP/1.1 {status}\\r\\nContent-Length: 3\\r\\n\\r\\nok\\n".encode())
        writer.close()
    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
        print("127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()
    asyncio.run(main())
""")


@pytest.fixture
def address() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def by(tool: str, address: str, directory: Path, **load: Any) -> Offered:
    return offer(Load(tools=[tool], **load, patience_s=PATIENCE_S), Target(address), directory, lambda share: None)


@pytest.mark.parametrize(
    "load",
    [
        {"rate_per_s": 200.0, "for_s": 2.0},
        {"rate_per_s": 200.0, "for_s": 2.0, "keep_alive": True, "connections": 50},
        {"requests": 400, "connections": 20},
        {"requests": 400, "connections": 20, "keep_alive": True},
    ],
    ids=["open", "open, kept", "closed", "closed, kept"],
)
def test_both_tell_the_same(load: dict[str, Any], address: str, tmp_path: Path) -> None:
    own, oha = (by(tool, address, tmp_path, **load) for tool in ("own", "oha"))
    for name in itertools.chain(["requests", "failed", "status.200", "status.502"], OUTCOMES):
        assert own.figures[name] == oha.figures[name], name
    assert own.figures["served"] == 360 and own.figures["gateway"] == 40
    # The server's own times span 100 ms, evenly: what the clients and a busy machine add to them may be a tenth, at
    # the median of all. Percentiles by the same rank.
    assert own.figures["latency_ms.min"] >= 5 and oha.figures["latency_ms.min"] >= 5
    for name in ("latency_ms.p50", "latency_ms.p90", "latency_ms.mean"):
        assert own.figures[name] == pytest.approx(oha.figures[name], abs=25), name
    assert statistics.median(own.latencies_ms) == pytest.approx(own.figures["latency_ms.p50"], abs=2)


def test_both_lose_patience_alike(address: str, tmp_path: Path) -> None:
    """Half of the times are above the patience."""
    load = Load(requests=200, connections=20, patience_s=0.055)
    for tool in ("own", "oha"):
        got = offer(
            Load(tools=[tool], requests=200, connections=20, patience_s=load.patience_s),
            Target(address),
            tmp_path,
            lambda share: None,
        )
        assert got.figures["requests"] == 200
        assert 60 <= got.figures["late"] <= 160, tool
