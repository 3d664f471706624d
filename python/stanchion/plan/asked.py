"""The arguments of `stanchion plan`, checked."""

import argparse
import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from stanchion.arguments import Parser
from stanchion.plan import goals, log_format, quantities
from stanchion.plan.goals import Goal
from stanchion.plan.log_format import LineFormat

T = TypeVar("T")

WORKERS_MAX = 4_096
"""Of workers times threads, as in the server."""
WAITING_MAX = 1_000_000
RATE_MAX = 100_000.0
LIST_MAX = 16
"""Values of one kind to try."""
QUANTILES_MAX = 16
CORES_MAX = 1_024.0
TRAFFIC_MAX = 100.0
_EACH_US_LEAST = 1_000_000
ORDERS = ("fifo", "adaptive")
_LANE_KEYS = {"priority": 0, "seats": 0, "seats_max": 1, "waiting": 1}
"""Each with its smallest value."""

Workers = int | tuple[int, int]
"""A number, or the fewest and the most of a number that follows the line."""


class Now(NamedTuple):
    """The present setting."""

    workers: Workers
    threads: int


class Asked(NamedTuple):
    """A command line of `plan`."""

    path: str | None
    """A recording or a log; None for a model."""
    rate: float | None
    """Of a model, a second."""
    service: Sequence[tuple[float, int]]
    """Of a model: quantiles."""
    cpu: float | None
    now: Now | None
    cores: float | None
    traffic: float
    """So many times as many requests come."""
    log_format: LineFormat | None
    from_us: int | None
    until_us: int | None
    workers: Sequence[Workers]
    threads: Sequence[int]
    max_waiting: Sequence[int]
    queue_order: Sequence[str]
    lanes: dict[str, dict[str, int]]
    """The changes of each lane, by its name."""
    goals: Sequence[Goal]
    is_check: bool
    page: str | None
    json: bool
    score: bool
    each_us: int


def parse(arguments: Sequence[str]) -> Asked:
    """UsageError, if they make no sense."""
    parser = Parser("plan", hint="; see `stanchion plan --help`")
    parser.add_argument("path", nargs="?")
    parser.add_argument("--rate", type=_of(_rate))
    parser.add_argument("--service", type=_of(_service), default=())
    parser.add_argument("--cpu", type=_of(quantities.share))
    parser.add_argument("--now", type=_of(_now))
    parser.add_argument("--cores", type=_of(_cores))
    parser.add_argument("--traffic", type=_of(_traffic), default=1.0)
    parser.add_argument("--log-format", type=_of(log_format.given))
    parser.add_argument("--from", type=_of(quantities.moment_us), dest="from_us")
    parser.add_argument("--until", type=_of(quantities.moment_us), dest="until_us")
    parser.add_argument("--workers", type=_of(_list_of(_workers)), default=())
    parser.add_argument("--threads", type=_of(_list_of(_whole(1, WORKERS_MAX))), default=())
    parser.add_argument("--max-waiting", type=_of(_list_of(_whole(1, WAITING_MAX))), default=())
    parser.add_argument("--queue-order", type=_of(_list_of(_order)), default=())
    parser.add_argument("--lane", type=_of(_lane), action="append", default=[])
    parser.add_argument("--check", type=_of(goals.parse), metavar="GOALS")
    parser.add_argument("--page", metavar="FILE")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--each", type=_of(quantities.time_us), default=quantities.time_us("1h"))
    options = parser.parse_args(arguments)
    _agree(parser, options)
    given = {name: value for name, value in vars(options).items() if name in Asked._fields}
    return Asked(
        **given,
        goals=options.check or goals.DEFAULT,
        is_check=options.check is not None,
        lanes=dict(options.lane),
        each_us=options.each,
    )


