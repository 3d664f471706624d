"""A system on which proc(5) is not mounted, such as a bare chroot."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.server import Serve

EXIT_USAGE = 2

# An empty directory in the place of /proc, in a mount namespace that ends with the server. An ordinary user may do it
# in a user namespace of its own (user_namespaces(7)).
OWN = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
WITHOUT_PROC = [*OWN, "sh", "-ec", 'mount -t tmpfs none /proc; exec "$@"', "sh"]


def not_here() -> str:
    """Why there can be no such namespace, or "" if there can."""
    if not shutil.which("unshare"):
        return "unshare (util-linux) is not installed"
    done = subprocess.run([*WITHOUT_PROC, "true"], capture_output=True, text=True)
    return f"cannot mount in a namespace of its own: {done.stderr.strip()}" if done.returncode else ""


pytestmark = [
    pytest.mark.own("gunicorn needs /proc for other things"),
    pytest.mark.privileges,
    pytest.mark.skipif(bool(not_here()), reason=not_here()),
]


def test_the_start_stops_before_a_client_can_wait(build: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = build("hello:app", bind=f"unix:{path}", prefix=WITHOUT_PROC).launch()
    assert server.exit_code() == EXIT_USAGE
    server.log.wait_end()
    assert "/proc is not mounted" in server.log.text()
    assert "listening at" not in server.log.text()
    assert not path.exists()
