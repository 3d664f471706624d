"""A client that takes too long is told so (408), and costs nothing meanwhile."""

import contextlib
import time
from pathlib import Path

import psutil
import pytest

from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn has no deadlines for reading a request")


@pytest.fixture(scope="module")
def hurried(shared_serve: Serve) -> Server:
    return shared_serve("echo:app", "--header-timeout", "1", "--body-timeout", "1", "--keep-alive", "30")


def assert_timed_out(wire: Wire, since_s: float) -> None:
    response = wire.response()
    assert response.status == 408, response.body
    assert response.closes()
    assert time.monotonic() - since_s >= 0.9
    assert wire.closed()


def test_a_head_that_stops_in_the_middle_gets_408(hurried: Server) -> None:
    with hurried.connect() as wire:
        since_s = time.monotonic()
        wire.send(b"GET / HTTP/1.1\r\nHost: te")
        assert_timed_out(wire, since_s)


def test_a_head_that_dribbles_gets_408_all_the_same(hurried: Server) -> None:
    """The deadline is for the whole head: a byte now and then does not push it on (the attack called slow-loris)."""
    with hurried.connect() as wire:
        since_s = time.monotonic()
        wire.send(b"GET / HTTP/1.1\r\n")
        for _ in range(3):
            time.sleep(0.15)
            wire.send(b"X-A: 1\r\n")
        assert_timed_out(wire, since_s)


def test_the_second_request_of_a_connection_has_its_own_deadline(hurried: Server) -> None:
    with hurried.connect() as wire:
        assert wire.get("/").status == 200
        since_s = time.monotonic()
        wire.send(b"GET /")
        assert_timed_out(wire, since_s)


def test_a_body_that_stops_in_the_middle_gets_408(hurried: Server) -> None:
    with hurried.connect() as wire:
        since_s = time.monotonic()
        wire.send(request("POST", "/", ["Content-Length: 10"]) + b"half")
        assert_timed_out(wire, since_s)


def test_a_chunked_body_that_stops_in_the_middle_gets_408(hurried: Server) -> None:
    with hurried.connect() as wire:
        since_s = time.monotonic()
        wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]) + b"5\r\nhel")
        assert_timed_out(wire, since_s)


def test_a_slow_body_that_keeps_coming_is_served(hurried: Server) -> None:
    """The deadline of the body is for a pause, so that a long upload over a thin line gets through."""
    with hurried.connect() as wire:
        wire.send(request("POST", "/", ["Content-Length: 5"]))
        for byte in b"hello":
            time.sleep(0.25)
            wire.send(bytes([byte]))
        assert wire.response().json()["length"] == 5


def test_a_connection_that_never_says_a_word_is_closed(hurried: Server) -> None:
    since_s = time.monotonic()
    with hurried.connect() as wire:
        rest = wire.rest()
        assert rest == b"" or b" 408 " in rest, "before the first byte both are right"
        assert time.monotonic() - since_s >= 0.9


def test_many_slow_clients_do_not_keep_a_quick_one_waiting(hurried: Server) -> None:
    slow = []
    for _ in range(100):
        slow.append(hurried.connect())
        slow[-1].send(b"GET / HTTP/1.1\r\n")
    with hurried.connect() as quick:
        assert quick.get("/").status == 200
    for wire in slow:
        assert wire.response().status == 408
        wire.close()


@pytest.fixture
def counts(tmp_path: Path) -> Counts:
    return Counts(tmp_path / "ctl")


