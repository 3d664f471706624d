"""A recording of arrivals (`--record-arrivals`) has each request that came to the line, whatever dies meanwhile."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from support import held_thread, missing, recording, unshare
from support.clock import Clock
from support.gate import Gate
from support.patience import eventually
from support.processes import gone
from support.recording import UNMEASURED, Record, Recording
from support.server import Serve, Server
from support.unread import until_read
from support.websocket import WebSocket
from support.wire import Wire, ask, request

pytestmark = pytest.mark.own("gunicorn records nothing of the kind")

EXIT_USAGE = 2
LOST = r"the recording of arrivals: (\d+) lines were dropped"
NO_DISK = missing.allowed("needs root" if os.geteuid() else unshare.unavailable(unshare.with_disk("/mnt")))


def recorded(directory: Path, count: int) -> list[Record]:
    """The requests of a recording, once there are so many: a thread writes them."""
    eventually(lambda: len(recording.requests(recording.read(directory))) >= count, f"{count} requests are recorded")
    files = recording.read(directory)
    assert [file.unreadable for file in files] == [0] * len(files)
    for writer in {file.writer for file in files}:
        numbers = [one.number for file in files if file.writer == writer for one in file.records]
        assert numbers == list(range(1, len(numbers) + 1)), "each record is there once"
    found = recording.requests(files)
    assert len(found) == count
    return found


def get(server: Server, *targets: str, status: int = 200) -> None:
    with server.connect() as wire:
        for target in targets:
            assert wire.get(target).status == status


def hold(server: Server, gate: Gate, target: str = "/wait?held") -> Wire:
    wire = server.connect()
    wire.send(request("GET", target))
    gate.announcement()
    return wire


def test_each_request_has_a_record_with_its_times_and_its_lane(
    serve: Serve, gate: Gate, admin: str, tmp_path: Path
) -> None:
    where = tmp_path / "arrivals"
    arguments = ("--record-arrivals", str(where), "--lane", "slow=/nap", "--admin", admin, "--threads", "2")
    log = ("--access-logfile", "-", "--access-log-json")
    server = serve("waiting:app", *arguments, *log, env=gate.environment)
    get(server, *["/pid"] * 7, *[f"/nap?{ms}" for ms in (20, 30, 40)])
    found = recorded(where, 10)
    assert Counter(one.lane for one in found) == {0: 7, 1: 3}
    assert {(one.end, one.status, one.worker, one.busy, one.waiting) for one in found} == {("served", 200, 1, 1, 0)}
    assert len({one.client for one in found}) == 1 and found[0].client != 0
    assert [one.service_us >= ms * 1000 for one, ms in zip(found[7:], (20, 30, 40), strict=True)] == [True] * 3
    assert all(one.cpu_us <= one.service_us for one in found if one.cpu_us != UNMEASURED)
    # These are the very times that the server counts.
    told = json.loads(ask(admin, "/status").body)
    assert sum(one.wait_us for one in found) == told["wait_us"]["sum_us"]
    assert sum(one.service_us for one in found) == told["service_us"]["sum_us"]
    lines = [json.loads(line) for line in server.stdout.text().splitlines() if line.startswith("{")]
    assert [line["arrived_us"] for line in lines] == [one.at_us for one in found]

    [file] = recording.read(where)
    assert file.settings["seats_per_worker"] == 2 and file.settings["waiting_max"] == 2048
    assert [lane["name"] for lane in file.settings["lanes"]] == ["default", "slow"]
    assert file.events() == [("ready", 1, 1)]
    assert b"/nap" not in b"".join(path.read_bytes() for path in where.iterdir()), "no path is in it"


def test_who_waits_is_refused_or_leaves_has_a_record_that_says_so(
    serve: Serve, gate: Gate, clock: Clock, tmp_path: Path
) -> None:
    where = tmp_path / "arrivals"
    limits = ("--max-waiting", "2", "--queue-timeout", "100", "--timeout", "0")
    server = serve("waiting:app", "--record-arrivals", str(where), *limits, env=gate.environment | clock.environment)
    held = hold(server, gate)
    # The exchange has the next one, ahead of its seat, and the line the two after that.
    waiting = [server.connect() for _ in range(3)]
    for wire in waiting:
        wire.send(request("GET", "/pid?waits"))
        until_read(wire)
    get(server, "/pid?refused", status=503)
    waiting.pop().close()
    recorded(where, 2)
    clock.advance(101)
    for wire in waiting:
        assert wire.response().status == 503
        wire.close()
    gate.let_pass(1)
    assert held.response().status == 200
    held.close()
    found = recorded(where, 5)
    ends = Counter(one.end for one in found)
    assert ends == {"served": 1, "line full": 1, "timed out": 2, "left waiting": 1}
    by_end = {one.end: one for one in found}
    assert by_end["line full"].waiting == 2 and by_end["line full"].wait_us < 100_000_000
    assert by_end["timed out"].wait_us >= 100_000_000 and by_end["timed out"].service_us == 0
    assert (by_end["timed out"].worker, by_end["timed out"].busy) == (0, 0)
    assert by_end["left waiting"].status == 499
    assert by_end["served"].service_us >= 100_000_000


def test_a_request_whose_worker_dies_and_both_workers_are_in_it(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    where = tmp_path / "arrivals"
    server = serve("waiting:app", "--record-arrivals", str(where), env=gate.environment)
    wire = server.connect()
    wire.send(request("GET", "/wait?dies"))
    pid = int(gate.announcement().split()[0])
    mark = server.log.mark()
    os.kill(pid, signal.SIGKILL)
    assert wire.response().status == 502
    wire.close()
    server.log.wait("worker ready", mark)
    left = hold(server, gate)
    left.close()
    gate.let_pass(1)
    eventually(gate.is_passed, "the app goes on")
    died, abandoned = recorded(where, 2)
    assert (died.end, died.status, died.worker) == ("failed", 502, 1)
    assert (abandoned.end, abandoned.status, abandoned.busy) == ("left seated", 499, 1)
    eventually(lambda: len(events(where)) >= 3, "the workers' events are recorded")
    assert events(where) == [("ready", 1, 1), ("gone", 1, 0), ("ready", 1, 1)]


def events(where: Path) -> list[tuple[str, int, int]]:
    return [event for file in recording.read(where) for event in file.events()]


def test_a_killed_acceptor_costs_no_record_that_is_written(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    where = tmp_path / "arrivals"
    server = serve("waiting:app", "--record-arrivals", str(where), env=gate.environment)
    get(server, *["/pid"] * 5)
    recorded(where, 5)
    acceptor = server.acceptor_by_name()
    mark = server.log.mark()
    acceptor.kill()
    gone(acceptor.pid)
    server.log.wait("another one is started", mark)
    get(server, *["/pid"] * 5)
    recorded(where, 10)
    assert len({file.writer for file in recording.read(where)}) == 2
    # The acceptor outlives the master for as long as it has clients.
    with hold(server, gate) as wire:
        server.signal(signal.SIGKILL)
        gone(server.pid)
        gate.let_pass(1)
        assert wire.response().status == 200
    recorded(where, 11)
    eventually(lambda: not server.processes(), "all leave")
    assert events(where)[-1][0] == "leaves"


def test_a_reload_an_upgrade_and_another_server_go_on_in_files_of_their_own(serve: Serve, tmp_path: Path) -> None:
    where = tmp_path / "arrivals"
    config = tmp_path / "recording.conf.py"
    config.write_text("threads = 1\n")
    arguments = ("--record-arrivals", str(where), "-c", str(config))
    server = serve("hello:app", *arguments)
    other = serve("hello:app", *arguments)
    get(server, "/")
    get(other, "/")
    mark = server.log.mark()
    config.write_text("threads = 3\n")
    server.signal(signal.SIGHUP)
    server.log.wait("reload", mark)
    eventually(lambda: len(files_with(where, seats=3)) == 1, "the next generation records")
    eventually(lambda: any(event[0] == "leaves" for event in events(where)), "the first one leaves")
    get(server, "/")
    mark, old = server.log.mark(), server.pid
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves", mark)[1]))
    gone(old)
    get(server, "/")
    get(other, "/")
    recorded(where, 5)
    assert Counter(file.writer for file in recording.read(where)).most_common()[0][1] == 1
    assert Counter(len(file.requests()) for file in recording.read(where)) == {1: 3, 2: 1}
    # USR1 has the others' files finished, so that they can be taken away.
    other.signal(signal.SIGUSR1)
    other.log.wait("the recording of arrivals is reopened")
    get(other, "/")
    recorded(where, 6)
    assert len(recording.read(where)) == 5


def files_with(where: Path, seats: int) -> list[Recording]:
    return [file for file in recording.read(where) if file.settings["seats_per_worker"] == seats]


def test_an_event_loop_records_its_requests_and_its_sessions(serve: Serve, tmp_path: Path) -> None:
    where = tmp_path / "arrivals"
    server = serve("sockets:app", "--interface", "asgi", "--record-arrivals", str(where))
    get(server, "/plain", "/plain")
    [file] = recording.read(where)
    assert file.settings["event_loop"] and file.settings["seats_per_worker"] == 1000
    client = WebSocket(server, "/echo")
    client.text("held")
    client.hear()
    client.close()
    client.until_end()
    client.drop()
    found = recorded(where, 3)
    assert [(one.end, one.status, one.left_seat) for one in found] == [
        *[("served", 200, False)] * 2,
        ("served", 101, True),
    ]
    assert {one.cpu_us for one in found} == {UNMEASURED}


@pytest.mark.large
@pytest.mark.skipif(bool(held_thread.unavailable()), reason=held_thread.unavailable())
def test_a_disk_that_does_not_answer_loses_records_and_delays_no_request(serve: Serve, tmp_path: Path) -> None:
    where = tmp_path / "arrivals"
    server = serve("hello:app", "--record-arrivals", str(where))
    acceptor = server.acceptor_by_name()
    # The thread of the error log is the older one.
    _, writer = log_threads(acceptor)
    requests, batch = 20_000, 500
    with held_thread.held(writer), server.connect() as wire:
        for _ in range(requests // batch):
            wire.send(request("GET", "/") * batch)
            answers = b""
            while answers.count(b"HTTP/1.1 200 OK\r\n") < batch:
                answers += wire.sock.recv(1 << 18)
        server.log.wait("the recording of arrivals does not take its lines, they are dropped")
    lost = int(server.log.wait(LOST)[1])
    assert 0 < lost < requests
    get(server, "/")
    eventually(lambda: len(recording.requests(recording.read(where))) == requests - lost + 1, "it goes on")
    [*_, last] = [one.number for file in recording.read(where) for one in file.records]
    assert last == requests + 2, "the worker's event is the first, and the lost ones have numbers too"


def log_threads(process: psutil.Process) -> list[int]:
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return sorted(int(task.name) for task in tasks if (task / "comm").read_text() == "stanchion-log\n")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("", r"No such file or directory \(os error 2\); make the directory .*/nowhere, for the user that"),
        ("a file", r"File exists"),
    ],
)
def test_a_place_that_cannot_have_it_stops_the_start(build: Serve, tmp_path: Path, made: str, reason: str) -> None:
    place = tmp_path / "nowhere"
    if made:
        place.write_text(made)
    server = build("hello:app", "--record-arrivals", str(place if made else place / "arrivals")).launch()
    assert server.exit_code() != 0
    server.log.wait_end()
    server.log.wait(rf"setting `record_arrivals`: .*{reason}")


@pytest.mark.skipif(bool(NO_DISK), reason=NO_DISK)
def test_a_disk_without_room_stops_the_start(build: Serve, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    prefix = unshare.with_disk(str(tmp_path / "disk"), "1m")
    server = build("hello:app", "--record-arrivals", str(tmp_path / "disk" / "arrivals"), prefix=prefix).launch()
    assert server.exit_code() == EXIT_USAGE
    server.log.wait(
        r"setting `record_arrivals`: .*arrivals: fallocate: No space left .*; make room on that file system"
    )
