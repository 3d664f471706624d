"""A WSGI app for gevent: it waits, streams and blocks as a test asks for."""

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

import gevent
from gevent import monkey
from gevent.event import Event
from rendezvous import announce, wait_for_pass

PATCHED = sorted(name for name in ("socket", "threading", "time", "ssl") if monkey.is_module_patched(name))
IMPORTED_BY = os.getpid()
MIB = 1 << 20

released = Event()
here = threading.local()


def pieces(count: int) -> Iterable[bytes]:
    try:
        for _ in range(count):
            yield b"x" * MIB
        announce("all is written")
    except GeneratorExit:
        announce("the client has gone")
        raise


def written_by_two(write: Callable[[bytes], object], count: int) -> None:
    """Each greenlet gives its pieces to the same answer."""

    def give(letter: bytes) -> None:
        for _ in range(count):
            write(letter * MIB)
        announce(f"{letter.decode()} is written")

    gevent.joinall([gevent.spawn(give, letter) for letter in (b"a", b"b")], raise_error=True)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    path, query, pid = environ["PATH_INFO"], environ["QUERY_STRING"], os.getpid()
    text = str(pid)
    match path:
        case "/patched":
            text = f"{' '.join(PATCHED)} {pid == IMPORTED_BY}"
        case "/hold":
            announce(f"{pid} holds")
            released.wait()
        case "/forks":
            if not os.fork():
                announce("the child's hub turns")
                time.sleep(float(query))
                os._exit(0)
        case "/release":
            released.set()
        case "/pass":
            announce(f"{pid} may be let pass")
            # A thread of the kernel's waits, and the hub goes on.
            gevent.get_hub().threadpool.apply(wait_for_pass)
            announce(f"{pid} goes on")
        case "/block":
            announce(f"{pid} blocks")
            wait_for_pass()
        case "/sleep":
            announce(f"{pid} sleeps")
            monkey.get_original("time", "sleep")(float(query))
        case "/stream":
            start_response("200 OK", [])
            return pieces(int(query))
        case "/whole":
            start_response("200 OK", [])
            return [b"x" * MIB * int(query)]
        case "/two":
            written_by_two(start_response("200 OK", []), int(query))
            return []
        case "/impatient":
            write = start_response("200 OK", [])
            try:
                with gevent.Timeout(0.2):
                    write(b"x" * MIB * int(query))
            except gevent.Timeout:
                announce("the write has timed out")
            write(b"more")
            return []
        case "/file":
            start_response("200 OK", [])
            return environ["wsgi.file_wrapper"](open(__file__, "rb"))
        case "/echo":
            start_response("200 OK", [])
            return iter([environ["wsgi.input"].read()])
        case "/fetch":
            with urllib.request.urlopen(query, timeout=30) as answer:
                text = f"{pid} {answer.read().decode()}"
        case "/spawn":
            text = subprocess.run(["cat"], input=b"spoken", capture_output=True, check=True).stdout.decode()
        case "/local":
            here.seen = [*getattr(here, "seen", []), query]
            time.sleep(0.01)
            text = ",".join(here.seen)
        case "/fail":
            raise ValueError("as asked")
        case "/exit":
            sys.exit(3)
        case "/exit-behind":
            gevent.spawn(sys.exit, 3)
        case "/killed":
            gevent.getcurrent().kill(block=False)
            gevent.sleep()
        case "/kill":
            kill_next(int(query))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]


def kill_next(count: int) -> None:
    """So many of the greenlets that are spawned next, before they begin."""
    left = count

    def kill(one: gevent.Greenlet) -> None:
        nonlocal left
        left -= 1
        if not left:
            gevent.Greenlet.remove_spawn_callback(kill)
        # The callback runs before the hub plans the start, so this kill comes first.
        gevent.get_hub().loop.run_callback(one.kill, gevent.GreenletExit, False)

    gevent.Greenlet.add_spawn_callback(kill)
