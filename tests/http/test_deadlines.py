"""A client that takes too long gets a 408, and costs nothing meanwhile."""

import contextlib
import time
from pathlib import Path

import psutil
import pytest

from support.address import Address
from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import UNHURRIED, Serve, Server
from support.unread import taken_bytes, until_read
from support.wire import READ_BYTES, BrokenOff, Wire, request

pytestmark = pytest.mark.own("gunicorn has no deadlines for reading a request")


DEADLINE_S = 100
"""The deadline by the server's clock, which the test moves: steps before it may take any time of the machine's."""

SOON_S = 60
"""So much later it is not over yet, however long the machine takes meanwhile."""


@pytest.fixture(scope="module")
def hurried(shared_serve: Serve, shared_clock: Clock) -> Server:
    deadlines = ("--header-timeout", f"{DEADLINE_S}", "--body-timeout", f"{DEADLINE_S}", *UNHURRIED)
    return shared_serve("echo:app", *deadlines, "--keep-alive", "1000", env=shared_clock.environment)


def assert_timed_out(wire: Wire, clock: Clock) -> None:
    """When it is late after what has been sent, and not before."""
    until_read(wire)
    clock.advance(SOON_S)
    assert wire.silent(0.1)
    clock.advance(DEADLINE_S - SOON_S)
    assert_told_so(wire)


def assert_told_so(wire: Wire) -> None:
    response = wire.response()
    assert response.status == 408, response.body
    assert response.closes()
    assert wire.closed()


def test_a_head_that_stops_in_the_middle_gets_408(hurried: Server, shared_clock: Clock) -> None:
    with hurried.connect() as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: te")
        assert_timed_out(wire, shared_clock)


def test_a_head_that_dribbles_gets_408_all_the_same(hurried: Server, shared_clock: Clock) -> None:
    """The deadline is for the whole head: a byte now and then does not push it on (the attack called slow-loris)."""
    with hurried.connect() as wire:
        wire.send(b"GET / HTTP/1.1\r\n")
        until_read(wire)
        for _ in range(3):
            shared_clock.advance(DEADLINE_S * 0.2)
            wire.send(b"X-A: 1\r\n")
            # The server looks at a head that drips every five seconds.
            shared_clock.advance(5)
            until_read(wire)
            assert wire.silent(0.1)
        shared_clock.advance(DEADLINE_S * 0.4)
        assert_told_so(wire)


def test_the_second_request_of_a_connection_has_its_own_deadline(hurried: Server, shared_clock: Clock) -> None:
    with hurried.connect() as wire:
        assert wire.get("/").status == 200
        shared_clock.advance(SOON_S)
        wire.send(b"GET /")
        assert_timed_out(wire, shared_clock)


def test_a_body_that_stops_in_the_middle_gets_408(hurried: Server, shared_clock: Clock) -> None:
    with hurried.connect() as wire:
        wire.send(request("POST", "/", ["Content-Length: 10"]) + b"half")
        assert_timed_out(wire, shared_clock)


def test_a_chunked_body_that_stops_in_the_middle_gets_408(hurried: Server, shared_clock: Clock) -> None:
    with hurried.connect() as wire:
        wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]) + b"5\r\nhel")
        assert_timed_out(wire, shared_clock)


def test_a_slow_body_that_keeps_coming_is_served(hurried: Server, shared_clock: Clock) -> None:
    """The deadline of the body is for a pause, so that a long upload over a thin line gets through."""
    with hurried.connect() as wire:
        wire.send(request("POST", "/", ["Content-Length: 5"]))
        for byte in b"hello":
            until_read(wire)
            shared_clock.advance(SOON_S)
            assert wire.silent(0.1)
            wire.send(bytes([byte]))
        assert wire.response().json()["length"] == 5


def test_a_connection_that_never_says_a_word_is_closed(serve: Serve) -> None:
    """Here the server has its usual clock."""
    server = serve("echo:app", "--header-timeout", "1")
    since_s = time.monotonic()
    with server.connect() as wire:
        rest = wire.rest()
        assert rest == b"" or b" 408 " in rest, "before the first byte both are right"
        assert time.monotonic() - since_s >= 0.9


