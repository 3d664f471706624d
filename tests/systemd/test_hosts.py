"""The template unit for several hosts, under Debian's systemd on one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import deployment as deployments
from support import guest
from support.address import Address
from support.deployment import EXAMPLES, UNITS, Deployment
from support.patience import PATIENCE_S, eventually
from support.wire import Wire

UNIT = "stanchion@app.service"
ADDRESS = "127.0.0.1"
HTTP, ADMIN = Address(ADDRESS, 8000), Address(ADDRESS, 8299)
DELAY_S = 5

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.own("the unit is stanchion's"),
    pytest.mark.skipif(bool(guest.not_here()), reason=f"NOT TESTED UNDER SYSTEMD: {guest.not_here()}"),
]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Deployment]:
    with deployments.installed(tmp_path / "guest") as host:
        host.guest.path(f"{UNITS}/stanchion@.service").write_bytes(
            (EXAMPLES / "systemd/stanchion@.service").read_bytes()
        )
        host.guest.path("/etc/stanchion").mkdir()
        host.guest.path("/etc/stanchion/app.env").write_text(
            f"ADDRESS={ADDRESS}\nPORT={HTTP.port}\nADMIN_PORT={ADMIN.port}\nAPP=module:app\nWEB_CONCURRENCY=2\n"
        )
        host.systemctl("daemon-reload")
        host.systemctl("enable", "--now", UNIT)
        yield host
        print(host.guest.journal(UNIT))


def ready(host: Deployment) -> int:
    """What a balancer's health check is answered."""
    with host.guest.inside(lambda: Wire.connect(ADMIN)) as wire:
        return wire.get("/ready").status


def test_a_restart_serves_until_the_balancer_has_noticed_and_reload_needs_no_notice(host: Deployment) -> None:
    assert (host.answer(HTTP), ready(host)) == ("1", 200)
    host.release(2)
    host.systemctl("reload", UNIT)
    assert (host.answer(HTTP), ready(host)) == ("2", 200)
    host.release(3)
    with host.guest.start("systemctl", "restart", UNIT) as restarting:
        eventually(lambda: f"TERM: draining in {DELAY_S} s" in host.guest.journal(UNIT), "the delay has begun")
        assert (ready(host), host.answer(HTTP)) == (503, "2")
        restarting.communicate(timeout=DELAY_S + 2 * PATIENCE_S)
    assert restarting.returncode == 0
    # restart has returned, so the next host may be restarted.
    assert (host.answer(HTTP), ready(host)) == ("3", 200)
    assert "SIGKILL" not in host.guest.journal(UNIT)
    assert host.guest.show(UNIT, "DynamicUser") == "yes"
