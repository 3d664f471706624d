"""Servers of asynchronous apps: stanchion with each event loop, and uvicorn, which many apps are written against."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.patience import eventually
from support.server import STANCHION, Kind, Serve, Server

UVICORN = Kind(
    "uvicorn",
    (sys.executable, "-m", "uvicorn", "--interface", "asgi3", "--no-access-log", "--timeout-graceful-shutdown", "1"),
    r"Uvicorn running on (http://\S+|unix socket \S+)",
    r"Uvicorn running on",
    # uvicorn's default is 5 s.
    ("--timeout-keep-alive", "60"),
)


@dataclass(frozen=True)
class Flavour:
    """A server, and the event loop that it runs the app on."""

    kind: Kind
    loop: str

    @property
    def is_ours(self) -> bool:
        return self.kind is STANCHION

    def serve(self, serve: Serve, app: str, *arguments: str, **options: Any) -> Server:
        if self.is_ours:
            return serve(app, "--interface", "asgi", "--loop", self.loop, *arguments, **options)
        return serve(app, "--port", "0", "--loop", self.loop, *arguments, bind=None, kind=self.kind, **options)


OURS = {"asyncio": Flavour(STANCHION, "asyncio"), "uvloop": Flavour(STANCHION, "uvloop")}
FLAVOURS = OURS | {"uvicorn": Flavour(UVICORN, "uvloop")}


def all_run(begin: Callable[[], int], workers: int, least: int = 0) -> None:
    """Begin requests until each worker runs some, and at least so many; `begin` returns the pid of the worker it got.

    While a worker gets no core, others take its part.
    """
    seen = {begin() for _ in range(max(workers, least))}

    def all_do() -> bool:
        if len(seen) < workers:
            seen.add(begin())
        return len(seen) == workers

    eventually(all_do, "each worker runs some")


def all_turn(server: Server, workers: int) -> None:
    """Wait until each worker's loop turns: a worker is ready a moment before. Idle workers take turns at requests."""
    seen: set[int] = set()

    def answered() -> bool:
        with server.connect() as wire:
            seen.add(int(wire.get("/").text))
        return len(seen) == workers

    eventually(answered, "all workers have answered")
