"""Bounds on a client of HTTP/2, and the end beyond them: floods of frames, resets, no reading, sending or staying."""

import contextlib
import itertools
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.haste import ECHO_S, in_haste
from support.http2 import GET, LAST_OF_ALL, PREFACE, Talk, frame
from support.patience import PATIENCE_S, eventually
from support.server import UNHURRIED, Serve, Server

pytestmark = pytest.mark.own("only peers that it trusts may speak HTTP/2 without TLS with gunicorn")

HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL, CALM = 0, 1, 2, 7, 8, 11
WINDOW = 4
"""SETTINGS_INITIAL_WINDOW_SIZE: how much of each answer a client takes before it has read any."""
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION, UNKNOWN = 0, 1, 2, 3, 4, 6, 7, 9, 0xBE

FLOOD_BYTES_MAX = 400_000_000
"""Far more than the server answers before it ends a connection to which it has sent GOAWAY."""

HEAD = [(":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", "/")]


def unserved(requests: dict[str, int]) -> int:
    """How many had lost their client before the app was called for them."""
    return requests["abandoned_waiting"] + requests["abandoned_handed_out"]


def sent_until_full(sock: socket.socket, data: bytes) -> int:
    """How many bytes the server and the kernels take, until there is no room or the server has reset the connection."""
    sock.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
        while sent < 200_000_000:
            sent += sock.send(data)
    return sent


def ended_with(talk: Talk, reason: int) -> bool:
    talk.end()
    return talk.goodbye is not None and talk.goodbye.error_code == reason


@pytest.fixture
def waiting(serve: Serve, gate: Gate, counts: Counts) -> Server:
    return serve("waiting:app", "--threads", "1", *HTTP2, *counts.arguments, env=gate.environment)


def test_streams_that_are_reset_at_once_end_the_connection_and_take_no_worker(
    waiting: Server, gate: Gate, counts: Counts
) -> None:
    """CVE-2023-44487."""
    with Talk(waiting.address) as busy, Talk(waiting.address) as attacker:
        held = busy.begin("/wait")
        gate.announcement()
        # The server throws away what comes after the end; and it waits 2 s for a client that pauses, and then resets.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(1000):
                attacker.reset(attacker.begin("/wait"))
        assert ended_with(attacker, CALM)
        gate.open()
        assert busy.answer(held).status == 200
    requests = counts.settled()
    assert gate.announced() == []
    assert unserved(requests) < 250


def test_one_that_is_reset_now_and_then_troubles_no_other_client(waiting: Server, gate: Gate, counts: Counts) -> None:
    with Talk(waiting.address) as talk:
        for _ in range(150):
            number = talk.begin("/wait")
            gate.announcement()
            gate.let_pass(1)
            talk.reset(number)
            assert talk.get("/pid").status == 200
    assert counts.settled()["answered"] >= 150


def test_answers_that_are_left_in_the_middle_trouble_no_other_client(serve: Serve) -> None:
    """Such answers are streams of events, which have no end."""
    server = serve("bodies:flowing", *HTTP2)
    with Talk(server.address, is_slow=True) as talk:
        for _ in range(150):
            number = talk.begin("/long?3000000")
            talk.until(lambda number=number: talk.answers[number].status == 200)
            talk.reset(number)
        talk.ping()
        assert talk.goodbye is None


def test_many_that_come_together_with_their_resets_trouble_no_other_client(hello: Server) -> None:
    with Talk(hello.address) as talk:
        for _ in range(60):
            number = talk.frames.get_next_available_stream_id()
            talk.frames.send_headers(number, HEAD, end_stream=True)
            talk.frames.reset_stream(number)
        talk.flush()
        assert talk.get("/").status == 200


def test_resets_are_counted_though_the_client_has_been_told_of_the_end(serve: Serve, gate: Gate) -> None:
    few = ("--keepalive-requests", "1", "--http2-max-concurrent-streams", "1000")
    server = serve("waiting:app", "--threads", "1", *few, *HTTP2, env=gate.environment)

    def go_on() -> None:
        with Talk(server.address, is_deaf=True) as talk:
            for _ in range(101):
                number = talk.begin("/wait")
                # After the ping the stream is a request.
                talk.ping()
                talk.reset(number)
            assert talk.goodbye is not None
            assert talk.goodbye.error_code == NO_ERROR
            talk.frames.ping(b"are you?")
            talk.flush()
            assert ended_with(talk, CALM)

    with Talk(server.address) as busy:
        held = busy.begin("/wait")
        gate.announcement()
        in_haste(go_on, ECHO_S)
        gate.open()
        assert busy.answer(held).status == 200


