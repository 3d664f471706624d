"""The doctor judges the words of a stanchion: a full line, stuck seats, one line of code that all stand in."""

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from stanchion.doctor import servers, stacks
from stanchion.doctor.facts import Facts, Seat, Server
from stanchion.top.status import Causes
from support.clock import Clock
from support.doctor import Dripper, Liar, Said, doctor, facts, network
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.processes import standing_still
from support.server import Serve
from support.server import Server as Served
from support.wire import Wire, request

pytestmark = pytest.mark.own("the doctor is ours")

S = 1_000_000


def seat(running_s: float, at: str = "", number: int = 0, path: str = "/pay") -> Seat:
    return Seat(0, number, 70, round(running_s * S), f"GET {path}", at)


def server(*seats: Seat, **changes: Any) -> Server:
    """A server's status with these busy seats, and no other seat."""
    plain: dict[str, Any] = {
        "admin": "unix:/a",
        "control": None,
        "waiting": 0,
        "sharing": 0,
        "waiting_max": 10,
        "full_lanes": (),
        "oldest_wait_us": 0,
        "standstill": "",
        "stuck_us": min((one.running_us for one in seats), default=0),
        "refused": 0,
        "busy": len(seats),
        "idle": 0,
        "seats": seats,
        "causes": None,
    }
    return Server(**{**plain, **changes})


def seen(one: Server, **known: Any) -> Facts:
    return facts(network(), servers={7: one}, **known)


def codes(one: Server, **known: Any) -> list[tuple[str, str]]:
    return [(found.code, found.severity) for found in servers.findings(seen(one, **known))]


WAITING = {"waiting": 3, "sharing": 3}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"idle": 1}, []),
        ({"idle": 1, "waiting": 8, "sharing": 8}, []),
        ({"idle": 1, "waiting": 9, "sharing": 9}, ["warning"]),
        ({"idle": 1, "waiting": 10, "sharing": 10}, ["critical"]),
        # They are in a lane with room of its own.
        ({"idle": 1, "waiting": 10, "sharing": 0}, []),
        ({"idle": 1, "waiting": 10, "sharing": 0, "full_lanes": ("slow",)}, ["critical"]),
        ({"idle": 1, **WAITING, "oldest_wait_us": 9 * S}, []),
        # The server itself reports a standstill.
        ({"idle": 1, **WAITING, "standstill": "1 of 1 seats are idle and take nothing"}, ["warning"]),
        # `max_waiting` of 0: no line at all.
        ({"idle": 1, "waiting_max": 0}, []),
    ],
)
def test_a_line_that_is_full_or_stands(changes: Mapping[str, Any], expected: list[str]) -> None:
    assert codes(server(**changes)) == [("line-full", severity) for severity in expected]


@pytest.mark.parametrize(
    ("seats", "changes", "expected"),
    [
        ([], {}, []),
        ([seat(9), seat(5)], {}, ["warning"]),
        ([seat(9), seat(5)], WAITING, ["critical"]),
        ([seat(9), seat(4.9)], WAITING, []),
        ([seat(9), seat(5)], {**WAITING, "idle": 1, "stuck_us": 0}, []),
    ],
)
def test_seats_that_are_all_busy_for_long(seats: list[Seat], changes: Mapping[str, Any], expected: list[str]) -> None:
    assert codes(server(*seats, **changes)) == [("seats-stuck", severity) for severity in expected]


def test_event_loops_may_have_long_requests_as_long_as_nothing_waits() -> None:
    assert codes(server(seat(9), seat(5)), event_loops=(7,)) == []
    assert codes(server(seat(9), seat(5), **WAITING), event_loops=(7,)) == [("seats-stuck", "critical")]


@pytest.mark.parametrize(
    ("places", "is_one"),
    [
        (["a.py:3 in f"] * 2, True),
        (["a.py:3 in f", "a.py:4 in f"], False),
        (["a.py:3 in f", ""], False),
        ([""] * 2, False),
    ],
)
def test_one_line_of_code_that_all_stand_in(places: Sequence[str], is_one: bool) -> None:
    found = codes(server(*(seat(9, at, number) for number, at in enumerate(places)), **WAITING))
    assert found == [*([("one-dependency", "critical")] if is_one else []), ("seats-stuck", "critical")]
    # One alone is always in one line.
    assert codes(server(seat(9, "a.py:3 in f"))) == [("seats-stuck", "warning")]


