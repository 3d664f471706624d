"""Attackers send what they are named after, honest clients see what becomes of them, and figures compare both."""

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import h2.config
import h2.connection
import h2.events
import pytest
from bench import attackers, certificate, honest_load, report
from bench.__main__ import cell
from bench.adversaries import Stage, Window, figures
from bench.apps import big
from bench.attacks import ATTACKS, BEGINNING, H2, NONE
from bench.cases import CASES, Case
from bench.columns import Column
from bench.honest_load import KEPT_H1, KEPT_H2, NEW_H1, NEW_H2, PATIENCE_S, Asked, Clients
from bench.measure import QUICK, Figures, Plan
from bench.processes import ServerError
from bench.report import Record
from bench.servers import SERVERS, Server
from bench.targets import TARGETS

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
PREFACE_BYTES = 24
KINDS = {
    "rapid resets": {HEADERS: 100, RST_STREAM: 100},
    "made-you-resets": {HEADERS: 100, WINDOW_UPDATE: 100},
    "CONTINUATION": {CONTINUATION: 20},
    "empty CONTINUATION": {CONTINUATION: 500},
    "PING": {PING: 500},
    "SETTINGS": {SETTINGS: 500},
    "empty DATA": {DATA: 500},
    "windows of a byte": {WINDOW_UPDATE: 20},
    "HPACK bombs": {HEADERS: 10},
}
"""Frames of each turn but the first."""


def kinds(data: bytes) -> Counter[int]:
    """The frames, which end where the bytes do."""
    found: Counter[int] = Counter()
    while data:
        found[data[3]] += 1
        length = 9 + int.from_bytes(data[:3])
        assert len(data) >= length
        data = data[length:]
    return found


def test_every_attack_by_frames_has_its_kinds_here() -> None:
    assert {attack.name for attack in ATTACKS.values() if attack.over == H2 and attack is not NONE} == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_attacks_over_http2_begin_as_clients_do_and_go_on(name: str) -> None:
    first, *others = itertools.islice(ATTACKS[name].turns(), 4)
    assert first.startswith(BEGINNING)
    kinds(first[PREFACE_BYTES:])
    assert [kinds(turn) for turn in others] == [KINDS[name]] * 3


@pytest.mark.parametrize("name", ["rapid resets", "made-you-resets", "HPACK bombs"])
def test_the_heads_of_attacks_are_requests(name: str) -> None:
    """h2 takes them for requests, too, but takes no list of fields as long as a bomb makes."""
    frames = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    first, second = itertools.islice(ATTACKS[name].turns(), 2)
    events = frames.receive_data(first)
    if name == "HPACK bombs":
        assert any(isinstance(event, h2.events.RequestReceived) for event in events)
        with pytest.raises(h2.exceptions.DenialOfServiceError):
            frames.receive_data(second)
    elif name == "rapid resets":
        events = frames.receive_data(second)
        assert sum(isinstance(event, h2.events.RequestReceived) for event in events) == 100
        assert sum(isinstance(event, h2.events.StreamReset) for event in events) == 100
    else:
        # The update is no update: h2 ends the connection for it, as RFC 9113 section 6.9 allows.
        with pytest.raises(h2.exceptions.ProtocolError):
            frames.receive_data(second)


def test_slow_clients_begin_a_request_and_never_end_it() -> None:
    sent = {name: b"".join(itertools.islice(ATTACKS[name].turns(), 50)) for name in ("slow heads", "slow bodies")}
    assert sent["slow heads"].startswith(b"GET / HTTP/1.1\r\n") and b"\r\n\r\n" not in sent["slow heads"]
    head, _, body = sent["slow bodies"].partition(b"\r\n\r\n")
    assert b"Content-Length: 100000" in head and body == b"x" * 49
    assert all(ATTACKS[name].pause_s for name in (*sent, "slow readers"))


def test_fragments_belong_to_one_message_without_an_end() -> None:
    first, second, third = itertools.islice(ATTACKS["WebSocket fragments"].turns(), 3)
    # Seven bytes each, and none has the bit that ends a message (RFC 6455 section 5.2).
    assert first.endswith(b"\x01\x81\0\0\0\0x")
    assert second == third == b"\x00\x81\0\0\0\0x" * 100


Serve = Callable[[socket.socket, str], bool]
"""Serves a connection, whose client has this address; true when the attackers have done enough."""


@contextlib.contextmanager
def listening(serve: Serve) -> Iterator[tuple[int, int]]:
    """A server for one connection after the other; its port, and a descriptor that can be read once it has enough."""
    until, enough = os.pipe()
    listener = socket.create_server(("127.0.0.1", 0))

    def take() -> None:
        is_enough = False
        while not is_enough:
            connection, (address, _) = listener.accept()
            with connection, contextlib.suppress(OSError):
                is_enough = serve(connection, address)
        os.write(enough, b"x")

    thread = threading.Thread(target=take)
    with listener:
        thread.start()
        yield listener.getsockname()[1], until
        thread.join()
    os.close(until)
    os.close(enough)


