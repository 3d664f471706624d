"""Figures of event loops: each worker's requests and lateness, and no list of a thousand idle seats."""

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from support.ctl import ctl
from support.gate import Gate
from support.patience import eventually
from support.server import Serve
from support.websocket import Open
from support.wire import ask, request

pytestmark = pytest.mark.own("gunicorn has no line for event loops")


def status(admin: str) -> dict[str, Any]:
    told = json.loads(ask(admin, "/status").body)
    assert isinstance(told, dict)
    return told


def metric(admin: str, name: str) -> dict[str, float]:
    """Its samples by worker."""
    families = parse_prometheus(ask(admin, "/metrics").text)
    return {
        one.labels["worker"]: one.value
        for family in families
        for one in family.samples
        if one.name == name and one.labels.get("le", "+Inf") == "+Inf"
    }


def test_seats_are_counted_and_only_those_that_are_busy_are_listed(
    serve: Serve, gate: Gate, admin: str, tmp_path: Path
) -> None:
    control = tmp_path / "control.sock"
    server = serve(
        *("looping:app", "--interface", "asgi", "-w", "2", "--admin", admin, "--control", f"unix:{control}"),
        env=gate.environment,
    )
    # A loop takes its seats after its worker is ready.
    eventually(lambda: status(admin)["seat_counts"] == {"busy": 0, "idle": 2_000, "empty": 0}, "all seats are taken")
    assert status(admin)["seats"] == []
    with ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(203)]
        for number, wire in enumerate(wires):
            wire.send(request("GET", f"/hold?{number}"))
            wire.head()
        # A snapshot is good for a moment.
        eventually(lambda: status(admin)["seat_counts"]["busy"] == 203, "all of them are seen")
        told = status(admin)
        assert told["seat_counts"] == {"busy": 203, "idle": 1_797, "empty": 0}
        ages = [seat["running_us"] for seat in told["seats"]]
        assert len(ages) == 200 and ages == sorted(ages, reverse=True)
        assert {(seat["state"], seat["method"], seat["path"]) for seat in told["seats"]} == {("busy", "GET", "/hold")}
        assert sum(worker["busy"] for worker in told["workers"]) == 203
        assert [worker["seats"] for worker in told["workers"]] == [1_000, 1_000]
        busy = {str(worker["worker"]): worker["busy"] for worker in told["workers"]}
        assert metric(admin, "stanchion_worker_busy_seats") == busy
        said = ctl(control, "workers").stdout.splitlines()[1:]
        assert all(f"{number} busy of 1000" in line for line, number in zip(said, busy.values(), strict=True)), said
        exact = json.loads(ctl(control, "workers", "--json").stdout)["data"]
        assert [(one["seats_busy"], len(one["seats"])) for one in exact] == [(count, count) for count in busy.values()]
    eventually(lambda: status(admin)["seats"] == [], "all clients are gone, and their requests with them")


def test_how_late_a_loop_is_is_told_while_it_is_blocked_and_remembered(serve: Serve, gate: Gate, admin: str) -> None:
    server = serve("looping:app", "--interface", "asgi", "-w", "2", "--admin", admin, env=gate.environment)
    eventually(lambda: min(metric(admin, "stanchion_loop_lag_seconds_count").values()) > 0, "loops turn")

    def loops(pid: int) -> dict[bool, dict[str, Any]]:
        """The loops of this worker (True) and of the other one."""
        return {worker["pid"] == pid: worker["event_loop"] for worker in status(admin)["workers"]}

    def late(pid: int) -> int:
        """How often it was so, for longer than a second."""
        lags = loops(pid)[True]["lags"]
        return lags["count"] - dict(map(tuple, lags["buckets"]))[1_000_000]

    def is_remembered_once() -> bool:
        with server.connect() as wire:
            wire.send(request("GET", "/block"))
            pid = int(gate.announcement().split()[0])
            before = late(pid)
            eventually(lambda: loops(pid)[True]["lag_us"] > 1_100_000, "it is seen to be late while it is")
            (blocked,) = [str(one["worker"]) for one in status(admin)["workers"] if one["pid"] == pid]
            assert metric(admin, "stanchion_loop_lag_current_seconds")[blocked] > 1.1
            eventually(lambda: (of := loops(pid))[False]["lag_us"] < of[True]["lag_us"], "the other one is not")
            gate.let_pass(1)
            assert wire.response().status == 200
        eventually(lambda: loops(pid)[True]["lag_us"] < 1_000_000, "it is in time again")
        found = loops(pid)[True]
        assert found["lag_max_us"] > 1_100_000
        assert found["lags"]["sum_us"] >= found["lag_max_us"]
        return late(pid) == before + 1

    # A loop that gets no core for a second is late once more.
    assert any(is_remembered_once() for _ in range(3)), "once, however long"


