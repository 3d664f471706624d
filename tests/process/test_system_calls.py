"""How many system calls a request costs once everything is warm: counted one by one, not timed.

The test waits until acceptor and worker sleep before it takes the next step. So nothing depends on which of the two is
the quicker, and the counts are the same on every machine. Only the acceptor's clock, by which it looks around four
times a second, does not wait for the test: the few pieces in which it ticked are left out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
import pytest

from support import strace
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.strace import Call
from support.websocket import WebSocket
from support.wire import Wire, request

pytestmark = [
    pytest.mark.own("what its processes do for a request"),
    pytest.mark.skipif(bool(strace.unavailable()), reason=strace.unavailable()),
]

REQUESTS = 256
AT_ONCE = 32
WARM_UP = 10
NAMES_EACH_TIME = 128
"""The acceptor fetches random bytes for the ids of so many requests at once."""

# The acceptor: waits for news, reads what a client sent, wakes a worker that sleeps, sends an answer.
WAIT, RECEIVE, WAKE, SEND = "epoll_pwait", "recvfrom", "futex FUTEX_WAKE", "sendto"
NAMES = "getrandom"
MEMORY = "brk"
"""When the heap has been used up is not up to any one request. (crates/stanchion-server/tests counts allocations.)"""
GROWN_MAX = 4
# The worker: rings for the acceptor, which sleeps, that there is an answer; sleeps, as it has nothing to do.
RING, SLEEP = "write <anon_inode:[eventfd]>", "futex FUTEX_WAIT"
# The app.
ANNOUNCE, PASS = "write announcements", "read passes"

Piece = tuple[str, ...]
"""Calls that follow each other."""


class Stage:
    """A server whose one worker has one seat and is let pass by steps, with the calls of both once `traced` is over."""

    def __init__(self, server: Server, gate: Gate, directory: Path, wires: list[Wire]) -> None:
        self._gate, self._directory = gate, directory
        self._acceptor = server.acceptor()
        self.wires = wires
        # All at once: so the acceptor has memory for as many before any call is counted.
        for wire in self.wires:
            wire.send(request("GET", "/first"))
        for _ in self.wires:
            pid = int(self._gate.announcement().removeprefix("/first "))
            self._gate.let_pass(1)
        for wire in self.wires:
            assert wire.response().status == 200
        self._worker = psutil.Process(pid)

    def rest(self) -> None:
        """Wait until both sleep. (While they are traced, a call that strace looks at is no sleep.)"""
        for process in (self._acceptor, self._worker):
            eventually(lambda each=process: each.status() == psutil.STATUS_SLEEPING, f"{process} sleeps")

    def heard(self, wire: Wire, path: str) -> None:
        """Send a request that will have to wait, and wait until the acceptor has read it and sleeps again."""
        before = self._acceptor.num_ctx_switches().voluntary
        wire.send(request("GET", path))
        eventually(lambda: self._acceptor.num_ctx_switches().voluntary > before, "the acceptor wakes up")
        self.rest()

    def running(self, path: str) -> None:
        """Wait until the app has this request."""
        assert self._gate.announcement() == path
        self.rest()

    def answered(self, wire: Wire) -> None:
        """Let the app go on, and read what it answers to this client."""
        self._gate.let_pass(1)
        assert wire.response().text == "hello\n"

    def ask(self, path: str) -> None:
        """The first client asks and is answered."""
        self.wires[0].send(request("GET", path))
        self.running(path)
        self.answered(self.wires[0])
        self.rest()

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Trace the block, whose requests, and one before it, `calls` counts."""
        self.rest()
        with strace.tracing([self._acceptor.pid, self._worker.pid], self._directory):
            for _ in range(WARM_UP):
                self.ask("/warm-up")
            self.ask("/begin")
            yield
            self.rest()
            self.ask("/end")

    def calls(self) -> tuple[Counter[Piece], Counter[Piece], int]:
        """The acceptor's, in pieces from each client's bytes or answer to the next; the worker's, in one piece for each
        request; and how many pieces are left out for the clock. Other threads of theirs have nothing to do."""
        by_thread = strace.calls(self._directory)
        acceptor, worker = by_thread.pop(self._acceptor.pid), by_thread.pop(self._worker.pid)
        # Twice a second a worker that waits asks the kernel who its parent is.
        worker = [call for call in worker if call.name != "getppid"]
        measuring = [call for call in worker if measures(call)]
        asked = sum(kind(call) == ANNOUNCE for call in worker)
        # It reads both clocks of its thread before and after a request, and less often if these follow each other fast.
        assert 0 < len(measuring) <= 2 * 2 * asked
        worker = [call for call in worker if call not in measuring]
        grown = [call for call in acceptor if call.name == MEMORY]
        assert len(grown) <= GROWN_MAX
        acceptor = [call for call in acceptor if call not in grown]
        assert not any(by_thread.values()), f"other threads have had something to do: {by_thread}"
        heard = between(acceptor, rf"{RECEIVE} .*GET /(begin|end) ")
        ran = between(worker, r"write .*/announcements>, .*/(begin|end)\\n")
        all_pieces = pieces(heard, (RECEIVE, SEND))
        clock = [any(map(is_of_the_clock, piece)) for piece in all_pieces]
        # The kernel may report in the next piece, too, what the acceptor has found by itself.
        left_out = [now or before for now, before in zip(clock, [False, *clock], strict=False)]
        whole = [piece for piece, is_out in zip(all_pieces, left_out, strict=True) if not is_out]
        return Counter(map(kinds, whole)), Counter(map(kinds, pieces(ran, (ANNOUNCE,)))), sum(left_out)


