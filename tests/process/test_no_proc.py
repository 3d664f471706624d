"""A system on which proc(5) is not mounted, such as a bare chroot."""

from pathlib import Path

import pytest

from support import unshare
from support.server import Serve

EXIT_USAGE = 2

WITHOUT_PROC = unshare.with_disk("/proc")
WHY_NOT = unshare.unavailable(WITHOUT_PROC)

pytestmark = [
    pytest.mark.own("gunicorn needs /proc for other things"),
    pytest.mark.privileges,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]


def test_the_start_stops_before_a_client_can_wait(build: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = build("hello:app", bind=f"unix:{path}", prefix=WITHOUT_PROC).launch()
    assert server.exit_code() == EXIT_USAGE
    server.log.wait_end()
    assert "/proc is not mounted" in server.log.text()
    assert "listening at" not in server.log.text()
    assert not path.exists()