def test_attackers_that_a_server_ends_come_again_and_from_their_own_address() -> None:
    sources: list[str] = []

    def serve(connection: socket.socket, address: str) -> bool:
        sources.append(address)
        connection.recv(100)
        return len(sources) == 3 * attackers.CONNECTIONS

    with listening(serve) as (port, until):
        did = attackers.besiege(port, ATTACKS["empty TLS records"], until)
    assert set(sources) == {attackers.SOURCE}
    assert did["connections"] >= 3 * attackers.CONNECTIONS
    assert did["bytes"] > 0


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["handshakes", "rapid resets", "slow readers"])
def test_attackers_over_tls_do_a_whole_handshake_and_ask_for_their_protocol(name: str) -> None:
    attack = ATTACKS[name]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = certificate.made()
    context.load_cert_chain(files.certfile, files.keyfile)
    context.set_alpn_protocols([attack.over])
    spoke: list[str | None] = []
    came: list[bytes] = []

    def serve(plain: socket.socket, _address: str) -> bool:
        with context.wrap_socket(plain, server_side=True) as connection:
            spoke.append(connection.selected_alpn_protocol())
            came.append(connection.recv(100))
        return len(spoke) > attackers.CONNECTIONS

    with listening(serve) as (port, until):
        attackers.besiege(port, attack, until)
    assert set(spoke) == {attack.over}
    first = next(attack.turns(), b"")
    assert all(first.startswith(some) for some in came)
    assert any(came) == bool(first)


def test_a_hello_comes_in_pieces_and_then_another_one() -> None:
    hellos: list[bytes] = []

    def serve(connection: socket.socket, _address: str) -> bool:
        hellos.append(b"".join(iter(lambda: connection.recv(1 << 14), b"")))
        return len(hellos) > attackers.CONNECTIONS

    with listening(serve) as (port, until):
        attackers.besiege(port, ATTACKS["hellos in pieces"], until)
    # A record of a handshake, and all of it (RFC 8446 section 5.1).
    assert all(hello[0] == 22 and len(hello) == 5 + int.from_bytes(hello[3:5]) for hello in hellos)


class Shop:
    """A server of HTTP/1.1 and HTTP/2 that answers what it is to, after a pause."""

    def __init__(self, body: bytes = big.PAGE) -> None:
        self.body = body
        self.pause_s = 0.0
        self.answered = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        is_h2 = writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        with contextlib.suppress(OSError):
            await (self._serve_h2 if is_h2 else self._serve_h1)(reader, writer)

    def leave(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve_h1(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(self.pause_s)
                self.answered += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(self.body), self.body))

    async def _serve_h2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        frames.initiate_connection()
        while data := await reader.read(65_536):
            for event in frames.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    await asyncio.sleep(self.pause_s)
                    self.answered += 1
                    frames.send_headers(event.stream_id, [(":status", "200")])
                    frames.send_data(event.stream_id, self.body, end_stream=True)
            writer.write(frames.data_to_send())


