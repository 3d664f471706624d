"""Asynchronous apps that take uploads piece by piece, and announce each to the test."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import sockets
from rendezvous import announce, wait_for_pass


async def pieces(receive: Any) -> AsyncIterator[tuple[bytes, bool]]:
    """Each piece, and whether more follows."""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            announce("gone")
            raise ConnectionError("the client has gone")
        yield event["body"], event["more_body"]
        if not event["more_body"]:
            return


async def answer(send: Any, what: Any, more: bool = False) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(what).encode(), "more_body": more})


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    match scope["path"]:
        case "/digest":
            digest, count, longest = hashlib.sha256(), 0, 0
            async for piece, _ in pieces(receive):
                digest.update(piece)
                count, longest = count + 1, max(longest, len(piece))
            await answer(send, {"sha256": digest.hexdigest(), "pieces": count, "longest": longest})
        case "/told":
            async for piece, more in pieces(receive):
                announce(f"{len(piece)} {more}")
            await answer(send, [name.decode() for name, _ in scope["headers"]])
        case "/late":
            announce("runs")
            await asyncio.to_thread(wait_for_pass)
            digest = hashlib.sha256()
            async for piece, _ in pieces(receive):
                digest.update(piece)
            await answer(send, {"sha256": digest.hexdigest()})
        case "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            announce("begun")
            await asyncio.to_thread(wait_for_pass)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        case "/early":
            event = await receive()
            announce(f"{len(event['body'])} {event['more_body']}")
            await answer(send, "early")
        case "/echo":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            async for piece, more in pieces(receive):
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        case "/gone":
            await receive()
            announce("begun")
            while (event := await receive())["type"] != "http.disconnect":
                pass
            await answer(send, "nobody")
            announce("told, and sends in vain")
        case "/stream":
            piece, left, waited = bytes(256 << 10), int(scope["query_string"]), False
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while left:
                left -= 1
                message = {"type": "http.response.body", "body": piece, "more_body": left > 0}
                sending = asyncio.ensure_future(send(message))
                await asyncio.wait({sending}, timeout=None if waited else 0.5)
                if not sending.done():
                    waited = True
                    announce(f"waits {left}")
                await sending
        case "/raises":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            await asyncio.to_thread(wait_for_pass)
            raise RuntimeError("raised late")
        case _:
            announce("called")
            await answer(send, "called")


async def failing(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """An app for clients whose connections fail: the uploads of `app`, a WebSocket, hello."""
    if scope["type"] == "websocket":
        await sockets.app({**scope, "path": "/echo"}, receive, send)
    elif scope["type"] == "http" and scope["path"] not in ("/late", "/echo"):
        await answer(send, "hello")
    else:
        await app(scope, receive, send)
