"""The admin listener's page for several hosts: a small server that reads, and changes nothing.

A browser may not ask other servers for the page (its policy says so, and they would refuse), and an acceptor asks
none. So this program asks them, as it does for the screen, and gives the sums to the same page, which it has from the
compiled module. A page that came from one of the hosts would be of that host's version, would run in the browser what
that host wants, and would be gone with it.
"""

import contextlib
import ipaddress
import json
import os
import re
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stanchion._stanchion import admin_page
from stanchion.effective import UsageError
from stanchion.top import source
from stanchion.top.hosts import AllHosts, as_json, cut, summed
from stanchion.top.hosts_past import SAMPLES_MAX, SECOND_US, Sample, before, own_samples, sample
from stanchion.top.hosts_watch import ANSWER_BYTES_MAX, LOOK_S, HostsWatch
from stanchion.top.source import Failed
from stanchion.top.status import Unexpected

# The server closes one more connection at once.
CONNECTIONS_MAX = 64

# A client has so many seconds to send its request, and to take the next bytes of an answer.
CLIENT_S = 5.0

# The program asks so many hosts for their history at a time.
_ASKED_MAX = 32

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

# No page from elsewhere can have such a name: see crates/stanchion-acceptor/src/admin/hosts.rs.
_OF_SERVICES = (".svc", ".svc.cluster.local")

# A name or an address, and perhaps a port (RFC 9110 section 7.2).
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]*)?")


def address(text: str) -> tuple[str, int]:
    """The address to listen at. UsageError if it is none."""
    with contextlib.suppress(UsageError):
        at = source.place(text).address
        if not isinstance(at, str):
            return at
    raise UsageError(f"top: --serve listens at HOST:PORT, not at {text!r}")


def run(watch: HostsWatch, at: tuple[str, int]) -> int:
    """Serve the page until a signal ends it; the exit code."""
    told = _Told(watch)
    with _listen(at, told) as server:
        watch.wait(1)
        told.look_back()
        told.look()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"[{at[0]}]" if ":" in at[0] else at[0]
        print(f"the hosts are at http://{host}:{at[1]}/ until Ctrl-C", flush=True)
        number = _look_until_signal(told)
        server.shutdown()
    return 128 + number


def _look_until_signal(told: "_Told") -> int:
    """The signal that ended it."""
    caught: list[int] = []
    wake = threading.Event()

    def end(number: int, _: object) -> None:
        caught.append(number)
        wake.set()

    for number in _ENDING:
        signal.signal(number, end)
    while not wake.wait(1.0):
        told.look()
    return caught[0]


class _Told:
    """The answers, made once a second however many pages ask for them."""

    def __init__(self, watch: HostsWatch) -> None:
        self._watch = watch
        self._began_us = _now_us()
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._status = b""

    def look(self) -> None:
        now_us = _now_us()
        all_hosts = summed(self._watch.seen())
        status = json.dumps(_status(all_hosts, now_us, now_us - self._began_us)).encode()
        with self._lock:
            self._status = status
            self._samples.append(sample(all_hosts, now_us))

    def look_back(self) -> None:
        """Begin with what the hosts have kept: a person who opens the page in an outage sees how it came."""

        def kept(where: source.Place) -> Any:
            try:
                return own_samples(source.value(where, "/history", LOOK_S, ANSWER_BYTES_MAX))
            except (Failed, Unexpected):
                # The watch says what the trouble is.
                return []

        with ThreadPoolExecutor(_ASKED_MAX) as pool:
            hosts = list(pool.map(kept, self._watch.answering()))
        self._samples.extend(before(_now_us(), hosts))

    def status(self) -> bytes:
        with self._lock:
            return self._status

    def history(self, since_us: int) -> bytes:
        with self._lock:
            samples = [one for one in self._samples if one["at_us"] > since_us]  # type: ignore[operator]
        return json.dumps({"pid": os.getpid(), "now_us": _now_us(), "samples": samples}).encode()


