"""Requests that do not come back by themselves: /c is stuck in C and keeps the interpreter's lock."""

import atexit
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

STUCK_S = 60

# PyDLL, unlike CDLL, does not let go of the lock.
libc_with_the_lock = ctypes.PyDLL(None)


def lock_in_c() -> None:
    """Lock a mutex twice: unlike a sleep, no signal ends that (pthread_mutex_lock(3p))."""
    mutex = ctypes.create_string_buffer(64)  # zeroes are PTHREAD_MUTEX_INITIALIZER
    for _ in range(2):
        libc_with_the_lock.pthread_mutex_lock(mutex)


def sleep_in_python(queue_name: str) -> None:
    announce(f"{os.getpid()} {threading.get_ident()} {queue_name}")
    wait_for_pass()


def leave_signals_to_another_thread() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGQUIT, signal.SIGABRT])


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    query = environ["QUERY_STRING"]
    match environ["PATH_INFO"]:
        case "/c":
            announce(f"{os.getpid()} {threading.get_ident()} c")
            lock_in_c()
        case "/wait":
            sleep_in_python(query)
        case "/sleep":
            time.sleep(float(query))
        case "/deaf":
            leave_signals_to_another_thread()
            sleep_in_python(query)
        case "/until":
            announce(f"{os.getpid()} {threading.get_ident()} until")
            while not os.path.exists(query):
                time.sleep(0.01)
        case "/extend" | "/extend-and-wait":
            return extend(environ, start_response)
        case "/abort":
            os.abort()
        case "/fork":
            return fork(start_response)
        case "/flood":
            return flood(start_response)
        case "/write":
            environ["wsgi.errors"].write(f"{query}\n")
        case "/at-exit":
            atexit.register(announce, "atexit")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {query}".encode()]


def extend(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Ask for as many seconds as the query says, then need two; or say what the answer to the request was.

    After `/extend-and-wait` it takes a pass.
    """
    ask: Any = environ["stanchion.extend_deadline"]
    try:
        ask(float(environ["QUERY_STRING"]))
        said = "ok"
    except ValueError as error:
        said = str(error)
    else:
        if environ["PATH_INFO"] == "/extend":
            time.sleep(2)
        else:
            sleep_in_python("extended")
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield said.encode()
    ask(5)


def fork(start_response: StartResponse) -> Iterable[bytes]:
    """Whether a child of the app's own ends by the signals that end others, here TERM."""
    child = os.fork()
    if child == 0:
        time.sleep(STUCK_S)
        os._exit(9)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.waitstatus_to_exitcode(status)}".encode()]


def flood(start_response: StartResponse) -> Iterable[bytes]:
    """More than any server buffers, for a client that does not read."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    announce(f"{os.getpid()} {threading.get_ident()} flood")
    while True:
        yield b"x" * 65536
