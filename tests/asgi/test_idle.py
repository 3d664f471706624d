"""A server that has nothing to do sleeps: its processes hardly wake, and are up at once when a client comes."""

import time
from pathlib import Path

import pytest

from support.address import Address
from support.gate import Gate
from support.greenlets import GEVENT
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire

pytestmark = pytest.mark.own("it counts what is ours")

WATCHED_S = 6.0


def woken(server: Server) -> dict[str, int]:
    """How often each of its threads has slept (proc_pid_status(5)), by name."""
    tasks = [task for process in server.processes() for task in Path(f"/proc/{process.pid}/task").iterdir()]
    status = {task: dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines()) for task in tasks}
    return {f"{one['Name']} {task.name}": int(one["voluntary_ctxt_switches"]) for task, one in status.items()}


def cpu_s(server: Server) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in server.processes())


@pytest.mark.parametrize(
    "arguments", [("looping:app", "--interface", "asgi"), ("hello:app", *GEVENT)], ids=["asgi", "gevent"]
)
def test_no_process_of_an_idle_server_is_woken_often(serve: Serve, gate: Gate, arguments: tuple[str, ...]) -> None:
    server = serve(*arguments, "-w", "2", env=gate.environment)
    with server.connect() as wire:
        wire.get("/")
    # Work that the request has begun ends within a second.
    time.sleep(1.5)
    # It may take processes longer that get no core.
    eventually(lambda: has_idled(server), "it idles", 5 * WATCHED_S)


def has_idled(server: Server) -> bool:
    """Whether each of its threads has slept longer than half a second at a time, for a while that is watched."""
    begun_s = time.monotonic()
    before, before_s = woken(server), cpu_s(server)
    time.sleep(WATCHED_S)
    after, after_s = woken(server), cpu_s(server)
    slept = {name: after[name] - before.get(name, 0) for name in after}
    watched_s = time.monotonic() - begun_s
    print(f"in {watched_s:.1f} s its threads slept so often: {slept}, and used {after_s - before_s:.2f} s of a core")
    # A thread that never sleeps does not wake, either: so the time on a core counts, too.
    return max(slept.values()) <= 2 * watched_s and set(after) == set(before) and after_s - before_s < WATCHED_S / 4


def test_a_loop_rests_for_a_part_of_the_shortest_limit_only(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    """With a limit of half a second the server must not report a blocked loop a second late."""
    places = [f"unix:{tmp_path}/{name}.sock" for name in ("short", "usual")]
    for at, more in zip(places, (["--loop-timeout", "0.5"], []), strict=True):
        serve("looping:app", "--interface", "asgi", "--admin", at, *more, env=gate.environment)

    def beats() -> list[int]:
        counts = []
        for at in places:
            with Wire.connect(Address.parse(at)) as wire:
                (worker,) = wire.get("/status").json()["workers"]
            counts.append(int(worker["event_loop"]["lags"]["count"]))
        return counts

    def turns_twice_as_often() -> bool:
        """The one with the short limit."""
        short, usual = beats()
        eventually(lambda: beats()[0] >= short + 16, "it has turned so often")
        return beats()[1] <= usual + 8

    # It turns four times a second, and the usual one once, unless one of them gets no core.
    assert any(turns_twice_as_often() for _ in range(3))


def test_a_loop_that_has_slept_is_seen_to_be_late_at_once(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    """And not only where its next heartbeat, a second after the one before, happens to fall into that."""
    admin = Address.parse(f"unix:{tmp_path}/admin.sock")
    server = serve(
        *("looping:app", "--interface", "asgi", "-w", "1", "--admin", f"unix:{tmp_path}/admin.sock"),
        env=gate.environment,
    )

    def late_us() -> int:
        with Wire.connect(admin) as wire:
            (worker,) = wire.get("/status").json()["workers"]
        told: int = worker["event_loop"]["lags"]["sum_us"]
        return told

    for number in range(4):
        # It has had nothing to do for a heartbeat, and is at one place or another before the next.
        time.sleep(1.4 + 0.2 * number)
        before_us = late_us()
        with server.connect() as wire:
            assert wire.get("/sleep?0.4").status == 200
        eventually(lambda: late_us() - before_us > 100_000, "it is told")  # noqa: B023
