"""The document of `/status`, checked: any process may listen at that address, and have written it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

# The length of any list in it: no server has as many seats, and no person reads more on a screen.
LIST_MAX = 0xFFFF

# Figures beyond this are no figures.
FIGURE_MAX = 2**64

# The counts of one object, and the characters of the name of one.
COUNTS_MAX = 256
NAME_MAX = 64

T = TypeVar("T")


class Unexpected(Exception):
    """The document is not that of a stanchion of this version; the text says where it differs."""


@dataclass(frozen=True)
class Lane:
    name: str
    priority: int
    waiting: int
    waiting_max: int | None
    """None where it shares the bound of the whole line."""
    oldest_wait_us: int
    in_exchange: int
    seats_reserved: int
    seats_max: int | None
    """None where it may have as many as are free."""
    drain_per_s: float
    over_target: bool
    """The oldest has waited for longer than queue_target."""


@dataclass(frozen=True)
class Line:
    waiting: int
    waiting_max: int
    oldest_wait_us: int
    over_target: bool
    """The oldest has waited for longer than queue_target."""
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class Standstill:
    """Why the line stands."""

    since_s: float
    why: str
    """The reason: one sentence, without a full stop."""
    waiting: int
    """Requests that no seat has taken."""


@dataclass(frozen=True)
class Elastic:
    """A number of workers that follows the line."""

    min: int
    max: int
    wanted: int
    pinned: bool
    """A command has fixed the number."""
    held_back: str | None
    """The bound that keeps the number from growing while requests wait."""


@dataclass(frozen=True)
class Seat:
    worker: int
    seat: int
    pid: int | None
    nth: int
    """Its worker is the n-th that has this number."""
    state: str
    running_us: int | None
    method: str | None
    path: str | None
    served: int
    busy_us: int


@dataclass(frozen=True)
class Loop:
    """The event loop of a worker."""

    worker: int
    pid: int
    busy: int
    """Requests that it runs, of as many as it has seats."""
    seats: int
    lag_us: int
    """How late it is, or was the last time."""
    lag_max_us: int
    sessions: int | None
    """WebSockets that it has open; None under gevent, where there are none."""


@dataclass(frozen=True)
class Listener:
    address: str
    backlog_asked: int | None
    backlog: int | None
    queued: int | None


@dataclass(frozen=True)
class Certificate:
    """A certificate that the server shows to TLS clients."""

    certfile: str
    subject: str
    not_before_s: int
    """The first and the last second in which clients accept it, since 1970."""
    not_after_s: int


@dataclass(frozen=True)
class Histogram:
    """Since the server's start."""

    count: int
    sum_us: int
    max_us: int
    p50_us: int
    p90_us: int
    p99_us: int
    buckets: tuple[tuple[float, int], ...]
    """Pairs of an upper end in µs and the count of all up to it; the last has no end."""


@dataclass(frozen=True)
class Causes:
    """The recent requests' time by cause."""

    verdict: str
    """One word for what is full, or would help; `unknown` if no request was measured of late."""
    words: str
    """The same in words, with the figures."""
    recent_us: Mapping[str, int]
    """By cause: `line`, `core`, `gil`, `cpu` and `elsewhere`."""


@dataclass(frozen=True)
class Status:
    """One look at a server."""

    version: str
    pid: int
    acceptor_pid: int
    uptime_s: float
    now_us: int
    """By the host's monotonic clock, so that it goes on across acceptors."""
    generation: int
    state: str
    ready: bool
    not_ready_because: str | None
    line: Line
    standstill: Standstill | None
    """None while the line moves, or is empty."""
    elastic: Elastic | None
    """None if the settings say one number of workers; also of a version without ranges."""
    seats: tuple[Seat, ...]
    """With event loops only the busy seats."""
    seat_counts: Mapping[str, int]
    """`busy`, `idle` and `empty`."""
    loops: tuple[Loop, ...]
    """None if workers run threads."""
    memory_bytes: Mapping[int, int | None]
    """By the process of the worker."""
    listeners: tuple[Listener, ...]
    connections: Mapping[str, int]
    certificates: tuple[Certificate, ...]
    requests: Mapping[str, int]
    """`arrived`, `in_flight`, and the count of each outcome."""
    events: Mapping[str, int]
    wait: Histogram
    service: Histogram
    running: Histogram
    """For how long those that run at this moment have run."""
    seats_stuck_us: int
    """For how long no seat has taken a request while all were busy."""
    restarts: Mapping[str, int]
    seats_wanted: float | None
    """By the rate of the last ten seconds, which can be added up over hosts; None of a version without it."""
    causes: Causes | None
    """None of a version without it."""

    @property
    def has_websockets(self) -> bool:
        """Whether the app may have some."""
        return any(loop.sessions is not None for loop in self.loops)