class TestBodyRate:
    """The rate counts over a window as long as `--body-timeout`, five seconds at least, which the start has too."""

    def test_a_body_that_drips_gets_408_though_it_never_pauses(self, serve: Serve, counts: Counts) -> None:
        server = serve("echo:app", "--min-body-rate", "1000", *counts.arguments)
        with server.connect() as slow, server.connect() as quick:
            for wire in (slow, quick):
                wire.send(request("POST", "/", ["Content-Length: 1000000"]))
            deadline_s = time.monotonic() + 20
            while slow.silent(0.2):
                assert time.monotonic() < deadline_s
                slow.send(b"b")
                quick.send(b"b" * 400)
            response = slow.response()
            assert (response.status, response.closes()) == (408, True)
            assert b"too slowly" in response.body
            assert counts.requests()["refused_body_too_slow"] == 1
            quick.send(b"b" * 1_000_000)
            assert quick.response().status == 200

    def test_a_good_start_does_not_keep_room_in_the_spool_for_ever(self, serve: Serve, counts: Counts) -> None:
        """An attack: all of a body but its end, and then a byte now and then, which no pause is long enough for."""
        server = serve("echo:app", "--body-timeout", "5", "--max-spool", "2M", *counts.arguments)
        with server.connect() as slow, server.connect() as other:
            slow.send(request("POST", "/", ["Content-Length: 1500000"]) + b"b" * 1_400_000)
            eventually(lambda: counts.events()["bodies_spooled"] == 1, "it is in the spool")
            deadline_s = time.monotonic() + 30
            while slow.silent(0.5):
                assert time.monotonic() < deadline_s, "the room is never given back"
                slow.send(b"b")
            assert b"too slowly" in slow.response().body
            eventually(lambda: not server.spooled(), "its room is free")
            assert other.post("/", b"b" * 1_400_000).status == 200
        assert counts.requests()["refused_body_too_slow"] == 1

    def test_a_stall_of_some_seconds_is_no_harm(self, serve: Serve) -> None:
        server = serve("echo:app", "--body-timeout", "8", "--min-body-rate", "1000")
        with server.connect() as wire:
            wire.send(request("POST", "/", ["Content-Length: 20000"]) + b"b" * 10_000)
            assert wire.silent(6.5), "longer than the five seconds that everybody has"
            wire.send(b"b" * 10_000)
            assert wire.response().json()["length"] == 20_000

    def test_it_can_be_switched_off(self, serve: Serve) -> None:
        server = serve("echo:app", "--min-body-rate", "0")
        with server.connect() as wire:
            wire.send(request("POST", "/", ["Content-Length: 8"]))
            for _ in range(7):
                assert wire.silent(1)
                wire.send(b"b")
            wire.send(b"b")
            assert wire.response().json()["length"] == 8


class TestWriteTimeout:
    def test_a_client_that_takes_nothing_is_cut_off(self, serve: Serve, counts: Counts) -> None:
        server = serve("answers:app", "--write-timeout", "1", "--response-buffer", "1M", *counts.arguments)
        with Wire(server.address.connect(receive_buffer_bytes=65536)) as wire:
            wire.send(request("GET", "/big-whole?50000000"))
            assert wire.head().status == 200
            assert connections(server) == 1
            eventually(lambda: connections(server) == 0, "the connection is cut off")
            server.log.wait(r"a client's fault: it took nothing of its answer in time \(from \"127.0.0.1\"\)")
            assert counts.events()["connections_cut_off"] == 1
            assert counts.settled()["abandoned_answering"] == 1
            # A reset: what the kernel still had to send is not kept for a client that does not take it.
            with pytest.raises(ConnectionResetError):
                wire.body_bytes(50_000_000)

    def test_a_client_that_takes_a_little_is_not(self, serve: Serve) -> None:
        """Its kernel takes some now and then, though too little for ours to ask for more."""
        server = serve("answers:app", "--write-timeout", "1", "--response-buffer", "64M")
        size = 50_000_000
        with Wire(server.address.connect(receive_buffer_bytes=65536)) as wire:
            wire.send(request("GET", f"/big-whole?{size}"))
            head, taken = wire.head(), 0
            assert head.status == 200
            for _ in range(12):
                taken += len(wire.body_bytes(150_000))
                time.sleep(0.3)
            assert connections(server) == 1
            taken += len(wire.body_bytes(size - taken))
            assert taken == size