def _status(all_hosts: AllHosts, now_us: int, age_us: int) -> Mapping[str, object]:
    """A `/status` of all hosts that answer, as far as the page reads one."""
    statuses = [model.status for _, model in all_hosts.answering]
    total = all_hosts.total
    standing = [(name, model.status.standstill) for name, model in all_hosts.answering if model.status.standstill]
    versions = sorted({cut(status.version) for status in statuses})
    return {
        **as_json(all_hosts),
        "version": ", ".join(versions) or "unknown",
        "pid": os.getpid(),
        "now_us": now_us,
        "uptime_s": age_us / SECOND_US,
        "state": "serving",
        "ready": all_hosts.ready == len(all_hosts.hosts),
        "not_ready_because": f"{all_hosts.ready} of {len(all_hosts.hosts)} hosts ready",
        "line": {"waiting": total.waiting, "waiting_max": total.waiting_max, "oldest_wait_us": total.oldest_wait_us},
        "standstill": {
            "since_s": max(one.since_s for _, one in standing),
            "why": f"{standing[0][0]}: {cut(standing[0][1].why)}",
            "waiting": sum(one.waiting for _, one in standing),
            "oldest_wait_s": total.oldest_wait_us / SECOND_US,
        }
        if standing
        else None,
        "seat_counts": {
            kind: sum(status.seat_counts.get(kind, 0) for status in statuses) for kind in ("busy", "idle", "empty")
        },
        "workers": [],
        "running_us": {
            "count": sum(status.running.count for status in statuses),
            "max_us": max((status.running.max_us for status in statuses if status.running.count), default=0),
        },
        "connections": {"total": sum(status.connections.get("total", 0) for status in statuses)},
    }


class _Server(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    request_queue_size = CONNECTIONS_MAX
    daemon_threads = True
    # A thread that a client holds must not hold the end.
    block_on_close = False

    def __init__(self, at: tuple[str, int], told: _Told) -> None:
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self.told = told
        self.name = at[0]
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(at, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no error of this program."""


def _listen(at: tuple[str, int], told: _Told) -> _Server:
    try:
        return _Server(at, told)
    except OSError as error:
        raise Failed(f"--serve cannot listen at {at[0]}:{at[1]}: {error.strerror or error}") from error


class _Handler(BaseHTTPRequestHandler):
    """One request a connection."""

    timeout = CLIENT_S
    server: _Server

    def handle(self) -> None:
        # `timeout` alone would allow a client so long for each byte, and 64 such clients could hold the page.
        late = threading.Timer(CLIENT_S, self._end_late)
        late.daemon = True
        late.start()
        try:
            super().handle()
        finally:
            late.cancel()

    def _end_late(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)

    def do_GET(self) -> None:
        path, query = urlsplit(self.path)[2:4]
        names = self.headers.get_all("Host") or []
        if len(names) > 1 or not all(is_ours(name, self.server.name) for name in names):
            return self._answer(421, "text/plain", b"this page does not go by that name: ask for its address\n")
        match path:
            case "/":
                page, policy = admin_page()
                return self._answer(200, "text/html", page.encode(), {"Content-Security-Policy": policy})
            case "/status":
                return self._answer(200, "application/json", self.server.told.status())
            case "/history":
                since = parse_qs(query).get("since_us", ["0"])[0]
                since_us = int(since) if since.isascii() and since.isdigit() and len(since) < 20 else 0
                return self._answer(200, "application/json", self.server.told.history(since_us))
        return self._answer(404, "text/plain", b"there are /, /status and /history\n")

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def version_string(self) -> str:
        return "stanchion"

    def log_message(self, format: str, *arguments: object) -> None:
        """A page that looks once a second would fill the terminal."""

    def _answer(self, status: int, kind: str, body: bytes, fields: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        kind = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
        head = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        for name, value in {**head, "X-Content-Type-Options": "nosniff", **(fields or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def is_ours(field: str, given: str) -> bool:
    """Whether a request may name this host: against a page that points its own name here (DNS rebinding)."""
    found = _HOST.fullmatch(field.strip())
    if found is None:
        return False
    name = (found["v6"] or found["name"]).removesuffix(".").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in ("localhost", given.lower()) or name.endswith(_OF_SERVICES)
    return True


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
