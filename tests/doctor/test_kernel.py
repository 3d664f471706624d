"""What docs/doctor.md says that this kernel does with a queue that is full: measured anew."""

import contextlib
import errno
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.netns import Namespace
from support.patience import PATIENCE_S, eventually

ESTABLISHED, SYN_SENT, CLOSE = 1, 2, 7
"""States of a TCP socket (include/net/tcp_states.h), the first byte of TCP_INFO."""


def state(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


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
        """Who has sent its SYN; on a loopback that is dealt with when connect(2) returns."""

        def connect() -> socket.socket:
            sock = socket.socket(at.family)
            sock.setblocking(False)
            sock.connect_ex(at.getsockname())
            return sock

        return self.make(connect)

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
    states = [state(party.guest(listener)) for _ in range(backlog + 4)]
    assert states == [ESTABLISHED] * (backlog + 1) + [SYN_SENT] * 3


def test_who_was_dropped_gets_in_by_itself_when_there_is_room(party: Party) -> None:
    listener = party.listener(0)
    party.guest(listener)
    late = party.guest(listener)
    assert state(late) == SYN_SENT
    party.accept(listener)
    assert state(late) == SYN_SENT, "not before it tries again"
    eventually(lambda: state(late) == ESTABLISHED, "its next SYN is answered")


@pytest.mark.parametrize(("abort_on_overflow", "seen"), [(0, "nothing"), (1, "ECONNRESET")])
def test_who_was_told_to_be_connected_is_reset_only_with_abort_on_overflow(
    party: Party, abort_on_overflow: int, seen: str
) -> None:
    party.namespace.sysctl("net.ipv4.tcp_abort_on_overflow", abort_on_overflow)
    # With it a handshake ends at the first byte (tcp(7)), so that several can be under way when the queue fills.
    listener = party.listener(4, lambda sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60))
    early = [party.guest(listener) for _ in range(4)]
    for guest in early[:3]:
        guest.send(b"x")
    guests = early + [party.guest(listener) for _ in range(3)]
    assert {state(guest) for guest in guests} == {ESTABLISHED}, "so they are told"
    for guest in guests[3:]:
        guest.send(b"x")
    # Five fit.
    assert [error_of(guest) for guest in guests] == ["nothing"] * 5 + [seen] * 2
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
    party.listener(64, lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1), port)
    guests = [party.guest(first) for _ in range(40)]
    assert select.select([first], [], [], 0)[0], "by chance all went to the other"
    first.close()
    seen = {error_of(guest) for guest in guests}
    assert ("ECONNRESET" in seen) == reset and seen <= {"nothing", "ECONNRESET"}


def test_only_listen_takes_a_higher_limit_in(party: Party) -> None:
    def backlog() -> int:
        # tcpi_sacked of a listener (tcp_get_info).
        return int.from_bytes(listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[28:], "little")

    party.namespace.sysctl("net.core.somaxconn", 16)
    listener = party.listener(1000)
    assert backlog() == 16
    party.namespace.sysctl("net.core.somaxconn", 4096)
    assert backlog() == 16
    party.namespace.run(lambda: listener.listen(1000))
    assert backlog() == 1000
    party.namespace.sysctl("net.core.somaxconn", 16)
    assert backlog() == 1000