async def visited(shop: Shop, visit: Callable[[Clients], "asyncio.Future[None]"]) -> list[Asked]:
    """Has honest clients ask until the visit is over."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = certificate.made()
    context.load_cert_chain(files.certfile, files.keyfile)
    context.set_alpn_protocols(["h2", "http/1.1"])
    server = await asyncio.start_server(shop.serve, "127.0.0.1", 0, ssl=context)
    clients, until = Clients(server.sockets[0].getsockname()[1], seed=1), asyncio.Event()
    async with server, asyncio.TaskGroup() as together:
        asking = together.create_task(clients.run(until))
        await visit(clients)
        until.set()
        await asking
        shop.leave()
    return clients.asked


async def asked_more(clients: Clients, count: int) -> None:
    """Wait until so many more requests have ended."""
    goal = len(clients.asked) + count
    while len(clients.asked) < goal:
        await asyncio.sleep(0.01)


@pytest.mark.usefixtures("home")
def test_honest_clients_ask_in_every_way_and_are_answered() -> None:
    shop = Shop()
    asked = asyncio.run(visited(shop, lambda clients: asyncio.ensure_future(asked_more(clients, 60))))
    assert {one.way for one in asked} == {KEPT_H1, KEPT_H2, NEW_H1, NEW_H2}
    assert not any(one.failed for one in asked)
    assert shop.answered == len(asked)


@pytest.mark.usefixtures("home")
def test_a_wrong_answer_counts_as_one_for_which_a_client_lost_patience() -> None:
    asked = asyncio.run(visited(Shop(b"no"), lambda clients: asyncio.ensure_future(asked_more(clients, 30))))
    assert all(one.failed and one.latency_s == PATIENCE_S for one in asked)


@pytest.mark.usefixtures("home")
def test_clients_settle_once_no_request_has_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    shop, calm = Shop(), []

    async def visit(clients: Clients) -> None:
        await asked_more(clients, 10)
        shop.pause_s = 2.0
        await asked_more(clients, 40)
        monkeypatch.setattr(honest_load, "SETTLED_S", 0.0)
        calm.append(await clients.settle())
        shop.pause_s = 0.0
        monkeypatch.setattr(honest_load, "SETTLED_S", 60.0)
        calm.append(await clients.settle())

    asyncio.run(visited(shop, lambda clients: asyncio.ensure_future(visit(clients))))
    assert calm == [False, True]


def window(began_s: float, ended_s: float, acceptor_s: float = 0.0, pss_bytes: int = 0) -> Window:
    return Window(began_s, ended_s, int(2e9 * acceptor_s), int(1e9 * acceptor_s), pss_bytes)


@pytest.mark.usefixtures("home")
def test_a_server_that_keeps_others_waiting_meanwhile_is_found_out() -> None:
    """The pause stands for what attackers cost: it is added to whatever a busy machine costs in each window."""
    shop, times = Shop(), []

    async def visit(clients: Clients) -> None:
        for pause_s in (0.0, 1.0, 0.0):
            shop.pause_s = pause_s
            began_s = time.monotonic()
            await asked_more(clients, 40)
            times.append((began_s, time.monotonic()))
            shop.pause_s = 0.0
            await clients.settle()

    asked = asyncio.run(visited(shop, lambda clients: asyncio.ensure_future(visit(clients))))
    before, beside, after = (window(*each) for each in times)
    seen = figures(Stage("a pause", beside, [before, after], {"connections": 0, "bytes": 0}), asked)
    assert seen["p99_ratio"] > 1.2
    assert seen["p99_ms"] > 1000


def test_figures_are_those_of_the_windows_in_which_requests_were_due() -> None:
    asked = [Asked(at / 100, latency_s, KEPT_H1, False) for at, latency_s in zip(range(100), [0.01] * 100, strict=True)]
    # Due beside the attackers and answered after their end.
    asked += [Asked(1 + at / 100, 2.0 if at > 90 else 0.02, KEPT_H1, at == 99) for at in range(100)]
    asked += [Asked(2 + at / 100, 0.01, KEPT_H1, False) for at in range(100)]
    stage = Stage(
        "a flood",
        window(1, 2, 0.5, 30_000_000),
        [window(0, 1, 0.1, 10_000_000), window(2, 3, 0.3, 20_000_000)],
        {"connections": 8, "bytes": 5_000_000},
    )
    seen = figures(stage, asked)
    assert seen["p50_ratio"] == pytest.approx(2.0)
    assert seen["p99_ratio"] == pytest.approx(200.0)
    assert (seen["acceptor_s"], seen["alone_acceptor_s"]) == (pytest.approx(0.5), pytest.approx(0.2))
    assert (seen["server_s"], seen["alone_server_s"]) == (pytest.approx(1.0), pytest.approx(0.4))
    assert (seen["pss_mb"], seen["alone_pss_mb"]) == (30.0, 10.0)
    assert (seen["attack_mb"], seen["attack_connections"]) == (5.0, 8)
    assert (seen["requests"], seen["failures"], seen["alone_failures"]) == (100, 1, 0)
    assert {column.key for column in CASES["adversaries"].columns} < set(seen)


def test_a_window_without_requests_is_no_evidence() -> None:
    empty = window(5, 6)
    with pytest.raises(ServerError, match="no request was due"):
        figures(Stage("a flood", empty, [empty], {"connections": 0, "bytes": 0}), [])


def beside_things(fails_after: int) -> Case:
    def run(_server: Server, _plan: Plan, number: int) -> Iterator[tuple[str, Figures]]:
        for name in ("one", "two")[:fails_after]:
            yield name, {"ratio": 1.0 + number, "failures": 0}
        if fails_after < 2:
            raise ServerError("has ended")

    columns = (Column("ratio", "ratio", 2),)
    return Case("adversaries", "", ("stanchion",), columns, run_beside=run, beside=("one", "two"))


def test_a_server_has_a_row_beside_each_thing_with_the_spread_over_the_rounds() -> None:
    case = beside_things(2)
    records = [record for number in range(3) for record in cell(case, SERVERS["stanchion"], QUICK, number)]
    table = report.table(case, records)
    assert table[2:] == [f"| stanchion beside {name} | 2.00 (1.00..3.00) | 0 |" for name in ("one", "two")]
    assert set(report.cells_by_case(records)["adversaries"]) == set(case.rows)
    assert Record(**records[0].as_dict()) == records[0]  # type: ignore[arg-type]


def test_a_server_that_fails_keeps_the_rows_that_it_has() -> None:
    case = beside_things(1)
    table = report.table(case, [*cell(case, SERVERS["stanchion"], QUICK, 0)])
    assert table[2:] == ["| stanchion beside one | 1.00 | 0 |", "| stanchion | **FAILED**: ServerError: has ended | |"]


def test_the_case_has_a_row_beside_every_attack_and_beside_nothing() -> None:
    assert CASES["adversaries"].beside == tuple(ATTACKS)
    assert NONE.name in ATTACKS and all(name == attack.name for name, attack in ATTACKS.items())
    of = [target.of for target in TARGETS if target.case == "adversaries"]
    assert {*CASES["adversaries"].rows} - {*of} == {
        f"{server} beside nothing" for server in CASES["adversaries"].servers
    }
