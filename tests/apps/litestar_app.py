"""An app of Litestar."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from litestar import Litestar, get, post
from litestar.response import ServerSentEvent, Stream
from rendezvous import announce


@dataclass
class Item:
    name: str
    price: float


@get("/")
async def hello(name: str) -> str:
    return f"hello {name}"


@get("/thread", sync_to_thread=True)
def thread() -> str:
    return "of a thread"


@post("/items")
async def items(data: Item) -> Item:
    return Item(data.name.upper(), data.price * 2)


@get("/stream")
async def stream() -> Stream:
    async def lines() -> AsyncIterator[str]:
        for number in range(3):
            yield f"{number}\n"
            await asyncio.sleep(0.01)

    return Stream(lines(), media_type="text/plain")


@get("/events")
async def events() -> ServerSentEvent:
    async def all_of_them() -> AsyncIterator[str]:
        for number in range(3):
            yield str(number)

    return ServerSentEvent(all_of_them())


async def end() -> None:
    announce("shut down")


app = Litestar([hello, thread, items, stream, events], on_shutdown=[end], openapi_config=None)