def test_many_slow_clients_do_not_keep_a_quick_one_waiting(hurried: Server, shared_clock: Clock) -> None:
    slow = []
    for _ in range(100):
        slow.append(hurried.connect())
        slow[-1].send(b"GET / HTTP/1.1\r\n")
    until_read(*slow)
    with hurried.connect() as quick:
        assert quick.get("/").status == 200
    shared_clock.advance(DEADLINE_S)
    for wire in slow:
        assert wire.response().status == 408
        wire.close()


@pytest.fixture
def admin(tmp_path: Path) -> Address:
    return Address(path=str(tmp_path / "admin"))


class TestBodyRate:
    """The rate counts over a window as long as `--body-timeout`, five seconds at least, which the start has too."""

    def test_a_body_that_drips_gets_408_though_it_never_pauses(
        self, serve: Serve, counts: Counts, clock: Clock
    ) -> None:
        server = serve("echo:app", "--min-body-rate", "1000", *counts.arguments, env=clock.environment)
        with server.connect() as slow, server.connect() as quick:
            for wire in (slow, quick):
                wire.send(request("POST", "/", ["Content-Length: 1000000"]) + b"b" * 20_000)
            until_read(slow, quick)
            for _ in range(20):
                clock.advance(2)
                if not slow.silent(0.2):
                    break
                slow.send(b"b")
                quick.send(b"b" * 4_000)
                until_read(slow, quick)
            response = slow.response()
            assert (response.status, response.closes()) == (408, True)
            assert b"too slowly" in response.body
            assert counts.requests()["refused_body_too_slow"] == 1
            quick.send(b"b" * 1_000_000)
            assert quick.response().status == 200

    def test_a_good_start_does_not_keep_room_in_the_spool_for_ever(
        self, serve: Serve, counts: Counts, clock: Clock
    ) -> None:
        """An attack: all of a body but its end, and then a byte now and then, which no pause is long enough for."""
        limits = ("--body-timeout", f"{DEADLINE_S}", "--max-spool", "2M")
        server = serve("echo:app", *limits, *counts.arguments, env=clock.environment)
        with server.connect() as slow:
            slow.send(request("POST", "/", ["Content-Length: 1500000"]) + b"b" * 1_400_000)
            eventually(lambda: counts.events()["bodies_spooled"] == 1, "it is in the spool")
            until_read(slow)
            for _ in range(20):
                clock.advance(DEADLINE_S * 0.2)
                if not slow.silent(0.2):
                    break
                slow.send(b"b")
                until_read(slow)
            assert b"too slowly" in slow.response().body, "the room is never given back"
            eventually(lambda: not server.spooled(), "its room is free")
            with server.connect() as other:
                assert other.post("/", b"b" * 1_400_000).status == 200
        assert counts.requests()["refused_body_too_slow"] == 1

    def test_a_stall_of_some_seconds_is_no_harm(self, serve: Serve, clock: Clock) -> None:
        limits = ("--body-timeout", f"{DEADLINE_S}", "--min-body-rate", "100")
        server = serve("echo:app", *limits, env=clock.environment)
        with server.connect() as wire:
            wire.send(request("POST", "/", ["Content-Length: 20000"]) + b"b" * 10_000)
            until_read(wire)
            clock.advance(SOON_S)
            assert wire.silent(0.1), "longer than the five seconds that everybody has"
            wire.send(b"b" * 10_000)
            assert wire.response().json()["length"] == 20_000

    def test_it_can_be_switched_off(self, serve: Serve, clock: Clock) -> None:
        server = serve("echo:app", "--min-body-rate", "0", env=clock.environment)
        with server.connect() as wire:
            wire.send(request("POST", "/", ["Content-Length: 8"]))
            for _ in range(7):
                until_read(wire)
                clock.advance(10)
                assert wire.silent(0.1)
                wire.send(b"b")
            wire.send(b"b")
            assert wire.response().json()["length"] == 8


WRITE_TIMEOUT = ("--write-timeout", f"{DEADLINE_S}", "--timeout", "0")
"""No deadline for the app, which may still be at work when the clock is set forward."""


