"""The example for logrotate: no line is lost, and what comes later is in a new file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import missing
from support.address import Address
from support.patience import PATIENCE_S, eventually
from support.server import Serve

pytestmark = pytest.mark.own("the example is stanchion's")

EXAMPLE = Path(__file__).parents[2] / "examples" / "logrotate" / "stanchion"
REQUESTS = 200


def by_hand(rotation: str, logs: list[Path]) -> None:
    """Rename and run the script, as logrotate does."""
    for log in logs:
        log.rename(f"{log}.1")
    script = re.search(r"postrotate\n(.*?)endscript", rotation, re.DOTALL)
    assert script
    subprocess.run(["sh", "-ec", script[1]], check=True, timeout=3 * PATIENCE_S)


def by_logrotate(rotation: str, logs: list[Path]) -> None:
    home = logs[0].parent.parent
    (home / "rotation").write_text(rotation)
    (home / "rotation").chmod(0o644)
    subprocess.run(
        ["logrotate", "--force", "--state", home / "state", home / "rotation"], check=True, timeout=3 * PATIENCE_S
    )


MISSING = missing.allowed("" if shutil.which("logrotate") else "logrotate is not installed")
WAYS = [by_hand, pytest.param(by_logrotate, marks=pytest.mark.skipif(bool(MISSING), reason=MISSING))]


@pytest.mark.parametrize("rotate", WAYS)
def test_the_example_rotates_both_logs(rotate, build: Serve, tmp_path: Path) -> None:
    directory, control, address = tmp_path / "logs", tmp_path / "ctl", f"unix:{tmp_path}/s"
    directory.mkdir(mode=0o755)
    logs = [directory / "access.log", directory / "error.log"]
    files = ("--access-logfile", str(logs[0]), "--error-logfile", str(logs[1]))
    server = build("hello:app", *files, "--control", f"unix:{control}", bind=address).launch()
    server.addresses = [Address.parse(address)]
    eventually(lambda: logs[1].exists() and "ready: " in logs[1].read_text(), "it serves")
    rotation = EXAMPLE.read_text()
    for shipped, ours in (
        ("/var/log/stanchion/", f"{directory}/"),
        ("/srv/app/.venv/bin/stanchion", f"{sys.executable} -m stanchion"),
        ("/run/stanchion/control/socket", str(control)),
    ):
        assert shipped in rotation
        rotation = rotation.replace(shipped, ours)
    with server.connect() as wire:
        for number in range(REQUESTS):
            if number == REQUESTS // 2:
                rotate(rotation, logs)
            assert wire.get(f"/?{number}").status == 200

    def logged() -> list[str]:
        there = [path for path in (Path(f"{logs[0]}.1"), logs[0]) if path.exists()]
        return re.findall(r"GET /\?(\d+)", "".join(path.read_text() for path in there))

    eventually(lambda: len(logged()) == REQUESTS, "all lines are there")
    assert logged() == [str(number) for number in range(REQUESTS)]
    assert logs[0].read_text() and "is reopened" in logs[1].read_text()