def test_who_goes_on_after_the_goodbye_does_not_for_long(serve: Serve) -> None:
    few = ("--keepalive-requests", "1", "--http2-max-concurrent-streams", "3")
    server = serve("hello:app", *few, *HTTP2)

    def go_on() -> None:
        with Talk(server.address, is_deaf=True) as talk:
            # The server answers streams that the client opened before it heard of the end.
            for _ in range(4):
                assert talk.get("/").status == 200
            assert talk.goodbyes() == [LAST_OF_ALL]
            talk.begin("/")
            assert ended_with(talk, CALM)

    in_haste(go_on, ECHO_S)


def test_a_stream_that_is_reset_while_it_waits_leaves_the_line(waiting: Server, gate: Gate, counts: Counts) -> None:
    with Talk(waiting.address) as talk:
        held = talk.begin("/wait?held")
        gate.announcement()
        gone = talk.begin("/wait?gone")
        # A stream that comes together with its reset never becomes a request.
        eventually(lambda: counts.requests()["arrived"] == 2, "it waits")
        talk.reset(gone)
        eventually(lambda: unserved(counts.requests()) == 1, "it is counted")
        gate.open()
        assert talk.answer(held).status == 200
    assert gate.announced() == []


def test_a_client_that_leaves_has_left_with_all_its_streams(waiting: Server, gate: Gate, counts: Counts) -> None:
    with Talk(waiting.address) as talk:
        talk.begin("/wait")
        gate.announcement()
        for _ in range(20):
            talk.begin("/pid")
        eventually(lambda: counts.requests()["arrived"] == 21, "it is counted")
    eventually(lambda: unserved(counts.requests()) == 20, "they are counted")
    gate.open()
    settled = counts.settled()
    assert (settled["arrived"], settled["in_flight"]) == (21, 0)
    eventually(lambda: counts.open_connections() == 0, "it is counted")


