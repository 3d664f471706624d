"""An app that turns against the server: it sends the master all messages it can, in each worker's name, and goes on."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

FLOOD_S_MAX = 60.0
ROOM_S_MAX = 0.5


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    answer: object = ROUTES[environ["PATH_INFO"]](environ)
    start_response("200 OK", [])
    return [json.dumps(answer).encode()]


def channels() -> list[socket.socket]:
    """All sockets of this process that carry messages: the server's own."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            opened = socket.socket(fileno=os.dup(int(name)))
            if opened.type == socket.SOCK_SEQPACKET:
                found.append(opened)
            else:
                opened.close()
    return found


def vocabulary(pids: list[int], workers: int) -> Iterator[object]:
    """Every message that any process of the tree sends or has ever sent, about each worker, in several epochs."""
    yield from ["AcceptorReady", "TemplateReady", "Ready", "Here", "Dumped", "Quit", "Accept", "Reopen"]
    yield {"Changed": {"path": "app.py"}}
    for worker in range(workers):
        for epoch in (1, 2, 9_999):
            who = {"index": worker, "epoch": epoch}
            yield from ({name: who} for name in ("Replace", "NotForked", "Dumped"))
            yield {"Due": {"worker": who, "served": 1}}
            yield {"Listen": {"worker": who, "bind": "127.0.0.1:0"}}
            yield from ({name: {"worker": who, "pid": pid}} for name in ("WorkerReady", "Forked") for pid in pids)
            yield {"Forked": {"worker": who, "pid": None}}
            yield {"WorkerGone": who}


def say(channel: socket.socket, message: bytes) -> None:
    """Send a message. The master makes room in time; no other process need."""
    deadline = time.monotonic() + ROOM_S_MAX
    while time.monotonic() < deadline:
        try:
            channel.send(message, socket.MSG_DONTWAIT)
            return
        except BlockingIOError:
            time.sleep(0.001)
    raise TimeoutError


def say_all(said: list[bytes]) -> None:
    for channel in channels():
        with channel, contextlib.suppress(TimeoutError):
            for message in said:
                say(channel, message)


def attack(environ: WSGIEnvironment) -> object:
    """Say all of it, as this process and as a child of it; then flood until told to stop."""
    order = json.loads(environ["wsgi.input"].read())
    said = [json.dumps(message).encode() for message in vocabulary(order["pids"], order["workers"])]
    said += [b"", b"{", b"null", b"\xff" * 4096, b'"Ready"' + b" " * 4000]
    say_all(said)
    child = os.fork()
    if child == 0:
        say_all(said)
        os._exit(0)
    os.waitpid(child, 0)
    threading.Thread(target=flood, args=(Path(order["until"]),), daemon=True).start()
    return os.getpid()


def flood(until: Path) -> None:
    deadline = time.monotonic() + FLOOD_S_MAX
    pipe = os.pipe()
    while not until.exists() and time.monotonic() < deadline:
        for channel in channels():
            with channel, contextlib.suppress(OSError):
                while True:
                    channel.send(b'"Here"', socket.MSG_DONTWAIT)
                    socket.send_fds(channel, [b'{"Changed":{"path":"x"}}'], [pipe[0]], socket.MSG_DONTWAIT)


def pid(_: WSGIEnvironment) -> object:
    return os.getpid()


def close_everything(_: WSGIEnvironment) -> object:
    os.closerange(3, 1024)
    return os.getpid()


def sleep(environ: WSGIEnvironment) -> object:
    time.sleep(float(environ["QUERY_STRING"]))
    return os.getpid()


ROUTES = {"/": pid, "/attack": attack, "/close-everything": close_everything, "/sleep": sleep}