class TestResponseRate:
    SIZE = 50_000_000

    def ask(self, server: Server, stack: contextlib.ExitStack) -> Wire:
        wire = stack.enter_context(Wire(server.address.connect(receive_buffer_bytes=65_536)))
        wire.send(request("GET", f"/big-whole?{self.SIZE}"))
        assert wire.head().status == 200
        return wire

    @pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix:server.sock"])
    def test_a_client_that_drips_an_answer_is_cut_off_and_one_that_is_slow_is_not(
        self, serve: Serve, counts: Counts, bind: str
    ) -> None:
        """An attack: some is taken all the time, so `--write-timeout` never strikes, and it would go on for days."""
        limits = ("--min-response-rate", "100K", "--write-timeout", "10", "--response-buffer", "64M")
        server = serve("answers:app", *limits, *counts.arguments, bind=bind)
        with contextlib.ExitStack() as stack:
            drips, slow = self.ask(server, stack), self.ask(server, stack)
            taken, deadline_s = 0, time.monotonic() + 30
            while counts.events()["connections_too_slow"] == 0:
                assert time.monotonic() < deadline_s, "it is never cut off"
                drips.body_bytes(10_000)
                taken += len(slow.body_bytes(500_000))
                time.sleep(0.3)
            # The other one took more than it must, and now takes all the rest at once.
            taken += len(slow.body_bytes(self.SIZE - taken))
            assert taken == self.SIZE
            with server.connect() as quick:
                assert quick.get("/with-length").body == b"four"
        assert counts.settled()["abandoned_answering"] == 1
        assert (counts.events()["connections_too_slow"], counts.events()["connections_cut_off"]) == (1, 0)
        server.log.wait("a client's fault: it took its answer too slowly")

    def test_a_client_that_takes_nothing_at_first_has_the_whole_write_timeout(self, serve: Serve) -> None:
        """A phone without radio: on a unix socket, where no kernel takes anything in its stead."""
        server = serve("answers:app", "--write-timeout", "20", bind="unix:server.sock")
        with server.connect() as wire:
            wire.send(request("GET", f"/big-whole?{self.SIZE}"))
            time.sleep(7)  # Longer than the five seconds that the start of a body has.
            assert len(wire.response().body) == self.SIZE

    def test_a_client_that_is_slow_stays_though_others_wait(self, serve: Serve, counts: Counts) -> None:
        """Its kernel takes some all the time, though too little for ours to have us look: the figures are old."""
        limits = ("--min-response-rate", "20K", "--write-timeout", "10", "--max-connections", "1")
        server = serve("answers:app", *limits, "--response-buffer", "64M", *counts.arguments)
        with contextlib.ExitStack() as stack:
            slow = self.ask(server, stack)
            newcomer = stack.enter_context(server.connect())
            newcomer.send(request("GET", "/with-length"))
            taken, until_s = 0, time.monotonic() + 15
            while time.monotonic() < until_s:
                taken += len(slow.body_bytes(10_000))
                time.sleep(0.1)
            assert counts.events()["connections_waited"] == 1, "all the time"
            taken += len(slow.body_bytes(self.SIZE - taken))
            assert taken == self.SIZE
            slow.close()
            assert newcomer.response().body == b"four"
        assert (counts.events()["connections_shed"], counts.settled()["abandoned_answering"]) == (0, 0)

    def test_while_the_app_takes_its_time_it_does_not_count(self, serve: Serve, gate: Gate) -> None:
        limits = ("--min-response-rate", "1M", "--write-timeout", "5")
        server = serve("waiting:app", *limits, env=gate.environment)
        with server.connect() as wire:
            wire.send(request("GET", "/wait"))
            gate.announcement()
            assert wire.silent(7)
            gate.let_pass(1)
            assert wire.response().status == 200

    def test_those_who_drip_make_room_for_others(self, serve: Serve, counts: Counts) -> None:
        """An attack: all places, each with an answer that is taken hardly faster than it must be, and a newcomer."""
        limits = ("--min-response-rate", "50K", "--write-timeout", "10", "--max-connections", "3")
        server = serve("answers:app", *limits, "--response-buffer", "64M", *counts.arguments)
        with contextlib.ExitStack() as stack:
            wires = [self.ask(server, stack) for _ in range(3)]
            newcomer = stack.enter_context(server.connect())
            newcomer.send(request("GET", "/with-length"))
            # Long before the rate or a pause ends any of them.
            assert newcomer.response().body == b"four"
            events = counts.events()
            assert events["connections_shed"] > 0
            assert (events["connections_too_slow"], events["connections_cut_off"]) == (0, 0)
            server.log.wait("it hardly took any of its answer, and others waited for a place")
            for wire in wires:
                wire.close()


def connections(server: Server) -> int:
    """Client connections of the acceptor."""
    acceptor = next(process for process in server.processes() if process.name() == "stanchion-acpt")
    established = [found for found in acceptor.net_connections("tcp") if found.status == psutil.CONN_ESTABLISHED]
    return len(established)