class TestWriteTimeout:
    def test_a_client_that_takes_nothing_is_cut_off(self, serve: Serve, counts: Counts, clock: Clock) -> None:
        limits = (*WRITE_TIMEOUT, "--response-buffer", "1M")
        server = serve("answers:app", *limits, *counts.arguments, env=clock.environment)
        with Wire(server.address.connect(receive_buffer_bytes=65536)) as wire:
            wire.send(request("GET", "/big-whole?50000000"))
            assert wire.head().status == 200
            eventually(lambda: counts.events()["answers_spooled"] > 0, "the client is known to take nothing")
            clock.advance(SOON_S)
            with server.connect() as other:
                assert other.get("/with-length").status == 200
            eventually(lambda: connections(server) == 1, "the other one has left, and this one is still there")

            def is_cut_off() -> bool:
                # Its kernel may have taken some since the server looked last.
                clock.advance(DEADLINE_S)
                return connections(server) == 0

            eventually(is_cut_off, "the connection is cut off")
            server.log.wait(r"a client's fault: it took nothing of its answer in time \(from \"127.0.0.1\"\)")
            assert counts.events()["connections_cut_off"] == 1
            assert counts.settled()["abandoned_answering"] == 1
            # A reset: what the kernel still had to send is not kept for a client that does not take it.
            with pytest.raises(ConnectionResetError):
                wire.body_bytes(50_000_000)

    def test_a_client_that_takes_a_little_is_not(self, serve: Serve, clock: Clock) -> None:
        """Its kernel takes some now and then, though too little for ours to ask for more."""
        server = serve("answers:app", *WRITE_TIMEOUT, "--response-buffer", "64M", env=clock.environment)
        size = 50_000_000
        with Wire(server.address.connect(receive_buffer_bytes=65536)) as wire:
            wire.send(request("GET", f"/big-whole?{size}"))
            head, taken = wire.head(), 0
            assert head.status == 200
            for _ in range(12):
                before = taken_bytes(wire.sock)
                taken += len(wire.body_bytes(150_000))
                assert taken_bytes(wire.sock) > before, "its kernel had less than that"
                clock.advance(SOON_S)
                # The server goes round, and looks.
                with server.connect() as other:
                    assert other.get("/with-length").status == 200
            eventually(lambda: connections(server) == 1, "the others have left, and this one is still there")
            taken += len(wire.body_bytes(size - taken))
            assert taken == size