@pytest.fixture
def staged(serve: Serve, gate: Gate, tmp_path: Path) -> Iterator[Callable[[int], Stage]]:
    """Makes a stage with so many clients."""
    with ExitStack() as wires_end:

        def make(clients: int) -> Stage:
            server = serve("waiting:stepped", "-w", "1", "--threads", "1", env=gate.environment)
            wires = [wires_end.enter_context(server.connect()) for _ in range(clients)]
            return Stage(server, gate, tmp_path, wires)

        yield make


def between(calls: list[Call], pattern: str) -> list[Call]:
    """The calls from the first one that matches up to the next that does, without that one."""
    begin, end = (at for at, call in enumerate(calls) if re.match(pattern, f"{call.name} {call.arguments}"))
    return calls[begin:end]


def pieces(calls: list[Call], first: tuple[str, ...]) -> list[list[Call]]:
    """Each begins with a call of one of these kinds."""
    begins = [at for at, call in enumerate(calls) if kind(call) in first]
    return [calls[begin:end] for begin, end in zip(begins, [*begins[1:], len(calls)], strict=True)]


def is_of_the_clock(call: Call) -> bool:
    """The end of the acceptor's sleep without any news, and the looks that it takes now and then: at its mail, and at
    the time that event loops had a core. (A look for news with a timeout of 0 would be something else.)"""
    if call.name == WAIT:
        timeout_ms = int(call.arguments.split(", ")[-3])
        return call.result == "0" and timeout_ms > 0
    return "/schedstat" in call.arguments or (call.name == "recvmsg" and call.error == "EAGAIN")


def measures(call: Call) -> bool:
    """A seat asks how long its thread has had a core, and waited for one. (Other clocks are read without a call.)"""
    return call.name == "clock_gettime" or (call.name == "pread64" and "/schedstat" in call.arguments)


def kinds(piece: list[Call]) -> Piece:
    return tuple(map(kind, piece))


def kind(call: Call) -> str:
    """A call's name, and what for where it serves several ends."""
    match call.name:
        case "futex":
            return f"futex {call.arguments.split(', ')[1]}"
        case "read" | "write":
            subject = call.arguments.partition(", ")[0].lstrip("0123456789")
            gate = re.search(r"/(announcements|passes)>$", subject)
            return f"{call.name} {gate[1] if gate else subject}"
        case _:
            return call.name


def check(stage: Stage, acceptor: dict[Piece, int], worker: dict[Piece, int], *, next_is_ready: bool = False) -> None:
    """Where the clock came between, the acceptor found the answer by itself, or the next request.

    Where the next request is ready, the worker may find it before it sleeps: then it need not be woken either.
    """
    heard, ran, left_out = stage.calls()
    if next_is_ready:
        without_sleep = {piece: number for piece, number in ran.items() if SLEEP not in piece}
        for piece in without_sleep:
            ran[*piece, SLEEP] += ran.pop(piece)
        not_woken = heard[SEND, WAIT] - acceptor[SEND, WAIT]
        if 0 < not_woken <= sum(without_sleep.values()):
            heard.subtract({(SEND, WAIT): not_woken, (SEND, WAKE, WAIT): -not_woken})
    assert 8 * sum(heard.values()) >= sum(acceptor.values()), f"too few pieces have been seen undisturbed: {heard}"
    without_ring = {tuple(call for call in piece if call != RING) for piece in worker}
    found_by_itself = sum(ran.pop(piece, 0) for piece in without_ring)
    assert set(ran) == set(worker) and set(heard) <= set(acceptor)
    missing = sum((Counter(worker) - ran).values())
    assert missing == found_by_itself <= left_out
    assert Counter(worker) >= ran and Counter(acceptor) >= heard
    assert sum((Counter(acceptor) - heard).values()) == left_out


