"""An app of Starlette: answers of each kind, uploads, what goes on after the answer, state of a lifespan."""

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
from starlette.routing import Mount, Route


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
    """As answers of language models are: a word at a time, for as long as somebody listens."""

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
        Route("/fails", fails),
        Route("/away", lambda request: RedirectResponse(request.url_for("hello"))),
    ],
    middleware=[Middleware(Stamp), Middleware(GZipMiddleware)],
    lifespan=lifespan,
)
