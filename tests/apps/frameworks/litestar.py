"""An app of Litestar."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from litestar import Litestar, WebSocket, get, post, websocket
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


@websocket("/ws/{room:str}")
async def talk(socket: WebSocket, room: str, name: str) -> None:
    if room == "closed":
        await socket.close()
        return
    await socket.accept("chat" if "chat" in socket.scope["subprotocols"] else None)
    await socket.send_json({"room": room, "name": name})
    while (message := await socket.receive())["type"] == "websocket.receive":
        match message.get("text"):
            case "close":
                await socket.close(4001, "as asked")
            case "count":
                for number in range(100):
                    await socket.send_text(str(number))
                await socket.close()
            case None:
                await socket.send_bytes(message["bytes"] or b"")
            case text:
                await socket.send_text(text)
    announce("left")


async def end() -> None:
    announce("shut down")


app = Litestar([hello, thread, items, stream, events, talk], on_shutdown=[end], openapi_config=None)