def parse(data: object) -> Status:
    """The status in a JSON value. Keys that are not known here are ignored. Unexpected, if it is none."""
    top = Reader(data, "the answer")
    server = top.inner("server")
    return Status(
        version=top.text("version"),
        pid=top.count("pid"),
        acceptor_pid=top.count("acceptor_pid"),
        uptime_s=top.number("uptime_s"),
        now_us=top.count("now_us"),
        generation=top.count("generation"),
        state=top.text("state"),
        ready=top.flag("ready"),
        not_ready_because=top.text_or_none("not_ready_because"),
        line=_line(top.inner("line")),
        standstill=None if top.is_none("standstill") else _standstill(top.inner("standstill")),
        elastic=_elastic(top.inner("elastic")) if top.has("elastic") and not top.is_none("elastic") else None,
        seats=top.each("seats", _seat),
        seat_counts=top.inner("seat_counts").counts(),
        loops=tuple(one for one in top.each("workers", _loop) if one is not None),
        memory_bytes=dict(top.each("workers", _memory)),
        listeners=top.each("listeners", _listener),
        connections=top.inner("connections").counts(),
        certificates=top.each("certificates", _certificate),
        requests=top.inner("requests").counts(),
        events=top.inner("events").counts(),
        wait=_histogram(top.inner("wait_us")),
        service=_histogram(top.inner("service_us")),
        running=_histogram(top.inner("running_us")),
        seats_stuck_us=top.count("seats_stuck_us"),
        restarts=server.inner("restarts").counts(),
        seats_wanted=top.inner("demand").number("seats_wanted_10s") if top.has("demand") else None,
        causes=_causes(top.inner("causes")) if top.has("causes") else None,
    )


def _causes(of: "Reader") -> Causes:
    return Causes(
        verdict=of.text("verdict"),
        words=of.text("words"),
        recent_us=of.inner("recent_us").counts(),
    )


def _line(of: "Reader") -> Line:
    return Line(
        waiting=of.count("waiting"),
        waiting_max=of.count("waiting_max"),
        oldest_wait_us=of.count("oldest_wait_us"),
        over_target=of.flag("over_target"),
        lanes=of.each("lanes", _lane),
    )


def _standstill(of: "Reader") -> Standstill:
    return Standstill(since_s=of.number("since_s"), why=of.text("why"), waiting=of.count("waiting"))


def _elastic(of: "Reader") -> Elastic:
    return Elastic(
        min=of.count("min"),
        max=of.count("max"),
        wanted=of.count("wanted"),
        pinned=of.flag("pinned"),
        held_back=of.text_or_none("held_back"),
    )


def _lane(of: "Reader") -> Lane:
    return Lane(
        name=of.text("name"),
        priority=of.count("priority"),
        waiting=of.count("waiting"),
        waiting_max=of.count_or_none("waiting_max"),
        oldest_wait_us=of.count("oldest_wait_us"),
        in_exchange=of.count("in_exchange"),
        seats_reserved=of.count("seats_reserved"),
        seats_max=of.count_or_none("seats_max"),
        drain_per_s=of.number("drain_per_s"),
        over_target=of.flag("over_target"),
    )


def _seat(of: "Reader") -> Seat:
    return Seat(
        worker=of.count("worker"),
        seat=of.count("seat"),
        pid=of.count_or_none("pid"),
        nth=of.count("nth"),
        state=of.text("state"),
        running_us=of.count_or_none("running_us"),
        method=of.text_or_none("method"),
        path=of.text_or_none("path"),
        served=of.count("served"),
        busy_us=of.count("busy_us"),
    )


def _memory(of: "Reader") -> tuple[int, int | None]:
    return of.count("pid"), of.count_or_none("memory_bytes")


def _loop(of: "Reader") -> Loop | None:
    if of.is_none("event_loop"):
        return None
    inner = of.inner("event_loop")
    return Loop(
        worker=of.count("worker"),
        pid=of.count("pid"),
        busy=of.count("busy"),
        seats=of.count("seats"),
        lag_us=inner.count("lag_us"),
        lag_max_us=inner.count("lag_max_us"),
        sessions=inner.count_or_none("sessions"),
    )


