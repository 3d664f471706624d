"""Requests over TLS, as clients of other makes speak it."""

import contextlib
import hashlib
import os
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.tls import NAME, Authority, Pair
from support.tls import connect as connect_to
from support.wire import Wire, request

pytestmark = pytest.mark.own("other servers have other limits, and leave out close_notify")

Connect = Callable[[Server], Wire]
MIB = 1 << 20


def test_a_connection_serves_requests_until_it_is_closed_as_tls_has_it(hello: Server, connect: Connect) -> None:
    with connect(hello) as wire:
        assert [wire.get("/").body for _ in range(3)] == [b"hello\n"] * 3
        assert wire.get("/", "Connection: close").closes()
        # The server closes it by close_notify: anything else raises.
        assert wire.closed()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_that_are_safe_are_spoken(version: ssl.TLSVersion, hello: Server, authority: Authority) -> None:
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    with connect_to(hello.address, context) as wire:
        assert isinstance(wire.sock, ssl.SSLSocket)
        assert wire.sock.version() == version.name.replace("_", ".")
        assert wire.get("/").body == b"hello\n"


def test_http_1_1_is_agreed_on(hello: Server, authority: Authority) -> None:
    context = authority.context()
    context.set_alpn_protocols(["spdy/3", "http/1.1"])
    with connect_to(hello.address, context) as wire:
        assert isinstance(wire.sock, ssl.SSLSocket)
        assert wire.sock.selected_alpn_protocol() == "http/1.1"
        assert wire.get("/").body == b"hello\n"


def test_curl_and_openssl_speak_to_it(hello: Server, authority: Authority) -> None:
    port = str(hello.address.port)
    where = ["--resolve", f"{NAME}:{port}:127.0.0.1", f"https://{NAME}:{port}/", f"https://{NAME}:{port}/again"]
    curl = ["curl", "--silent", "--show-error", "--fail", "--cacert", str(authority.own.certfile), *where]
    told = subprocess.run(curl, check=True, capture_output=True, timeout=PATIENCE_S)
    assert told.stdout == b"hello\n" * 2
    client = ["openssl", "s_client", "-quiet", "-verify_return_error", "-CAfile", str(authority.own.certfile)]
    asked = request("GET", "/", ["Connection: close"])
    client += ["-verify_hostname", NAME, "-servername", NAME, "-connect", f"127.0.0.1:{port}"]
    told = subprocess.run(client, input=asked, check=True, capture_output=True, timeout=PATIENCE_S)
    assert told.stdout.endswith(b"\r\n\r\nhello\n")


def test_the_app_is_told_that_it_is_https(serve: Serve, connect: Connect, pair: Pair) -> None:
    server = serve("echo:app", *pair.arguments())
    with connect(server) as wire:
        environ = wire.get("/").json()["environ"]
        assert (environ["wsgi.url_scheme"], environ["SERVER_PORT"]) == ("https", str(server.address.port))


def test_plain_http_is_answered_in_plain(hello: Server) -> None:
    with hello.connect() as wire:
        response = wire.get("/")
        assert (response.status, response.closes()) == (400, True)
        assert b"plain HTTP on a port for TLS" in response.body
        assert wire.closed()
    hello.log.wait("400: a client's fault: plain HTTP on a port for TLS")


def test_what_is_neither_is_told_by_an_alert(hello: Server) -> None:
    with hello.connect() as wire:
        # A message that only servers send.
        wire.send(b"\x16\x03\x01\x00\x04\x02\x00\x00\x00")
        told = wire.rest()
        # The record is an alert (type 21), and fatal (RFC 8446 section 6).
        assert (told[0], told[5]) == (21, 2)


def test_a_listener_may_be_left_in_plain(serve: Serve, connect: Connect, pair: Pair) -> None:
    server = serve("hello:app", *pair.arguments(), "--bind", "localhost:0?tls=false")
    with connect(server) as wire:
        assert wire.get("/").body == b"hello\n"
    with Wire.connect(server.addresses[1]) as wire:
        assert wire.get("/").body == b"hello\n"


