"""Streams whose clients leave, by what people stream with; how each has ended is announced."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import FastAPI
from rendezvous import announce, wait_for_pass
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PERIOD_S = 0.01
EVENTS = "text/event-stream"
PIECE = b"x" * 1024


async def ticks(pause_s: float = PERIOD_S) -> AsyncIterator[str]:
    """It announces the exception that ends it."""
    try:
        while True:
            yield "data: tick\n\n"
            await asyncio.sleep(pause_s)
    except BaseException as ending:
        announce(type(ending).__name__)
        raise


async def stubborn() -> AsyncIterator[str]:
    """A stream like Gradio's queue of events: whatever ends it, it sends a last event."""
    try:
        while True:
            yield "data: tick\n\n"
            await asyncio.sleep(PERIOD_S)
    except BaseException as ending:
        announce(type(ending).__name__)
        yield "data: that was all\n\n"
        raise


async def failing() -> AsyncIterator[str]:
    try:
        while True:
            yield "data: tick\n\n"
            await asyncio.sleep(PERIOD_S)
    finally:
        raise KeyError("own")


async def large() -> AsyncIterator[str]:
    """More than any client takes that does not read."""
    try:
        while True:
            yield "x" * 100_000
            # Else uvicorn's loop never turns again.
            await asyncio.sleep(0)
    finally:
        announce("ended")


async def streaming(request: Request) -> StreamingResponse:
    return StreamingResponse(ticks(), media_type=EVENTS)


async def with_own_error(request: Request) -> StreamingResponse:
    return StreamingResponse(failing(), media_type=EVENTS)


async def with_last_word(request: Request) -> StreamingResponse:
    return StreamingResponse(stubborn(), media_type=EVENTS)


async def with_task(request: Request) -> StreamingResponse:
    task = BackgroundTask(announce, "background task")
    return StreamingResponse(ticks(), media_type=EVENTS, background=task)


async def events(request: Request) -> EventSourceResponse:
    return EventSourceResponse(ticks(), ping=1)


async def flood(request: Request) -> StreamingResponse:
    return StreamingResponse(large(), media_type="text/plain")


async def collect(request: Request) -> PlainTextResponse:
    """Finalizes what is left of streams; the log has what comes of that once this is answered."""
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(0)
    return PlainTextResponse(str(len(asyncio.all_tasks())))


class Stamp(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Stamp"] = "1"
        return response


ROUTES = [
    Route("/streaming", streaming),
    Route("/with-own-error", with_own_error),
    Route("/with-last-word", with_last_word),
    Route("/with-task", with_task),
    Route("/events", events),
    Route("/flood", flood),
    Route("/collect", collect),
]
fast = FastAPI()


@fast.get("/streaming")
async def fast_streaming() -> StreamingResponse:
    return StreamingResponse(ticks(), media_type=EVENTS)


frameworks = Starlette(
    routes=[
        *ROUTES,
        Mount("/fastapi", fast),
        Mount("/stamped", Starlette(routes=ROUTES, middleware=[Middleware(Stamp)])),
        Mount("/gzipped", Starlette(routes=ROUTES, middleware=[Middleware(GZipMiddleware)])),
    ]
)


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Below /raw the app speaks ASGI by hand; other paths go to the frameworks."""
    path = scope.get("path", "")
    if not path.startswith("/raw"):
        await frameworks(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await piece(send)
    match path:
        case "/raw/rows":
            # Datasette exports a table so: it prints each failure, and sends it to the client.
            announce("begun")
            await asyncio.to_thread(wait_for_pass)
            try:
                for _ in range(20_000):
                    await piece(send)
                await piece(send, more=False)
            except Exception as failure:
                print(f"failed: {failure!r}", file=sys.stderr, flush=True)
                await piece(send, more=False)
            announce("over")
        case "/raw/until-it-raises":
            announce("begun")
            await asyncio.to_thread(wait_for_pass)
            await piece(send)
            announce("sent")
            try:
                while True:
                    await piece(send)
                    await asyncio.sleep(PERIOD_S)
            except OSError as failure:
                announce("raised")
                # Task groups and frameworks wrap it so.
                wrapped = RuntimeError("the stream has failed")
                wrapped.__cause__ = failure
                raise BaseExceptionGroup("several", [failure, BaseExceptionGroup("more", [wrapped])]) from None
        case "/raw/with-own-error":
            announce("begun")
            await asyncio.to_thread(wait_for_pass)
            try:
                # So many that `send` raises in the end, but for uvicorn's.
                for _ in range(70_000):
                    await piece(send)
            finally:
                raise KeyError("own")
        case "/raw/tight":
            pouring = asyncio.ensure_future(pour(send))
            await receive()
            announce("begun")
            assert (await receive())["type"] == "http.disconnect"
            pouring.cancel()
            await asyncio.wait({pouring})
            announce(f"cancelled {pouring.cancelled()}")


async def piece(send: Send, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": PIECE, "more_body": more})


async def pour(send: Send) -> None:
    """Waits for nothing but its client."""
    while True:
        await piece(send)
