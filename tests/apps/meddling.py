"""An app whose worker meddles with what others send to the acceptor: their files, and what lies in memory."""

import array
import contextlib
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

from files import Announcing
from rendezvous import announce, wait_for_pass
from shared_memory import exchange

SLOTS, TURNS = 16, 4
"""The slots, and their turns, that may have an answer under way in a server of two workers, early in its life."""

MESSAGE_BYTES_MAX = 4096
"""The longest message to the acceptor."""
TOO_LONG = 8


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path, size = environ["PATH_INFO"], int(environ.get("CONTENT_LENGTH") or 0)
    start_response("200 OK", [("X-Pid", str(os.getpid()))])
    if path == "/file":
        announce("asked")
        wait_for_pass()
        answer: Iterable[bytes] = environ["wsgi.file_wrapper"](Announcing(open(os.environ["GOOD"], "rb")))
        return answer
    if path == "/meddle":
        announce("asked", "OTHER_GATE")
        wait_for_pass("OTHER_GATE")
        announce(f"sent {meddle()}", "OTHER_GATE")
    if path == "/too-long":
        announce("asked", "OTHER_GATE")
        wait_for_pass("OTHER_GATE")
        announce(f"sent {send_too_long()}", "OTHER_GATE")
        wait_for_pass("OTHER_GATE")
    if path == "/flood":
        return [str(flood()).encode()]
    if path == "/secret":
        return [environ["wsgi.input"].read(size)[::-1]]
    if path == "/peep":
        # In hexadecimal, or the question itself would be found.
        what = bytes.fromhex(environ["QUERY_STRING"])
        with exchange() as memory:
            return [str(len(memory.find(what))).encode()]
    return [b"fine"]


def channel() -> socket.socket:
    """The channel to the acceptor: the socket that the other workers have too."""
    master = os.getppid()
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    theirs = {link for child in children if int(child) != os.getpid() for link in links(child).values()}
    for fd, link in links("self").items():
        if link in theirs and link.startswith("socket:"):
            found = socket.socket(fileno=os.dup(fd))
            if (found.family, found.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET):
                return found
    raise AssertionError("there is no way to send files")


def links(pid: str) -> dict[int, str]:
    """The open descriptors of a process, as far as this one may read them."""
    found = {}
    with contextlib.suppress(PermissionError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


def send(sock: socket.socket, slot: int, turn: int, fd: int) -> None:
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    sock.sendmsg([struct.pack("=II", slot, turn)], beside, socket.MSG_DONTWAIT)


def meddle() -> int:
    """Offer a file of our own for every answer that may be under way."""
    sent = 0
    with channel() as sock, open(os.environ["EVIL"], "rb") as evil:
        for turn in range(TURNS):
            for slot in range(SLOTS):
                send(sock, slot, turn, evil.fileno())
                sent += 1
    return sent


def send_too_long() -> int:
    """More messages than the acceptor looks for files before the next answer, each over its limit."""
    with channel() as sock:
        for _ in range(TOO_LONG):
            sock.send(bytes(MESSAGE_BYTES_MAX + 1), socket.MSG_DONTWAIT)
    return TOO_LONG


def flood() -> int:
    """Offer files until the kernel takes no more."""
    sent = 0
    with channel() as sock, open(os.environ["EVIL"], "rb") as evil:
        try:
            while sent < 100_000:
                send(sock, sent % SLOTS, sent % TURNS, evil.fileno())
                sent += 1
        except BlockingIOError:
            return sent
    raise AssertionError("there is no end to what the kernel takes")
