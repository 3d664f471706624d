"""WebSockets of the frameworks that people use, each with the client that is made for it."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from gql import Client, gql
from gql.transport.exceptions import TransportQueryError
from gql.transport.websockets import WebsocketsTransport
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from support.gate import Gate
from support.patience import PATIENCE_S
from support.reach import DIRECTLY, WAYS, Reach, reached
from support.server import Serve

pytestmark = pytest.mark.own("it has servers of its own")

TALKING = [
    "frameworks.starlette:app",
    "frameworks.fastapi:app",
    "frameworks.quart:app",
    "frameworks.litestar:app",
    "frameworks.channels",
]
MESSAGES = ["", "héllo 𝄞", b"", b"\x00\xff", "x" * 300_000, os.urandom(3_000_000)]
NOT_OF_QUART = b""
"""Quart 0.22 looks for the text of a message whose bytes are none, and fails; on uvicorn, too."""

Reaching = Callable[..., Reach]


@pytest.fixture
def reach(serve: Serve, gate: Gate, tmp_path: Path) -> Iterator[Reaching]:
    """Start an app, and say how its clients reach it."""
    with ExitStack() as stack:

        def started(way: str, app: str, *arguments: str) -> Reach:
            return stack.enter_context(
                reached(way, serve, tmp_path, app, "--interface", "asgi", *arguments, env=gate.environment)
            )

        yield started


def opened(reach: Reach, room: str = "red", site: str = "") -> ClientConnection:
    """A WebSocket that a page of `site` opens, by default a page of the app's own."""
    url = f"{reach.ws}/ws/{room}?name=caf%C3%A9"
    options = {"proxy": None, "max_size": None, "open_timeout": PATIENCE_S}
    return connect(url, origin=site or reach.http, subprotocols=["other", "chat"], **options)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("app", TALKING)
def test_what_a_client_says_comes_back_until_one_of_both_closes(
    reach: Reaching, gate: Gate, app: str, way: str
) -> None:
    here = reach(way, app)
    messages = [message for message in MESSAGES if "quart" not in app or message != NOT_OF_QUART]

    async def iterated() -> list[str]:
        async with websockets.connect(f"{here.ws}/ws/red?name=x", origin=here.http, proxy=None) as client:
            await client.send("count")
            return [str(message) async for message in client]

    def talk() -> None:
        with opened(here) as client:
            assert client.subprotocol == "chat"
            assert json.loads(client.recv(PATIENCE_S)) == {"room": "red", "name": "café"}
            for message in messages:
                client.send(message)
                assert client.recv(PATIENCE_S) == message
            # An iterable goes out as the fragments of one message.
            client.send(["in ", "four", "", " fragments"])
            assert client.recv(PATIENCE_S) == "in four fragments"
            client.send([b"\x00" * 70_000, b"\xff"])
            assert client.recv(PATIENCE_S) == b"\x00" * 70_000 + b"\xff"
            assert client.ping().wait(PATIENCE_S)
        # The client has left with 1000, which the app hears.
        assert (client.close_code, gate.announcement()) == (1000, "left")
        with opened(here) as client:
            client.recv(PATIENCE_S)
            client.send("close")
            with pytest.raises(ConnectionClosedError):
                client.recv(PATIENCE_S)
            assert (client.close_code, client.close_reason) == (4001, "as asked")
        with pytest.raises(InvalidStatus) as refused:
            opened(here, "closed")
        assert refused.value.response.status_code == 403
        # It ends with 1000, so that nothing is raised.
        assert asyncio.run(iterated())[1:] == [str(number) for number in range(100)]

    here.run(talk)


@pytest.mark.parametrize("way", WAYS)
def test_a_room_of_channels(reach: Reaching, gate: Gate, way: str) -> None:
    """All clients in the room hear what one of them or a view says, in one order."""
    here = reach(way, "frameworks.channels")

    def talk() -> None:
        with ExitStack() as stack:
            red = [stack.enter_context(opened(here)) for _ in range(5)]
            blue = stack.enter_context(opened(here, "blue"))
            for client in [*red, blue]:
                client.recv(PATIENCE_S)
            for number in range(20):
                red[0].send(f"to all: {number}")
            first = [red[1].recv(PATIENCE_S) for _ in range(20)]
            assert first == [f"to all: {number}" for number in range(20)]
            with httpx.Client(base_url=here.http, timeout=PATIENCE_S, trust_env=False) as view:
                assert view.get("/say/red", params={"text": "of a view"}).text == "said"
            heard = [*first, "of a view"]
            assert red[1].recv(PATIENCE_S) == "of a view"
            for client in (red[0], *red[2:]):
                assert [client.recv(PATIENCE_S) for _ in heard] == heard
            blue.send("alone")
            assert blue.recv(PATIENCE_S) == "alone"
        assert gate.announcements(6) == ["left"] * 6
        # The app sees the Origin, and accepts no WebSocket of another site's page.
        with pytest.raises(InvalidStatus) as refused:
            opened(here, site="http://elsewhere.example")
        assert refused.value.response.status_code == 403

    here.run(talk)


@pytest.mark.parametrize("way", WAYS)
def test_subscriptions_of_strawberry(reach: Reaching, gate: Gate, way: str) -> None:
    here = reach(way, "frameworks.strawberry:app")

    async def subscribe() -> None:
        subprotocols = [WebsocketsTransport.GRAPHQLWS_SUBPROTOCOL]
        transport = WebsocketsTransport(here.ws, subprotocols=subprotocols, connect_args={"proxy": None})
        async with Client(transport=transport) as session:
            query = gql("query($name: String!) { hello(name: $name) }")
            query.variable_values = {"name": "café"}
            assert await session.execute(query) == {"hello": "hello café"}
            counting = gql("subscription { count(to: 50) }")

            async def counted() -> list[Any]:
                return [result["count"] async for result in session.subscribe(counting)]

            # Several at once over one WebSocket.
            assert await asyncio.gather(*(counted() for _ in range(5))) == [list(range(50))] * 5
            failing = session.subscribe(gql("subscription { fails }"))
            assert await anext(failing) == {"fails": 0}
            with pytest.raises(TransportQueryError, match="it fails"):
                await anext(failing)
            endless = session.subscribe(gql("subscription { endless }"))
            assert [await anext(endless) for _ in range(3)] == [{"endless": number} for number in range(3)]
            await endless.aclose()
            assert await asyncio.to_thread(gate.announcement) == "nobody listens"
            assert await session.execute(query) == {"hello": "hello café"}

    here.run(lambda: asyncio.run(subscribe()))


def test_a_hundred_websockets_of_one_worker(reach: Reaching) -> None:
    """A hundred clients talk at once to one worker: each gets its own answers, in their order."""
    here = reach(DIRECTLY, "frameworks.starlette:app", "-w", "1")

    def talk(name: int) -> list[Any]:
        with opened(here, f"room-{name}") as client:
            heard = [json.loads(client.recv(PATIENCE_S))["room"]]
            for number in range(20):
                client.send(f"{name} {number}")
                heard.append(client.recv(PATIENCE_S))
            return heard

    with ThreadPoolExecutor(100) as pool:
        for name, heard in enumerate(pool.map(talk, range(100))):
            assert heard == [f"room-{name}", *(f"{name} {number}" for number in range(20))]
