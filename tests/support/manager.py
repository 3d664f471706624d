"""A small service manager: it passes sockets as systemd does (sd_listen_fds(3)) and collects notifications."""

import contextlib
import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from support.patience import PATIENCE_S

PASS = """\
import fcntl, os, sys
fds = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 100) for fd in sys.argv[1].split(",")]
for number, fd in enumerate(fds):
    os.dup2(fd, 3 + number)
    os.close(fd)
os.environ["LISTEN_PID"] = os.environ.get("LISTEN_PID", str(os.getpid()))
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Puts descriptors where the protocol wants them; the process stays the same, so the pid is right."""


def passing(sockets: list[socket.socket]) -> dict[str, object]:
    """Options of the `serve` and `build` fixtures that have a server get these sockets."""
    fds = tuple(sock.fileno() for sock in sockets)
    return {
        "bind": None,
        "prefix": [sys.executable, "-c", PASS, ",".join(map(str, fds))],
        "pass_fds": fds,
        "env": {"LISTEN_FDS": str(len(fds))},
    }


class Ear:
    """The socket to which a server sends notifications (sd_notify(3))."""

    def __init__(self, path: Path, patience_s: float) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(patience_s)
        self._unread: list[str] = []

    def wait(self, word: str) -> str:
        """The rest of the next assignment that begins with this; those before it are forgotten."""
        while True:
            while not self._unread:
                self._unread = self._socket.recv(4096).decode().splitlines()
            assignment = self._unread.pop(0)
            if assignment.startswith(word):
                return assignment.removeprefix(word)

    def heard(self) -> list[str]:
        """All assignments that have come by now, which are forgotten."""
        heard, self._unread = self._unread, []
        while select.select([self._socket], [], [], 0)[0]:
            heard += self._socket.recv(4096).decode().splitlines()
        return heard

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def listening(directory: Path, patience_s: float = PATIENCE_S) -> Iterator[Ear]:
    ear = Ear(directory / "notify", patience_s)
    try:
        yield ear
    finally:
        ear.close()
