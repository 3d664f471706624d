"""Workers that share the arriving connections, in seven ways: accepting.py WAY HOST:PORT WORKERS

A small HTTP server that forks its workers beforehand. Each answer says who gave it (`X-Worker: 0`), and ends the
connection, so that every request is a connection. WAY is how the workers wait for the next one: see WAYS.
"""

import ctypes
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ring import Ring

BACKLOG = 511
REQUEST_BYTES_MAX = 16_384
PATIENCE_S = 10.0
PR_SET_PDEATHSIG = 1

Ready = Callable[[], None]
Serve = Callable[[socket.socket], None]


def blocking(listener: socket.socket, ready: Ready, serve: Serve) -> NoReturn:
    """Each worker sleeps in accept(2). The kernel puts a sleeper at the end of the socket's queue of waiters and wakes
    the first: the worker that has waited longest is next."""
    ready()
    while True:
        serve(listener.accept()[0])


def epoll(listener: socket.socket, ready: Ready, serve: Serve) -> NoReturn:
    """Each worker has an epoll(7) of its own, and each connection wakes all of them. One worker gets it."""
    epoll_and_accept(listener, ready, serve, select.EPOLLIN, rotate=False)


def epoll_exclusive(listener: socket.socket, ready: Ready, serve: Serve) -> NoReturn:
    """The kernel asks the epolls in the order in which they were added to the socket, until it finds one in which
    a worker sleeps. Nothing changes that order."""
    epoll_and_accept(listener, ready, serve, select.EPOLLIN | select.EPOLLEXCLUSIVE, rotate=False)


def epoll_rotated(listener: socket.socket, ready: Ready, serve: Serve) -> NoReturn:
    """As before, but a worker that has accepted takes its epoll out and adds it again, and so comes last. nginx does
    this since 1.21.6, with every sixteenth connection."""
    epoll_and_accept(listener, ready, serve, select.EPOLLIN | select.EPOLLEXCLUSIVE, rotate=True)


def epoll_and_accept(listener: socket.socket, ready: Ready, serve: Serve, events: int, *, rotate: bool) -> NoReturn:
    listener.setblocking(False)
    with select.epoll() as waiting:
        waiting.register(listener, events)
        ready()
        while True:
            waiting.poll()
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                continue  # another worker was woken too, and was faster
            if rotate:
                waiting.unregister(listener)
                waiting.register(listener, events)
            serve(connection)


def io_uring(listener: socket.socket, ready: Ready, serve: Serve) -> NoReturn:
    """One accept is submitted at a time, and the next one when the connection is served. It waits as an exclusive
    waiter of the socket, and each submission puts it at the end."""
    ring_and_accept(listener, ready, serve, multishot=False)


def io_uring_multishot(listener: socket.socket, ready: Ready, serve: Serve) -> NoReturn:
    """One submission accepts again and again, also while the worker is busy with what it has."""
    ring_and_accept(listener, ready, serve, multishot=True)


def ring_and_accept(listener: socket.socket, ready: Ready, serve: Serve, *, multishot: bool) -> NoReturn:
    ring = Ring(listener.fileno(), multishot)
    ring.arm()
    ready()
    while True:
        serve(socket.socket(fileno=ring.accept()))


WAYS: dict[str, Callable[[socket.socket, Ready, Serve], NoReturn]] = {
    "blocking": blocking,
    "epoll": epoll,
    "epoll-exclusive": epoll_exclusive,
    "epoll-rotated": epoll_rotated,
    # SO_REUSEPORT, socket(7): each worker has a listening socket of its own, and a hash of both addresses decides.
    "reuseport": blocking,
    "io-uring": io_uring,
    "io-uring-multishot": io_uring_multishot,
}


def main(way: str, listen: str, workers: int) -> int:
    host, _, port = listen.rpartition(":")
    own = way == "reuseport"
    listeners = [listening(host, int(port), own) for _ in range(workers if own else 1)]
    if way.startswith("io-uring"):
        try:
            os.close(Ring(listeners[0].fileno(), multishot=False).fd)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                raise
            print(f"there is no io_uring here: {error.strerror}", file=sys.stderr)
            return os.EX_UNAVAILABLE
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pids: list[int] = []
    try:
        for number in range(workers):
            # One after the other, so that they stand in the kernel's queue in the order of their numbers.
            pids.append(forked(number, WAYS[way], listeners[number if own else 0], asleep=WAYS[way] is blocking))
        print(f"{workers} workers wait at {listen}: {way}", flush=True)
        pid, status = os.wait()
        pids.remove(pid)
        print(f"a worker ended: {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
        return 1
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def listening(host: str, port: int, own: bool) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, own)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    return listener


def forked(
    number: int, wait: Callable[[socket.socket, Ready, Serve], NoReturn], listener: socket.socket, asleep: bool
) -> int:
    """A worker, which waits by now for its first connection."""
    parent = os.getpid()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # Not to outlive the parent; which may have died before this was asked for.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        try:
            os.close(ours)
            wait(listener, lambda: os.close(theirs), lambda connection: serve(number, connection))
        finally:
            # The parent's stack is above, and none of a worker's business: whatever was raised ends here.
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    os.close(theirs)
    os.read(ours, 1)  # ends when the worker has closed its end
    os.close(ours)
    while asleep and state(pid) in "RD":
        os.sched_yield()  # nothing but the kernel can say that it has come to sleep in accept(2)
    return pid


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def serve(number: int, connection: socket.socket) -> None:
    with connection, suppress(ConnectionError, TimeoutError):
        connection.settimeout(PATIENCE_S)
        request = b""
        while b"\r\n\r\n" not in request:
            more = connection.recv(REQUEST_BYTES_MAX - len(request))
            if not more:
                return
            request += more
        body = f"worker {number}\n"
        connection.sendall(
            f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            f"X-Worker: {number}\r\nConnection: close\r\n\r\n{body}".encode()
        )


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in WAYS:
        sys.exit(f"usage: accepting.py {'|'.join(WAYS)} HOST:PORT WORKERS")
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
