"""Events of Starlette that end when the server leaves: the example of docs/asynchronous-apps.md."""

import asyncio
from collections.abc import AsyncIterator

from rendezvous import announce
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

news: asyncio.Queue[str] = asyncio.Queue()


async def events(request: Request) -> StreamingResponse:
    leaving: asyncio.Event = request.scope["extensions"]["stanchion"]["leaving"]

    async def stream() -> AsyncIterator[str]:
        ends = asyncio.ensure_future(leaving.wait())
        item = asyncio.ensure_future(news.get())
        announce("streams")
        try:
            while not ends.done():
                await asyncio.wait({item, ends}, return_when=asyncio.FIRST_COMPLETED)
                if item.done():
                    yield f"data: {item.result()}\n\n"
                    item = asyncio.ensure_future(news.get())
            yield "retry: 2000\n\n"
        finally:
            ends.cancel()
            item.cancel()

    return StreamingResponse(stream(), media_type="text/event-stream")


async def say(request: Request) -> StreamingResponse:
    await news.put(request.path_params["word"])
    return StreamingResponse(iter(()))


app = Starlette(routes=[Route("/events", events), Route("/say/{word}", say)])
