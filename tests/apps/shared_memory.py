"""The memory that a worker shares with the acceptor, for apps that write to it as a wild pointer would."""

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

PAGE_BYTES = 4096


class Mapping(NamedTuple):
    """Its place among a process's addresses, and the way to it past all types."""

    start: int
    length: int
    memory: BinaryIO

    def read(self, offset: int, length: int) -> bytes:
        self.memory.seek(self.start + offset)
        wanted = length
        parts = []
        # One read(2) gives no more than a page of another's memory at a time on some kernels.
        while wanted and (part := self.memory.read(wanted)):
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        self.memory.seek(self.start + offset)
        self.memory.write(data)

    def find(self, what: bytes) -> list[int]:
        """Where it stands. Most of the memory was never written to: reading that would have it made."""
        return [start + place for start, data in self.written() for place in find(what, data)]

    def written(self) -> Iterator[tuple[int, bytes]]:
        """Stretches of pages that are there, by mincore(2)."""
        # Most apps never ask for this.
        import ctypes

        pages = ctypes.create_string_buffer(self.length // PAGE_BYTES)
        if ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(self.start), ctypes.c_size_t(self.length), pages):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        for is_there, run in itertools.groupby(enumerate(pages.raw), lambda page: page[1] & 1):
            if is_there:
                numbers = [number for number, _ in run]
                yield numbers[0] * PAGE_BYTES, self.read(numbers[0] * PAGE_BYTES, len(numbers) * PAGE_BYTES)

    def replace(self, old: bytes, new: bytes, near: bytes) -> None:
        """Write over the `old` within a page of `near`, which stands nowhere else."""
        assert len(old) == len(new), "nothing else may move"
        (place,) = self.find(near)
        start = max(0, place - PAGE_BYTES)
        (place,) = find(old, self.read(start, 2 * PAGE_BYTES))
        self.write(start + place, new)


def find(what: bytes, where: bytes) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(what), where)]


@contextmanager
def exchange() -> Iterator[Mapping]:
    """This process's exchange (proc(5): maps and mem)."""
    with open("/proc/self/maps") as file:
        maps = file.read()
    found = re.search(r"^([0-9a-f]+)-([0-9a-f]+) .*stanchion-exchange", maps, re.MULTILINE)
    assert found, "the shared memory has another name"
    start, end = int(found[1], 16), int(found[2], 16)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        yield Mapping(start, end - start, memory)
