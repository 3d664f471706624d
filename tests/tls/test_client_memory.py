"""The accounts of clients have nearly all memory that the acceptor grows by. They end with the client, and the slowest
connection of the client that has most goes when there is too much."""

import errno
import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from support.address import Address
from support.client_memory import SMALL_BYTES, memory
from support.clock import Clock
from support.control_group import NEEDS_CONTROL_GROUPS, MemoryGroup
from support.counts import Counts
from support.http2 import PREFACE, Talk, frame, setting
from support.patience import PATIENCE_S, eventually
from support.processes import sleeps
from support.server import UNHURRIED, Serve, Server
from support.tls import Pair, speak
from support.websocket import WebSocket
from support.wire import Wire, request

pytestmark = pytest.mark.own("no other server counts the memory of its clients")

MIB = 1 << 20
ACCOUNTED = 0.9
SLACK_BYTES = 50 * MIB
"""The C library keeps freed memory for the next blocks, in an arena for each thread (malloc(3))."""
HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
WIDE = setting(4, 0x7FFFFFFF) + frame(8, 0, 0, struct.pack(">I", 0x7FFF0000))
"""The client lets the server send as much as it likes (RFC 9113 section 6.9)."""


def anonymous_bytes(pid: int) -> int:
    """The anonymous memory of a process (proc_pid_status(5))."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


PART_OF_A_MESSAGE = b"\x02\xff" + (500_000).to_bytes(8, "big") + bytes(4) + bytes(400_000)
"""Binary, not the last frame, masked with zeroes, 400,000 bytes of 500,000 (RFC 6455 section 5.2)."""


class Watched:
    """A server whose memory is looked at."""

    def __init__(self, server: Server, admin: Address) -> None:
        self.server = server
        self.admin = admin
        self.pid = server.acceptor_by_name().pid

    def rests(self) -> None:
        # It compresses megabytes before it rests, and may have a part of a core.
        eventually(lambda: sleeps(self.pid), "the acceptor has nothing to do", 3 * PATIENCE_S)

    def look(self) -> tuple[int, int, int]:
        """The bytes on accounts, those that the server has for itself, and those that the kernel sees."""
        self.rests()
        said = memory(self.admin)
        return said["bytes"], said["own_bytes"], anonymous_bytes(self.pid)


@pytest.fixture
def admin(tmp_path: Path) -> Address:
    return Address(path=str(tmp_path / "admin"))


Open = Callable[[ExitStack, Server, int], None]


def plain(stack: ExitStack, server: Server, sent: bytes) -> socket.socket:
    sock = stack.enter_context(server.address.connect())
    sock.sendall(sent)
    return sock


def heads(stack: ExitStack, server: Server, number: int) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (field, b"x" * 8_000) for field in range(7))
    plain(stack, server, b"GET / HTTP/1.1\r\nHost: a\r\n" + fields)


def bodies(stack: ExitStack, server: Server, number: int) -> None:
    plain(stack, server, request("POST", "/", ["Content-Length: 60000"]) + bytes(50_000))


def chunked_bodies(stack: ExitStack, server: Server, number: int) -> None:
    plain(stack, server, request("POST", "/", ["Transfer-Encoding: chunked"]) + b"c350\r\n" + bytes(50_000))


def unread_answers(stack: ExitStack, server: Server, number: int) -> None:
    sock = stack.enter_context(server.address.connect(receive_buffer_bytes=4096))
    sock.sendall(request("GET", "/told?9000000") + request("GET", "/told?1") * 1_000)


def http2_bodies(stack: ExitStack, server: Server, number: int) -> None:
    talk = stack.enter_context(Talk(server.address))
    for _ in range(10):
        talk.say(talk.begin("/", method="POST", ends=False), bytes(60_000), ends=False)
    talk.ping()


def http2_unread_answers(stack: ExitStack, server: Server, number: int) -> None:
    sock = stack.enter_context(server.address.connect(receive_buffer_bytes=4096))
    sock.sendall(PREFACE + WIDE)
    for stream in range(1, 8, 2):
        sock.sendall(frame(1, 5, stream, b"\x82\x86\x41\x01a\x04\x0d/told?9000000"))


def idle_http2(stack: ExitStack, server: Server, number: int) -> None:
    stack.enter_context(Talk(server.address)).ping()


def compressed_answers(stack: ExitStack, server: Server, number: int) -> None:
    sock = stack.enter_context(server.address.connect(receive_buffer_bytes=4096))
    coding = ["zstd", "br", "gzip"][number % 3]
    sock.sendall(request("GET", "/long?len=30000000", [f"Accept-Encoding: {coding}"]))


def zstd_answers(stack: ExitStack, server: Server, number: int) -> None:
    """C code allocates a good part of it."""
    compressed_answers(stack, server, 0)


def tls_bodies(stack: ExitStack, server: Server, number: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sock = stack.enter_context(speak(server.address.connect(), context))
    sock.sendall(request("POST", "/", ["Content-Length: 60000"]) + bytes(30_000))


def idle_websockets(stack: ExitStack, server: Server, number: int) -> None:
    stack.callback(WebSocket(server, "/echo").drop)


def parts_of_messages(stack: ExitStack, server: Server, number: int) -> None:
    websocket = WebSocket(server, "/echo")
    stack.callback(websocket.drop)
    websocket.wire.send(PART_OF_A_MESSAGE)


PLAIN = ("bodies:flowing",)
COMPRESSED = ("bodies:compressible", "--compress", "zstd,br,gzip")
SESSIONS = ("sockets:app", "--interface", "asgi")


@pytest.mark.parametrize(
    ("opens", "count", "least", "app"),
    [
        (heads, 200, 50_000, PLAIN),
        (bodies, 300, 50_000, PLAIN),
        (chunked_bodies, 300, 50_000, PLAIN),
        (unread_answers, 20, MIB, PLAIN),
        (http2_bodies, 30, 600_000, PLAIN),
        (http2_unread_answers, 10, 4 * MIB, PLAIN),
        (idle_http2, 300, 5_000, PLAIN),
        (compressed_answers, 6, 2 * MIB, COMPRESSED),
        (zstd_answers, 6, 5 * MIB // 2, COMPRESSED),
        (tls_bodies, 200, 30_000, PLAIN),
        (idle_websockets, 200, 1_000, SESSIONS),
        (parts_of_messages, 40, 400_000, SESSIONS),
    ],
)
def test_the_accounts_have_nearly_all_that_the_acceptor_grows_by(
    serve: Serve, admin: Address, pair: Pair, opens: Open, count: int, least: int, app: tuple[str, ...]
) -> None:
    more = pair.arguments() if opens is tls_bodies else HTTP2
    server = serve(*app, *more, "--admin", f"unix:{admin.path}", *UNHURRIED, "--threads", "40")
    watched = Watched(server, admin)
    with ExitStack() as warm:
        opens(warm, server, 0)
        watched.look()
    with ExitStack() as stack:
        before = watched.look()
        for number in range(count):
            opens(stack, server, number)
        # Compression without optimisation takes seconds of a core.
        eventually(lambda: memory(admin)["bytes"] > before[0] + count * least, "each has its memory", 3 * PATIENCE_S)
        after = watched.look()
        accounted, own, seen = (now - then for now, then in zip(after, before, strict=True))
        assert accounted >= ACCOUNTED * (accounted + own)
        assert seen < accounted + SLACK_BYTES
    eventually(lambda: memory(admin)["bytes"] < SMALL_BYTES, "nothing is left")


def test_an_idle_connection_is_on_an_account(serve: Serve, admin: Address) -> None:
    """The rest is in tables, which have an entry for each connection."""
    server = serve("hello:app", "--admin", f"unix:{admin.path}")
    watched = Watched(server, admin)
    with ExitStack() as stack:
        before = watched.look()
        for _ in range(2_000):
            stack.enter_context(server.address.connect())
        after = watched.look()
        accounted, own, _ = (now - then for now, then in zip(after, before, strict=True))
        assert accounted >= 2_000 * 400 and own <= accounted / 2
    eventually(lambda: memory(admin)["bytes"] < SMALL_BYTES, "nothing is left")


def connect_from(source: str, server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.address.port), PATIENCE_S, source_address=(source, 0))


def upload(server: Server, source: str, sent: int) -> socket.socket:
    sock = connect_from(source, server)
    sock.sendall(request("POST", "/echo", ["Content-Length: 60000"]) + bytes(sent))
    return sock


def test_the_slowest_of_the_client_that_has_most_goes_first(
    serve: Serve, admin: Address, counts: Counts, clock: Clock
) -> None:
    bodies = ("--min-body-rate", "100", "--body-memory", "64K")
    limits = ("--max-client-memory", "4M", "--forwarded-allow-ips", "", *bodies)
    arguments = (*limits, *counts.arguments, "--admin", f"unix:{admin.path}")
    server = serve("echo:app", *arguments, bind="0.0.0.0:0", env=clock.environment)
    watched = Watched(server, admin)
    with ExitStack() as stack:

        def begin(source: str, count: int) -> list[socket.socket]:
            before = counts.requests()["arrived"]
            socks = [stack.enter_context(upload(server, source, 50_000)) for _ in range(count)]
            eventually(lambda: counts.requests()["arrived"] == before + count, "all have come")
            watched.rests()
            return socks

        others = begin("127.0.0.2", 10)
        slow = begin("127.0.0.3", 30)
        (most, next_most) = memory(admin)["most"]
        assert (most["client"], most["connections"]) == ("127.0.0.3", 30)
        assert (next_most["client"], next_most["connections"]) == ("127.0.0.2", 10)
        assert counts.events()["connections_cut_for_memory"] == 0
        clock.advance(3)
        quick = begin("127.0.0.3", 25)
        server.log.wait_for("clients have more memory than max_client_memory", 1)
        cut = counts.events()["connections_cut_for_memory"]
        # There is room for some 57 of 65, and once there is not an eighth of the limit has to be free.
        assert 8 <= cut < 30
        # Each ends with a reset, which each of the others would have got by now.
        for sock in others + quick:
            sock.sendall(bytes(10_000))
            assert Wire(sock).response().status == 200
        gone = sum(is_cut(sock) for sock in slow)
        assert gone == cut == counts.events()["connections_cut_for_memory"]
    requests = counts.settled()
    assert requests["abandoned_reading"] == 30
    eventually(lambda: counts.open_connections() == 0, "all connections end")


def is_cut(sock: socket.socket) -> bool:
    """Whether it was reset; another one is answered, or goes on."""
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_websockets_with_half_a_message_are_cut_off(serve: Serve, admin: Address, counts: Counts) -> None:
    limits = ("--max-client-memory", "4M", "--forwarded-allow-ips", "", *UNHURRIED)
    arguments = (*limits, *counts.arguments, "--admin", f"unix:{admin.path}")
    server = serve(*SESSIONS, *arguments, bind="0.0.0.0:0")
    watched = Watched(server, admin)
    with ExitStack() as stack:

        def session(source: str) -> WebSocket:
            websocket = WebSocket(server, "/echo", wire=Wire(connect_from(source, server)))
            stack.callback(websocket.drop)
            return websocket

        other = session("127.0.0.2")
        greedy = [session("127.0.0.3") for _ in range(20)]
        for websocket in greedy:
            # The limit may cut it off before all is sent.
            with suppress(ConnectionError):
                websocket.wire.send(PART_OF_A_MESSAGE)
        server.log.wait_for("clients have more memory than max_client_memory", 1)
        watched.rests()
        assert memory(admin)["bytes"] <= 4 * MIB
        cut = counts.events()["connections_cut_for_memory"]
        assert sum(is_cut(websocket.wire.sock) for websocket in greedy) == cut > 0
        other.text("still here")
        assert other.hear() == "still here"
    requests = counts.settled()
    assert requests["arrived"] == 21
    eventually(lambda: counts.open_connections() == 0, "all connections end")


def test_http2_connections_are_cut_off_for_what_their_ended_streams_left(
    serve: Serve, admin: Address, counts: Counts
) -> None:
    limits = ("--max-client-memory", "1M", "--forwarded-allow-ips", "", *HTTP2)
    server = serve("bodies:flowing", *limits, "--admin", f"unix:{admin.path}", *counts.arguments, bind="0.0.0.0:0")
    watched = Watched(server, admin)
    with ExitStack() as stack:
        other = stack.enter_context(Wire(connect_from("127.0.0.2", server)))
        assert other.get("/told?1").status == 200
        greedy = []
        for _ in range(12):
            greedy.append(stack.enter_context(connect_from("127.0.0.3", server)))
            # The client opens all windows and reads nothing, so that ended answers wait in the library of HTTP/2.
            with suppress(ConnectionError):
                leave_ended_streams(greedy[-1])
        server.log.wait_for("clients have more memory than max_client_memory", 1)
        watched.rests()
        assert memory(admin)["bytes"] <= MIB
        eventually(lambda: sum(map(has_been_reset, greedy)) > 0, "whole connections are cut off")
        assert other.get("/told?1").status == 200
    counts.settled()
    eventually(lambda: counts.open_connections() == 0, "all connections end")


def leave_ended_streams(sock: socket.socket) -> None:
    """The socket does not take the first answer. A hundred small ones are over when the library has them."""
    sock.sendall(PREFACE + WIDE)
    sock.sendall(frame(1, 5, 1, b"\x82\x86\x41\x01a\x04\x0d/told?9000000"))
    for stream in range(3, 200, 2):
        sock.sendall(frame(1, 5, stream, b"\x82\x86\x41\x01a\x04\x0a/told?2500"))


def has_been_reset(sock: socket.socket) -> bool:
    """Whether the server has reset the connection; what it sent before stays unread."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET


