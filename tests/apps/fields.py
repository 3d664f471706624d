"""Fields beside the head of an answer: early hints (RFC 8297) ahead of it, trailers behind the body."""

import asyncio
import hashlib
import json
import os
import signal
import threading
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass
from shared_memory import exchange

LINK = ("Link", "</a.css>; rel=preload; as=style")
LONG = "x" * 1000

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

WSGI_HINTS: dict[str, Callable[[], Any]] = {
    "one": lambda: [LINK],
    "two": lambda: [LINK, ("X-Other", "é\t1")],
    "bytes": lambda: [(b"Link", b"</b.js>; rel=preload")],
    "lists": lambda: [["Link", "</l.js>"]],
    "generator": lambda: (pair for pair in [LINK, LINK]),
    "spaces": lambda: [("Link", " \t</s.css>  ")],
    "no value": lambda: [("X-Empty", "")],
    "a field in a value": lambda: [("Link", "</a>\r\nX-Evil: 1")],
    "a line feed": lambda: [("Link", "</a>\nX-Evil: 1")],
    "a zero": lambda: [("Link", "</a>\0")],
    "a bad name": lambda: [("Li nk", "</a>")],
    "an empty name": lambda: [("", "</a>")],
    "beyond latin-1": lambda: [("Link", "</€>")],
    "a number": lambda: [("Link", 1)],
    "three": lambda: [("Link", "</a>", "</b>")],
    "not iterable": lambda: 7,
    # Only our server takes these.
    "mapping": lambda: {"Link": "</m.css>", "X-Other": b"2"},
    "another mapping": lambda: ChainMap({"Link": "</c.css>"}),
    "of one hop": lambda: [("Connection", "close"), ("Transfer-Encoding", "chunked"), ("Content-Length", "7"), LINK],
    "nothing": list,
}

released = threading.Event()
kept: list[Callable[[Any], None]] = []


