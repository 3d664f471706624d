"""A listener of one worker's own, opened in its hook (`worker.listen`), as in Unicorn's example of `after_fork`."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.address import Address
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.ports import LOOPBACK, row_of_ports
from support.processes import gone
from support.server import Serve, Server
from support.steady import Steady
from support.wire import BrokenOff, Response, Wire, request
from support.witness import acceptor_has_seen

WORKERS = 3
BOOT_FAILED = 3

pytestmark = pytest.mark.own("Unicorn has it; of gunicorn's hooks none can")

# The hook of Unicorn's documentation, but with a shorter delay.
AFTER_FORK = """
def after_fork(server, worker):
    addr = f"127.0.0.1:{BASE + worker.nr}"
    worker.listen(addr, tries=-1, delay=0.05, tcp_nopush=True)
"""


@dataclass
class House:
    """A server with this config file, and a row of ports for its workers."""

    build: Serve
    gate: Gate
    config: Path
    base: int

    def configure(self, text: str = AFTER_FORK) -> None:
        self.config.write_text(f"from rendezvous import announce\nBASE = {self.base}\n{text}")

    def launch(self, text: str, *arguments: str, workers: int = WORKERS) -> Server:
        self.configure(text)
        words = ("-c", str(self.config), "-w", str(workers), *arguments)
        server: Server = self.build("waiting:app", *words, env=self.gate.environment)
        return server.launch()

    def start(self, text: str = AFTER_FORK, *arguments: str, workers: int = WORKERS) -> Server:
        self.configure(text)
        words = ("-c", str(self.config), "-w", str(workers), *arguments)
        return self.build("waiting:app", *words, env=self.gate.environment).start()

    def address(self, number: int) -> Address:
        return Address(LOOPBACK, self.base + number)

    def connect(self, number: int) -> Wire:
        return Wire.connect(self.address(number))

    def pid(self, number: int) -> int:
        return pid_at(self.address(number))

    def hold(self, number: int) -> Wire:
        """Occupy a worker by its port."""
        wire = self.connect(number)
        wire.send(request("GET", "/wait?held"))
        assert self.gate.announcement().endswith("held")
        return wire

    def ask(self, number: int, count: int) -> list[Wire]:
        wires = [self.connect(number) for _ in range(count)]
        for wire in wires:
            wire.send(request("GET", "/pid?waiting"))
        return wires

    def is_closed(self, number: int) -> bool:
        try:
            self.connect(number).close()
        except ConnectionRefusedError:
            return True
        return False


@pytest.fixture
def house(build: Serve, gate: Gate, tmp_path: Path) -> Iterator[House]:
    with row_of_ports(WORKERS + 1) as base:
        yield House(build, gate, tmp_path / "listening.conf.py", base)


def pid_in(response: Response) -> int:
    assert response.status == 200, response
    return int(response.text.split()[0])


def pid_at(address: Address) -> int:
    with Wire.connect(address) as wire:
        return pid_in(wire.get("/pid?x"))


def pids_at(house: House) -> list[int]:
    return [house.pid(number) for number in range(WORKERS)]


@pytest.mark.privileges
def test_each_worker_alone_serves_its_own(house: House) -> None:
    house.start()
    pids = pids_at(house)
    assert len(set(pids)) == WORKERS
    for number, pid in enumerate(pids):
        assert {house.pid(number) for _ in range(20)} == {pid}
    assert house.is_closed(WORKERS)


def test_its_requests_wait_in_a_line_of_their_own_while_others_serve_the_shared_one(house: House) -> None:
    server = house.start()
    pid = house.pid(1)
    held = house.hold(1)
    waiting = house.ask(1, 4)
    assert waiting[0].silent(0.3), "the others are idle, but it is not theirs"
    with server.connect() as wire:
        served_by = {pid_in(wire.get("/pid?shared")) for _ in range(30)}
    assert served_by and pid not in served_by
    house.gate.let_pass(1)
    for wire in [held, *waiting]:
        assert pid_in(wire.response()) == pid
        wire.close()


def test_what_waits_at_all_ports_of_a_worker_is_its_share(house: House) -> None:
    twice = (
        "def post_fork(server, worker):\n    worker.listen(f':{BASE}')\n    worker.listen(f'127.0.0.1:{BASE + 1}')\n"
    )
    server = house.start(twice, "--max-waiting", "6", workers=1)
    held = house.hold(0)
    wires = [*house.ask(0, 5), *house.ask(1, 5)]
    acceptor_has_seen(server.address)
    refused = [wire for wire in wires if not wire.silent(0.05)]
    # All of 6, as there is one worker, and one that is handed ahead.
    assert len(refused) == 3
    for wire in refused:
        response = wire.response()
        assert response.status == 503 and "the line is full" in response.text
    house.gate.let_pass(1)
    for wire in [held, *wires]:
        if wire not in refused:
            assert wire.response().status == 200
        wire.close()


def test_the_listener_of_a_killed_worker_is_its_successors(house: House) -> None:
    server = house.start()
    pids = pids_at(house)
    held = house.hold(2)
    waiting = house.ask(2, 5)
    acceptor_has_seen(server.address)
    os.kill(pids[2], signal.SIGKILL)
    assert held.response().status == 502
    served_by = {pid_in(wire.response()) for wire in waiting}
    assert len(served_by) == 1 and not served_by & set(pids)
    assert pids_at(house) == [*pids[:2], *served_by]
    for wire in [held, *waiting]:
        wire.close()


def test_workers_that_are_replaced_in_turn_pass_it_on_and_no_client_is_refused(house: House) -> None:
    house.start(AFTER_FORK, "--max-requests", "5")
    seen: list[set[int]] = [set() for _ in range(WORKERS)]
    wires = [house.connect(number) for number in range(WORKERS)]

    def again() -> bool:
        for number, wire in enumerate(wires):
            seen[number] |= {pid_in(wire.get("/pid?kept")), house.pid(number)}
        return all(len(pids) >= 4 for pids in seen)

    eventually(again, "one worker after the other has each port", 3 * PATIENCE_S)
    assert not set.intersection(*seen)
    for wire in wires:
        wire.close()


def test_an_address_in_use_delays_no_client_and_is_served_as_soon_as_it_is_free(house: House) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK, house.base + 1))
        other.listen()
        server = house.start()
        server.log.wait(rf"{LOOPBACK}:{house.base + 1}\S* is in use, trying again")
        pids = [house.pid(0), house.pid(2)]
        with server.connect() as wire:
            eventually(lambda: len({pid_in(wire.get("/nap?1-x")) for _ in range(20)}) == 3, "all three workers serve")
    server.log.wait(rf"alone listens at http://{LOOPBACK}:{house.base + 1}$")
    assert len({*pids, house.pid(1)}) == WORKERS


def test_after_the_last_try_it_is_given_up_and_the_worker_serves(house: House) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK, house.base))
        other.listen()
        hook = (
            "def post_fork(server, worker): announce(f'{worker.listen(f\"127.0.0.1:{BASE}\", tries=2, delay=0.05)}')\n"
        )
        server = house.start(hook, workers=1)
        assert house.gate.announcement() == "None"
        server.log.wait(
            rf"{LOOPBACK}:{house.base}\S* is not served: no worker listens there alone: another server listens there"
        )
        with server.connect() as wire:
            assert wire.get("/pid?x").status == 200


def test_an_address_that_all_ask_for_is_one_workers_at_a_time(house: House) -> None:
    house.start("def post_fork(server, worker): worker.listen(f'127.0.0.1:{BASE}', tries=-1)\n")
    first = house.pid(0)
    assert {house.pid(0) for _ in range(20)} == {first}
    os.kill(first, signal.SIGKILL)
    gone(first)
    second = house.pid(0)
    assert second != first
    assert {house.pid(0) for _ in range(20)} == {second}


@pytest.mark.privileges
def test_a_port_may_be_left_to_the_kernel_and_an_abstract_name_will_do(house: House) -> None:
    name = f"unix:@stanchion-{house.base}"
    server = house.start(
        "def post_fork(server, worker):\n"
        "    announce(worker.listen('127.0.0.1:0'))\n"
        f"    announce(str(worker.listen('{name}', backlog=7, delay=0.1)))\n",
        workers=1,
    )
    addresses = house.gate.announcements(2)
    assert addresses[1] == name
    (pid,) = {pid_at(Address.parse(text)) for text in addresses}
    # Its successor gets another port, and the same name.
    os.kill(pid, signal.SIGKILL)
    port, same = house.gate.announcements(2)
    assert (port != addresses[0], same) == (True, "None")
    (successor,) = {pid_at(Address.parse(text)) for text in (port, name)}
    assert successor != pid
    with pytest.raises(ConnectionRefusedError):
        eventually(lambda: Wire.connect(Address.parse(addresses[0])).close(), "nobody has asked for the port again")
    assert server.acceptor().is_running()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("worker.listen('unix:/tmp/never')", "ValueError: .*not on a path"),
        ("worker.listen(':80', backlogs=1)", "ValueError: there is no option 'backlogs'"),
        ("worker.listen('192.0.2.1:0')", "OSError: .*Cannot assign requested address"),
    ],
)
def test_what_cannot_be_is_raised_in_the_hook(house: House, call: str, why: str) -> None:
    server = house.launch(f"def post_fork(server, worker): {call}\n", workers=1)
    assert server.exit_code() == BOOT_FAILED
    server.log.wait(f"the hook post_fork raised {why}")


def test_only_a_worker_listens(house: House) -> None:
    server = house.launch("def pre_fork(server, worker): worker.listen(':80')\n", workers=1)
    server.log.wait("the hook pre_fork raised RuntimeError: only a worker itself can listen")


def test_a_worker_has_so_many_and_no_more(house: House) -> None:
    house.start(
        "def post_fork(server, worker):\n    for _ in range(20): announce(worker.listen('127.0.0.1:0'))\n", workers=1
    )
    addresses = [Address.parse(text) for text in house.gate.announcements(20)]

    def served() -> int:
        count = 0
        for address in addresses:
            with suppress(ConnectionRefusedError, ConnectionResetError, BrokenOff), Wire.connect(address) as wire:
                count += wire.get("/pid?x").status == 200
        return count

    eventually(lambda: served() == 16, "16 are served")


def test_they_outlive_the_acceptor(house: House) -> None:
    server = house.start()
    pids = pids_at(house)
    acceptor = server.acceptor()
    acceptor.suspend()
    waiting = house.ask(1, 1)
    acceptor.kill()
    gone(acceptor.pid)
    assert pids_at(house) == pids
    assert pid_in(waiting[0].response()) == pids[1], "it waited in the kernel's queue"
    waiting[0].close()


def test_ttou_closes_the_port_of_the_worker_that_leaves_and_who_waits_there_is_told(house: House) -> None:
    server = house.start()
    pids = pids_at(house)
    held = house.hold(WORKERS - 1)
    waiting = house.ask(WORKERS - 1, 3)
    acceptor_has_seen(server.address)
    server.signal(signal.SIGTTOU)
    server.log.wait("TTOU: 2 workers")
    house.gate.let_pass(1)
    assert held.response().status == 200
    for wire in waiting:
        response = wire.response()
        # One was handed out ahead, and a leaving worker finishes what it has.
        assert response.status == 200 or "the worker of this port is not there" in response.text
        wire.close()
    eventually(lambda: house.is_closed(WORKERS - 1), "nobody listens there any more")
    assert held.get("/pid?kept").status == 503, "a connection from before, and nobody to serve it"
    held.close()
    assert [house.pid(0), house.pid(1)] == pids[:2]
    server.signal(signal.SIGTTIN)
    eventually(lambda: not house.is_closed(WORKERS - 1), "the new worker listens there")
    assert house.pid(WORKERS - 1) not in pids


def test_a_reload_passes_them_on_and_no_client_is_refused(house: House) -> None:
    server = house.start()
    before = pids_at(house)
    with Steady([house.address(number) for number in range(WORKERS)], each=1) as load:
        load.more()
        for generation in (2, 3, 4):
            reload(server, generation)
            load.more()
    load.assert_no_failure()
    assert not set(pids_at(house)) & set(before)


def reload(server: Server, generation: int) -> None:
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait(f"reloaded: generation {generation} serves", mark)


def test_a_reload_without_them_closes_them(house: House) -> None:
    server = house.start()
    pids_at(house)
    house.configure("")
    reload(server, 2)
    for number in range(WORKERS):
        eventually(lambda number=number: house.is_closed(number), "nobody listens there any more")
    house.configure()
    reload(server, 3)
    assert len(set(pids_at(house))) == WORKERS


def test_an_upgrade_passes_them_on_and_no_client_is_refused(house: House) -> None:
    server = house.start()
    with Steady([house.address(number) for number in range(WORKERS)], each=1) as load:
        load.more()
        for _ in range(2):
            mark, old = server.log.mark(), server.pid
            server.signal(signal.SIGUSR2)
            server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves", mark)[1]))
            gone(old)
            load.more()
    load.assert_no_failure()


def test_term_serves_what_waits_there(house: House) -> None:
    server = house.start()
    pids = pids_at(house)
    held = [house.hold(number) for number in range(WORKERS)]
    waiting = [wire for number in range(WORKERS) for wire in house.ask(number, 3)]
    acceptor_has_seen(server.address)
    server.signal(signal.SIGTERM)
    assert waiting[0].silent(0.3)
    house.gate.open()
    assert [pid_in(wire.response()) for wire in held] == pids
    assert [pid_in(wire.response()) for wire in waiting] == [pid for pid in pids for _ in range(3)]
    for wire in [*held, *waiting]:
        wire.close()
    assert server.exit_code() == 0
    assert all(house.is_closed(number) for number in range(WORKERS))


def test_killing_workers_strands_no_client_there(house: House) -> None:
    house.start()
    statuses: list[int] = []
    for turn in range(30):
        number = turn % WORKERS
        victim = house.pid(number)
        wires = [wire for other in range(WORKERS) for wire in house.ask(other, 3)]
        time.sleep(turn / 10_000)
        os.kill(victim, signal.SIGKILL)
        statuses += [wire.response().status for wire in wires]
        for wire in wires:
            wire.close()
    assert set(statuses) <= {200, 502}
    assert statuses.count(502) <= 30, "a worker has one request in hand"
