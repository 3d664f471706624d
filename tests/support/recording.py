"""A reader of recordings of arrivals that knows docs/recording.md and nothing of the server's own reader."""

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER = struct.Struct("<8sIIIIQQ")
RECORD = struct.Struct("<QQIIIIIIIHHHHBBBBII")
RECORD_BYTES = 64
UNMEASURED = 0xFFFF_FFFF

KINDS = ("request", "ready", "gone", "wanted", "leaves")
ENDS = (
    "served",
    "line full",
    "timed out",
    "left waiting",
    "left seated",
    "failed",
    "refused",
    "client full",
    "shed",
)


@dataclass(frozen=True)
class Record:
    number: int
    at_us: int
    front_us: int
    wait_us: int
    service_us: int
    cpu_us: int
    core_us: int
    gil_us: int
    client: int
    busy: int
    waiting: int
    worker: int
    status: int
    lane: int
    kind: str
    end: str
    left_seat: bool


@dataclass(frozen=True)
class Recording:
    """One file."""

    writer: int
    begun_us: int
    settings: dict[str, Any]
    records: list[Record]
    unreadable: int

    def requests(self) -> list[Record]:
        return [record for record in self.records if record.kind == "request"]

    def events(self) -> list[tuple[str, int, int]]:
        """Kind, the worker's number plus 1, and how many workers there are then."""
        return [(one.kind, one.worker, one.busy) for one in self.records if one.kind != "request"]


def read(directory: Path) -> list[Recording]:
    """The files of a recording, in the order in which they were begun."""
    paths = sorted(path for path in directory.iterdir() if path.suffix == ".rec")
    return [read_file(path.read_bytes()) for path in paths]


def read_file(content: bytes) -> Recording:
    magic, version, header_bytes, record_bytes, json_bytes, writer, begun_us = HEADER.unpack_from(content)
    assert (magic, version, record_bytes) == (b"STNCHARR", 1, RECORD_BYTES)
    assert header_bytes % 4096 == 0
    settings = json.loads(content[HEADER.size : HEADER.size + json_bytes])
    rest = content[header_bytes:]
    pieces = [rest[at : at + RECORD_BYTES] for at in range(0, len(rest), RECORD_BYTES)]
    whole = [piece for piece in pieces if len(piece) == RECORD_BYTES and is_whole(piece)]
    return Recording(writer, begun_us, settings, [record(piece) for piece in whole], len(pieces) - len(whole))


def is_whole(piece: bytes) -> bool:
    return zlib.crc32(piece[:60]) == int.from_bytes(piece[60:], "little")


def record(piece: bytes) -> Record:
    *fields, lane, kind, end, flags, _, _ = RECORD.unpack(piece)
    return Record(*fields, lane, KINDS[kind], ENDS[end], bool(flags & 1))


def requests(files: Iterable[Recording]) -> list[Record]:
    return [record for file in files for record in file.requests()]
