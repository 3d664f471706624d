"""An app of python-socketio: an answer to an event, a room, bytes, and where a session lives."""

import os
from typing import Any

import socketio
from rendezvous import announce

server = socketio.AsyncServer(async_mode="asgi")


@server.event
async def connect(sid: str, environ: dict[str, Any], auth: Any) -> None:
    if auth == "a stranger":
        raise socketio.exceptions.ConnectionRefusedError("not you")
    await server.save_session(sid, {"name": auth})
    await server.enter_room(sid, "all")


@server.event
async def who(sid: str) -> list[Any]:
    async with server.session(sid) as session:
        return [session["name"], os.getpid()]


@server.event
async def shout(sid: str, text: str) -> None:
    await server.emit("shouted", text.upper(), room="all")


@server.event
async def turn(sid: str, data: bytes) -> bytes:
    return data[::-1]


@server.event
async def bye(sid: str) -> None:
    await server.disconnect(sid)


@server.event
async def disconnect(sid: str, reason: str) -> None:
    announce("left")


app = socketio.ASGIApp(server)
