"""Releases of an app, one after the other in one place, as a deploy brings them."""

import os
from pathlib import Path

from support.address import Address
from support.wire import Wire

APP = """\
import os
import time
{before}
def app(environ, start_response):
    # So that there is always one that runs.
    time.sleep(0.003)
    start_response("200 OK", [("Content-Type", "text/plain")])
    # The worker's parent is the master.
    return [b"{release} %d" % os.getppid()]
"""


class Releases:
    """The module `released:app` in a directory, which answers its release and the pid of its master."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def put(self, release: int, before: str = "") -> None:
        """Put a release there, whole at once; `before` is what its module does while it is imported."""
        path = self.directory / "released.py"
        beside = self.directory / "released.new"
        beside.write_text(APP.format(release=release, before=before))
        os.replace(beside, path)

    @property
    def arguments(self) -> list[str]:
        return ["--pythonpath", str(self.directory)]


def answer(address: Address) -> tuple[int, int]:
    """Release and master that answer on a new connection."""
    with Wire.connect(address) as wire:
        response = wire.get("/", "Connection: close")
        assert response.status == 200, response.body
        release, master = response.text.split()
        return int(release), int(master)
