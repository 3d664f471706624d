"""An app whose paths leave what a worker must not hand on, and that holds a re-fork where a test says so."""

import gc
import os
import socket
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

left: list[object] = []
broken: list[str] = []
lock = threading.Lock()


def hold(step: str) -> None:
    """Hold this process, if the test has said that it wants to see the step."""
    gate = os.environ.get("GATE")
    held = Path(gate or "", "held")
    if gate and held.exists() and held.read_text() == step:
        announce(f"{step} {os.getpid()}")
        wait_for_pass()


def hold_collection(phase: str, _info: Mapping[str, Any]) -> None:
    if phase == "stop":
        hold("collecting")


# From now on only the server collects garbage, before a fork.
gc.disable()
gc.callbacks.append(hold_collection)


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answers with its process."""
    status, path = "200 OK", environ["PATH_INFO"]
    if environ.get("stanchion.warm_up"):
        if broken == ["raises"]:
            raise ZeroDivisionError("of the canary")
        if broken == ["503"]:
            status = "503 Broken"
        if broken == ["exits"]:
            os._exit(7)
        with lock:
            pass
    match path:
        case "/late":
            # Announces its import.
            import imports.late  # noqa: F401
        case "/wait":
            announce(f"waits {os.getpid()}")
            wait_for_pass()
        case "/thread":
            threading.Thread(target=threading.Event().wait, name="pump", daemon=True).start()
        case "/connects":
            host, _, port = os.environ["PEER"].rpartition(":")
            left.append(socket.create_connection((host, int(port))))
        case "/listens":
            left.append(socket.create_server(("127.0.0.1", 0)))
        case "/forks":
            if not os.fork():
                announce(f"forked {os.getpid()}")
        case "/database":
            database = sqlite3.connect(os.environ["DATABASE"])
            database.execute("create table if not exists visits (path)")
            left.append(database)
        case "/locks":
            # For ever.
            lock.acquire(blocking=False)
        case "/breaks":
            broken[:] = [environ["QUERY_STRING"]]
    start_response(status, [("Content-Type", "text/plain")])
    return [f"{os.getpid()}".encode()]
