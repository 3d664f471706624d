"""One config file that records every hook, under gunicorn and here: which runs where, in which order, with what.

Only the order within a process is compared, since two processes run as the kernel lets them. `comparable` takes out the
intended differences, with the reasons; docs/reference/hooks.md lists them.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.clock import Clock
from support.gate import Gate
from support.patience import PATIENCE_S
from support.processes import gone
from support.server import GUNICORN, STANCHION, Kind, Serve, Server

pytestmark = pytest.mark.own("it is compared with gunicorn already")

CONFIG = Path(__file__).parent.parent / "apps" / "recorded_hooks.conf.py"

Told = dict[str, Any]
Tracks = dict[str, list[tuple[str, Told]]]


class Record(NamedTuple):
    """A hook that ran: in which process, and its arguments, as recorded_hooks.conf.py announces them."""

    hook: str
    pid: int
    given: Told


class Recorder:
    """A server with that config file, and what it has recorded by now."""

    def __init__(self, build: Serve, kind: Kind, gate: Gate, *arguments: str, env: dict[str, str]) -> None:
        self._gate = gate
        self.records: list[Record] = []
        self.server: Server = build(
            "waiting:stuck", "-c", str(CONFIG), *arguments, kind=kind, env=gate.environment | env
        ).launch()
        self.wait("post_worker_init")
        self.server.wait_until_ready()

    def wait(self, *hooks: str) -> list[Record]:
        """Wait until each of these hooks has run once more since the last wait for it; in any order."""
        missing = list(hooks)
        found = []
        while missing:
            record = Record(**json.loads(self._gate.announcement(2 * PATIENCE_S)))
            self.records.append(record)
            if record.hook in missing:
                missing.remove(record.hook)
                found.append(record)
        return sorted(found, key=lambda record: hooks.index(record.hook))

    def tell(self, number: signal.Signals, *hooks: str) -> list[Record]:
        """Send it to the master, and wait for these."""
        self.server.signal(number)
        return self.wait(*hooks)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.server.signal(number)
        self.server.exit_code()
        while lines := self._gate.announced():
            self.records += [Record(**json.loads(line)) for line in lines]

    def tracks(self) -> Tracks:
        """The hooks that ran in the master, before forks, and in each worker in order; by these names."""
        workers = [record.pid for record in self.records if record.hook == "post_fork"]
        tracks: Tracks = {}
        for hook, pid, given in self.records:
            if hook == "pre_fork":
                # gunicorn forks in its master, we do in the template.
                track = "before forks"
            elif pid == self.server.process.pid:
                track = "master"
            else:
                track = f"worker {workers.index(pid)}"
            tracks.setdefault(track, []).append((hook, given))
        return tracks


def comparable(tracks: Tracks) -> Tracks:
    """The tracks without the intended differences."""
    kept = dict(tracks)
    # gunicorn calls it at the start, with None for the number before, and at each reload, whatever the number was;
    # here it is called when the number changes.
    kept["master"] = [
        (hook, given)
        for hook, given in tracks["master"]
        if hook != "nworkers_changed" or given["old_value"] not in (None, given["new_value"])
    ]
    for track, told in kept.items():
        names = hooks(told)
        if "worker_abort" in names and names[names.index("worker_abort") - 1] == "pre_request":
            # gunicorn swallows the exception by which the worker was to leave, calls post_request with an answer that
            # has no status, and the worker is killed or not before it comes to worker_exit.
            kept[track] = told[: names.index("worker_abort") + 1]
        for hook, given in told:
            if hook == "post_request":
                # With max_requests: here a worker serves until its successor is there.
                del given["worker"]["alive"]
    return kept


def compared(
    build: Serve, gate: Gate, live: Callable[[Recorder], None], *arguments: str, env: dict[str, str] | None = None
) -> Tracks:
    """The tracks of a life under stanchion, which must be those of the same life under gunicorn."""
    tracks = {}
    for kind in (GUNICORN, STANCHION):
        recorder = Recorder(build, kind, gate, *arguments, env=env or {})
        live(recorder)
        recorder.end()
        tracks[kind.name] = recorder.tracks()
    ours, theirs = comparable(tracks["stanchion"]), comparable(tracks["gunicorn"])
    assert ours.keys() == theirs.keys()
    for track, told in theirs.items():
        assert ours[track] == told, track
    return tracks["stanchion"]


def hooks(track: list[tuple[str, Told]]) -> list[str]:
    return [hook for hook, _ in track]


BORN = ["post_fork", "post_worker_init"]


def test_a_request(build: Serve, gate: Gate) -> None:
    def live(recorder: Recorder) -> None:
        with recorder.server.connect() as wire:
            assert wire.get("/some%20path?a=b").status == 200
        recorder.wait("post_request")

    tracks = compared(build, gate, live)
    assert hooks(tracks["master"]) == ["on_starting", "when_ready", "child_exit", "on_exit"]
    assert hooks(tracks["worker 0"]) == [*BORN, "pre_request", "post_request", "worker_exit"]


@pytest.mark.parametrize(
    ("number", "last"),
    [
        (signal.SIGINT, ["worker_int", "worker_exit"]),
        (signal.SIGQUIT, ["worker_int", "worker_exit"]),
        (signal.SIGABRT, ["worker_abort", "worker_exit"]),
        (signal.SIGTERM, ["worker_exit"]),
        (signal.SIGKILL, []),
    ],
)
def test_a_signal_to_a_worker(build: Serve, gate: Gate, number: signal.Signals, last: list[str]) -> None:
    def live(recorder: Recorder) -> None:
        first = recorder.records[-1].pid
        # It serves, and so listens to signals.
        with recorder.server.connect() as wire:
            assert wire.get("/").status == 200
        recorder.wait("post_request")
        os.kill(first, number)
        recorder.wait("child_exit", "post_worker_init")
        gone(first)

    tracks = compared(build, gate, live)
    assert hooks(tracks["worker 0"]) == [*BORN, "pre_request", "post_request", *last]
    assert hooks(tracks["worker 1"]) == [*BORN, "worker_exit"]
    assert hooks(tracks["master"]).count("child_exit") == 2


def test_more_and_fewer_workers(build: Serve, gate: Gate) -> None:
    def live(recorder: Recorder) -> None:
        recorder.tell(signal.SIGTTIN, "nworkers_changed", "post_worker_init")
        recorder.tell(signal.SIGTTOU, "nworkers_changed", "worker_exit", "child_exit")

    tracks = compared(build, gate, live)
    changed = [given for hook, given in tracks["master"] if hook == "nworkers_changed"]
    assert [(one["new_value"], one["old_value"]) for one in changed] == [(2, 1), (1, 2)]


def test_a_reload(build: Serve, gate: Gate) -> None:
    def live(recorder: Recorder) -> None:
        recorder.tell(signal.SIGHUP, "on_reload", "post_worker_init", "worker_exit", "child_exit")

    tracks = compared(build, gate, live)
    assert hooks(tracks["master"]) == ["on_starting", "when_ready", "on_reload", *["child_exit"] * 2, "on_exit"]


def test_enough_requests(build: Serve, gate: Gate) -> None:
    def live(recorder: Recorder) -> None:
        with recorder.server.connect() as wire:
            assert wire.get("/").status == 200
        recorder.wait("post_request", "worker_exit", "child_exit", "post_worker_init")

    compared(build, gate, live, "--max-requests", "1")


def test_a_request_past_its_deadline(build: Serve, gate: Gate, clock: Clock) -> None:
    def live(recorder: Recorder) -> None:
        with recorder.server.connect() as wire:
            wire.send(b"GET /sleep?60 HTTP/1.1\r\nHost: test\r\n\r\n")
            recorder.wait("pre_request")
            # gunicorn's is the kernel's.
            clock.advance(8)
            recorder.wait("worker_abort", "child_exit", "post_worker_init")

    # gunicorn's holds for a worker that comes up, too, and that may take its time.
    tracks = compared(build, gate, live, "--timeout", "8", env=clock.environment)
    assert hooks(tracks["worker 0"]) == [*BORN, "pre_request", "worker_abort", "worker_exit"]
