"""This kernel treats a full queue as docs/diagnosis.md says: measured here again."""

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.netns import Namespace
from support.patience import PATIENCE_S, eventually

ESTABLISHED, SYN_SENT = 1, 2
"""States of a TCP socket (include/net/tcp_states.h), the first byte of TCP_INFO."""


def state(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def info(sock: socket.socket, offset: int) -> int:
    """A number of `struct tcp_info` (include/uapi/linux/tcp.h)."""
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, offset + 4)[offset:], "little")


def queued(listener: socket.socket) -> int:
    """How many wait to be accepted: tcpi_unacked of a listener (tcp_get_info)."""
    return info(listener, 24)


def retransmitted(sock: socket.socket) -> int:
    """tcpi_total_retrans."""
    return info(sock, 100)


class Party:
    """Sockets of a namespace, closed at its end."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._open = contextlib.ExitStack()

    def make(self, function: Callable[[], socket.socket]) -> socket.socket:
        return self._open.enter_context(self.namespace.run(function))

    def listener(
        self, backlog: int, before: Callable[[socket.socket], object] = lambda _: None, port: int = 0
    ) -> socket.socket:
        def listen() -> socket.socket:
            sock = socket.socket()
            before(sock)
            sock.bind(("127.0.0.1", port))
            sock.listen(backlog)
            return sock

        return self.make(listen)

    def guest(self, at: socket.socket) -> socket.socket:
        """A client that has sent its SYN. A busy machine may deal with that later (ksoftirqd), also on a loopback."""

        def connect() -> socket.socket:
            sock = socket.socket(at.family)
            sock.setblocking(False)
            assert sock.connect_ex(at.getsockname()) in (0, errno.EINPROGRESS)
            return sock

        return self.make(connect)

    def queuing_guest(self, at: socket.socket) -> socket.socket:
        """A client that is in the queue, so that the next SYN finds it there."""
        before = queued(at)
        guest = self.guest(at)
        eventually(lambda: queued(at) == before + 1, f"number {before + 1} is in the queue")
        return guest

    def overflows(self) -> int:
        """How often a client found a full queue: ListenOverflows of TcpExt."""

        def read() -> str:
            return Path("/proc/thread-self/net/netstat").read_text()

        names, values = [line.split() for line in self.namespace.run(read).splitlines() if line.startswith("TcpExt:")]
        return int(values[names.index("ListenOverflows")])

    def accept(self, listener: socket.socket) -> None:
        self._open.enter_context(listener.accept()[0])

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def party(namespace: Namespace) -> Iterator[Party]:
    party = Party(namespace)
    yield party
    party.close()


def error_of(sock: socket.socket) -> str:
    try:
        return "end" if not sock.recv(1) else "data"
    except BlockingIOError:
        return "nothing"
    except OSError as error:
        return errno.errorcode[error.errno or 0]


@pytest.mark.parametrize("abort_on_overflow", [0, 1])
@pytest.mark.parametrize("syncookies", [0, 1, 2])
@pytest.mark.parametrize("backlog", [0, 4])
def test_one_more_than_the_backlog_fits_and_then_a_syn_is_dropped_whatever_else_is_set(
    party: Party, backlog: int, syncookies: int, abort_on_overflow: int
) -> None:
    party.namespace.sysctl("net.ipv4.tcp_syncookies", syncookies)
    party.namespace.sysctl("net.ipv4.tcp_abort_on_overflow", abort_on_overflow)
    listener = party.listener(backlog)
    early = [party.queuing_guest(listener) for _ in range(backlog + 1)]
    assert party.overflows() == 0
    late = [party.guest(listener) for _ in range(3)]
    eventually(lambda: party.overflows() >= len(late), "the others find it full")
    assert [state(guest) for guest in early + late] == [ESTABLISHED] * (backlog + 1) + [SYN_SENT] * 3
    assert queued(listener) == backlog + 1


def test_who_was_dropped_gets_in_by_itself_when_there_is_room(party: Party) -> None:
    listener = party.listener(0)
    party.queuing_guest(listener)
    late = party.guest(listener)
    eventually(lambda: party.overflows() > 0, "the queue is full")
    assert state(late) == SYN_SENT
    tries = retransmitted(late)
    party.accept(listener)
    eventually(lambda: state(late) == ESTABLISHED, "its next SYN is answered")
    assert retransmitted(late) > tries, "not before it tries again"


@pytest.mark.parametrize(("abort_on_overflow", "seen"), [(0, "nothing"), (1, "ECONNRESET")])
def test_who_was_told_to_be_connected_is_reset_only_with_abort_on_overflow(
    party: Party, abort_on_overflow: int, seen: str
) -> None:
    party.namespace.sysctl("net.ipv4.tcp_abort_on_overflow", abort_on_overflow)
    # With it a handshake ends at the first byte (tcp(7)), so that several can be under way when the queue fills.
    listener = party.listener(4, lambda sock: sock.setsockopt(socket.SOL_TCP, socket.TCP_DEFER_ACCEPT, 60))

    def invite(count: int) -> list[socket.socket]:
        guests = [party.guest(listener) for _ in range(count)]
        eventually(lambda: {state(guest) for guest in guests} == {ESTABLISHED}, "they are told that they are connected")
        return guests

    def come_in(guests: list[socket.socket]) -> None:
        for guest in guests:
            before = queued(listener)
            guest.send(b"x")
            eventually(lambda before=before: queued(listener) == before + 1, f"number {before + 1} is in the queue")

    guests = invite(4)
    come_in(guests[:3])
    guests += invite(3)
    # Five fit.
    come_in(guests[3:5])
    assert party.overflows() == 0
    for guest in guests[5:]:
        guest.send(b"x")
    eventually(lambda: party.overflows() >= 2, "two do not fit")
    assert [error_of(guest) for guest in guests[:5]] == ["nothing"] * 5
    for guest in guests[5:]:
        eventually(lambda guest=guest: error_of(guest) == seen, f"they see {seen}")
    if not abort_on_overflow:
        listener.settimeout(PATIENCE_S)
        for _ in guests:
            party.accept(listener)


@pytest.mark.parametrize("backlog", [0, 4])
def test_a_full_unix_queue_is_eagain_or_a_wait(party: Party, tmp_path: Path, backlog: int) -> None:
    def listen() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / "s"))
        sock.listen(backlog)
        return sock

    listener = party.make(listen)

    def connect() -> tuple[socket.socket, int]:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        return sock, sock.connect_ex(str(tmp_path / "s"))

    errors = []
    for _ in range(backlog + 3):
        sock, error = connect()
        party.make(lambda sock=sock: sock)
        errors.append(error)
    assert errors == [0] * (backlog + 1) + [errno.EAGAIN] * 2

    with socket.socket(socket.AF_UNIX) as patient:
        waiting = threading.Thread(target=patient.connect, args=[str(tmp_path / "s")])
        waiting.start()
        party.accept(listener)
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()


@pytest.mark.parametrize(("migrate", "reset"), [(0, True), (1, False)])
def test_who_closes_one_of_several_sockets_resets_its_queue_unless_it_may_migrate(
    party: Party, migrate: int, reset: bool
) -> None:
    party.namespace.sysctl("net.ipv4.tcp_migrate_req", migrate)
    first = party.listener(64, lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1))
    port = first.getsockname()[1]
    second = party.listener(64, lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1), port)
    guests = [party.guest(first) for _ in range(40)]
    eventually(lambda: queued(first) + queued(second) == len(guests), "all are in a queue")
    of_first = queued(first)
    assert of_first > 0, "by chance all went to the other"
    first.close()
    if not reset:
        eventually(lambda: queued(second) == len(guests), "all are in the queue that is left")
    # The kernel reports an error once.
    resets: set[socket.socket] = set()

    def all_told() -> bool:
        resets.update(guest for guest in guests if guest not in resets and error_of(guest) == "ECONNRESET")
        return len(resets) == (of_first if reset else 0)

    eventually(all_told, f"the {of_first} of that queue are reset" if reset else "nobody is reset")
    assert {error_of(guest) for guest in guests if guest not in resets} <= {"nothing"}


def test_only_listen_takes_a_higher_limit_in(party: Party) -> None:
    def backlog() -> int:
        # tcpi_sacked of a listener (tcp_get_info).
        return info(listener, 28)

    party.namespace.sysctl("net.core.somaxconn", 16)
    listener = party.listener(1000)
    assert backlog() == 16
    party.namespace.sysctl("net.core.somaxconn", 4096)
    assert backlog() == 16
    party.namespace.run(lambda: listener.listen(1000))
    assert backlog() == 1000
    party.namespace.sysctl("net.core.somaxconn", 16)
    assert backlog() == 1000