def test_requests_that_come_at_once_and_in_pieces_are_answered_in_order(hello: Server, connect: Connect) -> None:
    with connect(hello) as wire:
        wire.send(request("GET", "/") * 50)
        assert [wire.response().body for _ in range(50)] == [b"hello\n"] * 50
        for byte in request("GET", "/"):
            wire.send(bytes([byte]))
        assert wire.response().body == b"hello\n"


def test_what_waits_in_the_layer_is_not_forgotten(serve: Serve, connect: Connect, pair: Pair) -> None:
    """A record may hold more than is read at a time, and then the kernel has nothing to tell."""
    server = serve("echo:app", *pair.arguments())
    body = os.urandom(16_000)
    with connect(server) as wire:
        for length in (1, 16_000, 3):
            wire.send(request("POST", "/", [f"Content-Length: {length}"], body[:length]) + request("GET", "/"))
            assert wire.response().json()["sha256"] == hashlib.sha256(body[:length]).hexdigest()
            assert wire.response().json()["length"] == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mib", [20, pytest.param(100, marks=pytest.mark.large)])
def test_large_bodies_go_both_ways_whole(serve: Serve, connect: Connect, pair: Pair, mib: int) -> None:
    body = os.urandom(MIB) * mib
    for app, path in (("uploading:app", "/digest"), ("echo:app", "/")):
        server = serve(app, *pair.arguments(), "--limit-request-body", "0", "--timeout", "0")
        with connect(server) as wire:
            assert wire.post(path, body).json()["sha256"] == hashlib.sha256(body).hexdigest()
    server = serve("answers:app", *pair.arguments())
    with connect(server) as wire:
        response = wire.get(f"/big?{16 * mib}")
        assert (response.framing, len(response.body)) == ("chunked", mib * MIB)


def test_a_slow_reader_gets_all_and_then_the_end(serve: Serve, connect: Connect, pair: Pair) -> None:
    """The server sends the records that it has encrypted before it closes the connection."""
    server = serve("answers:app", *pair.arguments())
    with connect(server) as wire:
        wire.read_slowly(64 << 10, 0.002)
        response = wire.get("/big?80", "Connection: close")
        assert len(response.body) == 80 * 65_536
        assert wire.closed()


@pytest.mark.parametrize("size", [0, 10, 16 << 10, (16 << 10) + 1, MIB, 20 * MIB + 7])
def test_files_are_sent(size: int, serve: Serve, connect: Connect, pair: Pair, tmp_path: Path) -> None:
    content = os.urandom(size)
    (tmp_path / "file.bin").write_bytes(content)
    server = serve("hello:app", *pair.arguments(), "--static", f"/static={tmp_path}")
    with connect(server) as wire:
        for _ in range(2):
            response = wire.get("/static/file.bin")
            assert (response.status, response.body == content) == (200, True)
        assert wire.get("/").body == b"hello\n"


def test_a_file_that_is_not_in_memory_is_sent(serve: Serve, connect: Connect, pair: Pair, tmp_path: Path) -> None:
    content = os.urandom(30 * MIB)
    path = tmp_path / "cold.bin"
    path.write_bytes(content)
    server = serve("hello:app", *pair.arguments(), "--static", f"/static={tmp_path}")
    with connect(server) as wire:
        assert wire.get("/static/cold.bin").body == content
        forget(path)
        assert wire.get("/static/cold.bin").body == content
        assert wire.get("/").body == b"hello\n"


def forget(path: Path) -> None:
    """Have the kernel forget what it keeps of a file; skips where it does not."""
    with path.open("rb+") as file:
        os.fsync(file)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for offset in (0, path.stat().st_size - 1):
            with contextlib.suppress(BlockingIOError):
                os.preadv(file.fileno(), [bytearray(1)], offset, os.RWF_NOWAIT)
                pytest.skip("this file system keeps it in memory")


