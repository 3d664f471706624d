"""An asynchronous app that sends trailers behind its answers, by the extension http.response.trailers."""

import asyncio
import hashlib
import json
import os
from typing import Any

from rendezvous import announce, wait_for_pass
from shared_memory import exchange

PIECE = b"x" * 65_536
ODD_FIELDS: dict[str, list[tuple[bytes, bytes]]] = {
    "pseudo": [(b":status", b"200")],
    "name": [(b"a name", b"1")],
    "value": [(b"x-sum", b"1\r\nx-two: 2")],
    "large": [(b"x-sum", b"1" * 20_000)],
}


def start(*headers: tuple[bytes, bytes], trailers: bool = True) -> dict[str, Any]:
    headers = ((b"content-type", b"text/plain"), *headers)
    return {"type": "http.response.start", "status": 200, "headers": headers, "trailers": trailers}


def body(piece: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": more}


def trailers(*headers: tuple[bytes, bytes], more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.trailers", "headers": headers, "more_trailers": more}


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    query = scope["query_string"].decode()
    match scope["path"]:
        case "/offered":
            await send(start(trailers=False))
            await send(body(json.dumps(sorted(scope["extensions"])).encode()))
        case "/some":
            await send(start(*([(b"content-length", b"11")] if query == "told" else [])))
            for piece in (b"in ", b"three ", b""):
                await send(body(piece, more=True))
            await send(body(b"or" if query == "told" else b"pieces"))
            await send(trailers((b"X-Sum", b"1"), (b"connection", b"close"), (b"content-length", b"5"), more=True))
            await send(trailers((b"x-sum", b"2"), (b"grpc-status", b" 0 ")))
        case "/none":
            await send(start())
            await send(body(b"none"))
            await send(trailers())
        case "/large":
            digest = hashlib.sha256()
            await send(start())
            for _ in range(int(query)):
                sending = asyncio.ensure_future(send(body(PIECE, more=True)))
                await asyncio.wait({sending}, timeout=0.5)
                if not sending.done():
                    announce("waits")
                await sending
                digest.update(PIECE)
            await send(body(b""))
            await send(trailers((b"x-sum", digest.hexdigest().encode())))
        case "/file":
            await send(start())
            await send({"type": "http.response.pathsend", "path": query})
            await send(trailers((b"x-sum", b"file")))
        case "/later":
            await send(start(*([(b"content-length", b"4")] if query == "told" else [])))
            await send(body(b"body"))
            await asyncio.to_thread(wait_for_pass)
            try:
                await send(trailers((b"x-sum", b"later")))
            except OSError:
                announce("gone")
            else:
                announce("sent")
        case "/forgotten":
            await send(start())
            await send(body(b"body"))
        case "/odd":
            await send(start())
            await send(body(b"body"))
            try:
                await send(trailers(*ODD_FIELDS[query]))
            except ValueError as error:
                announce(str(error))
            await send(trailers((b"x-sum", b"even")))
        case "/order":
            await out_of_order(send)
        case "/lie":
            await lie(send, json.loads(bytes.fromhex(query)))
        case "/pid":
            await send(start(trailers=False))
            await send(body(str(os.getpid()).encode()))
        case _:
            await send(start(trailers=False))
            await send(body(b"fine"))


async def out_of_order(send: Any) -> None:
    """Each refused message raises, and the app announces the error."""

    async def refused(message: dict[str, Any]) -> None:
        try:
            await send(message)
        except RuntimeError as error:
            announce(str(error).split(":")[0])

    await refused(trailers())
    await send(start())
    await refused(trailers())
    await send(body(b"body"))
    await refused(body(b"more"))
    await send(trailers())
    await refused(trailers())


async def lie(send: Any, told: dict[str, str]) -> None:
    """Change the answer in the shared memory before the acceptor reads it."""
    announce("asked")
    wait_for_pass()
    await send(start((b"x-mark", told["mark"].encode())))
    await send(body(b"of six"))
    await send(trailers((b"x-other-length", b"6"), (b"x-value", b"b..ccc: d")))
    with exchange() as memory:
        memory.replace(told["old"].encode("latin-1"), told["new"].encode("latin-1"), told["mark"].encode())
    announce("told")
