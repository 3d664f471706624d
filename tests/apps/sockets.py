"""A WebSocket app: the path, or the message that it gets, names what it does. /seen answers what it saw,
/hold waits until its client has gone."""

import asyncio
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
