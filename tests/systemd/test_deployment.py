"""The shipped units and the shipped nginx.conf under Debian's systemd and Debian's nginx, by Debian's user.

Clients ask all the time, through nginx and past it. The load counts lost requests.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import deployment as deployments
from support import guest
from support.deployment import Deployment, Load
from support.patience import PATIENCE_S, eventually

EXIT_APP_LOAD = 4
WATCHDOG_S = 6
"""With less, systemd would take a master that gets no core for one that hangs."""
ENDED_S = WATCHDOG_S + 2 * PATIENCE_S
"""When systemd has started another one in the place of one that hangs."""
BROKEN = "import there_is_no_such_module"
WORKERS = 4
RESTARTS = 3
STARTS_MAX = 5

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.own("the units are stanchion's"),
    pytest.mark.skipif(bool(guest.not_here()), reason=f"NOT TESTED UNDER SYSTEMD: {guest.not_here()}"),
]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deployments.installed(tmp_path / "guest") as deployment:
        yield deployment


@pytest.fixture
def serving(deployment: Deployment) -> Deployment:
    deployment.systemctl("start", "stanchion.socket", "stanchion.service")
    return deployment


@pytest.fixture
def load(serving: Deployment) -> Iterator[Load]:
    with ExitStack() as stack:
        load = serving.load(stack)
        load.more()
        yield load


def test_start_returns_when_it_serves(deployment: Deployment) -> None:
    deployment.systemctl("start", "stanchion.service")
    eventually(lambda: f"ready: {WORKERS} workers" in deployment.journal(), "the journal has it")
    assert deployment.shown("StatusText") == [f"serving, {WORKERS} workers"]
    assert "Failed to parse" not in deployment.guest.run("journalctl", "--no-pager").stdout
    assert deployment.answer(deployment.nginx) == "1"
    owners = deployment.guest.owners("stanchion: ") + deployment.guest.owners("nginx: worker")
    assert len(owners) > 1 + 1 + 1 + WORKERS
    assert set(owners) == {"www-data"}


def test_a_client_that_comes_before_the_service_is_answered_by_it(deployment: Deployment) -> None:
    deployment.systemctl("start", "stanchion.socket")
    assert deployment.state() == "inactive"
    with ExitStack() as stack:
        load = deployment.load(stack)
        load.more()
    load.assert_no_failure()
    assert deployment.state() == "active"


def test_a_restart_answers_every_client(serving: Deployment, load: Load) -> None:
    for release in range(2, 2 + RESTARTS):
        serving.release(release)
        serving.systemctl("restart", "stanchion.service")
        assert [serving.answer(address) for address in (serving.nginx, serving.direct)] == [str(release)] * 2
        load.more()
    load.assert_no_failure()
    assert "SIGKILL" not in serving.journal()


def test_a_reload_returns_with_the_new_code(serving: Deployment, load: Load) -> None:
    main = serving.main()
    for release in range(2, 2 + RESTARTS):
        serving.release(release)
        serving.systemctl("reload", "stanchion.service")
        answers_by_release(serving, release)
        load.more()
    load.assert_no_failure()
    assert (serving.state(), serving.main()) == ("active", main)


def test_a_reload_that_fails_says_so_and_the_old_code_goes_on(serving: Deployment, load: Load) -> None:
    serving.release(2, BROKEN)
    assert serving.systemctl("reload", "stanchion.service", check=False) == 1
    assert "reload failed: " in serving.journal()
    assert (serving.state(), serving.answer(serving.nginx)) == ("active", "1")
    load.more()
    serving.release(3)
    serving.systemctl("reload", "stanchion.service")
    answers_by_release(serving, 3)
    load.more()
    load.assert_no_failure()


def test_hup_reloads_too(serving: Deployment, load: Load) -> None:
    serving.release(2)
    serving.systemctl("kill", "--signal=HUP", "--kill-whom=main", "stanchion.service")
    serving.logged("reloaded: generation 2 serves")
    answers_by_release(serving, 2)
    load.more()
    load.assert_no_failure()


def answers_by_release(serving: Deployment, release: int) -> None:
    """The release answers new clients. nginx has connections of before: the old code answers once more on each."""
    assert serving.answer(serving.direct) == str(release)
    eventually(lambda: serving.answer(serving.nginx) == str(release), f"release {release} answers nginx")


def upgrade(serving: Deployment) -> int:
    old = serving.main()
    serving.systemctl("kill", "--signal=USR2", "--kill-whom=main", "stanchion.service")
    eventually(lambda: serving.main() != old, "another process is the main one")
    eventually(lambda: not serving.guest.path(f"/proc/{old}").exists(), "the old master leaves")
    return serving.main()


def test_after_an_upgrade_a_stop_lets_requests_end(serving: Deployment, load: Load) -> None:
    for release in range(2, 2 + RESTARTS):
        serving.release(release)
        upgrade(serving)
        assert [serving.answer(address) for address in (serving.nginx, serving.direct)] == [str(release)] * 2
        load.more()
    serving.release(9)
    serving.systemctl("reload", "stanchion.service")
    answers_by_release(serving, 9)
    load.more()
    load.assert_no_failure()
    assert_stops(serving)
    assert "not our child" not in serving.journal()


def test_a_stop_lets_requests_end(serving: Deployment) -> None:
    assert_stops(serving)


def assert_stops(serving: Deployment) -> None:
    """Stop the service with requests in flight: each is answered."""
    main = serving.main()
    wires = serving.held()
    stop = serving.guest.start("systemctl", "stop", "stanchion.socket", "stanchion.service")
    serving.logged("TERM: draining, then leaving")
    # It waits for them: nothing else keeps it.
    assert (serving.state(), serving.main()) == ("deactivating", main)
    serving.gate.let_pass(len(wires))
    assert [wire.response().status for wire in wires] == [200] * len(wires)
    for wire in wires:
        wire.close()
    assert (stop.communicate(timeout=guest.COMMAND_S), stop.returncode) == (("", ""), 0)
    assert serving.shown("ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert "SIGKILL" not in serving.journal()


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_a_master_that_dies_or_hangs_is_replaced_and_clients_that_come_meanwhile_are_answered(
    deployment: Deployment, signal: str
) -> None:
    if signal == "STOP":
        watch_closely(deployment)
    deployment.systemctl("start", "stanchion.socket", "stanchion.service")
    main = deployment.main()
    with ExitStack() as stack:
        load = deployment.load(stack)
        load.more()
        deployment.systemctl("kill", f"--signal={signal}", "--kill-whom=main", "stanchion.service")
        eventually(lambda: deployment.shown("NRestarts") == ["1"], "it is started again", ENDED_S)
        eventually(lambda: deployment.state() == "active", "it serves", ENDED_S)
        assert deployment.main() != main
        load.more()
    # systemd kills what is left of a service whose main process is dead, with what was in flight.
    assert load.failed() <= load.clients()
    assert deployment.shown("NRestarts") == ["1"]
    reason = "Watchdog timeout" if signal == "STOP" else "code=killed, status=9/KILL"
    assert reason in deployment.journal()


def watch_closely(deployment: Deployment) -> None:
    """Set a watchdog of a few seconds, in place of 30."""
    folder = deployment.guest.path("/etc/systemd/system/stanchion.service.d")
    folder.mkdir()
    (folder / "watchdog.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
    deployment.systemctl("daemon-reload")


def test_after_an_upgrade_the_watchdog_watches_the_new_master(deployment: Deployment) -> None:
    watch_closely(deployment)
    deployment.systemctl("start", "stanchion.socket", "stanchion.service")
    new = upgrade(deployment)
    for _ in range(3):
        [last] = deployment.shown("WatchdogTimestampMonotonic")
        eventually(  # type: ignore[misc]
            lambda last=last: deployment.shown("WatchdogTimestampMonotonic") != [last], "it says that it lives", ENDED_S
        )
    assert (deployment.shown("NRestarts"), deployment.main()) == (["0"], new)
    deployment.systemctl("kill", "--signal=STOP", "--kill-whom=main", "stanchion.service")
    eventually(lambda: deployment.shown("NRestarts") == ["1"], "it is started again", ENDED_S)
    eventually(lambda: deployment.state() == "active", "it serves", ENDED_S)
    assert [deployment.answer(address) for address in (deployment.nginx, deployment.direct)] == ["1", "1"]
    assert "Watchdog timeout" in deployment.journal()


def test_while_an_app_cannot_be_imported_clients_are_told_so_and_its_correction_serves(deployment: Deployment) -> None:
    deployment.systemctl("start", "stanchion.socket")
    deployment.release(1, BROKEN)
    assert deployment.systemctl("start", "stanchion.service", check=False) == 1
    assert deployment.shown("Result", "ExecMainStatus") == ["exit-code", str(EXIT_APP_LOAD)]
    assert "there_is_no_such_module" in deployment.journal()
    with ExitStack() as stack:
        load = deployment.load(stack, fine=(200, 503))
        # More often than systemd would by itself (StartLimitBurst= in systemd.unit(5)).
        eventually(lambda: int(deployment.shown("NRestarts")[0]) > STARTS_MAX, "it is tried again and again", 60)
        for address in (deployment.nginx, deployment.direct):
            with deployment.ask(address) as wire:
                assert wire.response().status == 503
        deployment.release(2)
        eventually(lambda: deployment.state() == "active", "it serves", 60)
        load.more()
    load.assert_no_failure()
    assert [deployment.answer(address) for address in (deployment.nginx, deployment.direct)] == ["2", "2"]
