"""--compress: which answers are compressed, with which heads, and no client waits that did not wait without it."""

import hashlib
import http.client
import os
import signal
import socket
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from support.address import Address
from support.counts import Counts
from support.gate import Gate
from support.http2 import Talk
from support.patience import PATIENCE_S, eventually
from support.proxies import nginx_as_peer, program
from support.server import Serve, Server
from support.tls import Authority
from support.wire import BrokenOff, Response, Wire, request

pytestmark = pytest.mark.own("gunicorn compresses nothing")

CODINGS = ["gzip", "br", "zstd"]
COMPRESS = ("--compress", "zstd,br,gzip")
BODIES_MAX = 64
BODIES_MAX_EACH = 16
"""The limits of crates/stanchion-requests/src/compressor.rs."""
GUNZIP = 16 + zlib.MAX_WBITS
ACCEPTED = "Accept-Encoding: gzip"
PIECES = [b"first piece, ", b"second piece, ", b"third piece\n"]
"""The pieces that /stream and /broken of the app yield."""


@pytest.fixture(scope="module")
def server(shared_serve: Serve) -> Server:
    return shared_serve("bodies:compressible", *COMPRESS)


def curl(address: Address, target: str, *options: str) -> bytes:
    """An answer as curl decodes it."""
    url = f"http://{address.host}:{address.port}{target}"
    done = subprocess.run(
        ["curl", "-sS", "--compressed", *options, url], stdout=subprocess.PIPE, timeout=6 * PATIENCE_S
    )
    assert done.returncode == 0
    return done.stdout


def plain(server: Server, target: str) -> bytes:
    """The body as the app has it."""
    with server.connect() as wire:
        return wire.get(target).body


def decoded(response: Response) -> bytes:
    """A gzip that is whole, and nothing behind it."""
    assert response.header("Content-Encoding") == "gzip"
    reader = zlib.decompressobj(GUNZIP)
    body = reader.decompress(response.body) + reader.flush()
    assert reader.eof
    assert reader.unused_data == b""
    return body


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(
    ("target", "length"),
    [
        ("/text/html?len=1024&told=1", 1024),
        ("/application/json?len=50000", 50_000),
        ("/text/css?len=300000&told=1", 300_000),
        ("/long?len=3000000", 3_000_000),
        ("/long?len=3000000&told=1", 3_000_000),
    ],
)
def test_a_client_gets_the_same_in_fewer_bytes(server: Server, coding: str, target: str, length: int) -> None:
    body = plain(server, target)
    assert len(body) == length
    accepts = f"Accept-Encoding: {coding}"
    for version in ("--http1.1", "--http1.0"):
        got = curl(server.address, target, "-H", accepts, version)
        assert hashlib.sha256(got).digest() == hashlib.sha256(body).digest()
    with server.connect() as wire:
        for _ in range(2):
            response = wire.get(target, accepts)
            assert response.header("Content-Encoding") == coding
            assert response.header("Vary") == "Accept-Encoding"
            assert len(response.body) < len(body) * 2 / 3
            # A body that is at hand as a whole has its length in the head.
            assert response.framing == ("length" if len(body) <= 50_000 else "chunked")
            assert not response.closes()
        as_it_is = wire.get(target)
        assert (as_it_is.header("Content-Encoding"), as_it_is.header("Vary")) == (None, "Accept-Encoding")
        # Without chunks only a length shows a client that an answer is whole.
        old = wire.get(target, accepts, "Connection: keep-alive", version="1.0")
        is_whole = len(body) <= 50_000
        assert old.header("Content-Encoding") == (coding if is_whole else None)
        assert old.framing == ("length" if is_whole or "told" in target else "close")
        if not is_whole:
            assert (old.body, old.header("Vary")) == (body, "Accept-Encoding")


