"""Sessions (WebSockets that are open) in adversity: whatever dies, leaves or does not listen, each is counted once."""

import contextlib
import fcntl
import os
import random
import select
import signal
import socket
import termios
import time
from array import array
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.unread import untaken_bytes
from support.websocket import END, HANDSHAKE, Ask, Open, WebSocket, seen, sessions
from support.wire import BrokenOff, request
from support.witness import acceptor_has_seen

ASGI = ("--interface", "asgi")
ENDS = ("closed_by_app", "closed_by_client", "closed_by_server", "cut")


def settled(counts: Counts) -> dict[str, int]:
    """The counts of each way in which sessions have ended, once all have."""

    def is_over() -> bool:
        now = sessions(counts)
        return now["begun"] == sum(now.get(end, 0) for end in ENDS)

    eventually(is_over, "all sessions have ended")
    counts.settled()
    return sessions(counts)


def pid_of(client: WebSocket) -> int:
    client.text("pid")
    return int(client.hear())


def test_who_waits_for_room_hears_of_a_client_that_closes(serve: Serve, counts: Counts, opens: Open) -> None:
    """The app's reader hears of it, and so does its writer, which waits."""
    server = serve("sockets:app", *ASGI, *counts.arguments)
    client = opens(server, "/flood")
    for _ in range(100):
        assert client.hear() == bytes(10_000)
    client.close()
    assert [heard for heard in client.until_end() if heard != bytes(10_000)] == [(1000, "")]
    eventually(lambda: ["the writer", "ClientGone"] in seen(server), "the writer is told")
    eventually(lambda: [1000, "", "OSError"] in seen(server), "the reader is told")
    assert settled(counts) == {"begun": 1, "closed_by_client": 1}


def test_who_waits_for_room_hears_of_a_close_by_the_server(
    serve: Serve, counts: Counts, opens: Open, clock: Clock
) -> None:
    """It hears so at once, and not only when the client has answered or has had its time."""
    pings = ("--ws-ping-interval", "100", "--ws-ping-timeout", "100", "--loop-timeout", "0")
    server = serve("sockets:app", *ASGI, *pings, *counts.arguments, env=clock.environment)
    client = opens(server, "/flood")
    client.answers_pings = client.answers_closes = False
    for expected in (("ping", b""), (1011, "a ping was not answered")):
        clock.advance(101)
        assert next(heard for heard in iter(client.hear, END) if heard != bytes(10_000)) == expected
    eventually(lambda: ["the writer", "ClientGone"] in seen(server), "the writer is told")
    eventually(lambda: [1011, "a ping was not answered", "OSError"] in seen(server), "the reader is told")
    assert sessions(counts) == {"begun": 1}, "its client may still answer"


