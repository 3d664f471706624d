"""Facts for the doctor, made up; a process that it asks in vain; and the doctor itself, run for real."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stanchion.doctor.facts import Facts, Listener, Network, Owner
from support.patience import PATIENCE_S

SYSCTLS = {
    "net.core.somaxconn": "4096",
    "net.ipv4.ip_local_port_range": "32768 60999",
    "net.ipv4.tcp_abort_on_overflow": "0",
    "net.ipv4.tcp_max_syn_backlog": "2048",
    "net.ipv4.tcp_migrate_req": "0",
    "net.ipv4.tcp_syn_linear_timeouts": "4",
    "net.ipv4.tcp_syn_retries": "6",
    "net.ipv4.tcp_syncookies": "1",
    "net.ipv4.tcp_tw_reuse": "2",
}
"""The kernel's defaults."""

LINK = "net:[1]"


def owner(name: str = "app", pid: int = 7, command: str = "", **known: Any) -> Owner:
    return Owner(pid, name, command or name, **known)


def tcp(waiting: int = 0, backlog: int = 511, drops: int = 0, address: str = "127.0.0.1:80", **known: Any) -> Listener:
    return Listener("tcp", address, known.pop("inode", 1), waiting, backlog, drops, **known)


def unix(waiting: int = 0, backlog: int = 511, address: str = "/run/app.sock", **known: Any) -> Listener:
    return Listener("unix", address, known.pop("inode", 2), waiting, backlog, None, **known)


def network(*listeners: Listener, sysctls: dict[str, str] | None = None, **known: Any) -> Network:
    whole = {"name": "this one", "pid": None, "link": LINK, "counters": {}, **known}
    return Network(listeners=listeners, sysctls={**SYSCTLS, **(sysctls or {})}, **whole)


def facts(*networks: Network, **known: Any) -> Facts:
    return Facts("6.18", networks, **known)


def listening(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


class Liar:
    """Listens where a stanchion should, answers one request, and keeps what it was sent."""

    def __init__(self, path: Path, answer: bytes) -> None:
        self.sent = b""
        self._answer = answer
        self._sock = listening(path)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._sock.accept()
            except OSError:
                return
            with client:
                self.sent += client.recv(4096)
                client.sendall(self._answer)

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._thread.join()


class Dripper:
    """Listens where a stanchion should, and answers with a byte now and then, without end."""

    def __init__(self, path: Path) -> None:
        self.left = threading.Event()
        """Its client has gone."""
        self._over = threading.Event()
        self._sock = listening(path)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._sock.accept()
        with client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while not self._over.wait(0.05):
                client.sendall(b" ")
        self.left.set()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._sock.close()


class Said(NamedTuple):
    exit_code: int
    text: str
    error: str

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.text)

    def findings(self, about: str = "") -> list[dict[str, Any]]:
        """Those about one server, or all: other tests may have servers in the same network."""
        return [finding for finding in self.data["findings"] if about in ("", finding["about"])]

    def codes(self, about: str = "") -> list[str]:
        return [finding["code"] for finding in self.findings(about)]

    def finding(self, code: str, about: str = "") -> dict[str, Any]:
        (found,) = [finding for finding in self.findings(about) if finding["code"] == code]
        return found

    def listener(self, address: str) -> dict[str, Any]:
        listeners = [one for network in self.data["facts"]["networks"] for one in network["listeners"]]
        (found,) = [listener for listener in listeners if listener["address"] == address]
        return found


def doctor(*arguments: str, prefix: Sequence[str] = (), stdin: str = "") -> Said:
    """Run `stanchion doctor`."""
    command = [*prefix, sys.executable, "-m", "stanchion", "doctor", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=3 * PATIENCE_S)
    return Said(done.returncode, done.stdout, done.stderr)
