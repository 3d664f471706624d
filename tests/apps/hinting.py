"""Sends early hints (RFC 8297) ahead of its answers, as a WSGI app, as an ASGI app, and as one of Starlette's."""

import asyncio
import os
import signal
import threading
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

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


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
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
    "two in one": [early(b"</a.css>", b"</b.css>")],
    "two": [early(b"</a.css>"), early(b"</b.css>")],
    "a list": [{"type": "http.response.early_hint", "links": [b"</a.css>"]}],
    "a generator": [{"type": "http.response.early_hint", "links": (link for link in [b"</a.css>", b"</b.css>"])}],
    "nothing": [early()],
    "no links": [{"type": "http.response.early_hint"}],
    "text": [early("</a.css>")],
    "a field in a value": [early(b"</a>\r\nX-Evil: 1")],
    "a number": [{"type": "http.response.early_hint", "links": 7}],
    "after the start": [START, early(b"</a.css>")],
}


async def asgi(scope: dict[str, Any], receive: Receive, send: Send) -> None:
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


async def page(request: Request) -> Response:
    await request.send_early_hints("</a.css>; rel=preload; as=style", "</b.js>; rel=preload; as=script")
    return PlainTextResponse("x" * 1000)


class Passing(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


starlette = Starlette(
    routes=[Route("/", page)],
    middleware=[Middleware(Passing), Middleware(GZipMiddleware)],
)
