"""An access log as arrivals: when each request of the app came, how long it was at its seat, and how long it waited.

Bounds: a line has at most LINE_BYTES_MAX, and at most REQUESTS_MAX requests are taken. Lines that are longer, or say
what cannot be, are left out and counted.
"""

import math
import os
import random
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import chain, islice
from typing import Any, BinaryIO, NamedTuple

from stanchion.plan.log_format import Fields, LineFormat, recognised
from stanchion.plan.quantities import TIME_US_MAX

LINE_BYTES_MAX = 65_536
REQUESTS_MAX = 1_000_000
LANES_MAX = 32
"""As many as a server has."""
FIRST_LINES = 100
"""The format is recognised from them."""

_MOMENT_US_MAX = 2**52
"""In the year 2112: what is beyond it is no time of a log."""
_SECOND_US = 1_000_000
_WORKERS_MAX = 4_096
_LANE = re.compile(r"[a-z0-9_-]{1,32}")
"""A lane's name, as the setting `lane` has it."""
_STEP_LINES = 10_000
"""Between two reports of progress."""

SERVED, LINE_FULL, TIMED_OUT, LEFT_WAITING, LEFT_RUNNING, KILLED, REFUSED, TOO_MANY_OF_CLIENT, SHED = range(9)

_OUTCOMES = {
    "refused_line_full": LINE_FULL,
    "refused_waited_too_long": TIMED_OUT,
    "abandoned_waiting": LEFT_WAITING,
    "abandoned_handed_out": LEFT_WAITING,
    "abandoned_running": LEFT_RUNNING,
    "refused_worker_died": KILLED,
    "refused_worker_timed_out": KILLED,
    "refused_shed": SHED,
    "refused_too_many_of_client": TOO_MANY_OF_CLIENT,
    "refused_sessions_full": REFUSED,
    "refused_worker_absent": REFUSED,
}
"""Outcomes of stanchion's log. With another one a request was served if it was at a seat, or else not the app's."""

_UNKNOWN = -1
"""In columns of numbers that are not negative."""
_UNKNOWN_TEXT = " -1"


class _Malformed(Exception):
    """The line says what cannot be."""


class _NotForApp(Exception):
    """The front, or the server itself, has answered."""


class _Request(NamedTuple):
    arrived_us: int | None
    """None if the log has only its end."""
    ended_us: int
    is_whole_second: bool
    """Its end is known to the second."""
    took_us: int
    """From its arrival to its end."""
    rest: tuple[int, ...]
    """The other columns."""


class Log:
    """The requests of a log: a column for each value, so that a million of them fit into memory."""

    def __init__(self, format: LineFormat) -> None:
        self.format = format
        self.lanes = ["default"]
        self.columns = {name: array("q") for name in ("at", "service", "cpu", "lane", "client", "wait", "outcome")}
        self.skipped: Counter[str] = Counter()
        """Lines without a request, by the reason."""
        self.workers = 0
        """The most that the log names, or 0."""
        self.has_whole_seconds = False
        self.is_cut = False
        """There are more than REQUESTS_MAX."""

    def __len__(self) -> int:
        return len(self.columns["at"])

    @property
    def has_waits(self) -> bool:
        return any(one != _UNKNOWN for one in self.columns["wait"])

    def json(self) -> str:
        """A list of lists, as the engine takes it. Lists in memory would take ten times as much."""
        rows = zip(*self.columns.values(), strict=True)
        return "[" + ",".join(str(list(row)).replace(_UNKNOWN_TEXT, " null") for row in rows) + "]"


def read(
    file: BinaryIO, format: LineFormat | None, within_us: tuple[int, int], progress: Callable[[float], None]
) -> Log:
    """The requests that arrived within these moments. Unreadable, if the log has no format with times in it."""
    skipped: Counter[str] = Counter()
    lines = _lines(file, skipped, progress)
    first = list(islice(lines, FIRST_LINES))
    log = Log(format or recognised(first))
    log.skipped = skipped
    pending: list[_Request] = []
    # Of times to the second the order of lines is all that is known, so a second is spread when it is over.
    draw = random.Random(1)
    for line in chain(first, lines):
        if len(log) + len(pending) >= REQUESTS_MAX:
            log.is_cut = True
            break
        request = _request_of(log, line)
        if request is None:
            continue
        if pending and (not request.is_whole_second or request.ended_us != pending[0].ended_us):
            _spread(log, pending, draw, within_us)
            pending = []
        if request.is_whole_second:
            log.has_whole_seconds = True
            pending.append(request)
        else:
            _add(log, request, 0, within_us)
    _spread(log, pending, draw, within_us)
    return log


def _lines(file: BinaryIO, skipped: Counter[str], progress: Callable[[float], None]) -> Iterator[str]:
    """Each line without its end. Of a line that is too long none of its parts is one."""
    size = os.fstat(file.fileno()).st_size
    taken, number, is_rest = 0, 0, False
    while data := file.readline(LINE_BYTES_MAX):
        taken += len(data)
        number += 1
        if number % _STEP_LINES == 0:
            progress(min(1.0, taken / size) if size else 0.0)
        is_whole = data.endswith(b"\n") or len(data) < LINE_BYTES_MAX
        if is_whole and not is_rest:
            if line := data.decode("utf-8", "replace").rstrip("\r\n"):
                yield line
        elif is_whole:
            skipped["too long"] += 1
        is_rest = not is_whole
    if is_rest:
        skipped["too long"] += 1


