"""Which of three workers gets a connection: the order is the kernel's, and no timing is asserted."""

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from stanchion_lab.scenario import SHIPPED
from support import processes
from support.patience import PATIENCE_S, eventually
from support.ports import row_of_ports

ACCEPTING = SHIPPED / "files/accepting.py"
WORKERS = 3
REQUEST = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


class Server:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.workers = psutil.Process(process.pid).children()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def hold(self) -> socket.socket:
        """A connection that keeps its worker busy."""
        client = self.connect()
        eventually(lambda: in_accept_queues(self.port) == 0, "somebody accepts it")
        return client

    def ask(self, client: socket.socket | None = None) -> int:
        """The number of the worker that answers; all workers that are not kept busy wait again."""
        client = client or self.connect()
        client.sendall(REQUEST)
        number = worker(client)
        eventually(self.all_wait, "all workers wait again")
        return number

    def all_wait(self) -> bool:
        return all(one.status() == psutil.STATUS_SLEEPING for one in self.workers)


def worker(client: socket.socket) -> int:
    """The number of the worker that has answered; the answer is read up to the connection's end."""
    answer = b""
    with client:
        while more := client.recv(4096):
            answer += more
    head, _, _ = answer.partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return int(fields[b"X-Worker"])


@contextmanager
def serving(way: str) -> Iterator[Server]:
    with row_of_ports(1) as port, accepting(way, port) as process:
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() == "" and process.wait(PATIENCE_S) == os.EX_UNAVAILABLE:
            pytest.skip(process.stderr.read())
        server = Server(process, port)
        try:
            yield server
        finally:
            for one in server.workers:
                processes.kill(one)


@contextmanager
def accepting(way: str, port: int, preexec_fn: Callable[[], None] | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(ACCEPTING), way, f"127.0.0.1:{port}", str(WORKERS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=preexec_fn
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("way", "order"),
    [
        ("blocking", [0, 1, 2, 0, 1, 2]),
        ("epoll-exclusive", [0, 0, 0, 0, 0, 0]),
        ("epoll-rotated", [0, 1, 2, 0, 1, 2]),
        ("io-uring", [0, 1, 2, 0, 1, 2]),
        ("io-uring-multishot", [0, 0, 0, 0, 0, 0]),
    ],
)
def test_order_of_six_connections(way: str, order: list[int]) -> None:
    with serving(way) as server:
        assert [server.ask() for _ in order] == order


@pytest.mark.parametrize(("way", "next_three"), [("epoll-exclusive", [0, 0, 0]), ("blocking", [2, 0, 1])])
def test_who_came_back_last_is_not_first(way: str, next_three: list[int]) -> None:
    """Exclusive epolls are woken in the order of their registration, and not the last sleeper first."""
    with serving(way) as server:
        held = [server.hold(), server.hold()]
        assert [server.ask(client) for client in held] == [0, 1]
        assert [server.ask() for _ in next_three] == next_three


def test_epoll_that_is_shared_by_all_answers_each_connection_once() -> None:
    with serving("epoll") as server:
        assert {server.ask() for _ in range(6)} <= set(range(WORKERS))


def test_connections_wait_in_the_queue_of_a_stopped_worker_while_others_are_idle() -> None:
    """Once in 30 thousand million runs, none of 60 connections would hash to one of three queues."""
    with stopped("blocking") as waiting:
        assert waiting == 0
    with stopped("reuseport") as waiting:
        assert waiting > 0


@contextmanager
def stopped(way: str) -> Iterator[int]:
    """How many of 60 connections are not accepted, when one of three workers is stopped and the others are idle."""
    with serving(way) as server, ExitStack() as stack:
        victim = server.workers[1]
        victim.suspend()
        eventually(lambda: victim.status() == psutil.STATUS_STOPPED, "worker 1 is stopped")
        clients = [stack.enter_context(server.connect()) for _ in range(60)]
        for client in clients:
            client.sendall(REQUEST)
        eventually(
            lambda: sum(map(readable, clients)) + in_accept_queues(server.port) == len(clients),
            "each connection is answered or in a queue",
        )
        yield in_accept_queues(server.port)
        victim.resume()
        assert {worker(client) for client in clients} <= set(range(WORKERS))


def readable(client: socket.socket) -> bool:
    return bool(select.select([client], [], [], 0)[0])


def in_accept_queues(port: int) -> int:
    """The receive queue of a listening socket is its accept queue: proc(5), /proc/net/tcp."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
    return sum(int(row[4].partition(":")[2], 16) for row in listening)


@pytest.mark.parametrize("way", ["blocking", "epoll", "io-uring-multishot"])
def test_workers_end_with_their_parent(way: str) -> None:
    with serving(way) as server:
        server.process.send_signal(signal.SIGKILL)
        for one in server.workers:
            processes.gone(one.pid)


@pytest.mark.parametrize("way", ["io-uring", "io-uring-multishot"])
def test_says_that_the_kernel_allows_no_io_uring(way: str) -> None:
    with row_of_ports(1) as port, accepting(way, port, preexec_fn=forbid_io_uring) as process:
        assert process.stderr is not None
        assert process.wait(PATIENCE_S) == os.EX_UNAVAILABLE
        assert process.stderr.read() == "there is no io_uring here: Operation not permitted\n"


def forbid_io_uring() -> None:
    """Install a filter as containers do (seccomp(2)): it answers io_uring_setup with EPERM and allows the rest."""
    instruction = struct.Struct("=HBBI")
    program = b"".join(
        [
            instruction.pack(0x20, 0, 0, 0),  # load the number of the system call
            instruction.pack(0x15, 0, 1, 425),  # not io_uring_setup: skip one
            instruction.pack(0x06, 0, 0, 0x0005_0000 | errno.EPERM),  # SECCOMP_RET_ERRNO
            instruction.pack(0x06, 0, 0, 0x7FFF_0000),  # SECCOMP_RET_ALLOW
        ]
    )
    buffer = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, *words in ((38, 1, 0), (22, 2, ctypes.addressof(header))):  # no_new_privs, then the filter
        if libc.prctl(option, *map(ctypes.c_ulong, [*words, 0, 0])) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def test_refuses_what_it_does_not_know() -> None:
    with accepting("fair", 1) as process:
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None and "usage" in process.stderr.read()
