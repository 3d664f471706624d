"""The number of a worker is that of the place that it fills: `-w 2` has workers 0 and 1, whatever replaces them."""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.address import Address
from support.ctl import ctl
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn shows no numbers of workers")


class Watched(NamedTuple):
    """A server with what shows its workers."""

    server: Server
    control: Path
    admin: str

    def numbers(self) -> list[tuple[int, int]]:
        """Number and pid of the workers that have a process, by `ctl workers`."""
        told = json.loads(ctl(self.control, "workers", "--json").stdout)["data"]
        return sorted((one["index"], one["pid"]) for one in told if one["pid"] is not None)

    def ask(self, target: str) -> str:
        with Wire.connect(Address.parse(self.admin)) as wire:
            return wire.get(target).text

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.ask("/status"))
        return told

    def samples(self) -> dict[str, float]:
        """The metrics, each by its name and labels: as Prometheus does, it takes no page that has one of them twice."""
        lines = [line for line in self.ask("/metrics").splitlines() if not line.startswith("#")]
        found = [line.rsplit(" ", 1) for line in lines]
        twice = [name for name, count in Counter(name for name, _ in found).items() if count > 1]
        assert not twice, twice
        return {name: float(value) for name, value in found}

    def labels(self) -> set[str]:
        """The labels of workers."""
        return set(re.findall(r'worker="(\d+)"', self.ask("/metrics")))

    def titles(self) -> list[str]:
        told = [" ".join(one.cmdline()) for one in self.server.of_name("stanchion-work")]
        return sorted(found[1] for title in told if (found := re.match(r"stanchion: worker (\d+)", title)))

    def logged(self, since: int = 0) -> set[str]:
        """The numbers of workers in the log."""
        text = self.server.log.text()[since:]
        return set(re.findall(r"worker ready worker=(\d+)", text)) | set(re.findall(r"\] worker (\d+) \(", text))

    def shows(self, *numbers: int) -> bool:
        """Everywhere these, each once."""
        texts = [str(number) for number in numbers]
        status = self.status()
        return (
            [number for number, _ in self.numbers()] == list(numbers)
            and sorted(one["worker"] for one in status["workers"]) == list(numbers)
            and sorted(one["worker"] for one in status["seats"]) == list(numbers)
            and self.titles() == texts
            and self.labels() == set(texts)
        )


Watch = Callable[..., Watched]


@pytest.fixture
def watch(serve: Serve, tmp_path: Path) -> Watch:
    def start(*arguments: str, **more: Any) -> Watched:
        control, admin = tmp_path / "control", f"unix:{tmp_path}/admin"
        server = serve(*arguments, "--control", f"unix:{control}", "--admin", admin, **more)
        return Watched(server, control, admin)

    return start


def test_workers_0_and_1_stay_whatever_replaces_them(watch: Watch) -> None:
    watched = watch("waiting:app", "-w", "2")
    server = watched.server
    eventually(lambda: watched.shows(0, 1), "at the start")

    def replaced(number: int, by: signal.Signals) -> None:
        before = dict(watched.numbers())
        os.kill(before[number], by)
        eventually(lambda: dict(watched.numbers()).get(number, before[number]) != before[number], "it is replaced")
        eventually(lambda: watched.shows(0, 1), f"after {by.name} to worker {number}")
        assert dict(watched.numbers())[1 - number] == before[1 - number], "the other one is as it was"

    for number in (0, 1, 0):
        replaced(number, signal.SIGKILL)
    # Its successor is there before it leaves.
    for number in (0, 1, 1, 0):
        replaced(number, signal.SIGTERM)
    assert [(one["worker"], one["nth"]) for one in watched.status()["seats"]] == [(0, 5), (1, 4)]
    server.signal(signal.SIGTTIN)
    server.log.wait("TTIN: 3 workers")
    assert ctl(watched.control, "scale", "2").returncode == 0
    eventually(lambda: watched.shows(0, 1), "one less")
    server.signal(signal.SIGTTOU)
    eventually(lambda: [number for number, _ in watched.numbers()] == [0], "the last one is gone")
    assert [seat["worker"] for seat in watched.status()["seats"]] == [0, 1], "its seat is missing"
    server.signal(signal.SIGTTIN)
    eventually(lambda: watched.shows(0, 1), "it is back")
    assert watched.logged() <= {"0", "1", "2"}
    assert ctl(watched.control, "reload").returncode == 0
    eventually(lambda: watched.shows(0, 1), "after a reload")
    counts = watched.status()["seat_counts"]
    assert counts == {"busy": 0, "idle": 2, "empty": 0}


