"""Streams of events as people make them: to browsers, to clients of models, behind nginx, by a protocol on top."""

import asyncio
import json
import re
import resource
import selectors
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client import Client

from support.chromium import BROWSER_PATIENCE_S, NEEDS_CHROMIUM, browser
from support.events import hear_each_word_as_it_is_said
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.reach import BEHIND_NGINX, DIRECTLY, WAYS, Reach, behind_nginx, reached
from support.server import Serve
from support.wire import request

pytestmark = pytest.mark.own("it has servers of its own")

ASGI = ("--interface", "asgi")
TOKENS = 100
LAG_TOKENS = 50
"""How far behind the first client that was sent all another one may be. A turn of the loop is a token for each."""


def client_of(reach: Reach) -> httpx.Client:
    return httpx.Client(base_url=reach.http, timeout=PATIENCE_S, trust_env=False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("clients", [200, pytest.param(1000, marks=pytest.mark.large)])
def test_clients_get_a_hundred_tokens_each_at_the_same_time(serve: Serve, clients: int) -> None:
    """Each token to each client, in order; and none is sent all while another waits."""
    allow_open_files(clients)
    server = serve("frameworks.fastapi:streams", *ASGI, "--worker-concurrency", "1100")
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        got = {}
        for number in range(clients):
            wire = stack.enter_context(server.connect())
            wire.send(request("GET", "/tokens"))
            wire.head()
            assert wire.body_bytes(len("d\r\ndata: ready\n\n\r\n")) == b"d\r\ndata: ready\n\n\r\n"
            selector.register(wire.sock, selectors.EVENT_READ, number)
            got[number] = b""
        with server.connect() as asking:
            assert asking.get("/begin").json() == clients
        while selector.get_map():
            ready = selector.select(PATIENCE_S)
            assert ready, "nothing comes any more"
            for key, _ in ready:
                piece = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                assert piece
                got[key.data] += piece
                if got[key.data].endswith(b"0\r\n\r\n"):
                    selector.unregister(key.fileobj)
        with server.connect() as asking:
            assert asking.get("/least").json() >= TOKENS - LAG_TOKENS
    whole = "".join(f"data: token {number}\n\n" for number in range(TOKENS)).encode()
    # An acceptor that has to wait for a core sends several tokens in one chunk.
    assert [re.sub(rb"[0-9a-f]+\r\n(.*?)\r\n", rb"\1", each, flags=re.DOTALL) for each in got.values()] == [
        whole
    ] * clients


def allow_open_files(clients: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, clients + 500)), hard))


@pytest.mark.parametrize("way", WAYS)
def test_each_event_comes_when_it_is_there(serve: Serve, tmp_path: Path, way: str) -> None:
    """A piece of the app's is a chunk, which nginx keeps back in neither case."""

    def listen(buffering: str) -> None:
        with client_of(here) as client:
            hear_each_word_as_it_is_said(client, buffering, words=20)

    with reached(way, serve, tmp_path, "frameworks.fastapi:streams", *ASGI) as here:
        for buffering in ("no", "yes"):
            here.run(partial(listen, buffering))


@behind_nginx
def test_nginx_takes_all_of_a_stream_for_a_client_that_does_not_read_unless_the_app_forbids_it(
    serve: Serve, tmp_path: Path
) -> None:
    """`X-Accel-Buffering: no` lets the app's `send` wait for its client."""

    def neglect() -> None:
        with client_of(here) as client, client_of(here) as other:

            def sent() -> int:
                return int(other.get("/flooded").json())

            def stands_still() -> bool:
                before = sent()
                time.sleep(0.5)
                return 0 < before == sent()

            with client.stream("GET", "/flood", params={"buffering": "no"}):
                eventually(stands_still, "the app waits")
                assert sent() < 512
            with client.stream("GET", "/flood", params={"buffering": "yes"}):
                eventually(lambda: sent() == 1024, "nginx takes it all")

    with reached(BEHIND_NGINX, serve, tmp_path, "frameworks.fastapi:streams", *ASGI) as here:
        here.run(neglect)


async def use_tools(url: str, mode: str) -> list[Any]:
    """The results that a client of the Model Context Protocol gets."""
    progress: list[tuple[float, float | None, str | None]] = []

    async def told(*one: Any) -> None:
        progress.append(one)

    async with Client(url, mode=mode) as client:
        names = sorted(tool.name for tool in (await client.list_tools()).tools)
        assert names == ["add", "count", "last_word", "process"]
        sums = await asyncio.gather(*(client.call_tool("add", {"first": n, "second": n}) for n in range(20)))
        assert [one.structured_content for one in sums] == [{"result": 2 * n} for n in range(20)]
        counted = await client.call_tool("count", {"to": 50}, progress_callback=told)
        assert counted.structured_content == {"result": "counted"}
        assert progress == [(n, 50, f"number {n}") for n in range(50)]
        await client.call_tool("last_word", {})
        answers = await asyncio.gather(*(client.call_tool("process", {}) for _ in range(10)))
    return [one.structured_content["result"] for one in answers if one.structured_content]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("way", WAYS)
def test_the_model_context_protocol(serve: Serve, gate: Gate, tmp_path: Path, way: str, mode: str) -> None:
    """The protocol's own client talks to it: with a session, or without one as in 2026-07-28."""
    with reached(way, serve, tmp_path, "frameworks.mcp:app", *ASGI, env=gate.environment) as here:
        assert len(here.run(lambda: asyncio.run(use_tools(f"{here.http}/mcp", mode)))) == 10
        assert gate.announcement() == "called"


@pytest.mark.timeout(180)
def test_several_workers_serve_the_model_context_protocol_without_sessions(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    env = {"STATELESS": "1", **gate.environment}
    with reached(DIRECTLY, serve, tmp_path, "frameworks.mcp:app", *ASGI, "-w", "2", env=env) as here:
        rounds = 0
        pids: set[int] = set()
        # While one of them gets no core, the other one answers.
        while rounds < 3 or (len(pids) < 2 and rounds < 9):
            rounds += 1
            answered = asyncio.run(use_tools(f"{here.http}/mcp", "legacy"))
            assert len(answered) == 10
            pids.update(answered)
        assert len(pids) == 2


@pytest.mark.timeout(2 * BROWSER_PATIENCE_S)
@NEEDS_CHROMIUM
def test_a_browser_hears_events_and_speaks_by_a_websocket(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    server = serve("frameworks.fastapi:streams", *ASGI, env=gate.environment)
    with browser(f"http://127.0.0.1:{server.address.port}/page", "remote-debugging-port=0"):
        heard = json.loads(gate.announcement(within_s=BROWSER_PATIENCE_S))
    assert heard == ["event 0", "event 1", "event 2", "héllo of chat", 700_000, [4002, "as asked", True]]