def test_behind_a_proxy_it_is_the_client_that_counts(serve: Serve, admin: Address, counts: Counts) -> None:
    arguments = ("--max-client-memory", "4M", *counts.arguments, "--admin", f"unix:{admin.path}")
    server = serve("echo:app", *arguments, "--body-memory", "1M", *UNHURRIED)
    watched = Watched(server, admin)
    with ExitStack() as stack:

        def begin(client: str, sent: int) -> socket.socket:
            sock = stack.enter_context(server.address.connect())
            fields = [f"X-Forwarded-For: {client}", "Content-Length: 201000"]
            before = counts.requests()["arrived"]
            sock.sendall(request("POST", "/echo", fields) + bytes(sent))
            eventually(lambda: counts.requests()["arrived"] == before + 1, "it has come")
            return sock

        # It has more on its connection than any other, and less than the other client has in all.
        lone = begin("192.0.2.1", 200_000)
        for _ in range(80):
            begin("192.0.2.2", 40_000)
        watched.rests()
        assert counts.events()["connections_cut_for_memory"] > 0
        lone.sendall(bytes(1_000))
        assert Wire(lone).response().status == 200


def test_answers_of_streams_that_are_over_are_on_the_account_of_their_connection(
    serve: Serve, admin: Address, counts: Counts
) -> None:
    """HTTP/2's library has them until the socket takes them."""
    # Then all streams are one client's, and its account is shown as one.
    nobody_trusted = ("--forwarded-allow-ips", "")
    server = serve("bodies:flowing", "--admin", f"unix:{admin.path}", *HTTP2, *nobody_trusted, *counts.arguments)
    watched = Watched(server, admin)
    with ExitStack() as stack:
        for _ in range(8):
            sock = stack.enter_context(server.address.connect(receive_buffer_bytes=4096))
            leave_ended_streams(sock)
        answered = 8 * 99
        eventually(lambda: counts.requests()["answered"] == answered, "only the long ones are not over")
        watched.rests()
        said = memory(admin)
        assert said["most"][0]["bytes"] >= ACCOUNTED * said["bytes"]


@pytest.fixture
def container() -> Iterator[MemoryGroup]:
    with closing(MemoryGroup("clients", 400 * MIB)) as group:
        yield group


@NEEDS_CONTROL_GROUPS
def test_in_a_container_clients_have_a_quarter_of_its_memory(
    container: MemoryGroup, build: Serve, admin: Address
) -> None:
    arguments = ("hello:app", "--admin", f"unix:{admin.path}")
    server = build(*arguments, prefix=container.prefix).start()
    assert memory(admin)["max_bytes"] == 100 * MIB
    server.log.only("the control group may have 400 MiB of memory, so clients may have 100 MiB")
    server.stop()
    server = build(*arguments, "--max-client-memory", "300M", prefix=container.prefix).start()
    assert memory(admin)["max_bytes"] == 300 * MIB
    server.stop()
    build(*arguments).start()
    assert memory(admin)["max_bytes"] == 1024 * MIB
