"""An import that leaves to workers what the environment says, and apps that use it.

$LEAVES names the function that leaves something for `inherited`, $HELD_BACK a directory with a file that is left open
for `held_back`, and $ENDS what ends the thread that a request of `lingering` begins.
"""

import asyncio
import atexit
import concurrent.futures
import ctypes
import os
import queue
import socket
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce

PATIENCE_S = 5
"""How long a request waits for a thread that may not be there."""

Ask = Callable[[], str]


def thread() -> Ask:
    questions: queue.Queue[queue.Queue[str]] = queue.Queue()

    def serve() -> None:
        while True:
            questions.get().put("thread")

    threading.Thread(target=serve, name="flush", daemon=True).start()

    def ask() -> str:
        answer: queue.Queue[str] = queue.Queue()
        questions.put(answer)
        return answer.get(timeout=PATIENCE_S)

    return ask


def event_loop() -> Ask:
    """A loop in a thread of its own, as a2wsgi's ASGIMiddleware has it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="loop", daemon=True).start()

    async def answer() -> str:
        await asyncio.sleep(0)
        return "event_loop"

    return lambda: asyncio.run_coroutine_threadsafe(answer(), loop).result(PATIENCE_S)


def idle_event_loop() -> Ask:
    """A loop that no thread runs yet."""
    loop = asyncio.new_event_loop()

    async def answer() -> str:
        return "idle_event_loop"

    return lambda: loop.run_until_complete(answer())


def pool() -> Ask:
    executor = concurrent.futures.ThreadPoolExecutor(2, "pool")
    executor.submit(int).result()
    return lambda: executor.submit(str, "pool").result(PATIENCE_S)


def connection() -> Ask:
    """A connection to a server of the test's, which sends a name over each connection."""
    host, _, port = os.environ["PEER"].rpartition(":")
    connected = socket.create_connection((host, int(port)))
    name = connected.recv(100).decode()
    return lambda: name if connected.fileno() >= 0 else ""


def listening() -> Ask:
    listener = socket.create_server(("127.0.0.1", 0))
    return lambda: f"listening {listener.getsockname()[1]}"


def datagrams() -> Ask:
    """A socket of datagrams, as handlers of syslog and clients of statsd have it."""
    sender = socket.socket(type=socket.SOCK_DGRAM)
    sender.connect(("127.0.0.1", 9))
    return lambda: "datagrams" if sender.fileno() >= 0 else ""


def files() -> Ask:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    held = open(__file__)
    return lambda: str(database.execute("select 'files'").fetchone()[0]) if held.readable() else ""


def ended_thread() -> Ask:
    """A thread that ends a moment after the import."""
    threading.Thread(target=threading.Event().wait, args=(0.2,)).start()
    return lambda: "ended_thread"


def thread_from_c() -> Ask:
    libc = ctypes.CDLL(None)
    started = ctypes.c_ulong()
    # pause(2) takes no argument, and pthread_create(3) none of its thread's that it would look at.
    assert libc.pthread_create(ctypes.byref(started), None, libc.pause, None) == 0
    return lambda: "thread_from_c"


def nothing() -> Ask:
    return lambda: "nothing"


if "LEAVES" in os.environ:
    announce(f"loaded {os.getpid()}")
    ask: Ask = globals()[os.environ["LEAVES"]]()


def inherited(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answers with what comes in the worker of what the import has left.

    Each import announces itself; what a thread or a connection is for is asked of it in each request.
    """
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {ask()}".encode()]


class Announcing:
    def __del__(self) -> None:
        announce("taken apart")


since_request = []
if "HELD_BACK" in os.environ:
    folder = Path(os.environ["HELD_BACK"])
    since_import = (folder / "since import").open("w")
    announcing = Announcing()


def held_back(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Writes to files that hold it back: one open since the import, one since a request.

    An object of the module announces when Python takes it apart.
    """
    since_import.write("written")
    since_request.append((folder / "since request").open("wb"))
    since_request[-1].write(b"written")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"begun"]


told = threading.Event()
if "ENDS" in os.environ:
    atexit.register(announce, "at exit")
if os.environ.get("ENDS") == "at exit":
    # Python calls the last one first. Once the thread is through, the main thread has time to go on.
    pauses_s = iter([0.5])
    atexit.register(lambda: time.sleep(next(pauses_s, 0)))
    atexit.register(told.set)
    atexit.register(announce, "ending")


def wait_for_ever() -> None:
    if os.environ["ENDS"] == "with the main thread":
        threading.main_thread().join()
    else:
        told.wait()
    announce("through")


def lingering(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Begins a thread that is no daemon, which announces its end; so does the process."""
    threading.Thread(target=wait_for_ever, name="lingers").start()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"begun"]


def lingering_daemon(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """A thread of an executor is a daemon if one has made it, and Python waits for it."""

    def begin() -> None:
        concurrent.futures.ThreadPoolExecutor(1, "marimo").submit(wait_for_ever)

    beginning = threading.Thread(target=begin, daemon=True)
    beginning.start()
    beginning.join()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"begun"]


async def lingering_asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] != "http":
        return
    # marimo's kernel does so: it runs in a thread of the loop's own, for which no code waits.
    asyncio.get_running_loop().run_in_executor(None, wait_for_ever)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun"})