def hints(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Sends early hints ahead of its answers, as the path says."""
    _, verb, *rest = environ["PATH_INFO"].split("/")
    hint = environ["wsgi.early_hints"]
    said = "answered"
    match verb:
        case "kinds":
            try:
                said = repr(hint(WSGI_HINTS[rest[0]]()))
            except Exception as raised:
                said = f"raised {type(raised).__mro__[-3].__name__}"
        case "hold":
            hint([LINK])
            announce("holds")
            released.wait()
        case "release":
            released.set()
        case "step":
            for number in range(int(rest[0])):
                hint([("Link", f"</{number}.css>")])
                announce("hinted")
                wait_for_pass()
        case "many":
            for _ in range(int(rest[0])):
                hint([LINK])
        case "long":
            for _ in range(int(rest[0])):
                hint([("Link", LONG)])
        case "flood":
            for _ in range(15):
                hint([("Link", LONG)])
            announce("flooded")
            wait_for_pass()
        case "sizes":
            for size in rest:
                hint([("Link", "x" * int(size))])
        case "die":
            hint([LINK])
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            hint([LINK])
            raise ValueError("after hints")
        case "keep":
            kept.append(hint)
        case "use":
            kept.pop()([LINK])
        case "late":
            return late(hint, start_response)
        case "leave":
            return leave(hint, start_response)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(said)))])
    if verb == "started":
        hint([LINK])
    return [said.encode()]


def late(hint: Callable[[Any], None], start_response: StartResponse) -> Iterator[bytes]:
    """After a piece of the body it does nothing."""
    start_response("200 OK", [("Content-Length", "4")])
    hint([LINK])
    yield b"be"
    hint([LINK])
    yield b"en"
    hint([LINK])


def leave(hint: Callable[[Any], None], start_response: StartResponse) -> Iterable[bytes]:
    """Hints when its client has left."""
    announce("runs")
    wait_for_pass()
    raised = "nothing"
    try:
        hint([LINK])
    except OSError as failure:
        raised = type(failure).__name__
    announce(f"raised {raised}")
    start_response("200 OK", [])
    return [b""]


def early(*links: Any) -> Message:
    return {"type": "http.response.early_hint", "links": links}


START: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY: Message = {"type": "http.response.body", "body": b"ok"}

MESSAGES: dict[str, list[Message]] = {
    "one": [early(b"</a.css>; rel=preload")],
    "two": [early(b"</a.css>"), early(b"</b.css>")],
    "nothing": [early()],
    "a field in a value": [early(b"</a>\r\nX-Evil: 1")],
}


async def hints_asgi(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """As `hints`, asynchronous, by the extension http.response.early_hint."""
    if scope["type"] == "websocket":
        announce(repr(sorted(scope["extensions"])))
        await send({"type": "websocket.close"})
        return
    if scope["type"] != "http":
        return
    _, verb, *rest = scope["path"].split("/")
    match verb:
        case "scope":
            said = repr(sorted(scope["extensions"])).encode()
            await send({**START, "headers": [(b"content-length", str(len(said)).encode())]})
            await send({**BODY, "body": said})
        case "kinds":
            await kinds(MESSAGES[rest[0]], send)
        case "hold":
            await send(early(b"</a.css>"))
            announce("holds")
            await asyncio.to_thread(wait_for_pass)
            await send(START)
            await send(BODY)
        case "overdue":
            await send(early(b"</a.css>"))
            announce((await receive())["type"])
            announce((await receive())["type"])
        case "long":
            for _ in range(int(rest[0])):
                await send(early(LONG.encode()))
            await send(START)
            await send(BODY)
        case "upload":
            got = 0
            while True:
                await send(early(str(got).encode()))
                message = await receive()
                got += len(message["body"])
                announce(str(got))
                if not message["more_body"]:
                    break
            await send(START)
            await send(BODY)


async def kinds(messages: list[Message], send: Send) -> None:
    """Send the messages. The answer names the exception that the server raised for one of them."""
    raised, has_begun = "", False
    for message in messages:
        try:
            await send(message)
        except Exception as failure:
            raised = type(failure).__name__
        has_begun |= message is START
    if not has_begun:
        await send({**START, "headers": [(b"content-length", b"2"), (b"x-raised", raised.encode())]})
    await send({**BODY, "body": raised[:2].encode() or b"ok"})


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


def trailing(*headers: tuple[bytes, bytes], more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.trailers", "headers": headers, "more_trailers": more}


async def trailers(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """An asynchronous app that sends trailers behind its answers, by the extension http.response.trailers."""
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
            await send(trailing((b"X-Sum", b"1"), (b"connection", b"close"), (b"content-length", b"5"), more=True))
            await send(trailing((b"x-sum", b"2"), (b"grpc-status", b" 0 ")))
        case "/none":
            await send(start())
            await send(body(b"none"))
            await send(trailing())
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
            await send(trailing((b"x-sum", digest.hexdigest().encode())))
        case "/file":
            await send(start())
            await send({"type": "http.response.pathsend", "path": query})
            await send(trailing((b"x-sum", b"file")))
        case "/later":
            await send(start(*([(b"content-length", b"4")] if query == "told" else [])))
            await send(body(b"body"))
            await asyncio.to_thread(wait_for_pass)
            try:
                await send(trailing((b"x-sum", b"later")))
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
                await send(trailing(*ODD_FIELDS[query]))
            except ValueError as error:
                announce(str(error))
            await send(trailing((b"x-sum", b"even")))
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

    await refused(trailing())
    await send(start())
    await refused(trailing())
    await send(body(b"body"))
    await refused(body(b"more"))
    await send(trailing())
    await refused(trailing())


async def lie(send: Any, told: dict[str, str]) -> None:
    """Change the answer in the shared memory before the acceptor reads it."""
    announce("asked")
    wait_for_pass()
    await send(start((b"x-mark", told["mark"].encode())))
    await send(body(b"of six"))
    await send(trailing((b"x-other-length", b"6"), (b"x-value", b"b..ccc: d")))
    with exchange() as memory:
        memory.replace(told["old"].encode("latin-1"), told["new"].encode("latin-1"), told["mark"].encode())
    announce("told")
