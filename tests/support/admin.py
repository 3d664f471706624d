"""An admin listener that a test plays: it answers /status as the test has set, and counts the requests."""

import json
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from support.patience import PATIENCE_S


def histogram(*counts: int, first_us: int = 1_000) -> dict[str, Any]:
    """Buckets that double, from `first_us` on, with that many in each."""
    buckets, total = [], 0
    for power, count in enumerate(counts):
        total += count
        buckets.append([first_us << power, total])
    top = first_us << len(counts)
    return {
        "count": total,
        "sum_us": total * first_us,
        "max_us": top,
        "p50_us": first_us,
        "p90_us": top // 2,
        "p99_us": top,
        "buckets": buckets,
    }


def seat(
    worker: int, number: int, running_us: int | None = None, path: str | None = None, **more: Any
) -> dict[str, Any]:
    busy = running_us is not None
    return {
        "worker": worker,
        "seat": number,
        "pid": 200 + worker,
        "nth": 1,
        "state": "busy" if busy else "idle",
        "running_us": running_us,
        "method": "GET" if busy else None,
        "path": path if busy else None,
        "served": 0,
        "busy_us": 0,
        **more,
    }


def worker(number: int, memory_bytes: int | None, **more: Any) -> dict[str, Any]:
    """One with a thread, unless `event_loop` is given."""
    told = {"worker": number, "pid": 200 + number, "memory_bytes": memory_bytes, "seats": 1, "busy": 0}
    return {**told, "event_loop": None, **more}


def lane(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "priority": 1,
        "waiting": 0,
        "waiting_max": None,
        "oldest_wait_us": 0,
        "in_exchange": 0,
        "seats_reserved": 0,
        "seats_max": None,
        "drain_per_s": 0.0,
        "over_target": False,
        **more,
    }


def status(**changes: Any) -> dict[str, Any]:
    """A small server at rest, but for what a test changes; `line` and `requests` are merged."""
    plain: dict[str, Any] = {
        "version": "0.1.0",
        "pid": 100,
        "acceptor_pid": 101,
        "uptime_s": 3_725,
        "now_us": 5_000_000,
        "generation": 3,
        "state": "serving",
        "ready": True,
        "not_ready_because": None,
        "line": {
            "waiting": 0,
            "waiting_max": 2048,
            "oldest_wait_us": 0,
            "over_target": False,
            "lanes": [lane("default")],
        },
        "standstill": None,
        "elastic": None,
        "seats": [seat(0, 0), seat(1, 0)],
        "workers": [worker(0, 50 << 20), worker(1, None)],
        "listeners": [{"address": "http://127.0.0.1:8000", "backlog_asked": 2048, "backlog": 2048, "queued": 0}],
        "connections": {"new": 0, "reading": 0, "busy": 0, "idle": 0, "total": 0, "max": 10_000},
        "certificates": [],
        "requests": {"arrived": 0, "in_flight": 0, "answered": 0, "abandoned_waiting": 0, "refused_line_full": 0},
        "events": {},
        "wait_us": histogram(0, 0, 0),
        "service_us": histogram(0, 0, 0),
        "running_us": {**histogram(0, 0, 0), "max_us": 0},
        "seats_stuck_us": 0,
        "server": {
            "restarts": {"killed": 0, "timeout": 0},
            "reloads": {"done": 0, "failed": 0},
            "upgrades": {"done": 0, "failed": 0},
        },
    }
    seats = changes.get("seats", plain["seats"])
    if isinstance(seats, list):
        plain["seat_counts"] = Counter(seat["state"] for seat in seats if isinstance(seat, dict))
    for key, value in changes.items():
        plain[key] = {**plain[key], **value} if key in ("line", "requests") else value
    return plain


class Admin:
    """Answers each connection's request with the same bytes, until the test sets others."""

    def __init__(self, path: Path | None = None) -> None:
        """Listen at a unix socket, or without a path at a free port of the loopback."""
        self.targets: list[str] = []
        self._changed = threading.Condition()
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._answer = b""
        self._socket = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self._socket.bind(str(path) if path else ("127.0.0.1", 0))
        self._socket.listen()
        self.address = f"unix:{path}" if path else f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.says(status())
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def says(self, data: object) -> None:
        self.sends(json.dumps(data).encode())

    def sends(self, body: bytes, head: bytes | None = None) -> None:
        self._answer = (head or b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(body)) + b"\r\n" + body

    def hold(self) -> None:
        """Answer no request until it is stopped."""
        self._may_answer.clear()

    def wait_looks(self, more: int) -> None:
        """Wait until it has been asked that many times more than now."""
        with self._changed:
            wanted = len(self.targets) + more
            assert self._changed.wait_for(lambda: len(self.targets) >= wanted, PATIENCE_S), self.targets

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                request = bytearray()
                while b"\r\n\r\n" not in request and (part := connection.recv(4096)):
                    request += part
                if not request:
                    return
                self._may_answer.wait(PATIENCE_S)
                try:
                    connection.sendall(self._answer)
                except OSError:
                    continue  # It had enough.
                with self._changed:
                    self.targets.append(request.split(b" ")[1].decode())
                    self._changed.notify_all()

    def stop(self) -> None:
        self._may_answer.set()
        with socket.socket(self._socket.family) as last:
            last.connect(self._socket.getsockname())
        self._thread.join(PATIENCE_S)
        self._socket.close()