FULL = Causes(
    "gil_full", "GIL full, 40 % waiting for it", {"line": 50, "core": 0, "gil": 40, "cpu": 10, "elsewhere": 0}
)


@pytest.mark.parametrize("verdict", sorted(servers.FULL))
def test_a_server_that_works_at_its_limit_says_so_and_how_to_plan(verdict: str) -> None:
    (found,) = servers.findings(seen(server(idle=1, causes=replace(FULL, verdict=verdict))))
    assert (found.code, found.severity) == ("sizing", "notice")
    assert found.what == "stanchion (7) works at its limit: GIL full, 40 % waiting for it."
    assert "(causes in /status at unix:/a)" in found.known
    assert found.known.endswith("line 50 %, core 0 %, gil 40 %, cpu 10 %, elsewhere 0 %.")
    assert found.now[-1] == "$ stanchion plan DIR"


@pytest.mark.parametrize(
    "causes", [None, *(replace(FULL, verdict=one) for one in ("unknown", "seats_free", "loops_free"))]
)
def test_a_server_with_room_is_no_finding(causes: Causes | None) -> None:
    assert codes(server(idle=1, causes=causes)) == []


def test_seats_that_are_stuck_are_not_too_few() -> None:
    assert codes(server(seat(9), causes=FULL)) == [("seats-stuck", "warning")]


def test_the_verdicts_are_those_of_the_line() -> None:
    source = (Path(__file__).parents[2] / "crates/stanchion-line/src/verdict.rs").read_text()
    names = set(re.findall(r'^            Self::\w+.* => "(\w+)",$', source, re.MULTILINE))
    assert names - servers.FULL == {"unknown", "seats_free", "loops_free"} and names >= servers.FULL


def test_the_cause_comes_first_and_each_says_what_to_do() -> None:
    full = {"waiting": 10, "sharing": 10, "oldest_wait_us": 8_400_000, "refused": 77}
    places = [seat(14.34, "/srv/dep.py:12 in pay"), seat(8, "/srv/dep.py:12 in pay", 1, "/buy")]
    one, stuck, line = servers.findings(seen(server(*places, control="unix:/c", **full)))
    assert one.what == "All 2 seats of stanchion (7) stand in one line of code: /srv/dep.py:12 in pay."
    assert "The longest has run for 14.3 s with GET /pay (/status)." in one.known
    assert one.now[-1] == "$ stanchion ctl --control unix:/c reload"
    assert stuck.what == "All 2 seats of stanchion (7) have been busy for 8.0 s or longer."
    assert "they run GET /pay, GET /buy" in stuck.known
    assert "They stand at: /srv/dep.py:12 in pay (2) (stanchion ctl dump)." in stuck.known
    assert line.what == "The line of stanchion (7) is full."
    assert line.known == (
        "10 wait in its line, which takes 10; the oldest for 8.4 s. Seats: 2 busy, 0 idle (/status at unix:/a). "
        "Refused since its start: 77 (refused_line_full)."
    )
    assert "$ stanchion top --admin unix:/a" in line.now
    assert line.now[-1] == "$ stanchion ctl --control unix:/c scale N"


def test_without_a_control_socket_it_says_how_to_see_more() -> None:
    (stuck,) = servers.findings(seen(server(seat(9))))
    assert stuck.what == "The one seat of stanchion (7) has been busy for 9.0 s or longer."
    assert stuck.now[1] == "$ stanchion top --admin unix:/a"
    assert "start the server with --control unix:/PATH" in stuck.now[2]
    assert stuck.now[-1] == "$ kill -HUP 7"
    (stuck,) = servers.findings(seen(server(seat(9), control="unix:/c")))
    assert "$ stanchion ctl --control unix:/c dump" in stuck.now


@pytest.mark.parametrize(
    ("state", "said", "step"),
    [
        ("T", "a signal has stopped it", "$ kill -CONT 7"),
        ("t", "a debugger has stopped it", "$ grep TracerPid /proc/7/status"),
    ],
)
def test_a_master_that_is_stopped(state: str, said: str, step: str) -> None:
    (found,) = servers.findings(facts(network(), stopped={7: state}))
    assert (found.code, found.severity) == ("master-stopped", "warning")
    assert said in found.known and found.now[-1] == step


# ---- Stacks

STDLIB = "/usr/lib/python3.11/socket.py"
LIBRARY = "/v/lib/python3.11/site-packages/psycopg/wait.py"


def stack(thread: int, *frames: str) -> str:
    lines = (f'  File "{file}", line {line} in {name}' for file, line, name in (one.split() for one in frames))
    return "\n".join((f"Thread 0x{thread:016x} (most recent call first):", *lines, ""))


