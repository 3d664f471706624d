"""The kernel, the logs and the scheduler saw what the test did."""

import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_support.trial import Trial, status, trial
from stanchion_lab.programs import PROGRAMS
from stanchion_lab.scenario import Server
from stanchion_lab.witness import logs
from stanchion_lab.witness.cpu import Cpu, cpu_s
from stanchion_lab.witness.kernel import Kernel, counters, names_of
from stanchion_lab.witness.sampler import Sampler
from stanchion_lab.workers import workers
from support import netns
from support.gate import Gate
from support.patience import PATIENCE_S, eventually

pytestmark = [
    pytest.mark.skipif(bool(netns.unavailable()), reason=netns.unavailable()),
]

SOMAXCONN = 8
FITS = SOMAXCONN + 1  # Linux turns away when more than the backlog wait.


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Trial]:
    with trial(tmp_path, SOMAXCONN) as made:
        yield made


def gunicorn(listen: str, gate: Gate, workers: int = 1) -> Server:
    return Server(kind="gunicorn", listen=listen, app="waiting:app", workers=workers, environment=gate.environment)


@pytest.mark.skipif(PROGRAMS["nginx"].version() is None, reason="nginx is not installed here")
def test_a_full_queue_behind_nginx_is_seen_alike_by_the_client_the_log_and_the_kernel(here: Trial, gate: Gate) -> None:
    app = gunicorn("unix:app.sock", gate)
    front = Server(kind="nginx", listen="127.0.0.1:8080")
    here.start("app", app)
    here.start("front", front, app)
    kernel = Kernel({"app": here.address(app), "front": here.address(front)})
    here.inside(kernel.start)
    here.forget()

    held = here.send(front, "/wait")
    gate.announcement()
    # The worker takes no other request meanwhile.
    others = [here.send(front, "/") for _ in range(FITS + 5)]
    log = here.directory / "front.log"
    eventually(lambda: log.read_text().count("(11: Resource") == 5, "nginx is turned away")
    eventually(lambda: kernel.waiting_max.get("app") == FITS, "the full queue was looked at")
    gate.open()
    statuses = [status(client) for client in (held, *others)]

    figures = here.inside(kernel.stop)
    here.running["front"].stop()
    here.running["app"].stop()
    assert statuses.count(502) == 5 and statuses.count(200) == FITS + 1
    assert figures["waiting_max.app"] == FITS
    assert (figures["backlog.app"], figures["backlog.front"]) == (SOMAXCONN, SOMAXCONN)
    assert figures["kernel.ListenOverflows"] == 0, "of unix sockets it counts nothing"
    assert logs.figures("front", front, here.directory) == {
        "log.front.requests": FITS + 6,
        "log.front.status.200": FITS + 1,
        "log.front.status.502": 5,
        "log.front.errno.11": 5,
        "log.front.closed_early": 0,
    }
    assert logs.figures("app", app, here.directory)["log.app.status.200"] == FITS + 1


def test_the_kernel_counts_who_does_not_fit_into_a_tcp_queue(here: Trial, gate: Gate) -> None:
    app = gunicorn("127.0.0.1:8000", gate)
    here.start("app", app)
    kernel = Kernel({"app": here.address(app)})
    here.inside(kernel.start)
    held = here.send(app, "/wait")
    gate.announcement()
    fit = [here.send(app, "/") for _ in range(FITS)]
    before = here.inside(counters)["ListenOverflows"]
    late = here.inside(lambda: [knock(), knock()])
    eventually(lambda: here.inside(counters)["ListenOverflows"] >= before + 2, "two SYNs are dropped")
    eventually(lambda: kernel.waiting_max.get("app") == FITS, "the full queue was looked at")
    gate.open()
    assert [status(client) for client in (held, *fit)] == [200] * (FITS + 1)
    for client in late:
        eventually(lambda client=client: connected(client), "it is let in when its SYN comes again")
        client.close()
    figures = here.inside(kernel.stop)
    assert figures["kernel.ListenOverflows"] >= 2 and figures["kernel.ListenDrops"] >= 2
    assert figures["kernel.TCPSynRetrans"] >= 2
    assert (figures["waiting_max.app"], figures["backlog.app"], figures["queues.app"]) == (FITS, SOMAXCONN, 1)


def knock() -> socket.socket:
    """Sends a SYN and does not wait for what becomes of it."""
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", 8000))
    return client


def connected(client: socket.socket) -> bool:
    return bool(select.select([], [client], [], 0)[1]) and client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_a_listener_at_every_address_is_known_by_its_port() -> None:
    assert names_of("127.0.0.1:80") == ("127.0.0.1:80", "0.0.0.0:80", "[::]:80")
    assert names_of("unix:/a/b") == ("/a/b",)


def test_each_worker_has_its_share_of_the_processor_also_one_that_died(here: Trial, gate: Gate) -> None:
    app = gunicorn("127.0.0.1:8000", gate, workers=2)
    process = here.start("app", app)
    eventually(lambda: len(workers(process.pids())) == 2, "both workers are there")
    idle_and_busy = workers(process.pids())
    cpu = Cpu({"app": process.pids})
    cpu.start()
    busy = here.send(app, "/busy")
    pid = int(gate.announcement())
    eventually(lambda: (cpu_s(pid) or 0) > 1.0, "it has used a second", PATIENCE_S * 3)
    os.kill(pid, signal.SIGKILL)
    busy.close()
    eventually(lambda: pid not in workers(process.pids()) and len(workers(process.pids())) == 2, "another one is there")

    figures, shares = cpu.stop()

    assert list(shares) == ["0", "1", "2"], "the two, and the successor"
    assert shares[str(idle_and_busy.index(pid))] == max(shares.values()) > 0.5
    assert figures["cpu_s.app"] >= sum(shares.values())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"connect() to unix:/a/b failed (11: Resource temporarily unavailable) while connecting", {"errno.11": 1}),
        (b"connect() failed (111: Connection refused) while connecting to upstream", {"errno.111": 1}),
        (b"upstream timed out (110: Connection timed out) while connecting to upstream", {"errno.110": 1}),
        (b"recv() failed (104: Connection reset by peer) while reading response header", {"errno.104": 1}),
        (b"upstream prematurely closed connection while reading response header from upstream", {"closed_early": 1}),
        (b'"/x (2: y)" is not what it looks like', {"errno.2": 1}),
        (b"nothing of the kind", {}),
    ],
)
def test_errors_of_nginx_are_counted_by_their_number(tmp_path: Path, line: bytes, expected: dict[str, float]) -> None:
    error = b"2026/11/21 16:24:30 [error] 23770#23770: *5 " + line + b', client: 127.0.0.1, request: "GET /(13: "\n'
    told = b"2026/11/21 16:24:30 [notice] 23770#23770: signal 17 (110: x) received\n"
    (tmp_path / "front.log").write_bytes(error + told)
    server = Server(kind="nginx", listen="127.0.0.1:8080")
    figures = {key: value for key, value in logs.figures("front", server, tmp_path).items() if value}
    assert figures == {f"log.front.{key}": value for key, value in expected.items()}


def test_a_look_that_fails_is_no_secret() -> None:
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            raise OSError("no more")

    sampler = Sampler(look, 0.001)
    sampler.start()
    eventually(lambda: len(looks) == 2, "it looks again by itself")
    with pytest.raises(OSError, match="no more"):
        sampler.stop()