def test_half_open_handshakes_keep_no_client_waiting(
    serve: Serve, connect: Connect, pair: Pair, tmp_path: Path, clock: Clock
) -> None:
    counts = Counts(tmp_path / "ctl")
    limits = ("--header-timeout", "100", *counts.arguments)
    server = serve("hello:app", *pair.arguments(), *limits, env=clock.environment)
    idle = [server.address.connect() for _ in range(200)]
    begun = [server.address.connect() for _ in range(200)]
    for sock in begun:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    with connect(server) as wire:
        assert wire.get("/").body == b"hello\n"
    eventually(lambda: counts.open_connections() == len(idle + begun), "all of them are let in")
    # They are closed when the time for a head is over.
    clock.advance(100)
    eventually(lambda: counts.open_connections() == 0, "they are gone")
    for sock in idle + begun:
        sock.close()


def test_a_broken_record_ends_the_connection_with_an_alert(hello: Server, authority: Authority) -> None:
    sock = hello.address.connect()
    context = authority.context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            sock.sendall(outgoing.read())
            incoming.write(sock.recv(1 << 16))
    sock.sendall(outgoing.read())
    client.write(request("GET", "/"))
    record = bytearray(outgoing.read())
    record[-1] ^= 1
    sock.sendall(record)
    said = b""
    while data := sock.recv(1 << 16):
        said += data
    incoming.write(said)
    incoming.write_eof()
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        client.read()
    sock.close()


BROKEN: dict[str, tuple[Callable[[Pair, Pair], tuple[str, ...]], str]] = {
    "no file": (lambda one, _: ("--certfile", "/none.pem", "--keyfile", str(one.keyfile)), "No such file"),
    "other key": (
        lambda one, two: ("--certfile", str(one.certfile), "--keyfile", str(two.keyfile)),
        "does not fit",
    ),
    "no key": (lambda one, _: ("--certfile", str(one.certfile)), "has no private key"),
    "a directory": (lambda one, _: ("--certfile", "/", "--keyfile", str(one.keyfile)), "no regular file"),
    "suites": (lambda one, _: (*one.arguments(), "--ciphers", "RC4-MD5"), "'RC4-MD5' is no cipher suite"),
    "keys": (lambda one, _: (*one.arguments(), "--keyfile", "x"), "expected one for each of 1 `certfile`"),
    "a key alone": (lambda one, _: ("--keyfile", str(one.keyfile)), "there is no `certfile`"),
    "uwsgi": (lambda one, _: (*one.arguments(), "--protocol", "uwsgi"), "TLS is for HTTP"),
    "clients": (lambda one, _: (*one.arguments(), "--cert-reqs", "2"), "it needs `ca_certs`"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_served_with_stops_the_start(case: str, build: Serve, authority: Authority, pair: Pair) -> None:
    arguments, why = BROKEN[case]
    server = build("hello:app", *arguments(pair, authority.issue("other.test"))).launch()
    assert server.exit_code() == 2
    server.log.wait_end()
    assert why in server.log.text()


@pytest.mark.parametrize("framing", ["Content-Length: 4000000", "Transfer-Encoding: chunked"])
def test_the_acceptor_rests_while_an_app_that_has_begun_its_answer_reads_no_body(
    serve: Serve, pair: Pair, connect: Connect, gate: Gate, framing: str
) -> None:
    server = serve("uploading:app", "--interface", "asgi", *pair.arguments(), env=gate.environment)
    acceptor = server.acceptor_by_name()
    with connect(server) as wire:
        body = b"x" * 1_000_000
        wire.send(request("POST", "/begun", [framing]) + (body if "Length" in framing else b"f4240\r\n" + body))
        gate.announcement()
        wire.head()
        assert wire.body_bytes(10) == b"5\r\nbegun\r\n"
        before_s = sum(acceptor.cpu_times()[:2])
        assert wire.silent(2)
        assert sum(acceptor.cpu_times()[:2]) - before_s < 0.5
        gate.let_pass(1)
        assert wire.rest().endswith(b"0\r\n\r\n")
