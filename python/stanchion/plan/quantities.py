"""Times and shares as people write and read them. Pure."""

import re
from datetime import datetime

_UNITS_US = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(us|µs|ms|s|min|h)", re.ASCII)
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?) ?%", re.ASCII)

TIME_US_MAX = 86_400_000_000
"""A day: no request takes longer."""


def time_us(text: str) -> int:
    """`20ms`, `1.5s`, `10min`. ValueError, if it is none of at most a day."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a time such as 20ms, 1.5s or 10min, got {text!r}")
    whole = round(float(found[1]) * _UNITS_US[found[2]])
    if whole > TIME_US_MAX:
        raise ValueError(f"expected a time of at most a day, got {text!r}")
    return whole


def plain_time(us: float) -> str:
    """As an argument has it: `50ms`."""
    unit = next((unit for unit in ("h", "min", "s", "ms") if us >= _UNITS_US[unit]), "us")
    return f"{us / _UNITS_US[unit]:g}{unit}"


def share(text: str) -> float:
    """`30%` as 0.3. ValueError, if it is none between 0 and 100 %."""
    found = _SHARE.fullmatch(text.strip())
    part = float(found[1]) / 100 if found else -1.0
    if not 0.0 <= part <= 1.0:
        raise ValueError(f"expected a share between 0% and 100%, got {text!r}")
    return part


def moment_us(text: str) -> int:
    """A moment of ISO 8601, `2026-11-29T14:00`, in local time unless it says otherwise: microseconds since 1970."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e6)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"expected a moment such as 2026-11-29T14:00, got {text!r}") from error


def clock(at_us: float) -> str:
    """A moment in local time, to the second."""
    return datetime.fromtimestamp(at_us / 1e6).strftime("%Y-%m-%d %H:%M:%S")


def percent(part: float | None) -> str:
    """At most 6 columns."""
    if part is None:
        return "-"
    number = 100 * part
    if number == 0 or number >= 9.95:
        return f"{number:.0f} %"
    return f"{number:.1f} %" if number >= 0.05 else "<0.1 %"


def between(low_us: float, high_us: float) -> str:
    """Two times in one unit, at most 14 columns: `190-228 ms`."""
    units = ((1e3, "µs", 1.0), (1e6, "ms", 1e3), (1e9, "s", 1e6))
    unit, size = next(((unit, size) for most, unit, size in units if high_us < most), ("h", 3.6e9))
    return f"{_figure(low_us / size)}-{_figure(high_us / size)} {unit}"


def _figure(number: float) -> str:
    if number == 0:
        return "0"
    if number < 0.995:
        return f"{number:.2f}"
    return f"{number:.1f}" if number < 9.95 else f"{number:.0f}"