def dump(*stacks_of: str) -> list[dict[str, Any]]:
    seats = (f"seat {number} is thread 0x{number:016x}" for number in range(len(stacks_of)))
    text = "\n".join([*stacks_of, stack(99, "/srv/other.py 1 background"), *seats])
    return [{"index": 0, "pid": 70, "generation": 1, "stacks": text}]


READS = f"{STDLIB} 706 readinto"
WAITS = f"{LIBRARY} 9 wait"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # The app's own line, and what it has called.
        ((READS, "/srv/a.py 3 f"), (READS, "/srv/a.py 3 f"), {("/srv/a.py:3 in f", f"{STDLIB}:706 in readinto")}),
        # Two of its lines, which wait in one of a library.
        ((WAITS, "/srv/a.py 3 f"), (WAITS, "/srv/a.py 8 g"), {(f"{LIBRARY}:9 in wait", "")}),
        # An app that is installed.
        ((WAITS,), (WAITS,), {(f"{LIBRARY}:9 in wait", "")}),
        # Both read from sockets, as the clients of any two services do.
        (
            (READS, "/srv/a.py 3 f"),
            (READS, "/srv/a.py 8 g"),
            {("/srv/a.py:3 in f", f"{STDLIB}:706 in readinto"), ("/srv/a.py:8 in g", f"{STDLIB}:706 in readinto")},
        ),
        ((READS,), (READS,), {("", "")}),
    ],
)
def test_where_seats_stand(first: Sequence[str], second: Sequence[str], expected: set[tuple[str, str]]) -> None:
    busy = server(seat(9, number=0), seat(8, number=1))
    found = stacks.placed(busy, dump(stack(0, *first), stack(1, *second)))
    assert {(one.stands_at, one.within) for one in found.seats} == expected
    is_one = len(expected) == 1 and ("", "") not in expected
    assert ("one-dependency" in [code for code, _ in codes(found)]) == is_one


@pytest.mark.parametrize("text", ["", "no stacks", "seat 0 is thread 0x0000000000000000", stack(0)])
def test_what_is_no_stack_tells_nothing(text: str) -> None:
    told = [
        {"index": 0, "pid": 70, "generation": 1, "stacks": text},
        {"stacks": 3},
        {},
        {**dump(stack(0, READS))[0], "pid": []},
    ]
    assert stacks.placed(server(seat(9)), told).seats == (seat(9),)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"ok": False, "message": "not now", "data": None}, "not now"),
        ({"ok": True, "message": "", "data": 3}, "the answer has no stacks"),
        ({"ok": True, "message": "", "data": [3]}, "the answer has no stacks"),
        ([], "the answer is not a stanchion's"),
        # Python reads nothing that is nested so deeply.
        (b"[" * 200_000, "the answer is not a stanchion's"),
    ],
)
def test_a_server_that_does_not_say_where_is_named(tmp_path: Path, answer: object, said: str) -> None:
    line = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    liar = Liar(tmp_path / "c", line + b"\n")
    try:
        after = stacks.with_places(seen(server(seat(9), control=f"unix:{tmp_path}/c")))
    finally:
        liar.close()
    (note,) = after.not_looked_at
    assert note.startswith("where the seats of process 7 stand, at its control socket: ") and said in note
    assert json.loads(liar.sent) == {"command": "dump"}


