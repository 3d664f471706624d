"""Apps that take memory."""

import gc
import os
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from rendezvous import announce, wait_for_pass

kept: list[bytearray] = []


def growing(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Takes more memory with each request to /grow?MEGABYTES, and keeps it."""
    match environ["PATH_INFO"]:
        case "/grow":
            kept.append(bytearray(os.urandom(1)) * (int(environ["QUERY_STRING"]) << 20))
        case "/grow-and-wait":
            kept.append(bytearray(os.urandom(1)) * (int(environ["QUERY_STRING"]) << 20))
            announce(f"{os.getpid()}")
            wait_for_pass()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()}".encode()]


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grow(megabytes: int) -> list[list[int]]:
    target = resident_bytes() + megabytes * 1_000_000
    objects: list[list[int]] = []
    while resident_bytes() < target:
        objects.extend([number] for number in range(10_000))
    return objects


def heavy() -> WSGIApplication:
    """Makes an app that holds $HEAVY_MB of small objects, and collects garbage on each request.

    Small containers, not one big block: a collection writes into the header of every container it visits, so only
    gc.freeze() keeps their pages shared (gc.freeze, "copy-on-write").
    """
    ballast = grow(int(os.environ["HEAVY_MB"])) if os.environ["HEAVY_MB"] != "0" else []

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        gc.collect()
        time.sleep(0.02)  # so that as many requests at once as there are workers need all of them
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{os.getpid()} {len(ballast)}".encode()]

    return app
