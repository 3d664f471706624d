"""The asynchronous app of the examples: it answers what it was asked, and wants its lifespan."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from rendezvous import announce, wait_for_pass

Message = dict[str, Any]

OURS = (b"x-request-id", b"x-request-start")
"""Fields that another server does not add."""


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] == "lifespan":
        await receive()
        scope["state"]["started"] = True
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = b""
    while (event := await receive())["type"] == "http.request":
        body += event["body"]
        if not event["more_body"]:
            break
    if scope["path"].endswith("/held"):
        announce("held")
        # It blocks its own loop, and no other.
        wait_for_pass()
    shown = {key: repr(scope.get(key)) for key in ("type", "http_version", "method", "scheme", "path", "root_path")}
    shown |= {key: repr(scope.get(key)) for key in ("query_string", "client", "server", "state")}
    own = [(name, value) for name, value in scope["headers"] if name not in OURS]
    shown |= {"headers": repr(sorted(own)), "body": hashlib.sha256(body).hexdigest()}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(shown).encode()})
