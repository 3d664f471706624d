"""Asynchronous apps that do to their event loop what a test asks for."""

import asyncio
import contextlib
import gc
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from rendezvous import announce, wait_for_pass
from shared_memory import Mapping, exchange

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

grown: list[bytes] = []


GO = asyncio.Event()


async def answer(send: Send, text: str, *, more: bool = False) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode(), "more_body": more})


async def until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def talk(receive: Receive, send: Send) -> None:
    """Says what it hears, and grows by so many MiB."""
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        event["type"] = "websocket.send"
        grown.append(b"x" * (int(event.get("text") or event["bytes"]) << 20))
        await send(event)


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        raise NotImplementedError
    if scope["type"] == "websocket":
        await talk(receive, send)
        return
    query, pid = scope["query_string"].decode(), os.getpid()
    match scope["path"]:
        case "/block":
            # The whole loop waits.
            announce(f"{pid} blocks")
            wait_for_pass()
        case "/sleep":
            announce(f"{pid} sleeps")
            # A signal does not cut it short, but its handler runs.
            time.sleep(float(query))
        case "/hold":
            # The answer goes on until the client leaves.
            await answer(send, f"{pid}\n", more=True)
            await until_disconnect(receive)
            return
        case "/wait":
            announce(f"{pid} waits")
            await asyncio.sleep(float(query))
        case "/grow":
            # The memory grows by so many MiB, and the app writes to each page.
            grown.append(b"x" * (int(query) << 20))
        case "/stop":
            asyncio.get_running_loop().stop()
        case "/pass":
            announce(f"{pid} may be let pass")
            await asyncio.get_running_loop().run_in_executor(None, wait_for_pass)
        case "/late":
            announce(f"{pid} begins")
            try:
                await until_disconnect(receive)
                announce(f"{pid} is told")
                await asyncio.sleep(float(query))
                announce(f"{pid} goes on")
            except asyncio.CancelledError:
                announce(f"{pid} is cancelled")
                raise
        case "/stream":
            await answer(send, "begun\n", more=True)
            await asyncio.sleep(float(query))
            await send({"type": "http.response.body", "body": b"ended\n"})
            return
        case "/until-go":
            await answer(send, "begun\n" * 1000, more=True)
            await GO.wait()
            await send({"type": "http.response.body", "body": b"ended\n" * 1000})
            return
        case "/go":
            GO.set()
    await answer(send, str(pid))


TIMER_S = 1


async def timer() -> None:
    await asyncio.to_thread(wait_for_pass)
    await asyncio.sleep(TIMER_S)
    announce("the timer")


async def leaving(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Announces what it receives when a client leaves, beside a timer of its own that the test starts."""
    if scope["type"] == "lifespan":
        raise NotImplementedError
    await receive()
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    elif scope["path"] == "/answers":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    running = asyncio.create_task(timer())
    announce("listens")
    while not (event := await receive())["type"].endswith("disconnect"):
        pass
    announce(event["type"])
    await running


armed = False


def make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], **options: Any
) -> asyncio.Task[None]:
    """The task factory that the server calls for each request."""
    if armed:
        coroutine.close()
        (panic,) = (kind for kind in BaseException.__subclasses__() if kind.__name__ == "PanicException")
        raise panic("asked for")
    return asyncio.Task(coroutine, loop=loop, **options)


async def panicking(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Makes the server's own code panic, by the class that PyO3 tells a panic of Rust by."""
    global armed
    if scope["type"] == "lifespan":
        asyncio.get_running_loop().set_task_factory(make_task)
    if scope.get("path") == "/arm":
        armed = True
    await app(scope, receive, send)


SEARCHED_BYTES = 1 << 20
"""The part of the shared memory, from its start, with all inboxes of a few workers with a few seats each."""
LINE_BYTES = 128
INBOX = struct.Struct("=IIIxxxxQQQQ10Q")
"""Whether the loop sleeps, its load, its sessions, when it turned last, how late it was: last, at most, all, counts."""
SLEEPS = struct.Struct("=II")
NO_ROOM = 0xFFFFFFFF
NOTICES_BYTES = 10 * LINE_BYTES
"""The length of what follows the used inboxes: the unused ones, and the notices of all."""
LOOKS_S = 0.1
"""A loop that has nothing to do turns once a second, and may announce a turn that is yet to come."""
DEAFENED_S = 1.0


async def deafening(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Writes over the inbox of another worker's event loop, as a wild pointer would."""
    if scope.get("path") != "/deafen":
        await app(scope, receive, send)
        return
    with exchange() as memory:
        deafen(memory)
    announce(f"{os.getpid()} is through")
    # The whole loop waits: an answer meanwhile comes from the other one.
    wait_for_pass()
    await answer(send, str(os.getpid()))


def deafen(memory: Mapping) -> None:
    """Erase the word that says that the other loop sleeps, and all notices, whenever they are there."""
    before = inboxes(memory)
    turned: list[int] = []
    # Ours does not turn meanwhile.
    while not turned:
        time.sleep(LOOKS_S)
        turned = [place for place, beat_us in inboxes(memory).items() if beat_us != before.get(place)]
    (other,) = turned
    announce(f"{os.getpid()} deafens")
    last = max(other, *before) + LINE_BYTES
    until_s = time.monotonic() + DEAFENED_S
    while time.monotonic() < until_s:
        memory.write(other, SLEEPS.pack(0, NO_ROOM))
        memory.write(last, bytes(NOTICES_BYTES))


def inboxes(memory: Mapping) -> dict[int, int]:
    """The inboxes of loops that turn, each with the time of its loop's last turn."""
    data = memory.read(0, SEARCHED_BYTES)
    now_us = time.monotonic_ns() // 1000
    found = {}
    for place in range(0, len(data), LINE_BYTES):
        _, _, _, beat_us, last_us, most_us, all_us, *counts = INBOX.unpack_from(data, place)
        if (
            now_us - 5_000_000 < beat_us <= now_us + 1_000_000
            and last_us <= most_us <= all_us
            and 0 < sum(counts) < 1000
        ):
            found[place] = beat_us
    return found


UNKNOWN = {"type": "of no kind"}
DENIAL = {"type": "websocket.http.response.body", "body": b""}
ACCEPT = {"type": "websocket.accept"}
PIECE_BYTES = 8 << 20
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


async def collecting(scope: Message, receive: Receive, send: Send) -> None:
    """Its garbage, which the collector finds wherever an object is made, uses what is being called just then.

    The garbage sends messages that it may not send, so it changes nothing; except that it accepts a WebSocket while the
    loop takes the next request.
    """
    if gc.get_threshold()[0] != 1:
        gc.set_threshold(1)
        Garbage()
        arm(asyncio.get_running_loop())
    call = (send, DENIAL if scope["type"] == "websocket" else UNKNOWN)
    CALLS.append(call)
    try:
        await (collected_websocket if scope["type"] == "websocket" else collected_http)(scope["path"], receive, send)
    finally:
        CALLS.remove(call)


async def collected_http(path: str, receive: Receive, send: Send) -> None:
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
        piece = b"x" * PIECE_BYTES
        for _ in range(4):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    answer = str(HOW_OFTEN[0]).encode() if path == "/often" else bytes(body)
    await send({"type": "http.response.body", "body": answer})
    assert (await waiting)["type"] == "http.disconnect"


async def collected_websocket(path: str, receive: Receive, send: Send) -> None:
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