def test_pythons_client_reads_what_curl_reads(server: Server) -> None:
    connection = http.client.HTTPConnection(server.address.host, server.address.port, timeout=PATIENCE_S)
    for target, length in [("/text/html?len=5000", 5_000), ("/long?len=500000", 500_000)]:
        connection.request("GET", target, headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        body = zlib.decompress(answer.read(), GUNZIP)
        assert len(body) == length
    connection.close()


def target_of(kind: str, *fields: str, length: int = 20_000, status: str = "200 OK") -> str:
    said = "".join(f"&field={quote(field)}" for field in fields)
    return f"/{kind}?len={length}&told=1&status={quote(status)}{said}"


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("gzip, br, zstd", "zstd"),
        ("gzip;q=0.5, identity", None),
    ],
)
def test_the_client_chooses_and_among_equals_the_operator(server: Server, accepted: str, expected: str | None) -> None:
    with server.connect() as wire:
        response = wire.get(target_of("text/html"), f"Accept-Encoding: {accepted}")
    assert response.header("Content-Encoding") == expected
    assert response.header("Vary") == "Accept-Encoding"


NEVER = [
    target_of("image/png"),
    target_of("text/html", length=1_023),
]


@pytest.mark.parametrize("target", NEVER)
def test_what_is_not_to_be_compressed_is_as_the_app_has_it(server: Server, target: str) -> None:
    with server.connect() as wire:
        response, other = wire.get(target, ACCEPTED), wire.get(target)
        assert (response.body, undated(response)) == (other.body, undated(other))
        assert response.header("Vary") is None


def undated(response: Response) -> list[tuple[str, str]]:
    return sorted(field for field in response.headers if field[0] != "Date")


def test_no_body_is_no_body(server: Server) -> None:
    with server.connect() as wire:
        for status in ("204 No Content", "304 Not Modified"):
            response = wire.get(
                f"/text/html?len=0&status={quote(status)}&field=Vary: Cookie".replace(" ", "%20"), ACCEPTED
            )
            assert response.header("Content-Encoding") is None
            assert (response.body, response.header("Vary")) == (b"", "Cookie")
        # The next answer is whole: nothing was left over.
        assert decoded(wire.get("/text/html", ACCEPTED)) == plain(server, "/text/html")


def test_head_says_what_get_would(server: Server) -> None:
    target = target_of("text/html", 'ETag: "x"')
    with server.connect() as wire:
        got = wire.get(target, ACCEPTED)
        said = wire.ask("HEAD", target, ACCEPTED)
        assert said.header("Content-Length") is None
        kept = [field for field in undated(got) if field[0] != "Content-Length"]
        assert undated(said) == kept
        assert said.header("ETag") == 'W/"x"'
        # It is not known how long the body of a GET would be.
        unknown = wire.ask("HEAD", "/text/html", ACCEPTED)
        assert (unknown.header("Content-Encoding"), unknown.header("Vary")) == (None, "Accept-Encoding")


@pytest.mark.parametrize("told", ["", "&told=1"])
def test_head_of_a_file_says_what_get_would(server: Server, told: str) -> None:
    """It is sent by the kernel, and not compressed."""
    with server.connect() as wire:
        got, said = [wire.ask(method, f"/file?len=20000{told}", ACCEPTED) for method in ("GET", "HEAD")]
    assert undated(said) == undated(got)
    assert (got.header("Content-Encoding"), got.header("Content-Length")) == (None, "20000")