def test_more_streams_than_there_may_be_are_refused(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--threads", "1", "--http2-max-concurrent-streams", "3", *HTTP2, env=gate.environment)
    with Talk(server.address) as talk:
        # A client that does not know yet how many there may be.
        numbers = [talk.begin("/wait") for _ in range(5)]
        refused = [talk.answer(number) for number in numbers[3:]]
        assert [answer.reset for answer in refused] == [REFUSED_STREAM] * 2
        gate.open()
        assert [talk.answer(number).status for number in numbers[:3]] == [200] * 3


def test_what_is_no_http_2_ends_the_connection_with_a_reason(hello: Server) -> None:
    """h2spec has the other ways (test_h2spec.py)."""
    with Talk(hello.address) as talk:
        # Where RFC 9113 has an error of its own h2 says this one.
        talk.send(frame(SETTINGS, 0, 0, bytes(5)))
        assert ended_with(talk, PROTOCOL_ERROR)
    with Talk(hello.address) as talk:
        assert talk.get("/").status == 200


@pytest.fixture(scope="module")
def hello(shared_serve: Serve) -> Server:
    return shared_serve("hello:app", *HTTP2)


@pytest.mark.parametrize(
    "flood",
    [
        # VU#421644: a head that has no end.
        frame(HEADERS, 1, 1, b"\x82\x87\x84") + frame(CONTINUATION, 0, 1, b"\x00\x01a\x7f\x81\x7f" + b"v" * 256) * 8000,
        # CVE-2019-9518: frames without anything in them.
        frame(HEADERS, 4, 1, b"\x83\x86\x84\x41\x01a") + frame(DATA, 0, 1) * 20_000,
    ],
    ids=["continuation", "empty data"],
)
def test_floods_end_the_connection(hello: Server, flood: bytes) -> None:
    with Talk(hello.address) as talk:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            talk.send(flood)
        talk.end()
    with Talk(hello.address) as talk:
        assert talk.get("/").status == 200


@pytest.mark.parametrize(
    "nothing",
    [
        frame(PING, 0, 0, bytes(8)),
        frame(SETTINGS, 0, 0),
        frame(UNKNOWN, 0, 0, bytes(100)),
        frame(PRIORITY, 0, 1, bytes(5)),
    ],
    ids=["ping", "settings", "unknown", "priority"],
)
def test_a_client_whose_frames_carry_nothing_is_sent_away(hello: Server, nothing: bytes) -> None:
    """CVE-2019-9512, CVE-2019-9513, CVE-2019-9515."""
    with Talk(hello.address) as talk:
        assert talk.get("/").status == 200
        talk.send(nothing * (30_000 // len(nothing)))
        talk.ping()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            talk.send(nothing * (200_000 // len(nothing)))
        assert ended_with(talk, CALM)
    with Talk(hello.address) as talk:
        assert talk.get("/").status == 200


def test_what_the_http2_library_reports_of_a_client_is_logged_at_the_level_debug_only(serve: Serve) -> None:
    """h2 warns of each PING that acknowledges none: 17 bytes of a client were a line of 48."""
    acks = frame(PING, 1, 0, bytes(8)) * 100
    for level, logged in [("info", 0), ("debug", 100)]:
        server = serve("hello:app", "--log-level", level, *HTTP2)
        with Talk(server.address) as talk:
            talk.send(acks)
            assert talk.get("/").status == 200
        server.signal(signal.SIGTERM)
        # The last line of the process that the library is in.
        server.log.wait("requests arrived=1 answered=1")
        lines = [match[1] for match in server.log.matches(r"\[([A-Z]+)\] recv PING ack that we never sent")]
        assert lines == ["DEBUG"] * logged


def test_a_client_whose_heads_are_all_refused_is_sent_away(hello: Server) -> None:
    """Each byte of a head stands for a field of 4,000 bytes."""
    with Talk(hello.address) as talk:
        # One field goes into the table (RFC 7541 section 6.2.1), and a byte stands for it later.
        talk.send(frame(HEADERS, 5, 1, GET + b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4_000))
        bombs = (frame(HEADERS, 5, number, GET + b"\xbe" * 15_000) for number in range(3, 60, 2))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            talk.send(b"".join(bombs))
        came = b""
        with contextlib.suppress(ConnectionResetError):
            while data := talk.sock.recv(1 << 16):
                came += data
    # GOAWAY has the last stream that the server has answered, and the reason (RFC 9113 section 6.8).
    assert frame(GOAWAY, 0, 0, struct.pack(">II", 1, CALM)) in came


def test_a_head_of_bombs_ends_the_connection_before_it_is_whole(hello: Server) -> None:
    """h2 takes a frame apart in one go, so the server does not let it have one of so many fields."""
    with Talk(hello.address) as talk:
        assert talk.get("/").status == 200
        bomb = frame(HEADERS, 5, 3, GET + b"\xbe" * 15_000)
        talk.send(bomb[:12_000])
        assert ended_with(talk, CALM)


def test_heads_of_many_fields_are_taken(serve: Serve) -> None:
    """Hundreds of fields, of a byte each once they are in the table."""
    server = serve("hello:app", "--limit-request-fields", "1000", *HTTP2)
    fields = [(f"x-{number % 50}", "y") for number in range(500)]
    with Talk(server.address) as talk:
        for _ in range(10):
            numbers = [talk.begin("/", *fields) for _ in range(10)]
            assert [talk.answer(number).status for number in numbers] == [200] * 10


@pytest.mark.parametrize(
    "fields",
    [
        [(f"x-{number}", "y" * 8) for number in range(1000)],
        [("x", "y" * 40_000)],
    ],
    ids=["small fields", "one field"],
)
def test_a_head_within_the_limits_is_no_flood(serve: Serve, fields: list[tuple[str, str]]) -> None:
    """The server takes pieces of 4 KiB, and looks after each."""
    server = serve("hello:app", "--limit-request-fields", "2000", "--limit-request-field-size", "0", *HTTP2)
    with Talk(server.address) as talk:
        for _ in range(3):
            assert talk.get("/", *fields).status == 200


def test_a_client_that_is_sent_away_is_not_heard_for_long(hello: Server) -> None:
    """The server throws away bytes that were under way, so that the client reads why, and then resets."""
    with Talk(hello.address) as talk:
        talk.sock.settimeout(PATIENCE_S)
        sent_bytes = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent_bytes < FLOOD_BYTES_MAX:
                sent_bytes += talk.sock.send(frame(PING, 0, 0, bytes(8)) * 1_000)
        assert sent_bytes < 32_000_000, "with all that the kernels have"
        assert ended_with(talk, CALM)


def test_a_body_in_frames_of_a_byte_is_taken(serve: Serve) -> None:
    """Ten bytes of frames for each of its own: five times what a client may send that carries nothing."""
    body = bytes(50_000)
    server = serve("frameworks.gevent:app", *HTTP2)
    with Talk(server.address) as talk:
        number = talk.begin("/echo", method="POST", ends=False)
        talk.send(b"".join(frame(DATA, 0, number, body[:1]) for _ in body))
        talk.send(frame(DATA, 1, number))
        assert talk.answer(number).body == body


@pytest.mark.parametrize("what", [frame(PING, 0, 0, bytes(8)), frame(SETTINGS, 0, 0)], ids=["ping", "settings"])
def test_who_asks_without_end_and_reads_nothing_is_not_read_either(hello: Server, what: bytes) -> None:
    """CVE-2019-9512, CVE-2019-9515: no answers pile up in memory."""
    with Talk(hello.address) as talk:
        assert sent_until_full(talk.sock, what * 1000) < 200_000_000
        with Talk(hello.address) as other:
            assert other.get("/").status == 200


def test_a_slow_reader_holds_no_worker_and_loses_its_stream_in_the_end(serve: Serve) -> None:
    server = serve("bodies:flowing", "--threads", "1", "--write-timeout", "2", *HTTP2)
    with Talk(server.address, is_slow=True) as slow:
        number = slow.begin("/told?5000000")
        slow.until(lambda: len(slow.answers[number].body) >= 65_535)
        with Talk(server.address) as other:
            assert other.get("/told?10").status == 200
        # Its window is full, and the connection is as well as ever.
        answer = slow.answer(number)
        assert (answer.reset, len(answer.body)) == (CANCEL, 65_535)


def test_a_body_that_does_not_come_is_answered_408(serve: Serve, clock: Clock) -> None:
    server = serve("echo:raw", "--body-timeout", "100", *UNHURRIED, *HTTP2, env=clock.environment)
    with Talk(server.address) as talk:
        number = talk.begin("/", method="POST", ends=False)
        talk.say(number, b"some", ends=False)
        talk.ping()
        clock.advance(101)
        assert talk.answer(number).status == 408
        assert talk.get("/").status == 200


@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_connection_that_idles_is_told_and_closed(serve: Serve, is_deaf: bool, clock: Clock) -> None:
    server = serve("hello:app", "--keep-alive", "100", "--header-timeout", "200", *HTTP2, env=clock.environment)
    with Talk(server.address, is_deaf=is_deaf) as talk:
        assert talk.get("/").status == 200
        clock.advance(60)
        talk.ping()
        assert talk.goodbye is None
        clock.advance(40)
        assert ended_with(talk, NO_ERROR)
        assert talk.goodbyes() == [LAST_OF_ALL, 1]
    with Talk(server.address, is_deaf=is_deaf) as talk:
        talk.ping()
        clock.advance(120)
        talk.ping()
        assert talk.goodbye is None
        clock.advance(80)
        assert ended_with(talk, NO_ERROR)
        assert talk.goodbyes() == [LAST_OF_ALL, 0]


def test_who_gets_a_place_that_others_wait_for_may_ask_before_it_goes(serve: Serve) -> None:
    server = serve("hello:app", "--max-connections", "1", *HTTP2)
    with Talk(server.address) as first:
        assert first.get("/").status == 200
        with Talk(server.address) as second, Talk(server.address) as third:
            for talk in (second, third):
                talk.begin("/")
            assert ended_with(first, NO_ERROR)
            assert second.answer(1).status == 200
            assert ended_with(second, NO_ERROR)
            assert third.answer(1).status == 200


def test_a_request_that_crosses_the_goodbye_is_answered(serve: Serve, clock: Clock) -> None:
    server = serve("hello:app", "--keep-alive", "100", *HTTP2, env=clock.environment)

    def cross() -> None:
        with Talk(server.address) as talk:
            assert talk.get("/").status == 200
            talk.ping()
            clock.advance(100)
            talk.until_something_comes()
            assert talk.goodbye is None
            assert talk.get("/").status == 200
            talk.end()
            assert talk.goodbyes() == [LAST_OF_ALL, 3]

    in_haste(cross, ECHO_S)


def answered_by_the_last_stream(talk: Talk, gate: Gate, body: bytes) -> int:
    """Has the answer to a request begin when the client has heard that no stream follows."""
    talk.frames.increment_flow_control_window(len(body) - 65_535)
    number = talk.begin("/echo", method="POST", ends=False)
    talk.say(number, body)
    gate.announcement()
    talk.until(lambda: talk.goodbyes() == [LAST_OF_ALL, number])
    gate.open()
    return number


def test_the_last_of_an_answer_has_as_much_time_as_the_rest_of_it(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    bind = ("--bind", f"unix:{tmp_path / 'socket'}")
    server = serve("waiting:app", "--keepalive-requests", "1", *bind, *HTTP2, env=gate.environment)
    body = bytes(range(256)) * 3000
    with Talk(server.address, settings={WINDOW: len(body)}) as talk:
        number = answered_by_the_last_stream(talk, gate, body)
        while not talk.answers[number].is_over:
            # The client takes a second's worth of the socket's 200 kB, and the server has not written all before that.
            time.sleep(0.5)
            assert talk.hear(), len(talk.answers[number].body)
        assert talk.answers[number].body == body


def test_who_says_that_it_reads_is_not_reset_before_it_has_all(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--keepalive-requests", "1", *HTTP2, env=gate.environment)
    body = bytes(range(256)) * 4000
    # The server's kernel has to keep most of it; and the client says that it reads when it has read half.
    sock = server.address.connect(receive_buffer_bytes=65_536)
    with Talk(server.address, settings={WINDOW: len(body)}, sock=sock) as talk:
        number = answered_by_the_last_stream(talk, gate, body)
        # By then the server would have closed a connection on which it has nothing to send and hears nothing.
        time.sleep(4)
        answer = talk.answer(number)
        assert (answer.is_over, answer.body == body) == (True, True)


def test_a_head_that_is_too_large_as_a_list_is_refused_like_any_other(serve: Serve, counts: Counts) -> None:
    server = serve("hello:app", "--http2-max-header-list-size", "5000", *HTTP2, *counts.arguments)
    with Talk(server.address) as talk:
        assert talk.get("/", ("x", "v" * 4000)).status == 200
        with counts.one_more("refused_head_too_large"):
            answer = talk.get("/", ("x", "v" * 4000), ("y", "v" * 4000))
            assert (answer.status, answer.is_over) == (431, True)
        assert talk.get("/").status == 200
    server.log.wait("the head is too large")


def test_an_answer_that_breaks_off_resets_its_stream(serve: Serve) -> None:
    server = serve("bodies:flowing", *HTTP2)
    with Talk(server.address) as talk:
        answer = talk.get("/broken")
        assert (answer.reset, answer.is_over) == (INTERNAL_ERROR, False)


def test_a_client_that_floods_without_a_pause_is_sent_away_after_its_requests(serve: Serve) -> None:
    """Each of its turns is over before all that it sent is done, and ends with something to write."""
    server = serve("hello:app", "--keepalive-requests", "2000", *HTTP2)
    with server.address.connect() as sock:
        sock.sendall(PREFACE + frame(SETTINGS, 0, 0))

        def flood() -> None:
            # Send until the server ends the connection.
            with contextlib.suppress(OSError):
                for number in itertools.count(1, 2):
                    # With a request may come so much that carries nothing.
                    request = frame(HEADERS, 5, number, GET)
                    sock.sendall(request + frame(PING, 0, 0, bytes(8)) * 10)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while data := sock.recv(1 << 20):
                    received += len(data)
                    assert received < FLOOD_BYTES_MAX, "the server goes on"
        finally:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            flooding.join(PATIENCE_S)
    with server.connect() as wire:
        assert wire.get("/").status == 200
