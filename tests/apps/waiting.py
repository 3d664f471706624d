"""Apps whose requests take their time: a test holds them, or they sleep, or they are stuck."""

import atexit
import functools
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.validate import validator

from rendezvous import announce, wait_for_pass


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Requests that a test holds and lets go: /wait announces itself and waits, /pid answers at once.

    `/nap?MS-anything` sleeps; `/hold-stream` sends its head and a first chunk before it waits.
    """
    started_s, pid, query = time.monotonic(), os.getpid(), environ["QUERY_STRING"]
    match environ["PATH_INFO"]:
        case "/wait":
            announce(f"{pid} {threading.get_ident()} {query}")
            wait_for_pass()
        case "/echo":
            announce(f"{pid} {threading.get_ident()} {query}")
            body = environ["wsgi.input"].read()
            wait_for_pass()
            start_response("200 OK", [("Content-Type", "application/octet-stream")])
            return [body]
        case "/nap":
            time.sleep(int(query.partition("-")[0]) / 1000)
        case "/hold-stream":
            return stream(start_response)
        case "/served":
            joined_s = started_s - environ["stanchion.queue_wait"]
            announce(f"{query} {joined_s:.6f} {started_s:.6f}")
        case "/start":
            announce(f"{environ['HTTP_X_REQUEST_START']} {time.time():.6f}")
        case "/gone":
            return client_gone(environ, start_response)
        case "/gone-in-a-thread":
            ask_in_a_thread(environ["stanchion.client_gone"])
        case "/busy":
            announce(f"{pid}")
            while True:
                pass
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{pid} {query}".encode()]


def stream(start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield b"first"
    announce(f"{os.getpid()} {threading.get_ident()} stream")
    wait_for_pass()
    yield b"last"


def client_gone(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Announces what stanchion.client_gone() says now, and after each pass until it says True."""
    gone: Any = environ["stanchion.client_gone"]
    announce(f"{gone()}")
    wait_for_pass()
    deadline_s = time.monotonic() + 10
    while not gone() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    announce(f"{gone()}")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"too late"]


def ask_in_a_thread(gone: Any) -> None:
    """Announces what it says in another thread: now, and after a pass, when the request has ended."""
    asked = threading.Event()

    def ask() -> None:
        announce(f"{gone()}")
        asked.set()
        wait_for_pass()
        announce(f"{gone()}")

    threading.Thread(target=ask).start()
    asked.wait()


checked = validator(app)


served = itertools.count()


def sleepy(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Sleeps for `?ms=`, as apps do that wait for a database, and answers `served started_s joined_s pid`.

    The server may not give the wait: joined is -1 then.
    """
    started_s = time.monotonic()
    number = next(served)
    time.sleep(float(environ["QUERY_STRING"].partition("&")[0].removeprefix("ms=")) / 1000)
    joined_s = started_s - environ.get("stanchion.queue_wait", started_s + 1)
    body = f"{number} {started_s:.6f} {joined_s:.6f} {os.getpid()}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


@functools.cache
def gate(name: str, flags: int) -> int:
    """A FIFO of rendezvous.py, opened once."""
    return os.open(os.path.join(os.environ["GATE"], name), flags)


BODY = b"hello\n"


def stepped(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Announces each request and waits for a pass, by two system calls that are always the same: for tests that count.

    /first announces the worker's process id, too.
    """
    path = environ["PATH_INFO"]
    said = f"{path} {os.getpid()}\n" if path == "/first" else f"{path}\n"
    os.write(gate("announcements", os.O_WRONLY), said.encode())
    os.read(gate("passes", os.O_RDONLY), 1)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]


STUCK_S = 60


def lock_in_c() -> None:
    """Lock a mutex twice: unlike a sleep, no signal ends that (pthread_mutex_lock(3p))."""
    # Few tests ask for this, and the import takes long.
    import ctypes

    # PyDLL, unlike CDLL, does not let go of the lock.
    libc_with_the_lock = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(64)  # zeroes are PTHREAD_MUTEX_INITIALIZER
    for _ in range(2):
        libc_with_the_lock.pthread_mutex_lock(mutex)


def sleep_in_python(queue_name: str) -> None:
    announce(f"{os.getpid()} {threading.get_ident()} {queue_name}")
    wait_for_pass()


def leave_signals_to_another_thread() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGQUIT, signal.SIGABRT])


def stuck(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Requests that do not return by themselves: /c is stuck in C and keeps the interpreter's lock."""
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