def test_a_request_that_comes_alone(staged: Callable[[int], Stage]) -> None:
    stage = staged(1)
    with stage.traced():
        for _ in range(REQUESTS - 1):
            stage.ask("/")
    named = REQUESTS // NAMES_EACH_TIME
    acceptor = {
        (RECEIVE, WAKE, WAIT): REQUESTS - named,
        (RECEIVE, NAMES, WAKE, WAIT): named,
        (SEND, WAIT): REQUESTS,
    }
    check(stage, acceptor, {(ANNOUNCE, PASS, RING, SLEEP): REQUESTS})


def test_requests_that_come_in_one_piece(staged: Callable[[int], Stage]) -> None:
    """Pipelined (RFC 9112, section 9.3.2): all are read at once, and each is handed out when the last is answered."""
    stage = staged(1)
    with stage.traced():
        stage.wires[0].send(request("GET", "/") * AT_ONCE)
        for _ in range(AT_ONCE):
            stage.running("/")
            stage.answered(stage.wires[0])
    acceptor = {(RECEIVE, WAKE, WAIT): 2, (SEND, WAKE, WAIT): AT_ONCE - 1, (SEND, WAIT): 2}
    check(stage, acceptor, {(ANNOUNCE, PASS, RING, SLEEP): 1 + AT_ONCE}, next_is_ready=True)


def test_requests_that_come_while_the_worker_is_busy(staged: Callable[[int], Stage]) -> None:
    """A worker that is at work finds the next request without being woken, and does not sleep between them."""
    stage = staged(AT_ONCE)
    with stage.traced():
        stage.wires[0].send(request("GET", "/0"))
        stage.running("/0")
        for number, wire in enumerate(stage.wires[1:]):
            stage.heard(wire, f"/{number + 1}")
        for number, wire in enumerate(stage.wires):
            stage.answered(wire)
            if number + 1 < AT_ONCE:
                stage.running(f"/{number + 1}")
    # The acceptor makes three wake-up calls, and one finds no thread asleep: it cannot know before whether one sleeps.
    acceptor = {(RECEIVE, WAKE, WAIT): 3, (RECEIVE, WAIT): AT_ONCE - 2, (SEND, WAIT): 1 + AT_ONCE}
    worker = {(ANNOUNCE, PASS, RING, SLEEP): 2, (ANNOUNCE, PASS, RING): AT_ONCE - 1}
    check(stage, acceptor, worker)


def test_messages_of_a_websocket(serve: Serve, tmp_path: Path) -> None:
    """Nothing is asked of the kernel but to wait, to wake the worker, and for the messages."""
    server = serve("sockets:app", "--interface", "asgi", "-w", "1", "--ws-ping-interval", "0")
    acceptor = server.acceptor()
    client = WebSocket(server)
    with closing(client.wire), strace.tracing([acceptor.pid], tmp_path):
        for _ in range(REQUESTS):
            client.text("hello")
            assert client.hear() == "hello"
    calls = [call for call in strace.calls(tmp_path)[acceptor.pid] if not is_of_the_clock(call)]
    counts = Counter(map(kind, calls))
    assert set(counts) == {WAIT, RECEIVE, RING, SEND}
    assert counts[RECEIVE] == counts[SEND] == REQUESTS


def test_a_static_file_with_none_beside_it(serve: Serve, tmp_path: Path) -> None:
    """It is opened, read and closed, and goes out in one piece with its head. Others are looked for once a second."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/a.css").write_bytes(b"x" * 10_240)
    server = serve("hello:app", "--static", f"/static={tmp_path}/site")
    acceptor = server.acceptor()
    with server.connect() as wire:
        # The first time the kernel does not know yet that there are none, and a helper thread looks.
        wire.get("/static/a.css")
        with strace.tracing([acceptor.pid], tmp_path):
            for _ in range(REQUESTS):
                assert len(wire.get("/static/a.css").body) == 10_240
    counts = Counter(call.name for call in strace.calls(tmp_path)[acceptor.pid])
    once = {name: counts[name] for name in ("recvfrom", "fstat", "preadv2", "close", "sendto")}
    assert once == dict.fromkeys(once, REQUESTS)
    assert REQUESTS <= counts["openat2"] < 2 * REQUESTS
    assert not counts["sendfile"] and not counts["setsockopt"]
