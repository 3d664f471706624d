"""The clock of a server under test, which the test can set forward."""

import mmap
import struct
from pathlib import Path

US = 1_000_000


class Clock:
    """How far the clock of one server is ahead of the kernel's, which is the file that `STANCHION_CLOCK` names.

    All processes of the server read it (crates/stanchion-sys/src/clock.rs), so `advance` brings every deadline of the
    server closer. Python code in a worker does not read it, and the clock on the wall does not follow it.
    """

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(8))
        self._path = path
        with path.open("r+b") as file:
            self._ahead_us = mmap.mmap(file.fileno(), 8)

    @property
    def environment(self) -> dict[str, str]:
        return {"STANCHION_CLOCK": str(self._path)}

    def advance(self, by_s: float) -> None:
        [ahead_us] = struct.unpack("=Q", self._ahead_us)
        # One store of eight aligned bytes: a server never reads half of it.
        memoryview(self._ahead_us).cast("Q")[0] = ahead_us + round(by_s * US)

    def close(self) -> None:
        self._ahead_us.close()
