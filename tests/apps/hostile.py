"""Apps that turn against the server, over what its processes share: channels, logs, descriptors."""

import array
import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

from bodies import Announcing
from rendezvous import announce, wait_for_pass
from shared_memory import exchange

FLOOD_S_MAX = 60.0
ROOM_S_MAX = 0.5


def reporting(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Sends the master all messages it can, in each worker's name, and goes on."""
    answer: object = ROUTES[environ["PATH_INFO"]](environ)
    start_response("200 OK", [])
    return [json.dumps(answer).encode()]


def channels() -> list[socket.socket]:
    """All sockets of this process that carry messages: the server's own."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            opened = socket.socket(fileno=os.dup(int(name)))
            if opened.type == socket.SOCK_SEQPACKET:
                found.append(opened)
            else:
                opened.close()
    return found


def vocabulary(pids: list[int], workers: int) -> Iterator[object]:
    """Every message that any process of the tree sends or has ever sent, about each worker, in several epochs."""
    yield from ["AcceptorReady", "TemplateReady", "Ready", "Here", "Dumped", "Quit", "Accept", "Reopen"]
    yield {"Changed": {"path": "app.py"}}
    for worker in range(workers):
        for epoch in (1, 2, 9_999):
            who = {"index": worker, "epoch": epoch}
            yield from ({name: who} for name in ("Replace", "NotForked", "Dumped"))
            yield {"Due": {"worker": who, "served": 1}}
            yield {"Listen": {"worker": who, "bind": "127.0.0.1:0"}}
            yield from ({name: {"worker": who, "pid": pid}} for name in ("WorkerReady", "Forked") for pid in pids)
            yield {"Forked": {"worker": who, "pid": None}}
            yield {"WorkerGone": who}


def say(channel: socket.socket, message: bytes) -> None:
    """Send a message. The master makes room in time; no other process need."""
    deadline = time.monotonic() + ROOM_S_MAX
    while time.monotonic() < deadline:
        try:
            channel.send(message, socket.MSG_DONTWAIT)
            return
        except BlockingIOError:
            time.sleep(0.001)
    raise TimeoutError


def say_all(said: list[bytes]) -> None:
    for channel in channels():
        with channel, contextlib.suppress(TimeoutError):
            for message in said:
                say(channel, message)


def attack(environ: WSGIEnvironment) -> object:
    """Say all of it, as this process and as a child of it; then flood until told to stop."""
    order = json.loads(environ["wsgi.input"].read())
    said = [json.dumps(message).encode() for message in vocabulary(order["pids"], order["workers"])]
    said += [b"", b"{", b"null", b"\xff" * 4096, b'"Ready"' + b" " * 4000]
    say_all(said)
    child = os.fork()
    if child == 0:
        say_all(said)
        os._exit(0)
    os.waitpid(child, 0)
    threading.Thread(target=flood, args=(Path(order["until"]),), daemon=True).start()
    return os.getpid()


def flood(until: Path) -> None:
    deadline = time.monotonic() + FLOOD_S_MAX
    pipe = os.pipe()
    while not until.exists() and time.monotonic() < deadline:
        for channel in channels():
            with channel, contextlib.suppress(OSError):
                while True:
                    channel.send(b'"Here"', socket.MSG_DONTWAIT)
                    socket.send_fds(channel, [b'{"Changed":{"path":"x"}}'], [pipe[0]], socket.MSG_DONTWAIT)


def pid(_: WSGIEnvironment) -> object:
    return os.getpid()


def close_everything(_: WSGIEnvironment) -> object:
    os.closerange(3, 1024)
    return os.getpid()


def sleep(environ: WSGIEnvironment) -> object:
    time.sleep(float(environ["QUERY_STRING"]))
    return os.getpid()


ROUTES = {"/": pid, "/attack": attack, "/close-everything": close_everything, "/sleep": sleep}


TEXTS = ("path", "query", "protocol", "scheme", "reason", "remote_addr", "server_name", "server_port")
NUMBERS = ("time_us", "took_us", "status", "bytes", "remote_port", "pid")
ACCESS = {
    "access": {
        **dict.fromkeys(TEXTS, ""),
        **dict.fromkeys(NUMBERS, 1),
        "method": "GET",
        "target": "/forged",
        "protocol": "HTTP/1.1",
        "fields": [],
        "answer": [],
        "atoms": {},
    }
}
ERROR = {"error": {"time_us": 1_700_000_000_000_000, "level": 40, "text": "forged by an app"}}


def forging(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Sends forged log lines, which only the server's own processes may send, to each message socket that it has."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            found = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with found:
            if found.type == socket.SOCK_SEQPACKET:
                for forged in (ACCESS, ERROR):
                    found.send(json.dumps(forged, separators=(",", ":")).encode() + b"\n", socket.MSG_DONTWAIT)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]


SLOTS, TURNS = 16, 4
"""The slots, and their turns, that may have an answer under way in a server of two workers, early in its life."""

MESSAGE_BYTES_MAX = 4096
"""The longest message to the acceptor."""
TOO_LONG = 8


def meddling(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Meddles with what other workers send to the acceptor: their files, and what lies in memory."""
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
        return [str(flood_with_files()).encode()]
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


def flood_with_files() -> int:
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


WRITES_S = 20


def scribble_on_stacks() -> None:
    """Among the stacks that the server has every worker write, to a memfd that all of them have open."""
    names = [name for name in os.listdir("/proc/self/fd") if name.isdigit()]
    (dumps,) = (int(name) for name in names if "stanchion-dumps" in link(f"/proc/self/fd/{name}"))
    line = f"  File {os.environ['FOUL']}\n".encode() + b"\xff\xfe\n"
    until = time.monotonic() + WRITES_S
    while time.monotonic() < until:
        os.write(dumps, line)
        time.sleep(0.001)


def link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def foul_mouthed(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Says $FOUL in what looks like its worker's stacks."""
    threading.Thread(target=scribble_on_stacks, daemon=True).start()
    time.sleep(WRITES_S)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"late\n"]
