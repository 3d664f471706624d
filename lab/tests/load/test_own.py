"""The lab's own client against servers that do one thing each."""

import gc
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stanchion_lab.load import Failed, Offered, Target, offer
from stanchion_lab.load.clients import Asked, Client, Clients
from stanchion_lab.result import BROKEN, ERROR, GATEWAY, LATE, OUTCOMES, REFUSED, SERVED, TOLD
from stanchion_lab.scenario import Load
from support.patience import PATIENCE_S
from support.ports import row_of_ports
from support.scripted import request_line, reset, scripted

WAIT_MAX_S = 30.0


def offered(address: str, **load: Any) -> Offered:
    return offer(Load(**load), Target(address), Path.cwd(), lambda share: None)


def outcomes(offered: Offered) -> dict[str, float]:
    """The outcomes whose count is not 0; all of them account for all requests."""
    figures = offered.figures
    counts = {outcome: figures[outcome] for outcome in OUTCOMES}
    assert sum(counts.values()) == figures["requests"] == len(offered.timeline)
    assert Counter(outcome for _, _, outcome in offered.timeline) == Counter(
        {outcome: int(count) for outcome, count in counts.items() if count}
    )
    assert figures["failed"] == figures["requests"] - figures[SERVED] - figures[TOLD]
    assert len(offered.latencies_ms) == figures[SERVED]
    return {outcome: count for outcome, count in counts.items() if count}


def answers(*parts: bytes) -> Callable[[socket.socket], None]:
    """Each request with these bytes, and then the end."""

    def script(connection: socket.socket) -> None:
        request_line(connection)
        for part in parts:
            connection.sendall(part)

    return script