@pytest.fixture(scope="module")
def nginx(shared_serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """It compresses what a server says that does not."""
    if not program("nginx"):
        pytest.skip("NOT COMPARED WITH NGINX: nginx is not installed")
    upstream = shared_serve("bodies:compressible").address
    gzip = "gzip on; gzip_vary on; gzip_proxied any; gzip_min_length 1024; gzip_types text/css application/json;"
    location = f"/ {{ proxy_pass http://{upstream.host}:{upstream.port}; }}"
    with nginx_as_peer(tmp_path_factory.mktemp("nginx"), gzip, location) as address:
        yield address


STRONG = target_of("text/html", 'ETag: "strong"')
COMPARED = [
    target_of("text/html"),
    target_of("text/css"),
    target_of("application/json"),
    STRONG,
    target_of("text/html", 'ETag: W/"weak"'),
    target_of("text/html", "Accept-Ranges: bytes"),
    target_of("text/html", "Vary: Cookie"),
    target_of("text/html", "Content-Encoding: br"),
    target_of("text/html", "Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT"),
    target_of("text/html", length=1_023),
    target_of("text/html", length=1_024),
    target_of("text/html", status="404 Not Found"),
    target_of("text/html", 'ETag: "strong"', status="304 Not Modified", length=0),
    target_of("text/html", "Content-Range: bytes 0-19999/30000", status="206 Partial Content"),
    target_of("image/png"),
]


@pytest.mark.parametrize(
    "target", [one if one == STRONG else pytest.param(one, marks=pytest.mark.large) for one in COMPARED]
)
@pytest.mark.parametrize("accepted", ["gzip", "gzip;q=0", "gzip;q=0.001, identity;q=0", "identity"])
def test_heads_say_what_those_of_nginx_say(server: Server, nginx: Address, target: str, accepted: str) -> None:
    said = []
    for address in (server.address, nginx):
        with Wire.connect(address) as wire:
            response = wire.get(target, f"Accept-Encoding: {accepted}")
        body = decoded(response) if response.header("Content-Encoding") == "gzip" else response.body
        # nginx never knows how long an answer becomes; and it has the last word on what connections are for.
        fields = {(name.lower(), value) for name, value in response.headers}
        fields = {field for field in fields if field[0] not in ("date", "server", "connection", "transfer-encoding")}
        if response.header("Content-Encoding") == "gzip":
            fields = {field for field in fields if field[0] != "content-length"}
        said.append((response.status, fields, body))
    assert said[0] == said[1]


@pytest.mark.parametrize("app", ["compressible", "compressible_asgi"])
@pytest.mark.parametrize("coding", CODINGS)
def test_what_an_app_yields_is_there_before_it_goes_on(serve: Serve, gate: Gate, app: str, coding: str) -> None:
    server = serve(f"bodies:{app}", *COMPRESS, env=gate.environment)
    url = f"http://{server.address.host}:{server.address.port}/stream"
    with subprocess.Popen(
        ["curl", "-sSN", "--compressed", "-H", f"Accept-Encoding: {coding}", url], stdout=subprocess.PIPE
    ) as client:
        assert client.stdout
        for piece in PIECES:
            assert client.stdout.read(len(piece)) == piece
            gate.let_pass(1)
        assert client.stdout.read() == b""
    assert client.returncode == 0


def test_an_answer_whose_worker_dies_is_seen_to_be_broken(serve: Serve, gate: Gate) -> None:
    server = serve("bodies:compressible", *COMPRESS, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/stream", [ACCEPTED]))
        response = wire.head()
        assert response.header("Content-Encoding") == "gzip"
        os.kill(int(gate.announcement()), signal.SIGKILL)
        with pytest.raises(BrokenOff) as broken:
            wire.read_body(response)
    assert broken.value.response
    reader = zlib.decompressobj(GUNZIP)
    assert reader.decompress(broken.value.response.body) == PIECES[0]
    assert not reader.eof


def test_an_answer_whose_app_fails_is_seen_to_be_broken(server: Server) -> None:
    """Over each kind of connection, and what came before arrives."""
    with server.connect() as wire:
        wire.send(request("GET", "/broken", [ACCEPTED]))
        response = wire.head()
        with pytest.raises(BrokenOff) as broken:
            wire.read_body(response)
    assert broken.value.response
    assert zlib.decompressobj(GUNZIP).decompress(broken.value.response.body) == PIECES[0]


def test_over_http2_and_tls(serve: Serve, tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("localhost")
    server = serve(
        "bodies:compressible",
        *COMPRESS,
        *pair.arguments(),
        *("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge"),
        *("--bind", "localhost:0?tls=false"),
    )
    tls, cleartext = server.addresses
    paths = ["/text/html", "/long?len=1000000", "/broken"]
    with Wire.connect(cleartext) as wire:
        bodies = [wire.get(path).body for path in paths[:2]]
    for version in ("--http1.1", "--http2"):
        for coding in CODINGS:
            url = f"https://{tls.host}:{tls.port}{paths[1]}"
            command = ["curl", "-sSk", version, "--compressed", "-H", f"Accept-Encoding: {coding}", url]
            assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == bodies[1]
    with Talk(cleartext) as talk:
        whole, long, broken = [talk.answer(talk.begin(path, ("accept-encoding", "gzip"))) for path in paths]
    for answer, body in zip((whole, long), bodies, strict=True):
        assert (answer.header("content-encoding"), answer.reset) == ("gzip", None)
        assert zlib.decompress(answer.body, GUNZIP) == body
    assert (whole.header("content-length"), long.header("content-length")) == (str(len(whole.body)), None)
    assert broken.reset is not None


def test_only_so_many_at_once(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    """A client that comes then gets the plain body; once another one has left, bodies are compressed again."""
    counts = Counts(tmp_path / "control")
    server = serve(
        "bodies:compressible", *COMPRESS, *counts.arguments, "--threads", str(BODIES_MAX + 2), env=gate.environment
    )
    with ExitStack() as stack:
        clients = [f"127.0.0.{2 + number % 4}" for number in range(BODIES_MAX)]
        wires = [stack.enter_context(connect_from(client, server)) for client in clients]
        for wire in wires:
            wire.send(request("GET", "/stream", [ACCEPTED]))
            assert wire.head().header("Content-Encoding") == "gzip"
        with server.connect() as late:
            response = late.get("/text/html", ACCEPTED)
            assert (response.header("Content-Encoding"), response.header("Vary")) == (None, "Accept-Encoding")
            assert counts.events()["answers_not_compressed"] == 1
            assert counts.events()["answers_compressed"] == BODIES_MAX
            # Half of them leave, each in its own way.
            for wire in wires[: BODIES_MAX // 4]:
                wire.reset()
            for wire in wires[BODIES_MAX // 4 : BODIES_MAX // 2]:
                wire.close()
            eventually(
                lambda: late.get("/text/html", ACCEPTED).header("Content-Encoding") == "gzip", "there is a place"
            )
        gate.open()
    assert counts.settled()["in_flight"] == 0


def connect_from(client: str, server: Server) -> Wire:
    """A connection from that address."""
    return Wire(socket.create_connection((server.address.host, server.address.port), PATIENCE_S, (client, 0)))


def test_a_client_that_has_its_share_leaves_places_for_others(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    threads = ("--threads", str(BODIES_MAX_EACH + 2))
    server = serve("bodies:compressible", *COMPRESS, *counts.arguments, *threads, env=gate.environment)

    def coding(client: str) -> str | None:
        with connect_from(client, server) as wire:
            return wire.get("/text/html", ACCEPTED).header("Content-Encoding")

    with ExitStack() as stack:
        wires = [stack.enter_context(connect_from("127.0.0.2", server)) for _ in range(BODIES_MAX_EACH)]
        for wire in wires:
            wire.send(request("GET", "/stream", [ACCEPTED]))
            assert wire.head().header("Content-Encoding") == "gzip"
        assert [coding(client) for client in ("127.0.0.2", "127.0.0.3", "127.0.0.2")] == [None, "gzip", None]
        assert counts.events()["answers_not_compressed"] == 2
        wires[0].reset()
        eventually(lambda: coding("127.0.0.2") == "gzip", "its share is not used up any more")
        gate.open()
    assert counts.settled()["in_flight"] == 0


def test_clients_that_leave_take_no_place_with_them(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    server = serve("bodies:compressible", *COMPRESS, *counts.arguments, "--threads", "4")
    for number in range(3 * BODIES_MAX):
        wire = server.connect()
        wire.send(request("GET", "/long?len=3000000", [ACCEPTED]))
        if number % 2:
            wire.head()
        wire.reset()
    counts.settled()
    with server.connect() as wire:
        assert decoded(wire.get("/text/html", ACCEPTED)) == plain(server, "/text/html")


def test_a_client_that_reads_nothing_holds_no_worker(serve: Serve, tmp_path: Path) -> None:
    """One worker with one thread, and an answer that no buffer holds: it goes to a file, as others do."""
    counts = Counts(tmp_path / "control")
    server = serve("bodies:compressible", *COMPRESS, *counts.arguments, "--response-buffer", "256K")
    length = 30_000_000
    with unread(server) as slow, server.connect() as quick:
        slow.send(request("GET", f"/long?len={length}", [ACCEPTED]))
        eventually(lambda: counts.events()["answers_spooled"] > 0, "the client is known to be slow")
        assert len(decoded(quick.get("/text/html", ACCEPTED))) == 20_000
        eventually(lambda: counts.requests()["in_flight"] == 1, "the quick one is counted")
        response = slow.head()
        slow.read_body(response)
    assert decoded(response) == plain(server, f"/long?len={length}")


@pytest.mark.timeout(180)
def test_a_full_spool_does_not_keep_the_event_loop_busy(serve: Serve, tmp_path: Path) -> None:
    """While a thread compresses, the loop does not ask again and again whether there is room."""
    counts = Counts(tmp_path / "control")
    # Where the coders are not optimised they take seconds of a core, and so more of a busy one than a request has.
    small = ("--response-buffer", "256K", "--max-spool", "512", "--timeout", "0")
    server = serve("bodies:compressible", "--compress", "br", *COMPRESS[2:], *small, *counts.arguments)
    # Half of it is more than the kernel keeps for a client, by default up to 4 MiB (tcp_wmem in tcp(7)).
    length = 12_000_000
    with unread(server) as slow:
        slow.send(request("GET", f"/long?len={length}", ["Accept-Encoding: br"]))
        eventually(lambda: counts.events()["workers_held"] > 0, "its worker waits for it")
        before = cpu_s_of_acceptor(server)
        slow.read_body(slow.head())
        loop_s, press_s = (after - then for after, then in zip(cpu_s_of_acceptor(server), before, strict=True))
    assert loop_s < press_s / 2


def unread(server: Server) -> Wire:
    """A client for which the kernel keeps little of what it does not read."""
    return Wire(server.address.connect(receive_buffer_bytes=65_536))


def cpu_s_of_acceptor(server: Server) -> tuple[float, float]:
    """The seconds of a core of its event loop, and of the threads that compress."""
    acceptor = server.acceptor().pid
    loop_s = press_s = 0.0
    for task in Path(f"/proc/{acceptor}/task").iterdir():
        seconds = int((task / "schedstat").read_text().split()[0]) / 1e9
        if (task / "comm").read_text().startswith("stanchion-press"):
            press_s += seconds
        elif task.name == str(acceptor):
            loop_s = seconds
    return loop_s, press_s


def test_what_no_thread_can_compress(serve: Serve) -> None:
    """A whole answer goes out as it is. A stream breaks off, and its worker goes on with others."""
    server = serve("bodies:compressible", *COMPRESS)
    acceptor = server.acceptor()
    before = acceptor.rlimit(psutil.RLIMIT_AS)
    hold_threads_back(acceptor)
    with server.connect() as wire:
        for told in ("", "&told=1"):
            response = wire.get(f"/text/html?len=20000{told}", ACCEPTED)
            assert (response.header("Content-Encoding"), response.header("Vary")) == (None, "Accept-Encoding")
            assert [value for name, value in response.headers if name == "Content-Length"] == ["20000"]
            assert len(response.body) == 20_000
    hold_threads_back(acceptor)
    with server.connect() as wire, pytest.raises(BrokenOff):
        wire.get("/long?len=300000", ACCEPTED)
    acceptor.rlimit(psutil.RLIMIT_AS, before)
    with server.connect() as wire:
        assert len(decoded(wire.get("/text/html", ACCEPTED))) == 20_000


def hold_threads_back(process: psutil.Process) -> None:
    """There is no room for the stack of another one, of 2 MiB, and for little else."""
    process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + 2_000_000, psutil.RLIM_INFINITY))


def test_static_files_are_sent_as_they_are(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "a.css").write_bytes(b"b{}" * 10_000)
    server = serve("bodies:compressible", *COMPRESS, "--static", f"/static={tmp_path}")
    with server.connect() as wire:
        response = wire.get("/static/a.css", ACCEPTED)
        assert (response.header("Content-Encoding"), response.body) == (None, b"b{}" * 10_000)


def test_nothing_is_compressed_unless_it_is_asked_for(serve: Serve) -> None:
    server = serve("bodies:compressible")
    with server.connect() as wire:
        response = wire.get("/text/html", ACCEPTED)
    assert (response.header("Content-Encoding"), response.header("Vary")) == (None, None)
