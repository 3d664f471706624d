"""The least that asynchronous apps can do, each with what another app here does without a loop."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.apps.big import BIG_BYTES, WORK
from bench.apps.hello import BODY
from bench.apps.mixed import FAST_S, SLOW_S
from bench.apps.steady import SERVICE_S
from bench.apps.stream import TOTAL_BYTES

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(BODY))]
PIECE = b"x" * (64 << 10)
# One for all answers, so that memory which grows with them is the server's.
BIG = b"x" * BIG_BYTES
BLOCKS_S = {"/slow": SLOW_S, "/block": 1.0}


async def hello(scope: Message, receive: Receive, send: Send) -> None:
    refuse_lifespan(scope)
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def upload(scope: Message, receive: Receive, send: Send) -> None:
    """Reads the whole request body and answers its length."""
    refuse_lifespan(scope)
    read_bytes, more = 0, True
    while more:
        message = await receive()
        read_bytes += len(message["body"])
        more = message["more_body"]
    await answer(send, read_bytes)


async def big(scope: Message, receive: Receive, send: Send) -> None:
    """The pages of big.py. WebSockets get an echo."""
    if scope["type"] == "websocket":
        await echo(scope, receive, send)
        return
    refuse_lifespan(scope)
    while (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass
    if scope["path"] == "/big":
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % BIG_BYTES)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": BIG})
    else:
        await answer(send, sum(range(WORK)))


async def stream(scope: Message, receive: Receive, send: Send) -> None:
    refuse_lifespan(scope)
    headers = [(b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(TOTAL_BYTES // len(PIECE)):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body"})


def refuse_lifespan(scope: Message) -> None:
    if scope["type"] != "http":
        raise ValueError("only HTTP here")


async def echo(scope: Message, receive: Receive, send: Send) -> None:
    """Of WebSockets; a request gets the hello, by which a start is noticed."""
    if scope["type"] != "websocket":
        await hello(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})


async def events(scope: Message, receive: Receive, send: Send) -> None:
    """/events is a stream of server-sent events: one at once, and then none until the client leaves."""
    refuse_lifespan(scope)
    if scope["path"] != "/events":
        await hello(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


async def mixed(scope: Message, receive: Receive, send: Send) -> None:
    """Pages that block the loop; answers how long it really took, in ns."""
    refuse_lifespan(scope)
    began_ns = time.perf_counter_ns()
    time.sleep(BLOCKS_S.get(scope["path"], FAST_S))
    await answer(send, time.perf_counter_ns() - began_ns)


async def steady(scope: Message, receive: Receive, send: Send) -> None:
    """A page that takes the loop 20 ms; answers how long it took, in ns."""
    refuse_lifespan(scope)
    began_ns = time.perf_counter_ns()
    time.sleep(SERVICE_S)
    await answer(send, time.perf_counter_ns() - began_ns)


async def waiting(scope: Message, receive: Receive, send: Send) -> None:
    """A page that waits 20 ms and leaves the loop to others; answers how long it took, in ns. /pid says whose it is."""
    refuse_lifespan(scope)
    if scope["path"] == "/pid":
        await answer(send, os.getpid())
        return
    began_ns = time.perf_counter_ns()
    await asyncio.sleep(SERVICE_S)
    await answer(send, time.perf_counter_ns() - began_ns)


async def answer(send: Send, number: int) -> None:
    body = b"%d\n" % number
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
