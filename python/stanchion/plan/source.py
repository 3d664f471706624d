"""Where a plan's arrivals come from: a recording, an access log or a model, as the engine's request has it."""

import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from stanchion.effective import UsageError
from stanchion.plan import log_lines
from stanchion.plan.asked import Asked
from stanchion.plan.log_format import Unreadable
from stanchion.plan.log_lines import Log

_MODEL_REQUESTS = 100_000
_MODEL_S_LEAST, _MODEL_S_MOST = 60.0, 86_400.0
"""So long a model runs in each seed, for about so many requests."""

_STDIN = "-"
_ALL_US = (0, 2**63)


class Source(NamedTuple):
    """Arrivals, and what is to be said of them."""

    title: str
    json: str
    """As the engine's request has it, written once: of a log that is many megabytes."""
    knows_present: bool
    """The setting is known with which the requests were served."""
    settings: Mapping[str, Any]
    """The part of it that arguments and log say."""
    window_us: tuple[int | None, int | None] = (None, None)
    """Of a recording: only requests that came within."""
    span_s: float | None = None
    """Of a model: how long it runs."""
    notes: Sequence[str] = ()
    """Sentences on facts that the arrivals lack."""
    left_out: Sequence[str] = ()
    """Lines of a log that are no requests: sentences."""
    workers: int = 0
    """The most that a log names, or 0."""


def of(asked: Asked, progress: Callable[[float], None]) -> Source:
    """The source that the arguments name. UsageError, if it cannot be read."""
    if asked.rate is not None:
        return _model(asked)
    path = asked.path or _STDIN
    try:
        if path != _STDIN and stat.S_ISDIR(os.stat(path).st_mode):
            if asked.now or asked.log_format:
                raise UsageError("plan: a recording says these itself: --now and --log-format are for logs")
            recording = json.dumps({"recording": path, "cpu_share": asked.cpu})
            return Source(path, recording, True, {}, (asked.from_us, asked.until_us))
        with ExitStack() as kept:
            file = sys.stdin.buffer if path == _STDIN else kept.enter_context(open(path, "rb"))
            within_us = (
                _ALL_US[0] if asked.from_us is None else asked.from_us,
                _ALL_US[1] if asked.until_us is None else asked.until_us,
            )
            log = log_lines.read(file, asked.log_format, within_us, progress)
    except OSError as error:
        raise UsageError(f"plan: {path} cannot be read: {error.strerror or error}") from error
    except Unreadable as error:
        raise UsageError(f"plan: {path} cannot be planned from: {error}") from error
    if not len(log):
        why = "; ".join(_left_out(log)) or "it is empty"
        raise UsageError(f"plan: {path} has no request of the app with times in it: {why}")
    return _log(path, log, asked)


def _model(asked: Asked) -> Source:
    rate = asked.rate or 1.0
    seconds = min(_MODEL_S_MOST, max(_MODEL_S_LEAST, _MODEL_REQUESTS / rate))
    model = {
        "rate_per_s": rate,
        "service": [list(one) for one in asked.service],
        "cpu_share": asked.cpu,
        "seconds": seconds,
        "settings": _settings(asked),
    }
    title = f"a model, {rate:g} requests a second"
    return Source(title, json.dumps({"model": model}), asked.now is not None, _settings(asked), span_s=seconds)


def _log(path: str, log: Log, asked: Asked) -> Source:
    settings = _settings(asked)
    if len(log.lanes) > 1:
        settings["lanes"] = [{"name": name} for name in log.lanes]
    rest = json.dumps({"cpu_share": asked.cpu, "settings": settings})
    return Source(
        f"{path} ({log.format.title})",
        f'{{"arrivals":{log.json()},{rest[1:]}',
        asked.now is not None,
        settings,
        notes=tuple(_notes(log)),
        left_out=tuple(_left_out(log)),
        workers=log.workers,
    )


def _settings(asked: Asked) -> dict[str, Any]:
    """The knobs of the present setting, as far as the arguments say them."""
    settings: dict[str, Any] = {}
    if asked.now is not None:
        settings = {"workers": asked.now.workers, "threads": asked.now.threads}
    if asked.cores is not None:
        settings["cores"] = asked.cores
    return settings


def _notes(log: Log) -> list[str]:
    notes = []
    if log.has_whole_seconds:
        notes.append(
            "When requests came within a second: the log has whole seconds, so their moments are drawn. p99 may be off "
            "by a third. stanchion's JSON lines have arrived_us, nginx's formats may have $msec."
        )
    if log.format.is_of_app:
        notes.append(
            "Waits before a worker began: this log has none, and a request counts as come when its worker began. If "
            "the server was full, the real waits were longer."
        )
    elif not log.has_waits:
        notes.append(
            "Waits in the app server: this log has none, and the times at seats contain them. If the server was "
            "full, the figures are too high."
        )
    return notes


def _left_out(log: Log) -> list[str]:
    left_out = [f"{count:,} lines {why}" for why, count in log.skipped.most_common()]
    if log.is_cut:
        left_out.append(f"all after the first {log_lines.REQUESTS_MAX:,} requests (choose others with --from)")
    return left_out
