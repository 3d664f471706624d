"""An app of Quart."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

from quart import Quart, Response, request
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


@app.get("/fails")
async def fails() -> str:
    raise RuntimeError("it fails")