def test_a_server_that_drips_its_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may call a process stanchion, and the doctor may be root."""
    monkeypatch.setattr(stacks, "PATIENCE_S", 0.5)
    with contextlib.closing(Dripper(tmp_path / "c")) as dripper:
        after = stacks.with_places(seen(server(seat(9), control=f"unix:{tmp_path}/c")))
        assert dripper.left.wait(PATIENCE_S)
    (note,) = after.not_looked_at
    assert "no answer within 0.5 s" in note


def test_many_stuck_servers_take_no_longer_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "ALL_S", 0.0)
    monkeypatch.setattr(stacks.ctl, "Call", lambda *_: pytest.fail("asked"))
    (note,) = stacks.with_places(seen(server(seat(9), control="unix:/c"))).not_looked_at
    assert note.endswith("other servers have used up the time for it")


@pytest.mark.parametrize(
    ("one", "known"),
    [
        (server(seat(9), idle=1, stuck_us=0, control="unix:/c"), {}),
        (server(seat(4), control="unix:/c"), {}),
        (server(seat(9)), {}),
        (server(seat(9), control="unix:/c"), {"event_loops": (7,)}),
    ],
)
def test_a_server_that_is_not_stuck_is_not_asked_for_its_stacks(
    one: Server, known: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks.ctl, "Call", lambda *_: pytest.fail("asked"))
    assert stacks.with_places(seen(one, **known)) == seen(one, **known)


# ---- A real one


NAP = "/nap?600000"


class Hanging:
    """A server of four seats, each of which runs a request that does not end."""

    def __init__(self, serve: Serve, home: Path, gate: Gate, clock: Clock, paths: Sequence[str], *words: str) -> None:
        self.at = {name: f"unix:{home}/{name}.sock" for name in ("admin", "control")}
        given = [word for name, at in self.at.items() for word in (f"--{name}", at)]
        env = {**gate.environment, **clock.environment}
        limits = ("--timeout", "1000", "--queue-timeout", "1000")
        self.server: Served = serve("waiting:app", "-w", "2", "--threads", "2", *limits, *given, *words, env=env)
        self.wires = [self.ask(path) for path in paths]
        gate.announcements(paths.count("/wait"))
        self.about = f"stanchion ({self.server.pid})"
        self._clock = clock

    def ask(self, path: str) -> Wire:
        wire = self.server.connect()
        wire.send(request("GET", path))
        return wire

    def is_found(self, is_it: Callable[[Said], bool]) -> Said:
        """Eight seconds later, or a multiple of that: the doctor waits a second at most for what the server says,
        which a busy machine may take, and the last request may have begun to run after the first look.
        """
        said: list[Said] = []

        def is_so() -> bool:
            self._clock.advance(8)
            said.append(doctor("--this-one", "--json"))
            return is_it(said[-1])

        eventually(is_so, "the server says it in time", 3 * PATIENCE_S)
        return said[-1]

    def close(self) -> None:
        for wire in self.wires:
            wire.close()


def test_the_master_of_a_server_that_a_signal_has_stopped(serve: Serve) -> None:
    server: Served = serve("waiting:app")
    about = f"stanchion ({server.pid})"
    assert "master-stopped" not in doctor("--this-one", "--json").codes(about)
    with standing_still(psutil.Process(server.pid)):
        found = doctor("--this-one", "--json").finding("master-stopped", about)
    assert found["now"][-1] == f"$ kill -CONT {server.pid}"


def test_a_server_whose_seats_all_hang_in_one_line(serve: Serve, tmp_path: Path, gate: Gate, clock: Clock) -> None:
    hanging = Hanging(serve, tmp_path, gate, clock, ["/wait"] * 4, "--max-waiting", "3")
    hanging.wires += [hanging.ask("/wait?later") for _ in range(20)]
    said = hanging.is_found(lambda said: {"one-dependency", "line-full"} <= set(said.codes(hanging.about)))
    hanging.close()
    pid = hanging.server.pid
    assert said.exit_code == 1
    ours = said.findings(hanging.about)
    assert [(one["code"], one["severity"]) for one in ours[:3]] == [
        ("one-dependency", "critical"),
        ("seats-stuck", "critical"),
        ("line-full", "critical"),
    ]
    assert f"All 4 seats of stanchion ({pid}) stand in one line of code: " in ours[0]["what"]
    assert re.search(r"/rendezvous\.py:\d+ in wait_for_pass\.$", ours[0]["what"])
    told = said.data["facts"]["servers"][str(pid)]
    assert (told["admin"], told["control"], told["busy"], told["idle"]) == (*hanging.at.values(), 4, 0)


def test_a_server_whose_seats_hang_in_several_lines(serve: Serve, tmp_path: Path, gate: Gate, clock: Clock) -> None:
    hanging = Hanging(serve, tmp_path, gate, clock, ["/wait", "/wait", NAP, NAP])
    said = hanging.is_found(lambda said: "seats-stuck" in said.codes(hanging.about))
    hanging.close()
    stuck = said.finding("seats-stuck", hanging.about)
    known = stuck["known"]
    assert "they run GET /wait (2), GET /nap (2)" in known or "they run GET /nap (2), GET /wait (2)" in known
    stands = known.partition("They stand at: ")[2]
    assert re.search(r"rendezvous\.py:\d+ in wait_for_pass \(2\)", stands), known
    assert re.search(r"waiting\.py:\d+ in app \(2\)", stands), known
    assert "one-dependency" not in said.codes(hanging.about)
    assert stuck["severity"] == "warning", "nothing waits"
