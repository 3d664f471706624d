"""A browser without a window that asks no server but the test's."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import processes
from support.patience import eventually

CHROMIUM = shutil.which("chromium")
NEEDS_CHROMIUM = pytest.mark.skipif(not CHROMIUM, reason="NOT TESTED IN A BROWSER: chromium is not installed")
BROWSER_PATIENCE_S = 60
"""A start makes a profile, on a machine that is busy with other tests."""


@contextmanager
def browser(
    url: str,
    *switches: str,
    output: int = subprocess.DEVNULL,
    prefix: Sequence[str] = (),
    pass_fds: tuple[int, ...] = (),
) -> Iterator[subprocess.Popen[str]]:
    """Looks at a page. Everything it does in the background is switched off, and what it leaves behind is removed.

    `prefix` are words before the command, which may give the descriptors `pass_fds` other numbers.
    """
    assert CHROMIUM
    # Not in a test's own folder: the name of the socket in there would be too long (unix(7)).
    with tempfile.TemporaryDirectory(prefix="chromium-") as home:
        every = [
            *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking"),
            *("disable-component-update", "disable-sync", f"user-data-dir={Path(home) / 'profile'}", *switches),
        ]
        process = subprocess.Popen(
            [*prefix, CHROMIUM, *(f"--{switch}" for switch in every), url],
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
            pass_fds=pass_fds,
            env={**os.environ, "TMPDIR": home},
        )
        try:
            yield process
        finally:
            try:
                process.terminate()
                eventually(lambda: process.poll() is not None, "the browser ends")
            finally:
                for left in processes.of_session(process.pid):
                    processes.kill(left)
                process.communicate()
                eventually(lambda: not processes.of_session(process.pid), "its processes end")


def browse(url: str, *switches: str) -> tuple[str, str]:
    """The browser's stdout and its stderr."""
    with browser(url, *switches, output=subprocess.PIPE) as process:
        printed, complaints = process.communicate(timeout=BROWSER_PATIENCE_S)
    assert process.returncode == 0, complaints
    return printed, complaints