def _request_of(log: Log, line: str) -> _Request | None:
    fields = log.format.read(line)
    if fields is None:
        log.skipped["in another format"] += 1
        return None
    try:
        return _request(log, fields)
    except _Malformed:
        log.skipped["with times that cannot be"] += 1
    except _NotForApp:
        log.skipped["not for the app"] += 1
    return None


def _request(log: Log, fields: Fields) -> _Request:
    took_us = _took_us(fields)
    service_us = _service_us(fields, took_us)
    took_us = service_us if took_us is None else took_us
    outcome = _outcome(fields, service_us)
    wait_us = _micros(fields, "wait_us")
    cpu_us = _micros(fields, "cpu_us")
    rest = [_UNKNOWN if one is None else one for one in (service_us, cpu_us)]
    rest += [_lane(log, fields.get("lane")), _client(fields.get("client"))]
    rest += [_UNKNOWN if wait_us is None else wait_us, outcome]
    worker = _number(fields, "worker", 1, _WORKERS_MAX)
    log.workers = max(log.workers, 0 if worker is None else worker + 1)
    arrived_us = _number(fields, "arrived_us", 1, _MOMENT_US_MAX)
    if arrived_us is not None:
        return _Request(arrived_us, 0, False, 0, tuple(rest))
    if took_us is None:
        raise _Malformed
    ended_us, is_whole_second = _ended_us(fields)
    return _Request(None, ended_us, is_whole_second, took_us, tuple(rest))


def _took_us(fields: Fields) -> int | None:
    for name, unit_us in (("took_us", 1), ("took_ms", 1e3), ("took_s", 1e6)):
        if (took_us := _micros(fields, name, unit_us)) is not None:
            return took_us
    return None


def _service_us(fields: Fields, took_us: int | None) -> int | None:
    """At its seat. Of nginx that is the answer of the last server that it asked; None if the request had no seat."""
    if "service_us" in fields:
        return _micros(fields, "service_us")
    if "upstream_s" not in fields:
        return took_us
    last = str(fields["upstream_s"]).replace(" : ", ", ").split(", ")[-1]
    if last in ("-", "", "None"):
        raise _NotForApp
    return _micros({"upstream_s": last}, "upstream_s", 1e6)


def _outcome(fields: Fields, service_us: int | None) -> int:
    outcome = _OUTCOMES.get(str(fields.get("outcome")), SERVED)
    if service_us is None and outcome == SERVED:
        raise _NotForApp
    return outcome


def _ended_us(fields: Fields) -> tuple[int, bool]:
    """When the line was written, and whether that is known to the second."""
    second = _number(fields, "msec", _SECOND_US, _MOMENT_US_MAX)
    if second is not None:
        return second, False
    try:
        if "time_iso8601" in fields:
            text = str(fields["time_iso8601"])
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        else:
            text = str(fields["time_local"])
            moment = datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")
        at_us = round(moment.timestamp() * 1e6)
    except (KeyError, ValueError, OverflowError, OSError) as error:
        raise _Malformed from error
    if not 0 <= at_us <= _MOMENT_US_MAX:
        raise _Malformed
    return at_us, "." not in text


def _micros(fields: Fields, name: str, unit_us: float = 1) -> int | None:
    return _number(fields, name, unit_us, TIME_US_MAX)


def _number(fields: Mapping[str, Any], name: str, unit: float, most: int) -> int | None:
    """A number in whole units, or None. _Malformed, if it is negative, not finite, or more than `most`."""
    value = fields.get(name)
    if value is None or value == "-":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Malformed
    try:
        number = float(value) * unit
    except (ValueError, OverflowError) as error:
        raise _Malformed from error
    if not (math.isfinite(number) and 0 <= number <= most):
        raise _Malformed
    return round(number)


def _lane(log: Log, name: object) -> int:
    if not isinstance(name, str) or name in ("", "-"):
        return 0
    if name not in log.lanes:
        if len(log.lanes) >= LANES_MAX or not _LANE.fullmatch(name):
            raise _Malformed
        log.lanes.append(name)
    return log.lanes.index(name)


def _client(address: object) -> int:
    """A number that is the same for the same client."""
    is_known = isinstance(address, str) and address not in ("", "-")
    return zlib.crc32(str(address).encode("utf-8", "replace")) if is_known else 0


def _spread(log: Log, pending: list[_Request], draw: random.Random, within_us: tuple[int, int]) -> None:
    """Requests that ended in the same second, at moments drawn in the order of their lines."""
    moments = sorted(draw.randrange(_SECOND_US) for _ in pending)
    for request, later_us in zip(pending, moments, strict=True):
        _add(log, request, later_us, within_us)


def _add(log: Log, request: _Request, later_us: int, within_us: tuple[int, int]) -> None:
    at_us = request.arrived_us
    if at_us is None:
        at_us = max(0, request.ended_us + later_us - request.took_us)
    if not within_us[0] <= at_us < within_us[1]:
        return
    for column, value in zip(log.columns.values(), (at_us, *request.rest), strict=True):
        column.append(value)
