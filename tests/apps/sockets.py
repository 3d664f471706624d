"""WebSocket apps."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from rendezvous import announce, wait_for_pass

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SEEN: list[Any] = []


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """The path, or the message that it gets, names what it does.

    /seen answers what it saw, /hold waits until its client has gone.
    """
    if scope["type"] == "lifespan":
        raise RuntimeError("it knows no lifespan")
    if scope["type"] == "http":
        if scope["path"] == "/hold":
            announce("holds")
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        said = json.dumps({"pid": os.getpid(), "seen": SEEN}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": said})
        return
    connect = await receive()
    SEEN.append([connect["type"], scope["scheme"], scope["subprotocols"], sorted(scope["extensions"])])
    if scope["path"] in ("/deny", "/deny-and-listen"):
        await send({"type": "websocket.close"})
        if scope["path"] == "/deny-and-listen":
            event = await receive()
            SEEN.append([event["type"], event["code"]])
    elif scope["path"] == "/teapot":
        await send({"type": "websocket.http.response.start", "status": 418, "headers": [(b"x-kind", b"pot")]})
        await send({"type": "websocket.http.response.body", "body": b"short ", "more_body": True})
        await send({"type": "websocket.http.response.body", "body": b"and stout"})
    elif scope["path"] == "/fail":
        raise ValueError("before it has accepted")
    elif scope["path"] == "/undecided":
        await undecided(receive, send)
    else:
        protocol = scope["subprotocols"][-1] if scope["subprotocols"] else None
        headers = [(b"x-app", b"sockets"), (b"sec-websocket-accept", b"not its to say")]
        await send({"type": "websocket.accept", "subprotocol": protocol, "headers": headers})
        await talk(scope["path"], receive, send)


async def undecided(receive: Receive, send: Send) -> None:
    """It neither accepts nor refuses until its client has gone."""
    announce(f"{os.getpid()} is undecided")
    try:
        event = await receive()
    except asyncio.CancelledError:
        announce("is cancelled")
        raise
    try:
        await send({"type": "websocket.accept"})
    except OSError:
        announce(f"{event['type']} {event['code']}, and cannot accept")


async def flood(send: Send) -> None:
    """Messages without end."""
    while True:
        await send({"type": "websocket.send", "bytes": bytes(10_000)})


async def hears(receive: Receive) -> None:
    """It does nothing but to receive."""
    received = 0
    while (await receive())["type"] == "websocket.receive":
        received += 1
        SEEN[:] = [["received", received]]


async def talk(path: str, receive: Receive, send: Send) -> None:
    if path == "/deaf":
        await asyncio.Event().wait()
    if path == "/said-and-deaf":
        await send({"type": "websocket.send", "bytes": bytes(50_000)})
        await asyncio.Event().wait()
    if path == "/flood":
        writer = asyncio.create_task(flood(send))
        writer.add_done_callback(lambda task: SEEN.append(["the writer", type(task.exception()).__name__]))
    if path.startswith("/numbered/"):
        count, size = map(int, path.removeprefix("/numbered/").split("/"))
        for number in range(count):
            await send({"type": "websocket.send", "bytes": number.to_bytes(4, "big") * (size // 4)})
    if path == "/block":
        announce(f"{os.getpid()} blocks")
        wait_for_pass()
    if path == "/count":
        await hears(receive)
        return
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect" and path == "/told":
            announce(f"{event['code']} {await sent_too_late(send)}")
            return
        if event["type"] == "websocket.disconnect":
            SEEN.append([event["code"], event["reason"], await sent_too_late(send)])
            return
        # A client of /echo sends text that others have written: none of it is an order.
        match None if path == "/echo" else event.get("text"):
            case "close":
                await send({"type": "websocket.close", "code": 4001, "reason": "as asked"})
            case str() as said if said.startswith("close "):
                await close_with(int(said.removeprefix("close ")), send)
            case "return":
                return
            case "raise":
                raise ValueError("asked to")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "pid":
                await send({"type": "websocket.send", "text": str(os.getpid())})
            case "flood":
                for number in range(400):
                    await send({"type": "websocket.send", "bytes": number.to_bytes(4, "big") * 25_000})
                    SEEN[:] = [["sent", number + 1]]
            case "die in a message":
                await send({"type": "websocket.send", "bytes": bytes(100_000)})
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGKILL)
                await send({"type": "websocket.send", "bytes": bytes(50_000_000)})
            case _:
                del event["type"]
                await send({"type": "websocket.send", **event})


async def close_with(code: int, send: Send) -> None:
    try:
        await send({"type": "websocket.close", "code": code})
    except ValueError as refused:
        await send({"type": "websocket.send", "text": str(refused)})


async def sent_too_late(send: Send) -> str:
    try:
        await send({"type": "websocket.send", "text": "too late"})
    except Exception as refused:
        return "OSError" if isinstance(refused, OSError) else type(refused).__name__
    return "nothing"


SIZE = 1 << 20
PATIENCE_S = 0.01
GIVEN_UP = 40
"""So many it gives up, one after the other."""


async def impatient(scope: Message, receive: Receive, send: Send) -> None:
    """Waits for room only for a moment, and then sends the next message: numbered, of a MiB each; also of an answer.

    It tells how many it was through with before it gave up one. Then it waits for a pass, and for room for a last word.
    At /ends it ends its answer instead, a WebSocket by code 1011, and does not wait for that for long either.
    """
    is_http = scope["type"] == "http"

    async def say(data: bytes, more: bool = True) -> None:
        if is_http:
            await send({"type": "http.response.body", "body": data, "more_body": more})
        else:
            await send({"type": "websocket.send", "bytes": data})

    await receive()
    await send({"type": "http.response.start", "status": 200} if is_http else {"type": "websocket.accept"})
    through = given_up = sent = 0
    while given_up < GIVEN_UP:
        data = sent.to_bytes(4, "big") * (SIZE // 4)
        sent += 1
        try:
            await asyncio.wait_for(say(data), PATIENCE_S)
            through += not given_up
        except TimeoutError:
            given_up += 1
    if scope["path"] == "/ends":
        end = {"type": "http.response.body"} if is_http else {"type": "websocket.close", "code": 1011}
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(send(end), PATIENCE_S)
        announce("left")
        return
    announce(str(through))
    await asyncio.get_running_loop().run_in_executor(None, wait_for_pass)
    await say(b"last", more=False)


TASKS = 1000


class Watched(asyncio.Future[None]):
    """Counts how often any of its kind is asked whether it is done."""

    asked = 0

    def done(self) -> bool:
        Watched.asked += 1
        return super().done()


async def crowding(scope: Message, receive: Receive, send: Send) -> None:
    """Many of its tasks send to one client that is slow, behind a message that it has given up.

    It tells how often those who wait for their turn were asked whether they still do, until all of them waited. Then it
    waits for a pass, and until all is sent.
    """
    loop: Any = asyncio.get_running_loop()

    async def say(text: str) -> None:
        await send({"type": "websocket.send", "text": text})

    await receive()
    await send({"type": "websocket.accept"})
    with contextlib.suppress(TimeoutError):
        while True:
            await asyncio.wait_for(send({"type": "websocket.send", "bytes": bytes(SIZE)}), PATIENCE_S)
    loop.create_future = lambda: Watched(loop=loop)
    tasks = [asyncio.create_task(say(str(number))) for number in range(TASKS)]
    # Each has its first step before this task has its next.
    await asyncio.sleep(0)
    del loop.create_future
    announce(str(Watched.asked))
    await loop.run_in_executor(None, wait_for_pass)
    await asyncio.gather(*tasks)
    await say("last")
