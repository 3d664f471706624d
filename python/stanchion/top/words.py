"""Figures as they stand on the screen. Pure."""

# For terminals that cannot show the others.
_IN_ASCII = str.maketrans("▁▂▃▄▅▆▇█░…·µ↑↓", ".:-=+*##.~,u^v")

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(us: float | None) -> str:
    """At most 9 columns, for less than 1000 days: 850 µs, 12.3 ms, 3.20 s, 5min 3s, 23h 59min, 3d 4h."""
    if us is None:
        return "-"
    for size, name in ((1.0, "µs"), (1e3, "ms"), (1e6, "s")):
        if us < size * 1e3 and not (name == "s" and us >= 60e6):
            return f"{_three_digits(us / size)} {name}"
    seconds = int(us / 1e6)
    if seconds < 3_600:
        return f"{seconds // 60}min {seconds % 60}s"
    if seconds < 86_400:
        return f"{seconds // 3_600}h {seconds % 3_600 // 60}min"
    return f"{seconds // 86_400}d {seconds % 86_400 // 3_600}h"


def size(number: int | None) -> str:
    """Bytes, at most 8 columns."""
    if number is None:
        return "-"
    amount = float(number)
    for name in _SIZES[:-1]:
        if amount < 1024:
            return f"{_three_digits(amount)} {name}" if name != "B" else f"{number} B"
        amount /= 1024
    return f"{amount:.0f} {_SIZES[-1]}"


def rate(per_s: float) -> str:
    return _three_digits(per_s)


def count(number: int | None) -> str:
    return "-" if number is None else str(number)


def encodable(text: str, encoding: str) -> bytes:
    """The text in that encoding, with ASCII of the same width for characters that it does not have."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_IN_ASCII).encode(encoding, "replace")


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
