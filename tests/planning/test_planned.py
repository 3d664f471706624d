"""`stanchion plan` of logs that real servers have written, and of models whose answer is known."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stanchion.plan import log_format
from support import missing
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.proxies import nginx_as_peer, program
from support.server import GUNICORN, Serve
from support.wire import Wire, ask, request

pytestmark = pytest.mark.own("it plans")

REQUESTS = 12
NAP_MS = 30

Planned = Callable[..., dict[str, Any]]


def plan(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stanchion", "plan", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=6 * PATIENCE_S, check=False)


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """The command's JSON."""

    def run(*arguments: str, code: int = 0) -> dict[str, Any]:
        done = plan(*arguments, "--json", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        data: dict[str, Any] = json.loads(done.stdout)
        return data

    return run


def status(admin: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(ask(admin, "/status").body)
    return told


def logged(log: Path) -> tuple[str, ...]:
    return ("--access-logfile", str(log), "--access-log-json")


def by_name(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in data["results"]}


def test_a_burst_in_the_log_of_a_server_with_one_seat_waits_less_with_more(
    serve: Serve, admin: str, gate: Gate, planned: Planned, tmp_path: Path
) -> None:
    """All but the first arrive while that one holds the seat, and each then takes at least NAP_MS."""
    log = tmp_path / "access.log"
    server = serve("waiting:app", "--admin", admin, *logged(log), env=gate.environment)
    first = server.connect()
    first.send(request("GET", "/wait?held"))
    gate.announcement()
    wires = [server.connect() for _ in range(REQUESTS - 1)]
    for number, wire in enumerate(wires):
        wire.send(request("GET", f"/nap?{NAP_MS}-{number}"))
    eventually(lambda: status(admin)["requests"]["in_flight"] == REQUESTS, "all have come")
    gate.let_pass(1)
    for wire in (first, *wires):
        assert wire.response().status == 200
        wire.close()
    eventually(lambda: log.read_text().count("\n") == REQUESTS, "all have a line")

    data = planned(str(log), "--now", "1x1", "--workers", "1,2,16", "--check", "p99<1us", code=1)
    assert data["measured"]["requests"] == REQUESTS and data["left_out"] == []
    assert data["title"].endswith("(JSON lines of stanchion)")
    waits = {name: one["wait"]["mean_us"] for name, one in by_name(data).items()}
    # One after the other: the mean of 0, 1, … 10 naps, the last of 16 seats at once.
    assert waits["1x1"] >= NAP_MS * 1000 * (REQUESTS - 2) / 2 * (REQUESTS - 1) / REQUESTS
    assert waits["1x1"] > 1.5 * waits["2x1"] > 3 * waits["16x1"]
    assert data["cheapest"] is None and data["now"] == "1x1"


def test_requests_that_were_refused_are_refused_in_the_plan_too(
    serve: Serve, admin: str, gate: Gate, planned: Planned, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    server = serve("waiting:app", "--max-waiting", "3", "--admin", admin, *logged(log), env=gate.environment)
    wires = [server.connect() for _ in range(REQUESTS)]
    for number, wire in enumerate(wires):
        wire.send(request("GET", f"/wait?{number}"))
    eventually(lambda: status(admin)["requests"]["arrived"] == REQUESTS, "all have come")
    gate.let_pass(REQUESTS)
    count = 0
    for wire in wires:
        with wire:
            count += wire.response().status == 503
    assert 0 < count < REQUESTS
    eventually(lambda: log.read_text().count("\n") == REQUESTS, "all have a line")
    data = planned(str(log), "--now", "1x1", "--max-waiting", "3")
    assert data["measured"]["requests"] == REQUESTS and data["measured"]["refused"] == count


def test_a_recording_says_by_itself_what_the_server_had(serve: Serve, planned: Planned, tmp_path: Path) -> None:
    limits = ("--threads", "2", "--lane", "slow=/slow priority=20", "--max-waiting", "77")
    server = serve("waiting:sleepy", "--record-arrivals", str(tmp_path / "rec"), *limits)
    for number in range(REQUESTS):
        with server.connect() as wire:
            assert wire.get(f"/{'slow' if number % 2 else ''}?ms={NAP_MS}").status == 200
    server.stop()
    data = planned("rec", "--workers", "1,3", "--lane", "slow seats_max=1", "--check", "p99<10s,refused<1%")
    assert data["measured"]["requests"] == data["measured"]["served"] == REQUESTS
    assert data["measured"]["wait"] is not None and data["replayed"] is not None
    assert data["measured"]["service"]["p50_us"] >= NAP_MS * 1000
    assert list(by_name(data)) == ["1x2", "1x2 lanes changed", "3x2 lanes changed"] and data["now"] == "1x2"
    now, changed, _ = (one["knobs"] for one in data["results"])
    assert now["max_waiting"] == changed["max_waiting"] == 77
    assert [one["seats_max"] for one in now["lanes"]] == [None, None]
    assert {one["name"]: one["seats_max"] for one in changed["lanes"]} == {"default": None, "slow": 1}
    assert [one["requests"] for one in data["measured"]["lanes"]] == [REQUESTS // 2] * 2


def test_a_log_of_gunicorn_is_one_of_the_times_at_its_workers(serve: Serve, planned: Planned, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    format = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s" %(L)s'
    server = serve("waiting:sleepy", "--access-logfile", str(log), "--access-logformat", format, kind=GUNICORN)
    for _ in range(REQUESTS):
        with server.connect() as wire:
            assert wire.get(f"/?ms={NAP_MS}").status == 200
    eventually(lambda: log.read_text().count("\n") == REQUESTS, "all have a line")
    data = planned(str(log), "--now", "1x1")
    assert data["title"].endswith("(gunicorn's, with %(L)s last)")
    assert data["measured"]["requests"] == REQUESTS and data["measured"]["wait"] is None
    assert data["measured"]["service"]["p50_us"] >= NAP_MS * 1000
    assert any(one.startswith("Waits before a worker began") for one in data["unknown"])
    assert any("give --cpu" in one for one in data["unknown"])
    assert not any("give --cpu" in one for one in planned(str(log), "--now", "1x1", "--cpu", "5%")["unknown"])


def test_nginx_takes_the_format_that_is_advised(serve: Serve, planned: Planned, tmp_path: Path) -> None:
    if why := missing.allowed("" if program("nginx") else "nginx is not installed"):
        pytest.skip(why)
    home = tmp_path / "nginx"
    home.mkdir()
    server = serve("waiting:sleepy")
    advised = log_format.WHAT_TO_SET.partition("log_format timed ")[2].partition(";")[0]
    to = f"{server.address.host}:{server.address.port}"
    location = f"/ {{ access_log {home}/log timed; proxy_pass http://{to}; }}"
    with nginx_as_peer(home, f"log_format timed {advised};", location) as address:
        for _ in range(REQUESTS):
            with Wire.connect(address) as wire:
                wire.send(request("GET", f"/?ms={NAP_MS}", ['User-Agent: a "b" [c]']))
                assert wire.response().status == 200
        eventually(lambda: (home / "log").read_text().count("\n") == REQUESTS, "all have a line")
    data = planned(str(home / "log"), "--now", "1x1")
    assert data["title"].endswith("(nginx's, with $request_time $upstream_response_time last)")
    assert data["measured"]["requests"] == REQUESTS and data["left_out"] == []
    assert data["measured"]["service"]["p50_us"] >= NAP_MS * 1000
    assert any(one.startswith("Waits in the app server") for one in data["unknown"])


def test_a_model_follows_the_formula_of_erlang(planned: Planned) -> None:
    """M/D/1 at 0.8: the mean wait is 0.8 / (2 · 0.2) of a service time."""
    data = planned("--rate", "80", "--service", "p50=10ms", "--workers", "1,2")
    waits = {name: one["wait"]["mean_us"] for name, one in by_name(data).items()}
    assert waits["1x1"] == pytest.approx(20_000, rel=0.1)
    assert waits["1x1"] > 5 * waits["2x1"]
    assert data["measured"] is None and data["cheapest"] == "2x1"


def test_the_plan_of_a_model_in_words(tmp_path: Path) -> None:
    model = ("--rate", "40", "--service", "p50=20ms,p99=200ms", "--cpu", "30%", "--cores", "2")
    done = plan(*model, "--workers", "6", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 79
    assert "\n   workers x threads  p50 wait" in done.stdout and "the cheapest with p99<50ms" in done.stdout


def test_a_directory_without_a_recording_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    done = plan("rec", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stanchion: plan: ") and done.stderr.count("\n") == 1