def _listener(of: "Reader") -> Listener:
    return Listener(
        address=of.text("address"),
        backlog_asked=of.count_or_none("backlog_asked"),
        backlog=of.count_or_none("backlog"),
        queued=of.count_or_none("queued"),
    )


def _certificate(of: "Reader") -> Certificate:
    return Certificate(
        certfile=of.text("certfile"),
        subject=of.text("subject"),
        not_before_s=of.count("not_before_s"),
        not_after_s=of.count("not_after_s"),
    )


def _histogram(of: "Reader") -> Histogram:
    count, buckets = of.count("count"), of.buckets("buckets")
    if buckets and count < buckets[-1][1]:
        raise Unexpected("more in the buckets than there are")
    return Histogram(
        count=count,
        sum_us=of.count("sum_us"),
        max_us=of.count("max_us"),
        p50_us=of.count("p50_us"),
        p90_us=of.count("p90_us"),
        p99_us=of.count("p99_us"),
        # Requests that took longer than the last bound are in the count alone.
        buckets=(*buckets, (math.inf, count)),
    )


def _is_count(value: object) -> TypeGuard[int]:
    # A bool is an int to Python.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= FIGURE_MAX


class Reader:
    """One JSON object, whose values are looked at before they are believed."""

    def __init__(self, data: object, place: str) -> None:
        if not isinstance(data, dict):
            raise Unexpected(f"{place} is no object")
        self._data: dict[str, Any] = data
        self._place = place

    def has(self, key: str) -> bool:
        return key in self._data

    def _value(self, key: str) -> object:
        if key not in self._data:
            raise Unexpected(f"{self._place} has no {key!r}")
        return self._data[key]

    def _complaint(self, key: str, wanted: str) -> Unexpected:
        return Unexpected(f"{key!r} of {self._place} is no {wanted}")

    def text(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str):
            raise self._complaint(key, "text")
        return value

    def text_or_none(self, key: str) -> str | None:
        return None if self._value(key) is None else self.text(key)

    def is_none(self, key: str) -> bool:
        return self._value(key) is None

    def flag(self, key: str) -> bool:
        value = self._value(key)
        if not isinstance(value, bool):
            raise self._complaint(key, "boolean")
        return value

    def count(self, key: str) -> int:
        value = self._value(key)
        if not _is_count(value):
            raise self._complaint(key, "count")
        return value

    def count_or_none(self, key: str) -> int | None:
        return None if self._value(key) is None else self.count(key)

    def number(self, key: str) -> float:
        value = self._value(key)
        # Written so that NaN, which Python's json reads, is refused too.
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= FIGURE_MAX:
            raise self._complaint(key, "number")
        return float(value)

    def counts(self) -> dict[str, int]:
        if len(self._data) > COUNTS_MAX or any(len(key) > NAME_MAX for key in self._data):
            raise Unexpected(
                f"{self._place} has more than {COUNTS_MAX} counts, or names of more than {NAME_MAX} characters"
            )
        return {key: self.count(key) for key in self._data}

    def inner(self, key: str) -> "Reader":
        return Reader(self._value(key), f"{key!r}")

    def each(self, key: str, read: Callable[["Reader"], T]) -> tuple[T, ...]:
        return tuple(read(Reader(item, f"{key}[{number}]")) for number, item in enumerate(self._list(key)))

    def buckets(self, key: str) -> tuple[tuple[float, int], ...]:
        found: list[tuple[float, int]] = []
        for pair in self._list(key):
            match pair:
                case [upper, count] if _is_count(count) and _is_count(upper):
                    found.append((float(upper), count))
                case _:
                    raise self._complaint(key, "list of pairs of an upper end and a count")
        ends = [(-1.0, 0), *found]
        if any(not (a[0] < b[0] and a[1] <= b[1]) for a, b in zip(ends, found, strict=False)):
            raise self._complaint(key, "row of buckets: upper ends must grow, and counts not fall")
        return tuple(found)

    def _list(self, key: str) -> Sequence[object]:
        value = self._value(key)
        if not isinstance(value, list) or len(value) > LIST_MAX:
            raise self._complaint(key, f"list of at most {LIST_MAX}")
        return value
