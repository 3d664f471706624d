"""Situations that an app of Starlette can meet in a server: each route is a case of its own."""

import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
from rendezvous import announce, wait_for_pass
from starlette.applications import Starlette
from starlette.background import BackgroundTasks
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket


async def upload(request: Request) -> JSONResponse:
    digest, pieces = hashlib.sha256(), 0
    async for piece in request.stream():
        digest.update(piece)
        pieces += 1
    return JSONResponse({"sha256": digest.hexdigest(), "pieces": pieces})


async def broken_off(request: Request) -> None:
    announce("reads")
    try:
        await request.body()
    except ClientDisconnect:
        announce("client disconnect")
        raise


async def status(request: Request) -> Response:
    """Content is given to Starlette and the server where there may be none."""
    return Response(b"content", int(request.path_params["code"]), {"X-Case": "status"})


async def stream(request: Request) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d\n" % number

    return StreamingResponse(pieces())


async def disconnected(request: Request) -> Response:
    """Ask between steps whether the client has left, as an app does that computes step by step."""
    announce(f"at first {await request.is_disconnected()}")
    with anyio.fail_after(20):
        while not await request.is_disconnected():
            await anyio.sleep(0.01)
    announce("then True")
    return Response()


async def later(request: Request) -> PlainTextResponse:
    async def awaited() -> None:
        await anyio.to_thread.run_sync(wait_for_pass)
        announce("first")

    def in_a_thread() -> None:
        announce("second")
        raise RuntimeError("a task fails")

    tasks = BackgroundTasks()
    tasks.add_task(awaited)
    tasks.add_task(in_a_thread)
    return PlainTextResponse("whole", background=tasks)


async def where(request: Request) -> JSONResponse:
    return JSONResponse(
        {
            "url": str(request.url),
            "url_for": str(request.url_for("mounted:where", name="other")),
            "root_path": request.scope["root_path"],
            "name": request.path_params["name"],
        }
    )


async def fields(request: Request) -> PlainTextResponse:
    response = PlainTextResponse(" ".join([*request.headers.getlist("X-Twice"), *sorted(request.cookies.values())]))
    response.set_cookie("first", "1")
    response.set_cookie("second", "2")
    response.headers.append("X-Latin", "café")
    return response


async def state(request: Request) -> JSONResponse:
    """All requests of a worker share the list; a value that a request sets is its own."""
    before = request.state.counted, len(request.state.shared)
    request.state.counted += 1
    request.state.shared.append("request")
    return JSONResponse(before)


async def session(request: Request) -> JSONResponse:
    request.session["visits"] = request.session.get("visits", 0) + 1
    return JSONResponse(request.session)


async def teapot(request: Request) -> None:
    raise HTTPException(418, "short and stout", {"X-Kind": "pot"})


async def denied(websocket: WebSocket) -> None:
    await websocket.send_denial_response(JSONResponse({"why": "no ticket"}, 401, {"X-Kind": "denial"}))


async def talk(websocket: WebSocket) -> None:
    await websocket.accept(headers=[(b"X-Kind", b"talk")])
    async for message in websocket.iter_json():
        await websocket.send_json({"heard": message, "path": websocket.url.path}, mode="binary")
    announce("heard the end")


class Passing(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Any) -> Response:
        response: Response = await call_next(request)
        response.headers["X-Passed"] = request.method
        return response


class Counting:
    """Between the app and the server, without a task of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = 0

        async def counted(message: Message) -> None:
            nonlocal sent
            sent += len(message.get("body", b""))
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-counting", b"1")]
            await send(message)

        await self.app(scope, receive, counted)
        if scope["type"] == "http" and scope["path"].endswith("/stream"):
            announce(f"{sent} bytes")


PASSING = [Middleware(Passing)]
"""Only some routes have it: below it, `is_disconnected` of Starlette 1.10 never says so, on any server."""


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with anyio.create_task_group():
        yield {"counted": 0, "shared": []}


app = Starlette(
    routes=[
        Route("/upload", upload, methods=["POST"]),
        Route("/broken-off", broken_off, methods=["POST"]),
        Route("/status/{code}", status, middleware=PASSING),
        Route("/stream", stream, middleware=PASSING),
        Route("/disconnected", disconnected),
        Route("/later", later),
        Route("/fields", fields),
        Route("/state", state),
        Route("/session", session),
        Route("/teapot", teapot),
        Mount("/mounted", routes=[Route("/{name}", where, name="where")], name="mounted"),
        Mount("/static", StaticFiles(directory=os.environ["STATIC"])),
        WebSocketRoute("/denied", denied),
        Mount("/sockets", routes=[WebSocketRoute("/talk", talk)]),
    ],
    middleware=[
        Middleware(Counting),
        Middleware(CORSMiddleware, allow_origins=["https://site.example"], allow_methods=["PUT"]),
        Middleware(SessionMiddleware, secret_key="tests"),
    ],
    lifespan=lifespan,
)