def test_workers_that_follow_each_other_by_max_requests_are_0_and_1(watch: Watch) -> None:
    watched = watch("waiting:app", "-w", "2", "--max-requests", "3")
    seen: set[int] = set()

    def again() -> int:
        with watched.server.connect() as wire:
            seen.update(int(wire.get("/pid").text.split()[0]) for _ in range(5))
        watched.samples()
        return len(seen)

    eventually(lambda: again() >= 8, "one worker after the other")
    eventually(lambda: watched.shows(0, 1), "in the end")
    assert watched.logged() == {"0", "1"}


def test_a_worker_that_leaves_and_its_successor_are_told_apart_by_their_pids(watch: Watch, gate: Gate) -> None:
    watched = watch("waiting:app", "-w", "1", "--threads", "2", "--max-requests", "1", env=gate.environment)
    with watched.server.connect() as held, watched.server.connect() as wire:
        held.send(request("GET", "/wait?held"))
        old = int(gate.announcement().split()[0])
        wire.get("/pid")
        watched.server.log.wait(rf"worker 0 \({old}\) is to be replaced")
        eventually(lambda: len(watched.numbers()) == 2, "both are there")
        (first, one), (second, other) = watched.numbers()
        assert (first, second) == (0, 0) and old in (one, other)
        new = one + other - old
        assert f"worker ready worker=0 pid={new}" in watched.server.log.text()

        def is_seen() -> bool:
            status = watched.status()
            told = sorted((one["worker"], one["pid"], one["busy"]) for one in status["workers"])
            return told == sorted([(0, old, 1), (0, new, 0)])

        eventually(is_seen, "by the status")
        seats = [(seat["worker"], seat["pid"], seat["state"]) for seat in watched.status()["seats"]]
        assert sorted(seats) == sorted([(0, old, "busy"), *[(0, new, "idle")] * 2])
        assert watched.status()["seat_counts"] == {"busy": 1, "idle": 2, "empty": 0}
        # No series is there twice, and what both do is in the one that there is.
        samples = watched.samples()
        assert samples['stanchion_worker_busy_seats{worker="0"}'] == 1
        memory = {one["pid"]: one["memory_bytes"] for one in watched.status()["workers"]}
        assert samples['stanchion_worker_memory_bytes{worker="0"}'] > max(memory.values())
        dumped = json.loads(ctl(watched.control, "dump", "--json").stdout)["data"]
        assert {(one["index"], one["pid"]) for one in dumped} == {(0, old), (0, new)}
        gate.let_pass(1)
        assert held.response().status == 200
    eventually(lambda: watched.numbers() == [(0, new)], "the old one is gone")


def test_what_is_counted_of_loops_grows_while_workers_are_replaced(watch: Watch, gate: Gate) -> None:
    """The places in the exchange count on, for one worker after the other, and a successor gets another place."""
    arguments = ("--interface", "asgi", "-w", "1", "--max-requests", "1")
    watched = watch("looping:app", *arguments, env=gate.environment)
    name = 'stanchion_loop_lag_seconds_count{worker="0"}'
    counted = [0.0]

    def count() -> float:
        counted.append(watched.samples().get(name, counted[-1]))
        assert counted[-1] >= counted[-2], counted
        return counted[-1]

    for _ in range(4):
        eventually(lambda: count() > counted[0], "the loop turns")
        with watched.server.connect() as held, watched.server.connect() as wire:
            held.send(request("GET", "/hold"))
            held.head()
            assert wire.get("/").status == 200
            eventually(lambda: count() > 0 and len(watched.numbers()) == 2, "its successor is there")
            eventually(lambda: len({one["pid"] for one in watched.status()["workers"]}) == 2, "by the status too")
            count()
            eventually(lambda: count() > counted[-2], "they count on")
        eventually(lambda: count() > 0 and len(watched.numbers()) == 1, "the old one is gone")
