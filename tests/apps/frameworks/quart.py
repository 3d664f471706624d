"""An app of Quart."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

from quart import Quart, Response, abort, request, websocket
from rendezvous import announce

app = Quart(__name__)


@app.before_serving
async def begin() -> None:
    app.config["PLACE"] = "quart"


@app.after_serving
async def end() -> None:
    announce("shut down")


@app.get("/")
async def hello() -> str:
    return f"hello {request.args['name']} of {app.config['PLACE']}"


@app.post("/json")
async def json_() -> dict[str, object]:
    return {"got": await request.get_json()}


@app.post("/upload")
async def upload() -> str:
    files = await request.files
    return hashlib.sha256(files["file"].read()).hexdigest()


@app.get("/stream")
async def stream() -> Response:
    async def lines() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d\n" % number
            await asyncio.sleep(0.01)

    return Response(lines(), content_type="text/plain")


@app.websocket("/ws/<room>")
async def talk(room: str) -> None:
    if room == "closed":
        abort(403)
    await websocket.accept(subprotocol="chat" if "chat" in websocket.requested_subprotocols else None)
    await websocket.send_json({"room": room, "name": websocket.args["name"]})
    try:
        while True:
            match await websocket.receive():
                case "close":
                    await websocket.close(4001, "as asked")
                case "count":
                    for number in range(100):
                        await websocket.send(str(number))
                    await websocket.close(1000)
                case message:
                    await websocket.send(message)
    except asyncio.CancelledError:
        # How Quart says that the client has left.
        announce("left")
        raise


@app.get("/fails")
async def fails() -> str:
    raise RuntimeError("it fails")
