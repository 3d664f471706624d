"""The simulator, which takes a request and gives an answer as JSON, and a bar on the terminal meanwhile."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from stanchion import _stanchion
from stanchion.effective import UsageError
from stanchion.plan.source import Source

BAR_AFTER_S = 1.0
"""Shorter work shows no bar."""
_BAR_COLUMNS = 40
_CLEAR = "\r\033[K"


class Bar:
    """A bar on standard error, if that is a terminal. Steps of the work follow each other."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._began_s = time.monotonic()
        self._is_shown = False

    def shown(self, what: str, share: float) -> None:
        """So much of this step is done."""
        if not self._out.isatty() or time.monotonic() - self._began_s < BAR_AFTER_S:
            return
        full = round(share * _BAR_COLUMNS)
        bar = "#" * full + "." * (_BAR_COLUMNS - full)
        self._out.write(f"{_CLEAR}{what:12} {bar} {100 * share:3.0f} %")
        self._out.flush()
        self._is_shown = True

    def end(self) -> None:
        """Leave the line of the terminal empty."""
        if self._is_shown:
            self._out.write(_CLEAR)
            self._out.flush()
            self._is_shown = False


def simulate(
    source: Source,
    scenarios: Sequence[Mapping[str, Any]],
    seeds: int,
    progress: Callable[[float], None] | None = None,
    window_us: tuple[int | None, int | None] | None = None,
) -> dict[str, Any]:
    """The engine's answer for these scenarios. UsageError, if the request makes no sense."""
    from_us, until_us = source.window_us if window_us is None else window_us
    rest = json.dumps({"from_us": from_us, "until_us": until_us, "scenarios": list(scenarios), "seeds": seeds})
    # Python notices Ctrl-C when it runs code, so there is always some.
    report = progress or (lambda share: None)
    try:
        text = _stanchion.plan(f'{{"source":{source.json},{rest[1:]}', report)
    except ValueError as error:
        raise UsageError(f"plan: {error}") from error
    answer: dict[str, Any] = json.loads(text)
    return answer