class TestResponseRate:
    SIZE = 50_000_000

    def ask(self, server: Server, stack: contextlib.ExitStack, bytes_each: int = READ_BYTES) -> Wire:
        """Reads so much at a time, and by now no more than the head takes of that."""
        wire = stack.enter_context(Wire(server.address.connect(receive_buffer_bytes=65_536)))
        wire.read_slowly(bytes_each)
        wire.send(request("GET", f"/big-whole?{self.SIZE}"))
        assert wire.head().status == 200
        return wire

    @pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix:server.sock"])
    def test_a_client_that_drips_an_answer_is_cut_off_and_one_that_is_slow_is_not(
        self, serve: Serve, counts: Counts, bind: str, clock: Clock, admin: Address
    ) -> None:
        """An attack: some is taken all the time, so `--write-timeout` never strikes, and it would go on for days."""
        limits = ("--min-response-rate", "100K", *WRITE_TIMEOUT, "--response-buffer", "64M")
        listens = (*counts.arguments, "--admin", f"unix:{admin.path}")
        server = serve("answers:app", *limits, *listens, bind=bind, env=clock.environment)
        with contextlib.ExitStack() as stack:
            drips, slow = self.ask(server, stack, 10_000), self.ask(server, stack)
            operator = stack.enter_context(Wire.connect(admin))
            taken = 0
            for _ in range(30):
                # The server cuts it off on the way.
                with contextlib.suppress(ConnectionResetError, BrokenOff):
                    drips.body_bytes(10_000)
                taken += len(slow.body_bytes(1_500_000))
                clock.advance(5)
                go_round(operator)
            eventually(lambda: counts.events()["connections_too_slow"] == 1, "it is cut off")
            # The other one took more than it must, and now takes all the rest at once.
            taken += len(slow.body_bytes(self.SIZE - taken))
            assert taken == self.SIZE
            with server.connect() as quick:
                assert quick.get("/with-length").body == b"four"
        assert counts.settled()["abandoned_answering"] == 1
        assert (counts.events()["connections_too_slow"], counts.events()["connections_cut_off"]) == (1, 0)
        server.log.wait("a client's fault: it took its answer too slowly")

    def test_a_client_that_takes_nothing_at_first_has_the_whole_write_timeout(
        self, serve: Serve, counts: Counts, clock: Clock
    ) -> None:
        """A phone without radio: on a unix socket, where no kernel takes anything in its stead."""
        server = serve("answers:app", *WRITE_TIMEOUT, *counts.arguments, bind="unix:server.sock", env=clock.environment)
        with server.connect() as wire:
            wire.send(request("GET", f"/big-whole?{self.SIZE}"))
            eventually(lambda: counts.events()["answers_spooled"] > 0, "the client is known to take nothing")
            clock.advance(SOON_S)  # Longer than the five seconds that the start of a body has.
            assert len(wire.response().body) == self.SIZE

    def test_a_client_that_is_slow_stays_though_others_wait(
        self, serve: Serve, counts: Counts, clock: Clock, admin: Address
    ) -> None:
        """Its kernel takes some all the time, though too little for ours to have us look: the figures are old."""
        limits = ("--min-response-rate", "1K", *WRITE_TIMEOUT, "--max-connections", "1", "--response-buffer", "64M")
        listens = (*counts.arguments, "--admin", f"unix:{admin.path}")
        server = serve("answers:app", *limits, *listens, env=clock.environment)
        with contextlib.ExitStack() as stack:
            slow = self.ask(server, stack, 10_000)
            newcomer = stack.enter_context(server.connect())
            newcomer.send(request("GET", "/with-length"))
            operator = stack.enter_context(Wire.connect(admin))
            taken = 0
            for _ in range(100):
                taken += len(slow.body_bytes(10_000))
                clock.advance(2)
                go_round(operator)
            slow.read_slowly()
            assert newcomer.silent(0.1)
            events = counts.events()
            assert (events["connections_waited"], events["connections_shed"]) == (1, 0), "all the time"
            taken += len(slow.body_bytes(self.SIZE - taken))
            assert taken == self.SIZE
            # A second later the server would close it as an idle connection, to make room.
            slow.close()
            assert newcomer.response().body == b"four"
        assert counts.settled()["abandoned_answering"] == 0

    def test_while_the_app_takes_its_time_it_does_not_count(self, serve: Serve, gate: Gate, clock: Clock) -> None:
        limits = ("--min-response-rate", "1M", *WRITE_TIMEOUT)
        server = serve("waiting:app", *limits, env={**gate.environment, **clock.environment})
        with server.connect() as wire:
            wire.send(request("GET", "/wait"))
            gate.announcement()
            clock.advance(2 * DEADLINE_S)
            assert wire.silent(0.2)
            gate.let_pass(1)
            assert wire.response().status == 200

    def test_those_who_drip_make_room_for_others(self, serve: Serve, counts: Counts, clock: Clock) -> None:
        """An attack: all places, each with an answer that is taken hardly faster than it must be, and a newcomer."""
        limits = ("--min-response-rate", "50K", *WRITE_TIMEOUT, "--max-connections", "3")
        server = serve("answers:app", *limits, "--response-buffer", "1M", *counts.arguments, env=clock.environment)
        with contextlib.ExitStack() as stack:
            wires = [self.ask(server, stack) for _ in range(3)]
            eventually(lambda: counts.events()["answers_spooled"] > 0, "one is known to take hardly anything")
            newcomer = stack.enter_context(server.connect())
            newcomer.send(request("GET", "/with-length"))
            eventually(lambda: counts.events()["connections_waited"] == 1, "it waits for a place")
            assert newcomer.silent(0.1)
            # Long before the rate or a pause ends any of them.
            clock.advance(SOON_S)
            assert newcomer.response().body == b"four"
            events = counts.events()
            assert events["connections_shed"] > 0
            assert (events["connections_too_slow"], events["connections_cut_off"]) == (0, 0)
            server.log.wait("it hardly took any of its answer, and others waited for a place")
            for wire in wires:
                wire.close()


def go_round(operator: Wire) -> None:
    """Has the server look at its connections: of two answers of its own the second is of another turn."""
    for _ in range(2):
        assert operator.get("/live").status == 200


def connections(server: Server) -> int:
    """Client connections of the acceptor."""
    acceptor = server.acceptor_by_name()
    established = [found for found in acceptor.net_connections("tcp") if found.status == psutil.CONN_ESTABLISHED]
    return len(established)
