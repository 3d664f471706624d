"""The cost of a connection with TLS for one request: with a whole handshake, or with one that resumes a session.

The client is this file, run as a program on a core of its own: wrk resumes sessions or does not as it likes.
"""

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator

from bench import certificate
from bench.apps import hello
from bench.measure import ANSWER_S, CLIENT_CORE, WARM_UP_S, Figures, OtherLoad, serving
from bench.mixed_load import percentile
from bench.processes import ServerError
from bench.servers import PYTHON, Server
from bench.turns import HELLO, Stand, Turn, cpu_figures, spent_since

REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
TURN_S = 1
GRACE_S = 10.0


def handshakes(resumes: bool) -> Stand:
    """One worker on one core, and a client on the other that makes one connection after the other."""

    @contextlib.contextmanager
    def stand(server: Server) -> Iterator[Turn]:
        with serving(server, HELLO.app, floor=HELLO.floor, tls=True) as (tree, port):
            run(port, WARM_UP_S, resumes)

            def turn() -> Figures:
                others, before = OtherLoad(), tree.cpu()
                seen = run(port, TURN_S, resumes)
                spent = spent_since(before, tree.cpu())
                requests = seen["requests"]
                if requests == 0:
                    raise ServerError("answered no request under load")
                return {
                    **seen,
                    "rps": requests / seen["duration_s"],
                    "others_share": others.share(sum(cpu.all_ns for cpu in spent.values())),
                    **dict(cpu_figures("", spent, requests)),
                }

            yield turn

    return stand


def run(port: int, seconds: int, resumes: bool) -> Figures:
    """Run the client on its core, and return the figures that it has seen."""
    client = [PYTHON, "-m", "bench.handshakes", str(port), str(seconds), "resumes" if resumes else "whole"]
    command = ["taskset", "-c", str(CLIENT_CORE), *client]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + GRACE_S)
    seen: Figures = json.loads(done.stdout)
    return seen


class Client:
    """Connects, asks and goes, again and again."""

    def __init__(self, port: int, resumes: bool) -> None:
        self._port = port
        self._resumes = resumes
        self._context = certificate.unverifying()
        self._session: ssl.SSLSession | None = None
        self._times_ms: list[float] = []
        self._resumed = 0
        self._failures = 0

    def run(self, seconds: float) -> Figures:
        began_s = time.perf_counter()
        while time.perf_counter() - began_s < seconds:
            self._connect()
        duration_s = time.perf_counter() - began_s
        requests = len(self._times_ms)
        return {
            "requests": requests,
            "failures": self._failures,
            "duration_s": duration_s,
            "resumed": self._resumed / max(1, requests),
            "p50_ms": percentile(self._times_ms, 0.5) if requests else 0.0,
            "p99_ms": percentile(self._times_ms, 0.99) if requests else 0.0,
        }

    def _connect(self) -> None:
        began_s = time.perf_counter()
        try:
            with (
                socket.create_connection(("127.0.0.1", self._port), ANSWER_S) as plain,
                self._context.wrap_socket(plain, session=self._session) as sock,
            ):
                sock.sendall(REQUEST)
                answer = b"".join(iter(lambda: sock.recv(1 << 14), b""))
                # Tickets come behind the handshake (RFC 8446 section 4.6.1).
                self._session = sock.session if self._resumes else None
                self._resumed += bool(sock.session_reused)
        except OSError:
            self._failures += 1
            return
        if not answer.endswith(hello.BODY):
            self._failures += 1
        self._times_ms.append((time.perf_counter() - began_s) * 1e3)


if __name__ == "__main__":
    _, port, seconds, kind = sys.argv
    print(json.dumps(Client(int(port), kind == "resumes").run(float(seconds))))
