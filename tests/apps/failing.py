"""An asynchronous app for clients whose connections fail: uploads of uploading.py, a WebSocket, hello."""

from typing import Any

import sockets
import uploading


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await sockets.app({**scope, "path": "/echo"}, receive, send)
    elif scope["type"] == "http" and scope["path"] not in ("/late", "/echo"):
        await uploading.answer(send, "hello")
    else:
        await uploading.app(scope, receive, send)