def _agree(parser: Parser, options: argparse.Namespace) -> None:
    if (options.path is None) == (options.rate is None):
        parser.error("name a recording or an access log, or give a model with --rate and --service")
    if (options.rate is None) != (not options.service):
        parser.error("a model has --rate and --service")
    if options.rate is not None and (options.log_format or options.from_us or options.until_us or options.score):
        parser.error("--log-format, --from, --until and --score are for a recording or a log, not for a model")
    if options.score and (options.page or options.check):
        parser.error("--score shows no plan, so it takes neither --page nor --check")
    if options.json and options.score:
        parser.error("--score is a table, so not with --json")
    if options.each < _EACH_US_LEAST:
        parser.error("--each is at least a second")


def _of(read: Callable[[str], T]) -> Callable[[str], T]:
    """The type of an argument whose mistakes are ValueErrors with a sentence."""

    def checked(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _rate(text: str) -> float:
    return _between(text, "a rate a second", RATE_MAX)


def _cores(text: str) -> float:
    return _between(text, "a number of cores", CORES_MAX)


def _traffic(text: str) -> float:
    return _between(text, "how many times as many requests", TRAFFIC_MAX)


def _between(text: str, what: str, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    # Written so that NaN is refused too.
    if not 0.0 < number <= most:
        raise ValueError(f"expected {what}, more than 0 and at most {most:g}, got {text!r}")
    return number


def _service(text: str) -> tuple[tuple[float, int], ...]:
    """`p50=20ms,p99=900ms`: quantiles that grow."""
    quantiles = []
    for one in text.split(",", QUANTILES_MAX):
        name, equals, value = one.strip().partition("=")
        if not re.fullmatch(r"p\d{1,2}(?:\.\d{1,4})?", name) or not equals or not 0.0 < float(name[1:]) < 100.0:
            raise ValueError(f"expected quantiles such as p50=20ms,p99=900ms, got {text!r}")
        quantiles.append((round(float(name[1:]) / 100, 8), quantities.time_us(value)))
    if quantiles != sorted(quantiles) or any(a[0] == b[0] or a[1] > b[1] for a, b in pairwise(quantiles)):
        raise ValueError(f"expected quantiles that grow, as in p50=20ms,p99=900ms, got {text!r}")
    return tuple(quantiles)


def _now(text: str) -> Now:
    workers, cross, threads = text.lower().partition("x")
    try:
        now = Now(_workers(workers), _whole(1, WORKERS_MAX)(threads if cross else "1"))
    except ValueError:
        raise ValueError(f"expected workers and threads such as 4x2, got {text!r}") from None
    return now


def _workers(text: str) -> Workers:
    """`4`, or `4..32`."""
    fewest, dots, most = text.partition("..")
    number = _whole(1, WORKERS_MAX)
    if not dots:
        return number(fewest)
    ends = number(fewest), number(most)
    if ends[0] >= ends[1]:
        raise ValueError(f"expected a range such as 4..32, got {text!r}")
    return ends


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # isdecimal() alone takes digits of other scripts, and int() takes them too.
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
            raise ValueError(f"expected a whole number from {least} to {most}, got {text!r}")
        return int(text)

    return read


def _order(text: str) -> str:
    if text not in ORDERS:
        raise ValueError(f"expected one of {', '.join(ORDERS)}, got {text!r}")
    return text


def _list_of(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Values with commas between, each once."""

    def each(text: str) -> tuple[T, ...]:
        words = text.split(",")
        if len(words) > LIST_MAX:
            raise ValueError(f"expected at most {LIST_MAX} values with commas between, got {len(words)}")
        return tuple(dict.fromkeys(read(word.strip()) for word in words))

    return each


def _lane(text: str) -> tuple[str, dict[str, int]]:
    """`NAME seats=2 seats_max=6 priority=0 waiting=64`, as the server's setting has them behind the conditions."""
    name, *pairs = text.split() or [""]
    changed: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in _LANE_KEYS:
            raise ValueError(f"expected {', '.join(_LANE_KEYS)} behind the name of a lane, got {pair!r}")
        changed[key] = _whole(_LANE_KEYS[key], WAITING_MAX)(value)
    if not changed:
        raise ValueError(f"expected a lane such as 'api seats=2', got {text!r}")
    return name, changed
