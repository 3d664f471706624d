"""Streams of FastAPI: the answers of a language model, to many at once, and events that the test lets come.

Also a page that listens to them in a browser.
"""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import HTMLResponse, StreamingResponse
from rendezvous import announce

app = FastAPI()
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


@app.get("/tokens")
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


@app.get("/begin")
async def begin() -> int:
    begun.set()
    return len(sent)


@app.get("/least")
async def least() -> int:
    return least_at_first_end[0]


@app.get("/events")
async def events() -> StreamingResponse:
    async def three() -> AsyncIterator[str]:
        for number in range(3):
            yield f"data: event {number}\n\n"

    return StreamingResponse(three(), media_type="text/event-stream")


next_word: asyncio.Queue[str] = asyncio.Queue()


@app.get("/next")
async def next_(word: str) -> None:
    next_word.put_nowait(word)


@app.get("/words")
async def words(buffering: str) -> StreamingResponse:
    """Each word when it is there; the field is for nginx."""

    async def one_by_one() -> AsyncIterator[str]:
        yield "data: ready\n\n"
        while (word := await next_word.get()) != "end":
            yield f"data: {word}\n\n"

    return StreamingResponse(one_by_one(), headers={"X-Accel-Buffering": buffering}, media_type="text/event-stream")


flooded = 0


@app.get("/flood")
async def flood(buffering: str) -> StreamingResponse:
    """64 MiB, as fast as they are taken."""

    async def pieces() -> AsyncIterator[bytes]:
        global flooded
        for flooded in range(1, 1025):  # noqa: B007 - asked for by /flooded
            yield bytes(64 << 10)

    return StreamingResponse(pieces(), headers={"X-Accel-Buffering": buffering})


@app.get("/flooded")
async def flooded_() -> int:
    return flooded


@app.get("/page")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


@app.post("/heard")
async def heard(request: Request) -> None:
    announce((await request.body()).decode())


@app.websocket("/echo")
async def echo(websocket: WebSocket) -> None:
    await websocket.accept("chat")
    while (message := await websocket.receive())["type"] == "websocket.receive":
        if message.get("text") == "close":
            await websocket.close(4002, "as asked")
        else:
            await websocket.send({**message, "type": "websocket.send"})