def test_how_many_websockets_each_worker_has_is_told(serve: Serve, opens: Open, admin: str) -> None:
    server = serve("sockets:app", "--interface", "asgi", "-w", "2", "--admin", admin)
    clients = [opens(server) for _ in range(3)]

    def told() -> list[float] | None:
        """The counts of both workers, once /status and the metrics are of the same snapshot."""
        said = {str(worker["worker"]): worker["event_loop"]["sessions"] for worker in status(admin)["workers"]}
        return sorted(said.values()) if metric(admin, "stanchion_worker_sessions") == said else None

    eventually(lambda: sum(told() or [0]) == 3, "all are told")
    for client in clients:
        client.close()
        assert client.until_end() == [(1000, "")]
    eventually(lambda: told() == [0, 0], "none is left")


def test_of_threads_nothing_is_said_about_loops(serve: Serve, admin: str) -> None:
    serve("hello:app", "--admin", admin)
    said = ask(admin, "/metrics").text
    assert "stanchion_loop" not in said and "stanchion_worker_sessions" not in said
    assert [worker["event_loop"] for worker in status(admin)["workers"]] == [None]


def test_a_loop_that_was_late_takes_one_request_at_a_time(serve: Serve, gate: Gate, admin: str) -> None:
    """The others wait in the line, where a loop that turns finds them, and not for what blocks this one."""
    server = serve("looping:app", "--interface", "asgi", "-w", "1", "--admin", admin, env=gate.environment)
    late = "stanchion_loop_lag_seconds_sum"
    eventually(lambda: metric(admin, "stanchion_loop_lag_seconds_count").get("0", 0) > 0, "the loop turns")
    with ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(6)]
        before_s = metric(admin, late)["0"]
        wires[0].get("/sleep?0.3")
        gate.announcement()
        eventually(lambda: metric(admin, late)["0"] > before_s + 0.005, "it was seen to be late")
        wires[0].send(request("GET", "/block"))
        gate.announcement()
        for wire in wires[1:]:
            wire.send(request("GET", "/block"))
        eventually(lambda: status(admin)["requests"]["arrived"] == 7, "all are there")
        gate.let_pass(1)
        gate.announcement()
        eventually(lambda: status(admin)["requests"]["answered"] == 2, "the first is answered")
        assert status(admin)["seat_counts"]["busy"] == 1, "one of the others is taken"
        gate.let_pass(5)
        for wire in wires:
            assert wire.response().status == 200


def test_server_timing_says_where_the_time_went_until_the_head_of_the_answer(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", "--interface", "asgi", "--server-timing", env=gate.environment)
    with server.connect() as wire:
        said = wire.get("/sleep?0.05").header("Server-Timing")
        gate.announcement()
        found = re.fullmatch(r"wait;dur=\d+\.\d{3}, run;dur=(\d+\.\d{3})", said or "")
        assert found and float(found[1]) >= 50
        wire.send(request("GET", "/hold"))
        assert re.match(r"wait;dur=\d+\.\d{3}, run;dur=\d+\.\d{3}$", wire.head().header("Server-Timing") or "")
