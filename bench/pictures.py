"""Bars as SVG: medians, with the middle half of the turns as a line over the end of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import quantiles

from bench.cases import BESIDE
from bench.columns import Column
from bench.measure import Figures
from bench.servers import OWN

WIDTH, ROW, BAR, TOP = 760, 26, 16, 34
LEFT, RIGHT = 150, 110
# Where names are long, what is left of the bars is as wide as they need.
LETTER = 7
# Bars longer than so many of stanchion's are cut, so that bars that are near each other look different.
CUT = 6.0

STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1b1f24; }
.muted { fill: #5c646e; }
.own { fill: #0072b2; } .own.kernel { fill: #56a8d8; }
.other { fill: #7d858f; } .other.kernel { fill: #b4bac1; }
.floor { fill: #009e73; } .floor.kernel { fill: #6fcdb2; }
.spread { stroke: #1b1f24; stroke-width: 1.5; }
.cut { fill: #fdfdfc; }
@media (prefers-color-scheme: dark) {
text { fill: #e7eaee; } .muted { fill: #a0a8b2; } .spread { stroke: #e7eaee; } .cut { fill: #14171b; }
}"""
KINDS = {"stanchion": "own", "stanchion-watched": "own", "stanchion-asgi": "own", "nginx": "floor", "one copy": "floor"}


@dataclass(frozen=True)
class Bar:
    # The row's name: a server, beside something or not.
    server: str
    median: float
    # The kernel's part of the median; 0 where it is not known.
    kernel: float
    lower: float
    upper: float


def bar(server: str, column: Column, rounds: Sequence[Figures]) -> Bar:
    values = [row[column.key] for row in rounds]
    lower, middle, upper = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    shares = [row["kernel_us"] / row["cpu_us"] for row in rounds if column.key == "cpu_us" and "kernel_us" in row]
    kernel_share = sum(shares) / len(shares) if shares else 0.0
    return Bar(server, middle, middle * kernel_share, lower, upper)


def scale_of(bars: Sequence[Bar]) -> float:
    """The value of the whole width: the longest bar, unless that is far longer than stanchion's."""
    longest = max(one.upper for one in bars)
    own = [one.median for one in bars if one.server in OWN]
    return min(longest, CUT * own[0]) if own and own[0] > 0 else longest


def svg(column: Column, bars: Sequence[Bar]) -> str:
    scale = scale_of(bars)
    has_kernel = any(one.kernel for one in bars)
    left = max(LEFT, LETTER * max(len(one.server) for one in bars) + 8)
    title = column.title + (" (dark: user, light: kernel)" if has_kernel else "")
    height = TOP + ROW * len(bars) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="muted" x="{left}" y="20">{escape(title)}</text>',
    ]
    for number, one in enumerate(bars):
        lines += row(one, left, TOP + ROW * number, scale, column.digits)
    return "\n".join([*lines, "</svg>", ""])


def row(one: Bar, left: int, top: int, scale: float, digits: int) -> list[str]:
    def at(value: float) -> float:
        return left + min(value / scale, 1.0) * (WIDTH - left - RIGHT) if scale > 0 else left

    kind = KINDS.get(one.server.partition(BESIDE)[0], "other")
    user, whole = at(one.median - one.kernel), at(one.median)
    middle = top + BAR / 2
    lines = [
        f'<text x="{left - 8}" y="{top + 13}" text-anchor="end">{escape(one.server)}</text>',
        f'<rect class="{kind}" x="{left}" y="{top}" width="{user - left:.1f}" height="{BAR}"/>',
        f'<rect class="{kind} kernel" x="{user:.1f}" y="{top}" width="{whole - user:.1f}" height="{BAR}"/>',
    ]
    if one.median > scale:
        lines.append(f'<path class="cut" d="M{WIDTH - RIGHT - 24} {top + BAR}l6 -{BAR}h6l-6 {BAR}z"/>')
    else:
        ends = at(one.lower), at(one.upper)
        lines.append(
            f'<line class="spread" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
        )
    label = max(whole, at(one.upper)) + 6
    lines.append(f'<text x="{label:.1f}" y="{top + 13}">{one.median:,.{digits}f}</text>')
    return lines
