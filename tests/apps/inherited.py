"""Leaves at its import what $LEAVES says, and answers with what comes of it in the worker.

Each import announces itself; what a thread or a connection is for is asked of it in each request.
"""

import asyncio
import concurrent.futures
import ctypes
import os
import queue
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterable
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


announce(f"loaded {os.getpid()}")
ask: Ask = globals()[os.environ["LEAVES"]]()


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {ask()}".encode()]
