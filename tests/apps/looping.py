"""An asynchronous app that does to its event loop what a test asks for."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rendezvous import announce, wait_for_pass

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
