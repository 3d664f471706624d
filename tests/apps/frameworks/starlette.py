"""Apps of Starlette.

`app` has answers of each kind, uploads, WebSockets, what goes on after the answer. `hinting` sends early hints. `files`
sends files from $FILES behind the $MIDDLEWARE.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from typing import Any

from rendezvous import announce
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"hello {request.query_params['name']} of {request.state.place}")


async def json_(request: Request) -> JSONResponse:
    return JSONResponse({"got": await request.json(), "client": request.client and request.client.host})


async def upload(request: Request) -> PlainTextResponse:
    async with request.form() as form:
        content = await form["file"].read()
    return PlainTextResponse(hashlib.sha256(content).hexdigest())


async def stream(request: Request) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        for number in range(3):
            yield f"{number}\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(lines(), media_type="text/plain")


async def endless(request: Request) -> StreamingResponse:
    """As answers of language models are: a word at a time, for as long as the client listens."""

    async def words() -> AsyncIterator[str]:
        for number in range(100_000):
            yield f"data: word {number}\n\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(words(), media_type="text/event-stream")


async def tasks(request: Request) -> JSONResponse:
    return JSONResponse(len(asyncio.all_tasks()))


async def later(request: Request) -> PlainTextResponse:
    async def task() -> None:
        await asyncio.sleep(0.01)
        announce("done later")

    return PlainTextResponse("at once", background=BackgroundTask(task))


def in_a_thread(request: Request) -> PlainTextResponse:
    """Not `async def`: Starlette runs it in a thread."""
    return PlainTextResponse(request.url.path)


async def file(request: Request) -> FileResponse:
    return FileResponse(os.environ["FILE"])


async def talk(websocket: WebSocket) -> None:
    """The conversation of each framework's app over a WebSocket: test_websocket_frameworks.py talks to all of them."""
    room = websocket.path_params["room"]
    if room == "closed":
        await websocket.close()
        return
    await websocket.accept("chat" if "chat" in websocket.scope["subprotocols"] else None)
    await websocket.send_json({"room": room, "name": websocket.query_params["name"]})
    while (message := await websocket.receive())["type"] == "websocket.receive":
        text = message.get("text")
        if text == "close":
            await websocket.close(4001, "as asked")
        elif text == "count":
            for number in range(100):
                await websocket.send_text(str(number))
            await websocket.close()
        elif text is not None:
            await websocket.send_text(text)
        else:
            await websocket.send_bytes(message["bytes"])
    announce("left")


async def fails(request: Request) -> None:
    raise RuntimeError("it fails")


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    yield {"place": "starlette"}
    announce("shut down")


class Stamp(BaseHTTPMiddleware):
    """The kind of middleware that runs the app in a task of its own."""

    async def dispatch(self, request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Stamp"] = "1"
        return response


app = Starlette(
    routes=[
        Route("/", hello),
        Route("/json", json_, methods=["POST"]),
        Route("/upload", upload, methods=["POST"]),
        Route("/stream", stream),
        Route("/endless", endless),
        Route("/tasks", tasks),
        Route("/later", later),
        Mount("/below", routes=[Route("/thread", in_a_thread)]),
        Route("/file", file),
        WebSocketRoute("/ws/{room}", talk),
        Route("/fails", fails),
        Route("/away", lambda request: RedirectResponse(request.url_for("hello"))),
    ],
    middleware=[Middleware(Stamp), Middleware(GZipMiddleware)],
    lifespan=lifespan,
)


async def hinted(request: Request) -> PlainTextResponse:
    await request.send_early_hints("</a.css>; rel=preload; as=style", "</b.js>; rel=preload; as=script")
    return PlainTextResponse("x" * 1000)


class Passing(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Any) -> Any:
        return await call_next(request)


hinting = Starlette(routes=[Route("/", hinted)], middleware=[Middleware(Passing), Middleware(GZipMiddleware)])


async def page(request: Request) -> FileResponse:
    return FileResponse(os.path.join(os.environ["FILES"], "page.txt"))


if "FILES" in os.environ:
    MIDDLEWARE: dict[str, list[Middleware]] = {
        "none": [],
        "base": [Middleware(Stamp)],
        "gzip": [Middleware(GZipMiddleware)],
    }
    if os.environ["MIDDLEWARE"] == "brotli":
        from brotli_asgi import BrotliMiddleware

        MIDDLEWARE["brotli"] = [Middleware(BrotliMiddleware)]
    files = Starlette(
        routes=[Route("/file", page), Mount("/static", StaticFiles(directory=os.environ["FILES"]))],
        middleware=MIDDLEWARE[os.environ["MIDDLEWARE"]],
    )
