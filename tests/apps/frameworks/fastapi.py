"""Apps of FastAPI.

`app` has models in and out, dependencies that end after the answer, files, streams, WebSockets. `streams` has the
answers of a language model, to many at once, events that the test lets come, and a page that listens in a browser.
"""

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
from fastapi.responses import HTMLResponse, StreamingResponse
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


streams = FastAPI()
TOKENS = 100
PERIOD_S = 0.01
begun = asyncio.Event()
sent: list[int] = []
"""How many tokens each client has been sent."""
least_at_first_end: list[int] = []
"""How many tokens the slowest client had been sent when the first client had all, when the second had all, ..."""

PAGE = """<!doctype html>
<script>
const heard = [];
const tell = () => fetch("/heard", {method: "POST", body: JSON.stringify(heard)});
const events = new EventSource("/events");
events.onmessage = event => {
  heard.push(event.data);
  if (event.data == "event 2") {
    events.close();
    const socket = new WebSocket(`ws://${location.host}/echo`, ["chat"]);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send("h\u00e9llo of " + socket.protocol);
    socket.onmessage = message => {
      if (typeof message.data == "string") {
        heard.push(message.data);
        socket.send(new Uint8Array(100000).fill(7));
      } else {
        heard.push(new Uint8Array(message.data).reduce((sum, byte) => sum + byte, 0));
        socket.send("close");
      }
    };
    socket.onclose = event => { heard.push([event.code, event.reason, event.wasClean]); tell(); };
  }
};
</script>"""


@streams.get("/tokens")
async def tokens() -> StreamingResponse:
    """Begins when all clients are there that are to listen."""
    client = len(sent)
    sent.append(0)

    async def words() -> AsyncIterator[str]:
        yield "data: ready\n\n"
        await begun.wait()
        for number in range(TOKENS):
            yield f"data: token {number}\n\n"
            sent[client] += 1
            await asyncio.sleep(PERIOD_S)
        least_at_first_end.append(min(sent))

    return StreamingResponse(words(), media_type="text/event-stream")


@streams.get("/begin")
async def begin() -> int:
    begun.set()
    return len(sent)


@streams.get("/least")
async def least() -> int:
    return least_at_first_end[0]


@streams.get("/events")
async def events() -> StreamingResponse:
    async def three() -> AsyncIterator[str]:
        for number in range(3):
            yield f"data: event {number}\n\n"

    return StreamingResponse(three(), media_type="text/event-stream")


next_word: asyncio.Queue[str] = asyncio.Queue()


@streams.get("/next")
async def next_(word: str) -> None:
    next_word.put_nowait(word)


@streams.get("/words")
async def words(buffering: str) -> StreamingResponse:
    """Each word when it is there; the field is for nginx."""

    async def one_by_one() -> AsyncIterator[str]:
        yield "data: ready\n\n"
        while (word := await next_word.get()) != "end":
            yield f"data: {word}\n\n"

    return StreamingResponse(one_by_one(), headers={"X-Accel-Buffering": buffering}, media_type="text/event-stream")


flooded = 0


@streams.get("/flood")
async def flood(buffering: str) -> StreamingResponse:
    """64 MiB, as fast as they are taken."""

    async def pieces() -> AsyncIterator[bytes]:
        global flooded
        for flooded in range(1, 1025):  # noqa: B007 - asked for by /flooded
            yield bytes(64 << 10)

    return StreamingResponse(pieces(), headers={"X-Accel-Buffering": buffering})


@streams.get("/flooded")
async def flooded_() -> int:
    return flooded


@streams.get("/page")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


@streams.post("/heard")
async def heard(request: Request) -> None:
    announce((await request.body()).decode())


@streams.websocket("/echo")
async def echo(websocket: WebSocket) -> None:
    await websocket.accept("chat")
    while (message := await websocket.receive())["type"] == "websocket.receive":
        if message.get("text") == "close":
            await websocket.close(4002, "as asked")
        else:
            await websocket.send({**message, "type": "websocket.send"})