@pytest.mark.parametrize("size", [1000, 20_000, 100_000, 300_000, 1_000_000])
def test_messages_of_which_the_kernel_takes_a_part_at_first_come_whole(
    serve: Serve, opens: Open, tmp_path: Path, size: int
) -> None:
    """Nothing happens then but that there is room again: no ping, and nothing that the client says.

    Over a unix socket, which has less room than any TCP connection to this machine itself (unix(7)): 208 KiB.
    """
    server = serve("sockets:app", *ASGI, "--ws-ping-interval", "0", bind=f"unix:{tmp_path}/s.sock")
    count = 2_000_000 // size
    for _ in range(10):
        client = opens(server, f"/numbered/{count}/{size}")
        eventually(lambda client=client: is_full(client), "the kernel takes no more")
        for number in range(count):
            assert client.hear() == number.to_bytes(4, "big") * (size // 4)
        client.drop()


def is_full(client: WebSocket) -> bool:
    """Whether nothing more comes of what is not read: for a twentieth of a second."""
    before = unread_bytes(client)
    time.sleep(0.05)
    return before == unread_bytes(client) > 0


def unread_bytes(client: WebSocket) -> int:
    unread = array("i", [0])
    fcntl.ioctl(client.wire.sock, termios.FIONREAD, unread)
    return unread[0]


def test_an_app_whose_worker_leaves_is_told_as_if_its_client_had_left(serve: Serve, gate: Gate, opens: Open) -> None:
    server = serve("sockets:app", *ASGI, "--max-requests", "1", env=gate.environment)
    opens(server, "/told").until_end()
    assert gate.announcement() == "1012 OSError"


def test_a_client_that_reads_nothing_is_cut_off(serve: Serve, counts: Counts, opens: Open) -> None:
    server = serve("sockets:app", *ASGI, "--write-timeout", "1", *counts.arguments)
    opens(server, "/flood")
    assert settled(counts) == {"begun": 1, "cut": 1}
    eventually(lambda: ["the writer", "ClientGone"] in seen(server), "the writer is told")
    eventually(lambda: [1006, "", "OSError"] in seen(server), "the reader is told")
    assert counts.events()["connections_cut_off"] == 1


def test_a_client_may_send_no_more_than_is_kept_for_an_app_that_does_not_listen(
    serve: Serve, counts: Counts, clock: Clock, opens: Open
) -> None:
    timing = ("--ws-ping-interval", "100", "--ws-ping-timeout", "100", "--loop-timeout", "0")
    server = serve("sockets:app", *ASGI, *timing, *counts.arguments, env=clock.environment)
    client = opens(server, "/deaf")
    client.wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    client.wire.sock.setblocking(False)
    frame = b"\x82\xfe\x80\x00\x00\x00\x00\x00" + bytes(0x8000)
    sent = 0
    # Nothing goes for a whole second: all that may be on the way is full.
    while select.select([], [client.wire.sock], [], 1)[1]:
        with contextlib.suppress(BlockingIOError):
            sent += client.wire.sock.send(frame[sent % len(frame) :])
        assert sent < 32 << 20, "it is taken without end"
    pings = b""
    for _ in range(2):
        pings += b"\x89\x00"
        clock.advance(101)
        eventually(lambda pings=pings: unread_bytes(client) == len(pings), "it is pinged")
        assert client.wire.sock.recv(64, socket.MSG_PEEK) == pings
        eventually(lambda: untaken_bytes(client.wire.sock) == 0, "its kernel has acknowledged that")
        clock.advance(101)
        # It may have answered, behind all that: so it is still there.
        acceptor_has_seen(server.address)
    assert sessions(counts) == {"begun": 1}
    client.drop()
    assert settled(counts) == {"begun": 1, "cut": 1}


def test_a_message_that_its_worker_does_not_live_to_end_is_followed_by_1011(serve: Serve, opens: Open) -> None:
    server = serve("sockets:app", *ASGI)
    client = opens(server)
    client.text("die in a message")
    # The part of the second message that has come is no message.
    assert client.until_end() == [bytes(100_000), (1011, "the app has failed")]


def test_a_handshake_whose_worker_dies_is_another_ones(serve: Serve, gate: Gate, counts: Counts) -> None:
    retries = ("--retry-idempotent", "-w", "2")
    server = serve("sockets:app", *ASGI, *retries, *counts.arguments, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/undecided", [f"{name}: {value}" for name, value in HANDSHAKE.items()]))
        first = int(gate.announcement().split()[0])
        os.kill(first, signal.SIGKILL)
        second = int(gate.announcement().split()[0])
        assert first != second
        os.kill(second, signal.SIGKILL)
        assert wire.response().status == 502
    assert sessions(counts) == {}
    assert counts.requests()["refused_worker_died"] == 1


def test_an_app_is_told_that_a_client_has_not_waited_for_its_handshake(
    serve: Serve, gate: Gate, counts: Counts
) -> None:
    server = serve("sockets:app", *ASGI, *counts.arguments, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/undecided", [f"{name}: {value}" for name, value in HANDSHAKE.items()]))
        gate.announcement()
    assert gate.announcement() == "websocket.disconnect 1006, and cannot accept"
    assert counts.settled()["abandoned_running"] == 1
    assert sessions(counts) == {}


def test_a_client_that_leaves_the_line_with_its_handshake_has_no_session(
    serve: Serve, gate: Gate, counts: Counts, opens: Open
) -> None:
    one = ("--worker-concurrency", "1", "--worker-sessions", "1")
    server = serve("sockets:app", *ASGI, *one, *counts.arguments, env=gate.environment)
    with server.connect() as held:
        held.send(request("GET", "/hold"))
        assert gate.announcement() == "holds"
        with server.connect() as wire:
            wire.send(request("GET", "/", [f"{name}: {value}" for name, value in HANDSHAKE.items()]))
            eventually(lambda: counts.requests()["in_flight"] == 2, "it waits")
    eventually(lambda: counts.requests()["in_flight"] == 0, "both have gone")
    # The one place there is has not been lost.
    client = opens(server)
    client.text("here")
    assert client.hear() == "here"


def test_a_deadline_ends_a_handshake_and_no_session(serve: Serve, gate: Gate, clock: Clock, opens: Open) -> None:
    options = ("--timeout", "100", "--cancel-on-timeout", "--loop-timeout", "0", "--ws-ping-interval", "0")
    server = serve("sockets:app", *ASGI, *options, env=gate.environment | clock.environment)
    client = opens(server)
    with server.connect() as late:
        late.send(request("GET", "/undecided", [f"{name}: {value}" for name, value in HANDSHAKE.items()]))
        assert gate.announcement().endswith("is undecided")
        clock.advance(101)
        assert late.response().status == 504
    assert gate.announcement() == "is cancelled"
    client.text("open for longer than a request may run")
    assert client.hear() == "open for longer than a request may run"


def test_sessions_go_to_the_worker_that_has_the_fewest(serve: Serve, counts: Counts, opens: Open) -> None:
    """While that one gets no core, the other one takes its part; then the next ones are its."""
    server = serve("sockets:app", *ASGI, "-w", "2", *counts.arguments)

    def both() -> int:
        with server.connect() as wire:
            return len({wire.get("/seen").json()["pid"] for _ in range(2)})

    eventually(lambda: both() == 2, "both turn")
    workers = server.of_name("stanchion-work")
    of: dict[int, list[WebSocket]] = {process.pid: [] for process in workers}

    def open_until_both_have_as_many(least: int, most: int) -> int:
        """While both sleep: one that is awake takes what it finds, and then the other one need not be woken."""
        opened = 0
        one, other = of.values()
        while len(one) != len(other) or len(one) < least:
            assert opened < most, {pid: len(clients) for pid, clients in of.items()}
            eventually(lambda: all(one.status() == psutil.STATUS_SLEEPING for one in workers), "both sleep")
            client = opens(server)
            of[pid_of(client)].append(client)
            opened += 1
        return opened

    open_until_both_have_as_many(20, 200)
    # A worker has no session any more, so it gets the next ones. If they went to either, it would not catch up.
    fewest = min(of)
    for client in of[fewest]:
        client.close()
        assert client.until_end() == [(1000, "")]
    ended = len(of[fewest])
    of[fewest].clear()
    eventually(lambda: sessions(counts).get("closed_by_client") == ended, "the worker has given them up")
    open_until_both_have_as_many(ended, 5 * ended)


def test_a_worker_that_leaves_after_max_requests_closes_its_sessions(serve: Serve, counts: Counts, opens: Open) -> None:
    # The last client takes two of the next worker's requests: its handshake, and its message.
    server = serve("sockets:app", *ASGI, "--max-requests", "3", "--session-grace", "1", *counts.arguments)
    for client in [opens(server) for _ in range(3)]:
        (code, _), *rest = client.until_end()
        assert (code, rest) == (1012, [])
    client = opens(server)
    client.text("another worker")
    assert client.hear() == "another worker"
    client.close()
    assert client.until_end() == [(1000, "")]
    assert settled(counts) == {"begun": 4, "closed_by_server": 3, "closed_by_client": 1}


def test_sessions_are_not_all_closed_at_once(serve: Serve, opens: Open) -> None:
    """Their clients would all come again at once."""
    grace = ("--session-grace", "600", "--graceful-timeout", "1200", "--ws-ping-interval", "0")
    server = serve("sockets:app", *ASGI, *grace)
    clients = [opens(server) for _ in range(4)]
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2 serves")
    ready, _, _ = select.select([client.wire.sock for client in clients], [], [], 20)
    assert ready
    closed, *more = [client for client in clients if client.wire.sock in ready]
    assert not more and closed.until_end() == [(1012, "the server restarts")]
    clients.remove(closed)
    for client in clients:
        client.text("still here")
        assert client.hear() == "still here"


def test_an_upgrade_closes_sessions_by_1012(serve: Serve, counts: Counts, opens: Open) -> None:
    server = serve("sockets:app", *ASGI, "--session-grace", "0.5", *counts.arguments)
    clients = [opens(server) for _ in range(3)]
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves")[1]))
    for client in clients:
        (code, _), *rest = client.until_end()
        assert (code, rest) == (1012, [])
    client = opens(server)
    client.text("the new server")
    assert client.hear() == "the new server"


def test_sessions_of_a_killed_acceptor_are_cut_and_its_workers_go_on(
    serve: Serve, gate: Gate, counts: Counts, opens: Open
) -> None:
    """A session of them is in a blocked loop: the server does not take its slot for lost, however long that lasts."""
    blocked = ("--loop-timeout", "0", "--timeout", "0")
    server = serve("sockets:app", *ASGI, *blocked, *counts.arguments, env=gate.environment)
    quiet = opens(server)
    worker = pid_of(quiet)
    opens(server, "/block")
    assert gate.announcement() == f"{worker} blocks"
    acceptor = server.acceptor()
    acceptor.kill()
    assert quiet.until_end() == []
    with server.connect() as wire:
        wire.send(request("GET", "/seen"))
        # In this time the acceptor looks four times for lost slots.
        assert wire.silent(4)
        gate.let_pass(1)
        answer = wire.response().json()
    assert answer["pid"] == worker
    eventually(lambda: seen(server).count([1006, "", "OSError"]) == 2, "the app is told of both")
    assert settled(counts) == {"begun": 2, "cut": 2}
    assert "our fault" not in server.log.text() and "no worker has it" not in server.log.text()
    assert pid_of(opens(server)) == worker


WAYS = ("before the answer", "at once", "in a frame", "closed", "closed and gone", "by the app", "its worker")


@pytest.mark.parametrize("seed", [1, 2])
def test_no_place_is_lost_whatever_ends_a_thousand_sessions(
    serve: Serve, counts: Counts, opens: Open, asked: Ask, seed: int
) -> None:
    places = ("-w", "2", "--worker-concurrency", "2", "--worker-sessions", "5")
    server = serve("sockets:app", *ASGI, *places, *counts.arguments)
    dice, begun = random.Random(seed), 0
    while begun < 500:
        with ExitStack() as stack:
            for _ in range(dice.randrange(1, 9)):
                begun += end_one(server, dice.choices(WAYS, [5, 5, 5, 5, 5, 5, 0.1])[0], stack)
    settled(counts)
    assert sessions(counts)["begun"] >= begun
    eventually(lambda: len(counts.ready_workers()) == 2, "both workers are there")
    eventually(lambda: all_places(server, counts, asked), "all places are there again")


def end_one(server: Server, way: str, stack: ExitStack) -> int:
    """Open one, and end it this way. Gives whether it was open."""
    if way == "before the answer":
        with server.connect() as wire:
            wire.send(request("GET", "/", [f"{name}: {value}" for name, value in HANDSHAKE.items()]))
        return 0
    try:
        client = WebSocket(server)
    except (BrokenOff, OSError):
        return 0
    stack.callback(client.drop)
    if client.status != 101:
        return 0
    match way:
        case "at once":
            client.drop()
        case "in a frame":
            client.wire.send(b"\x82\xfe\x03\xe9mask and a part")
            client.drop()
        case "closed":
            client.close()
            client.until_end()
        case "closed and gone":
            client.close()
            client.drop()
        case "by the app":
            client.text("return")
        case "its worker":
            client.text("die")
            client.until_end()
    return 1


def all_places(server: Server, counts: Counts, asked: Ask) -> bool:
    """Whether ten are let in, and an eleventh is not."""
    with ExitStack() as stack:
        for _ in range(10):
            client = WebSocket(server)
            stack.callback(client.drop)
            if client.status != 101:
                return False
            client.text("here")
            if client.hear() in (END, (1011, "the app has failed")):
                return False
        return asked(server, **HANDSHAKE).status == 503
