"""An app of FastAPI: models in and out, dependencies that end after the answer, files, streams, WebSockets."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import (
    BackgroundTasks,
    Depends,
    FastAPI,
    HTTPException,
    Request,
    UploadFile,
    WebSocket,
    WebSocketDisconnect,
)
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from rendezvous import announce


class Item(BaseModel):
    name: str
    price: float


class Priced(BaseModel):
    name: str
    gross: float


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.rate = 1.2
    yield


app = FastAPI(lifespan=lifespan)


async def connection() -> AsyncIterator[str]:
    try:
        yield "connection"
    finally:
        announce("connection closed")


@app.post("/items/{number}")
async def price(number: int, item: Item, request: Request) -> Priced:
    return Priced(name=f"{number} {item.name}", gross=item.price * request.app.state.rate)


@app.get("/depends")
async def depends(connection: Annotated[str, Depends(connection)]) -> dict[str, str]:
    return {"with": connection}


@app.post("/upload")
async def upload(file: UploadFile) -> dict[str, str | None]:
    return {"name": file.filename, "sha256": hashlib.sha256(await file.read()).hexdigest()}


@app.post("/digest")
async def digest(file: UploadFile) -> str:
    """The digest alone, of a file that need not fit the memory."""
    digest = hashlib.sha256()
    while piece := await file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


@app.get("/zeroes/{pieces}")
async def zeroes(pieces: int) -> StreamingResponse:
    async def given() -> AsyncIterator[bytes]:
        for _ in range(pieces):
            yield bytes(1 << 20)

    return StreamingResponse(given())


@app.get("/stream")
async def stream() -> StreamingResponse:
    async def tokens() -> AsyncIterator[str]:
        for number in range(20):
            yield f"data: {number}\n\n"
            await asyncio.sleep(0.001)

    return StreamingResponse(tokens(), media_type="text/event-stream")


@app.get("/later")
async def later(tasks: BackgroundTasks) -> str:
    tasks.add_task(announce, "done later")
    return "at once"


@app.get("/thread")
def thread(request: Request) -> str:
    """Not `async def`: FastAPI runs it in a thread."""
    return request.client.host if request.client else ""


@app.websocket("/ws/{room}")
async def talk(websocket: WebSocket, room: str, name: str) -> None:
    if room == "closed":
        await websocket.close()
        return
    await websocket.accept("chat" if "chat" in websocket.scope["subprotocols"] else None)
    await websocket.send_json({"room": room, "name": name})
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            match message.get("text"):
                case "close":
                    await websocket.close(4001, "as asked")
                case "count":
                    for number in range(100):
                        await websocket.send_text(str(number))
                    await websocket.close()
                case None:
                    await websocket.send_bytes(message["bytes"])
                case text:
                    await websocket.send_text(text)
    except WebSocketDisconnect:
        announce("left")


@app.get("/missing")
async def missing() -> None:
    raise HTTPException(404, "not here")
