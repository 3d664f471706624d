"""An ASGI app whose garbage, which the collector finds wherever an object is made, uses what is being called just then.

It sends messages that it may not send, so it changes nothing; except that it accepts a WebSocket while its loop takes
the next request.
"""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from rendezvous import announce

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Any]

UNKNOWN = {"type": "of no kind"}
DENIAL = {"type": "websocket.http.response.body", "body": b""}
ACCEPT = {"type": "websocket.accept"}
PIECE = b"x" * (8 << 20)
"""The server has no room at once for so much."""

CALLS: list[tuple[Send, Message]] = []
"""The `send` of each call of the app that is under way, with a message that it may not send."""
CONNECTING: list[Send] = []
"""The `send` of each WebSocket that the garbage is to accept."""
HOW_OFTEN = [0]
ARMED = [False]
ASKED: list[asyncio.Event] = []
"""Set by the next request."""


class Garbage:
    """An object in a circle, so that only the collector finds it. It leaves another one for the next collection."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        HOW_OFTEN[0] += len(CALLS)
        for send, message in CALLS:
            step(send(message))
        # The frame just above is the loop's call, whose caller is no Python code.
        if ARMED[0] and sys._getframe(1).f_code.co_name == "_run":
            ARMED[0] = False
            for send in CONNECTING:
                step(send(ACCEPT))
        Garbage()


def step(call: Any) -> None:
    with contextlib.suppress(StopIteration, RuntimeError, ConnectionError):
        call.send(None)
    call.close()


def arm(loop: asyncio.AbstractEventLoop) -> None:
    """Has it told when the loop was woken, and runs what watches the inbox next. uvloop says nothing of it."""
    process = getattr(loop, "_process_events", None)
    if process is None or process.__name__ == "armed":
        return

    def armed(events: list[Any]) -> None:
        process(events)
        ARMED[0] = bool(events and CONNECTING)

    loop._process_events = armed  # type: ignore[attr-defined]


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if gc.get_threshold()[0] != 1:
        gc.set_threshold(1)
        Garbage()
        arm(asyncio.get_running_loop())
    call = (send, DENIAL if scope["type"] == "websocket" else UNKNOWN)
    CALLS.append(call)
    try:
        await (websocket if scope["type"] == "websocket" else http)(scope["path"], receive, send)
    finally:
        CALLS.remove(call)


async def http(path: str, receive: Receive, send: Send) -> None:
    body = bytearray()
    while (event := await receive()).get("more_body"):
        body += event["body"]
    body += event["body"]
    for asked in ASKED:
        asked.set()
    # Waits, until the answer is whole.
    waiting = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    await send({"type": "http.response.start", "status": 200})
    if path == "/large":
        for _ in range(4):
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    answer = str(HOW_OFTEN[0]).encode() if path == "/often" else bytes(body)
    await send({"type": "http.response.body", "body": answer})
    assert (await waiting)["type"] == "http.disconnect"


async def websocket(path: str, receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "websocket.connect"
    if path == "/later":
        CONNECTING.append(send)
        ASKED.append(asyncio.Event())
        announce("waits")
        await ASKED[0].wait()
        CONNECTING.clear()
        ASKED.clear()
    try:
        await send(ACCEPT)
    except RuntimeError:
        """The garbage has."""
    while (event := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", **{kind: event[kind] for kind in ("text", "bytes") if kind in event}})
