"""No room for another connection: idle connections go first, then all clients wait, and no process crashes."""

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from support import unshare
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.processes import sleeps
from support.server import Serve, Server
from support.wire import Response, Wire, request

pytestmark = pytest.mark.own("gunicorn's connections are its workers'")

NO_ACCEPT = r"connections cannot be accepted"
NO_SPOOL = r"bodies and answers cannot be written"
BIG = b"b" * 1_000_000
SPOOL_WRITE_BYTES = 256 << 10
"""How much the acceptor gathers before it writes (crates/stanchion-requests/src/body.rs)."""

BINDS = pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix:server.sock"])


NO_DISK = "needs root" if os.geteuid() else unshare.unavailable(unshare.with_disk("/mnt"))


def opened(server: Server, stack: ExitStack, count: int) -> list[Wire]:
    """Connections that have been answered and now idle, the longest first."""
    wires = [stack.enter_context(server.connect()) for _ in range(count)]
    for wire in wires:
        assert wire.get("/").status == 200
    return wires


@contextmanager
def limited(process: psutil.Process, kind: int, value: int) -> Iterator[None]:
    before = resource.prlimit(process.pid, kind)
    resource.prlimit(process.pid, kind, (value, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, kind, before)


def next_descriptor(process: psutil.Process) -> int:
    """The limit at which it has no descriptor left."""
    used = {int(name) for name in os.listdir(f"/proc/{process.pid}/fd")}
    return next(number for number in range(len(used) + 1) if number not in used)


class TestMaxConnections:
    @BINDS
    def test_the_one_that_has_idled_longest_makes_room(self, serve: Serve, counts: Counts, bind: str) -> None:
        server = serve("hello:app", "--max-connections", "3", "--keep-alive", "60", *counts.arguments, bind=bind)
        with ExitStack() as stack:
            wires = opened(server, stack, 3)
            assert wires[0].get("/").status == 200, "now the second has idled for longest"
            with server.connect() as newcomer:
                assert newcomer.get("/").status == 200
                assert wires[1].rest() == b"", "closed, not reset"
                for wire in (wires[0], wires[2]):
                    assert wire.get("/").status == 200
        events = counts.events()
        assert (events["connections_waited"], events["connections_shed"], events["accept_pauses"]) == (1, 1, 0)

    def test_no_connection_is_closed_without_a_newcomer(self, serve: Serve) -> None:
        server = serve("hello:app", "--max-connections", "3", "--keep-alive", "60")
        with ExitStack() as stack:
            wires = opened(server, stack, 3)
            assert wires[0].silent(1.5)
            assert [wire.get("/").closes() for wire in wires] == [False] * 3

    def test_one_that_never_asked_makes_room_too(self, serve: Serve) -> None:
        server = serve("hello:app", "--max-connections", "1")
        with server.connect() as silent, server.connect() as newcomer:
            assert newcomer.get("/").status == 200
            assert silent.rest() == b""

    def test_the_busy_stay_and_are_told_that_it_is_their_last(self, serve: Serve, gate: Gate) -> None:
        server = serve("waiting:app", "--max-connections", "2", "-w", "2", env=gate.environment)
        with ExitStack() as stack:
            busy = [stack.enter_context(server.connect()) for _ in range(2)]
            for wire in busy:
                wire.send(request("GET", "/wait"))
            gate.announcements(2)
            newcomer = stack.enter_context(server.connect())
            newcomer.send(request("GET", "/pid"))
            assert newcomer.silent(1.5), "there is no room"
            gate.let_pass(1)
            assert newcomer.response().status == 200
            gate.let_pass(1)
            answers = [wire.response() for wire in busy]
            assert [answer.status for answer in answers] == [200, 200]
            assert sorted(answer.closes() for answer in answers) == [False, True], "only while somebody waited"

    def test_a_client_that_still_takes_its_answer_does_not_idle(self, serve: Serve) -> None:
        server = serve("answers:app", "--max-connections", "1", "--response-buffer", "16M")
        with Wire(server.address.connect(receive_buffer_bytes=65536)) as slow, server.connect() as newcomer:
            size = 8_000_000
            slow.send(request("GET", f"/big-whole?{size}"))
            newcomer.send(request("GET", "/one-chunk"))
            assert newcomer.silent(2.5), "the only place is taken"
            response = slow.response()
            assert len(response.body) == size
            assert newcomer.response().status == 200


class TestDescriptors:
    @BINDS
    def test_out_of_descriptors_those_that_idle_are_closed_and_the_new_one_served(
        self, serve: Serve, counts: Counts, bind: str
    ) -> None:
        server = serve("hello:app", "--keep-alive", "60", *counts.arguments, bind=bind)
        acceptor = server.acceptor_by_name()
        with ExitStack() as stack:
            wires = opened(server, stack, 9)
            with limited(acceptor, resource.RLIMIT_NOFILE, next_descriptor(acceptor)):
                newcomer = stack.enter_context(server.connect())
                assert newcomer.get("/").status == 200
                assert wires[0].rest() == b""
                assert wires[8].get("/").status == 200
            # Not one for each attempt.
            server.log.only(NO_ACCEPT)
            assert server.acceptor_by_name().pid == acceptor.pid
            events = counts.events()
            assert events["accept_pauses"] > 0 and events["connections_shed"] > 0

    def test_without_an_idle_connection_accepting_waits_and_does_not_spin(self, serve: Serve, gate: Gate) -> None:
        server = serve("waiting:app", "-w", "2", env=gate.environment)
        acceptor = server.acceptor_by_name()
        with ExitStack() as stack:
            busy = [stack.enter_context(server.connect()) for _ in range(2)]
            for wire in busy:
                wire.send(request("GET", "/wait"))
            gate.announcements(2)
            with limited(acceptor, resource.RLIMIT_NOFILE, next_descriptor(acceptor)):
                newcomer = stack.enter_context(server.connect())
                newcomer.send(request("GET", "/pid"))
                before_s = sum(acceptor.cpu_times()[:2])
                assert newcomer.silent(2)
                assert sum(acceptor.cpu_times()[:2]) - before_s < 0.5
            gate.let_pass(2)
            assert [wire.response().status for wire in (*busy, newcomer)] == [200] * 3
            server.log.only(NO_ACCEPT)

    def test_no_descriptor_for_the_spool_is_503_for_that_body_only(self, serve: Serve) -> None:
        server = serve("echo:app", "--keep-alive", "60")
        acceptor = server.acceptor_by_name()
        with ExitStack() as stack:
            small, big = opened(server, stack, 2)
            with limited(acceptor, resource.RLIMIT_NOFILE, next_descriptor(acceptor)):
                assert_not_stored(big.post("/", BIG))
                assert small.post("/", b"small").json()["length"] == 5
            again = stack.enter_context(server.connect())
            assert again.post("/", BIG).json()["length"] == len(BIG)
        server.log.only(NO_SPOOL)

    def test_no_descriptor_for_a_file_to_send_is_502_for_that_request_only(
        self, serve: Serve, gate: Gate, tmp_path: Path
    ) -> None:
        path = tmp_path / "file"
        path.write_bytes(BIG)
        server = serve("bodies:files", "--keep-alive", "60", env={"FILE": str(path), **gate.environment})
        acceptor = server.acceptor_by_name()
        with server.connect() as wire:
            assert wire.get("/").body == BIG
            eventually(lambda: str(path) not in {file.path for file in acceptor.open_files()}, "it is closed again")
            with limited(acceptor, resource.RLIMIT_NOFILE, next_descriptor(acceptor)):
                assert wire.get("/").status == 502
            assert wire.get("/").body == BIG
        assert server.acceptor_by_name().pid == acceptor.pid

    @pytest.mark.privileges
    def test_no_connection_waits_for_the_table_of_open_files_to_grow(self, serve: Serve) -> None:
        # In a process with threads that takes an RCU grace period, in which the kernel's queue fills up.
        acceptor = serve("hello:app", "--max-connections", "1000").acceptor_by_name()
        status = Path(f"/proc/{acceptor.pid}/status").read_text()
        size = next(line for line in status.splitlines() if line.startswith("FDSize:"))
        assert int(size.split()[1]) >= 2 * 1000

    @pytest.mark.privileges
    def test_a_very_low_limit_still_lets_one_in(self, serve: Serve) -> None:
        server = serve("hello:app", prefix=["prlimit", "--nofile=64:64"])
        with server.connect() as wire:
            assert wire.get("/").status == 200


class TestSpool:
    def test_files_may_not_grow_so_large(self, serve: Serve) -> None:
        server = serve("echo:app")
        with limited(server.acceptor_by_name(), resource.RLIMIT_FSIZE, 400_000):
            for _ in range(3):
                with server.connect() as wire:
                    assert_not_stored(wire.post("/", BIG))
            with server.connect() as wire:
                assert wire.post("/", b"b" * 300_000).json()["length"] == 300_000
        with server.connect() as wire:
            assert wire.post("/", BIG).json()["length"] == len(BIG)
        # Not one for each body.
        server.log.only(NO_SPOOL)
        eventually(lambda: server.spooled() == [], "the files are gone")

    @pytest.mark.skipif(bool(NO_DISK), reason=NO_DISK)
    def test_a_full_disk_is_503_until_there_is_room(self, serve: Serve) -> None:
        server = serve("echo:app", prefix=unshare.with_disk('"$TMPDIR"', "1500k"))
        with server.connect() as first, server.connect() as second:
            first.send(request("POST", "/", ["Content-Length: 1000001"]) + BIG)
            # The rest stays in memory until the body ends. Asleep, so that no write is under way.
            written = len(BIG) - SPOOL_WRITE_BYTES
            eventually(
                lambda: sum(spooled_sizes(server)) >= written and sleeps(server.acceptor_by_name().pid),
                "as much of the first body is on the disk as will be for now",
            )
            assert_not_stored(second.post("/", BIG))
            # Files are removed beside the answering.
            eventually(lambda: len(spooled_sizes(server)) == 1, "there is room again")
            first.send(b"b")
            assert first.response().status == 200
        eventually(lambda: spooled_sizes(server) == [], "there is room again")
        with server.connect() as third:
            assert third.post("/", BIG).status == 200
        server.log.only(NO_SPOOL)


def spooled_sizes(server: Server) -> list[int]:
    """The sizes of the files in its temporary directory, in the mount namespace that it is in."""
    its_root = Path("/proc", str(server.acceptor_by_name().pid), "root")
    sizes = []
    for path in (its_root / server.tmp.relative_to("/")).rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                sizes.append(path.stat().st_size)
    return sizes


def assert_not_stored(response: Response) -> None:
    assert response.status == 503, response.body
    assert b"could not be stored" in response.body
    assert response.closes()
