"""gunicorn's units with `stanchion serve` in them, as docs/migrating/from-gunicorn.md has them, under systemd."""

from pathlib import Path

import pytest

from support import deployment as deployments
from support import guest
from support.address import Address
from support.deployment import UNITS
from support.example import EXAMPLES
from support.patience import eventually

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.own("the units are stanchion's"),
    pytest.mark.skipif(bool(guest.not_here()), reason=f"NOT TESTED UNDER SYSTEMD: {guest.not_here()}"),
]


def test_they_start_reload_and_stop(tmp_path: Path) -> None:
    with deployments.installed(tmp_path / "guest") as deployment:
        for unit in ("gunicorn.service", "gunicorn.socket"):
            text = (EXAMPLES / "migrating/gunicorn" / unit).read_text()
            deployment.guest.path(f"{UNITS}/{unit}").write_text(text)
        deployment.systemctl("daemon-reload")
        address = Address(path=str(deployment.guest.path("/run/gunicorn.sock")))
        deployment.systemctl("start", "gunicorn.socket")
        # The operator has not started the service: the first client does.
        assert deployment.answer(address) == "1"
        main = deployment.guest.show("gunicorn.service", "MainPID")
        deployment.release(2)
        deployment.systemctl("reload", "gunicorn.service")
        eventually(lambda: deployment.answer(address) == "2", "the new code serves")
        assert deployment.guest.show("gunicorn.service", "MainPID") == main
        assert set(deployment.guest.owners("stanchion serve")) == {"www-data"}
        with deployment.ask(address, "/held") as wire:
            assert deployment.gate.announcement() == "held"
            stop = deployment.guest.start("systemctl", "stop", "gunicorn.socket", "gunicorn.service")
            journal = "TERM: draining, then leaving"
            eventually(lambda: journal in deployment.guest.journal("gunicorn.service"), "it drains")
            deployment.gate.let_pass(1)
            assert wire.response().status == 200
        assert (stop.communicate(timeout=guest.COMMAND_S), stop.returncode) == (("", ""), 0)
        assert deployment.guest.show("gunicorn.service", "Result") == "success"