def keeps_on(connection: socket.socket) -> None:
    while request_line(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def hangs(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


def resets(connection: socket.socket) -> None:
    request_line(connection)
    reset(connection)


HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
EMPTY = b"Connection: close\r\nContent-Length: 0\r\n\r\n"
OPEN = {"rate_per_s": 100.0, "for_s": 0.1, "patience_s": PATIENCE_S}
CLOSED = {"connections": 3, "requests": 10, "patience_s": PATIENCE_S}
DISCIPLINES = pytest.mark.parametrize(
    "load",
    [OPEN, {**OPEN, "keep_alive": True, "connections": 3}, CLOSED, {**CLOSED, "keep_alive": True}],
    ids=["open", "open, kept", "closed", "closed, kept"],
)


@DISCIPLINES
@pytest.mark.parametrize(
    ("script", "outcome", "status"),
    [
        (answers(HEAD, b"Content-Length: 5\r\n\r\n", b"hello"), SERVED, 200),
        (answers(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n"), SERVED, 200),
        (answers(HEAD, b"\r\n", b"hello"), SERVED, 200),
        (keeps_on, SERVED, 200),
        (answers(b"HTTP/1.1 302 Found\r\n" + EMPTY), SERVED, 302),
        (answers(b"HTTP/1.1 503 Busy\r\n" + EMPTY), TOLD, 503),
        (answers(b"HTTP/1.1 429 Slow\r\n" + EMPTY), TOLD, 429),
        (answers(b"HTTP/1.1 502 Bad\r\n" + EMPTY), GATEWAY, 502),
        (answers(b"HTTP/1.1 504 Late\r\n" + EMPTY), GATEWAY, 504),
        (answers(b"HTTP/1.1 404 No\r\n" + EMPTY), ERROR, 404),
        (answers(HEAD, b"Content-Length: 6\r\n\r\n", b"hello"), BROKEN, None),
        (answers(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n"), BROKEN, None),
        (answers(b"220 mail.example.org\r\n\r\n"), BROKEN, None),
        (answers(), BROKEN, None),
        (resets, BROKEN, None),
    ],
)
def test_each_request_has_one_outcome(
    load: dict[str, Any], script: Callable[[socket.socket], None], outcome: str, status: int | None
) -> None:
    with scripted(script) as address:
        got = offered(address, **load)
    assert outcomes(got) == {outcome: 10}
    statuses = {name: count for name, count in got.figures.items() if name.startswith("status.")}
    assert statuses == ({f"status.{status}": 10} if status else {})


@DISCIPLINES
def test_each_request_has_its_method_and_its_number(load: dict[str, Any]) -> None:
    heads: list[bytes] = []

    def hears(connection: socket.socket) -> None:
        head = b""
        while data := connection.recv(1024):
            head += data
            if head.endswith(b"\r\n\r\n"):
                heads.append(head)
                head = b""
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with scripted(hears) as address:
        assert outcomes(offered(address, **load, method="POST", numbered=True)) == {SERVED: 10}
    assert {head.partition(b" ")[0] for head in heads} == {b"POST"}
    assert all(b"\r\nContent-Length: 0\r\n" in head for head in heads)
    numbers = [int(head.partition(b"\r\nX-Number: ")[2].partition(b"\r\n")[0]) for head in heads]
    assert sorted(numbers) == list(range(10))


def test_connections_are_spread_over_all_hosts() -> None:
    heard: Counter[str] = Counter()

    def counts(name: str) -> Callable[[socket.socket], None]:
        def script(connection: socket.socket) -> None:
            heard[name] += 1
            keeps_on(connection)

        return script

    with scripted(counts("one")) as one, scripted(counts("two")) as two:
        got = offer(Load(rate_per_s=100, for_s=1), Target(one, (two,)), Path.cwd(), lambda share: None)
    assert outcomes(got) == {SERVED: 100}
    # By chance alone, fewer than 30 of 100 would come once in 20,000 times; the dice fall the same each time.
    assert heard.total() == 100 and min(heard["one"], heard["two"]) >= 30


@DISCIPLINES
def test_over_a_unix_socket(load: dict[str, Any], tmp_path: Path) -> None:
    with scripted(keeps_on, tmp_path / "app.sock") as address:
        assert outcomes(offered(address, **load)) == {SERVED: 10}


@DISCIPLINES
@pytest.mark.parametrize("hang_up", [True, False])
def test_patience_ends(load: dict[str, Any], hang_up: bool) -> None:
    began_s = time.monotonic()
    with scripted(hangs) as address:
        got = offered(address, **{**load, "patience_s": 0.1, "hang_up": hang_up})
    assert outcomes(got) == {LATE: 10}
    # A bound: ten rounds of it at most, and they would be four.
    assert time.monotonic() - began_s < WAIT_MAX_S
    assert all(latency_ms >= 100 for _, latency_ms, _ in got.timeline)


@pytest.mark.parametrize("load", [OPEN, CLOSED], ids=["open", "closed"])
def test_no_server_listens(load: dict[str, Any]) -> None:
    with row_of_ports(1) as port:
        assert outcomes(offered(f"127.0.0.1:{port}", **load)) == {REFUSED: 10}


@pytest.mark.parametrize("load", [OPEN, CLOSED], ids=["open", "closed"])
def test_no_socket_file(load: dict[str, Any], tmp_path: Path) -> None:
    assert outcomes(offered(f"unix:{tmp_path}/app.sock", **load)) == {REFUSED: 10}


def test_a_full_queue_of_a_unix_socket_refuses(tmp_path: Path) -> None:
    path = str(tmp_path / "app.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(3)
        got = offered(f"unix:{path}", **{**OPEN, "patience_s": 0.2})
    # The queue holds one more than it was asked for (unix_recvq_full in net/unix/af_unix.c); no process serves it.
    assert outcomes(got) == {LATE: 4, REFUSED: 6}
    assert [outcome for _, _, outcome in got.timeline] == [LATE] * 4 + [REFUSED] * 6


def test_an_idle_connection_that_the_server_closes_is_opened_again() -> None:
    def once(connection: socket.socket) -> None:
        request_line(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with scripted(once) as address:
        got = offered(address, rate_per_s=5, for_s=0.6, keep_alive=True, connections=1, patience_s=PATIENCE_S)
    assert outcomes(got) == {SERVED: 3}


def test_a_kept_connection_is_kept_and_others_are_not() -> None:
    connections: list[int] = []

    def count(connection: socket.socket) -> None:
        connections.append(0)
        keeps_on(connection)

    with scripted(count) as address:
        offered(address, **CLOSED, keep_alive=True)
        assert len(connections) == 3
        offered(address, **CLOSED)
        assert len(connections) == 13
        offered(address, **OPEN, connections=2, keep_alive=True)
        assert len(connections) in (14, 15)
        offered(address, **OPEN)
        assert len(connections) in (24, 25)


def test_a_wait_for_a_connection_is_latency() -> None:
    """One connection, ten requests at once, each of 20 ms: the last waits for all."""

    def slow(connection: socket.socket) -> None:
        while request_line(connection):
            time.sleep(0.02)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with scripted(slow) as address:
        load = {"rate_per_s": 10_000, "for_s": 0.001, "keep_alive": True, "connections": 1}
        got = offered(address, **load, patience_s=PATIENCE_S)
    assert outcomes(got) == {SERVED: 10}
    assert got.latencies_ms == sorted(got.latencies_ms)
    assert all(latency_ms >= 20 * number for number, latency_ms in enumerate(got.latencies_ms, 1))


def test_who_waits_for_a_connection_loses_patience_too() -> None:
    with scripted(hangs) as address:
        load = {"rate_per_s": 10_000, "for_s": 0.001, "keep_alive": True, "connections": 1}
        assert outcomes(offered(address, **load, patience_s=0.2)) == {LATE: 10}


def test_a_server_that_drips_cannot_hold_the_client() -> None:
    def drips(connection: socket.socket) -> None:
        request_line(connection)
        connection.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
        while True:
            connection.sendall(b".")
            time.sleep(0.01)

    with scripted(drips) as address:
        assert outcomes(offered(address, connections=2, for_s=0.3, patience_s=0.2)).keys() == {LATE}


def test_a_closed_loop_ends_with_its_time() -> None:
    with scripted(keeps_on) as address:
        got = offered(address, connections=2, for_s=0.3, keep_alive=True, patience_s=PATIENCE_S)
    assert outcomes(got).keys() == {SERVED}
    assert max(due_s for due_s, _, _ in got.timeline) < 0.3


def test_who_was_refused_does_not_ask_as_fast_as_it_can(tmp_path: Path) -> None:
    got = offered(f"unix:{tmp_path}/app.sock", connections=1, for_s=0.3, patience_s=PATIENCE_S)
    assert 1 <= outcomes(got)[REFUSED] <= 31


def test_silent_clients_stay_connected_until_the_end() -> None:
    left = threading.Event()
    opened: list[socket.socket] = []

    def watches(connection: socket.socket) -> None:
        opened.append(connection)
        hangs(connection)
        left.set()

    load = {"rate_per_s": 5, "for_s": 0.6, "patience_s": 0.05, "hang_up": False}
    with scripted(watches) as address:
        seen: list[bool] = []
        got = offer(Load(**load), Target(address), Path.cwd(), lambda share: seen.append(left.is_set()))
        assert left.wait(PATIENCE_S)
    assert outcomes(got) == {LATE: 3}
    assert len(opened) == 3 and not any(seen)


def test_paths_have_their_shares_and_their_figures() -> None:
    asked: Counter[str] = Counter()

    def counts(connection: socket.socket) -> None:
        while line := request_line(connection):
            path = line.split(" ")[1]
            asked[path] += 1
            worker = b"1" if path == "/slow" else b"2"
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Worker: " + worker + b"\r\nContent-Length: 0\r\n\r\n")

    load = {"connections": 2, "requests": 400, "keep_alive": True, "paths": {"/slow": 1.0, "/": 3.0}}
    with scripted(counts) as address:
        got = offered(address, **load, patience_s=PATIENCE_S)
    assert asked.total() == 400
    assert 60 <= asked["/slow"] <= 140  # a hundred, by seeded dice
    assert got.shares == {"1": asked["/slow"], "2": asked["/"]}
    assert got.figures.keys() >= {"latency_ms.p99", "latency_ms.p99/", "latency_ms.p99/slow"}


def test_progress_goes_from_0_to_1() -> None:
    shares: list[float] = []
    with scripted(keeps_on) as address:
        offer(Load(rate_per_s=10, for_s=0.5), Target(address), Path.cwd(), shares.append)
    assert shares[-1] == 1.0 and shares == sorted(shares)


def test_more_connections_than_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.raises(Failed, match="ulimit"):
        offered("127.0.0.1:1", connections=hard, requests=1)


def test_a_client_that_is_late_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of the client, as of a machine that has no time for it, is in the latencies and told apart from them."""
    asked = Clients.ask
    paused: list[float] = []

    def once_slowly(self: Clients, client: Client, request: Asked) -> None:
        if not paused:
            time.sleep(0.2)
            paused.append(0.2)
        asked(self, client, request)

    monkeypatch.setattr(Clients, "ask", once_slowly)
    with scripted(keeps_on) as address:
        got = offered(address, **{**OPEN, "rate_per_s": 10_000, "for_s": 0.001})
    assert outcomes(got) == {SERVED: 10}
    assert got.figures["behind_ms.max"] >= 199 and got.figures["latency_ms.max"] >= 199
    assert "behind_ms.max" not in offered("unix:/nowhere", **CLOSED).figures


def test_the_collector_of_cycles_is_back() -> None:
    with scripted(hangs) as address:
        offered(address, connections=1, requests=1, patience_s=0.05)
    assert gc.isenabled()
