"""A connection whose TLS fails in the middle of anything ends, harms no other, and is counted once."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import strace
from support.counts import Counts
from support.gate import Gate
from support.http2 import Talk
from support.patience import eventually
from support.processes import sleeps
from support.server import UNHURRIED, Serve, Server
from support.tls import Authority, Pair, connect
from support.tlslite import FAULTS, GARBAGE, TLS_1_2, TLS_1_3, Breaker, Fault, drain, hello_bytes
from support.websocket import WebSocket
from support.wire import Wire, request

pytestmark = pytest.mark.own("other servers have other ways to tell what has become of a connection")

MIB = 1 << 20
SENT_BYTES = 70_000
"""So much of a body is sent first: an upload that is streamed joins the line by then."""
ALERT = b"\x15\x03\x03\x00\x02\x02\x50"
"""Without encryption: an internal error, which is fatal (RFC 8446 section 6)."""
UPLOAD = request("POST", "/text/plain", [f"Content-Length: {MIB}"])


@dataclass
class Shop:
    """A server, what it counts, and the gate of its app."""

    server: Server
    counts: Counts
    gate: Gate

    def wire(self, breaker: Breaker) -> Wire:
        sock: Any = breaker
        return Wire(sock)

    def talk(self, breaker: Breaker) -> Talk:
        sock: Any = breaker
        return Talk(self.server.address, sock=sock)

    def all_is_well(self, authority: Authority) -> None:
        """Others are served, and the acceptor has nothing to do."""
        with connect(self.server.address, authority.context()) as wire:
            assert wire.get("/text/plain?len=5").status == 200
        eventually(lambda: self.counts.open_connections() == 0, "all connections end")
        acceptor = self.server.acceptor_by_name()
        eventually(lambda: sleeps(acceptor.pid), "the acceptor rests")


@pytest.fixture(scope="module")
def sync_shop(shared_serve: Serve, pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    home = tmp_path_factory.mktemp("failing")
    (home / "file").write_bytes(bytes(64 * MIB))
    options = ("--compress", "gzip", "--static", f"/static={home}")
    yield from shop_of(shared_serve, "bodies:compressible", home, pair, *options)


@pytest.fixture(scope="module")
def asynchronous_shop(shared_serve: Serve, pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    yield from shop_of(
        shared_serve, "uploading:failing", tmp_path_factory.mktemp("failing"), pair, "--interface", "asgi"
    )


def shop_of(serve: Serve, app: str, home: Path, pair: Pair, *arguments: str) -> Iterator[Shop]:
    with closing(Gate(home / "gate")) as gate:
        counts = Counts(home / "ctl")
        unhurried = (*UNHURRIED, "--header-timeout", "100")
        options = (*pair.arguments(), "--http-protocols", "h2,h1", *unhurried, *counts.arguments, *arguments)
        yield Shop(serve(app, *options, env=gate.environment), counts, gate)


# Each brings a connection into a phase, and gives what is to be done once it has failed there.
Then = Callable[[], Any]
Phase = Callable[[Shop, Breaker], Then | None]


def idle(shop: Shop, client: Breaker) -> None:
    assert shop.wire(client).get("/text/plain?len=5").status == 200


def head(shop: Shop, client: Breaker) -> None:
    client.sendall(b"GET / HTTP/1.1\r\nHost:")


def body(shop: Shop, client: Breaker) -> None:
    client.sendall(UPLOAD + bytes(SENT_BYTES))


def body_of_chunks(shop: Shop, client: Breaker) -> None:
    client.sendall(request("POST", "/text/plain", ["Transfer-Encoding: chunked"]) + b"5\r\nhe")


def waiting(shop: Shop, client: Breaker) -> Then:
    client.sendall(request("GET", "/stream"))
    shop.gate.announcement()
    return lambda: shop.gate.let_pass(3)


def answer(shop: Shop, client: Breaker) -> None:
    client.sendall(request("GET", f"/long?len={16 * MIB}", ["Accept-Encoding: identity"]))
    client.recv(1)


def compressed_answer(shop: Shop, client: Breaker) -> None:
    client.sendall(request("GET", f"/long?len={16 * MIB}", ["Accept-Encoding: gzip"]))
    client.recv(1)


def file(shop: Shop, client: Breaker) -> None:
    client.sendall(request("GET", "/static/file"))
    client.recv(1)


def lingering(shop: Shop, client: Breaker) -> None:
    client.sendall(request("POST", "/text/plain", ["Content-Length: 1", "Expect: nonsense"]))
    assert b" 417 " in client.recv(100)


def carrier(shop: Shop, client: Breaker) -> None:
    assert shop.talk(client).get("/text/plain?len=5").status == 200


def stream_with_body(shop: Shop, client: Breaker) -> None:
    talk = shop.talk(client)
    number = talk.begin("/text/plain", method="POST", ends=False)
    talk.say(number, b"half of it", ends=False)
    talk.ping()


def stream_with_answer(shop: Shop, client: Breaker) -> None:
    talk = shop.talk(client)
    talk.is_slow = True
    number = talk.begin(f"/long?len={16 * MIB}")
    talk.until(lambda: bool(talk.answers[number].body))


def streamed_upload(shop: Shop, client: Breaker) -> Then:
    client.sendall(request("POST", "/late", [f"Content-Length: {MIB}"]) + bytes(SENT_BYTES))
    assert shop.gate.announcement() == "runs"

    def then() -> None:
        # Until the app reads, its worker has no room for what is behind.
        shop.gate.let_pass(1)
        assert shop.gate.announcement() == "gone"

    return then


def streamed_upload_with_answer(shop: Shop, client: Breaker) -> None:
    client.sendall(request("POST", "/echo", [f"Content-Length: {MIB}"]) + bytes(SENT_BYTES))
    client.recv(1)


def websocket(shop: Shop, client: Breaker) -> None:
    session = WebSocket(shop.server, "/session", wire=shop.wire(client))
    session.text("hello")
    assert session.hear() == "hello"


SYNC: list[Phase] = [
    idle, head, body, body_of_chunks, waiting, answer, compressed_answer, file, lingering, carrier, stream_with_body,
    stream_with_answer,
]  # fmt: skip
ASYNCHRONOUS: list[Phase] = [streamed_upload, streamed_upload_with_answer, websocket]
OF_HTTP_2 = (carrier, stream_with_body, stream_with_answer)


@pytest.mark.parametrize("phase", SYNC)
def test_a_connection_that_fails_ends_and_harms_no_other(phase: Phase, sync_shop: Shop, authority: Authority) -> None:
    fail_each_way(phase, sync_shop, authority)


@pytest.mark.parametrize("phase", ASYNCHRONOUS)
def test_of_an_asynchronous_app_too(phase: Phase, asynchronous_shop: Shop, authority: Authority) -> None:
    fail_each_way(phase, asynchronous_shop, authority)


def fail_each_way(phase: Phase, shop: Shop, authority: Authority) -> None:
    alpn = [b"h2"] if phase in OF_HTTP_2 else []
    for version in (TLS_1_2, TLS_1_3):
        for name, fault in FAULTS.items():
            fail(phase, fault, shop, Breaker(shop.server.address, version, alpn))
            try:
                shop.all_is_well(authority)
            except BaseException as error:
                error.add_note(f"after {name} in {version}")
                raise


def fail(phase: Phase, fault: Fault, shop: Shop, client: Breaker) -> None:
    before = shop.counts.settled()["arrived"]
    with client:
        then = phase(shop, client)
        in_hand = shop.counts.requests()["in_flight"]
        fault(client)
        if then:
            then()
        client.drain()
    # Each of them once, which `requests` holds them to; and no other has come of it.
    assert shop.counts.settled()["arrived"] - before <= max(1, in_hand)


@pytest.mark.parametrize("said", [GARBAGE, ALERT, bytes(300)], ids=["garbage", "alert", "zeros"])
def test_a_handshake_that_fails_ends(said: bytes, sync_shop: Shop, authority: Authority) -> None:
    with hello_bytes(sync_shop.server.address) as sock:
        sock.sendall(said)
        drain(sock)
    sync_shop.all_is_well(authority)


EMPTY_RECORDS = 31
"""Empty records in a row: rustls ends a connection that sends more of them without a byte."""
WORDS = 400
"""Bytes, with that many empty records before each: some times as many bytes as a turn has."""


def send_almost_nothing(client: Breaker, data: bytes) -> None:
    """Each byte in a record of its own, behind records without any."""
    for number in range(len(data)):
        for _ in range(EMPTY_RECORDS):
            client.send_empty_record()
        client.sendall(data[number : number + 1])


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
def test_records_without_plaintext_end_turns_and_nothing_else(version: tuple[int, int], sync_shop: Shop) -> None:
    """They come in a head, and in a body: the server reads the bytes behind them."""
    with Breaker(sync_shop.server.address, version) as client:
        wire = sync_shop.wire(client)
        send_almost_nothing(client, request("GET", "/text/plain?len=5", [f"X-Long: {'x' * WORDS}"]))
        assert len(wire.response().body) == 5
        client.sendall(request("POST", "/text/plain?len=7", [f"Content-Length: {WORDS}"]))
        send_almost_nothing(client, bytes(WORDS))
        assert len(wire.response().body) == 7
        assert wire.get("/text/plain?len=9").status == 200


READ_BYTES = 64 << 10
"""The acceptor reads no more at a time."""
READS_MAX = 2
"""Before it looks whether the turn has lasted too long, and it has with so many records."""


@pytest.mark.skipif(bool(strace.unavailable()), reason=strace.unavailable())
def test_records_without_plaintext_do_not_keep_others_waiting(
    sync_shop: Shop, authority: Authority, tmp_path: Path
) -> None:
    """When the acceptor looks, both have sent something. It reads no more than a turn of the first before the other."""
    acceptor = sync_shop.server.acceptor_by_name()
    with (
        Breaker(sync_shop.server.address, TLS_1_2) as client,
        connect(sync_shop.server.address, authority.context()) as honest,
    ):
        assert honest.get("/text/plain?len=5").status == 200
        with client.withheld() as records:
            send_almost_nothing(client, request("GET", "/text/plain?len=5", [f"X-Long: {'x' * WORDS}"]))
        acceptor.suspend()
        try:
            with strace.tracing([acceptor.pid], tmp_path):
                client.plain.setblocking(False)
                assert client.plain.send(b"".join(records)) > 3 * READS_MAX * READ_BYTES // 2
                honest.send(request("GET", "/text/plain?len=7"))
                acceptor.resume()
                assert len(honest.response().body) == 7
        finally:
            acceptor.resume()
    reads = [call for call in strace.calls(tmp_path)[acceptor.pid] if call.name == "recvfrom" and call.result.isdigit()]
    of_first = [call.arguments.split(",")[0] == reads[0].arguments.split(",")[0] for call in reads]
    assert 0 < of_first.index(False) <= READS_MAX
