"""Sends files by the extension http.response.pathsend: the path is the file's, the query a Content-Length."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    length = scope["query_string"]
    headers = [(b"content-length", length)] if length else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.pathsend", "path": scope["path"]})
