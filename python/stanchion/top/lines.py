"""A model as lines of a screen of some size. Pure: nothing here reads a clock or a terminal."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.text import Text

from stanchion.output import printable
from stanchion.top.model import Latency, Model, Order, Rates, Spread, sort
from stanchion.top.status import Causes, Elastic, Lane, Line, Listener, Loop, Seat, Status
from stanchion.top.words import count, duration, rate, size

_BAR_COLUMNS = 20

# In histograms: the width of a bucket at most, and of the axis at least, so that its end has room.
_BUCKET_COLUMNS_MAX = 3
_AXIS_COLUMNS_MIN = 9

# Ages from which a running request is worth a look.
_LONG_US = 1_000_000
_TOO_LONG_US = 10_000_000
# A client that waits notices such a lag of an event loop.
_LAG_US = 100_000
_LONG_LAG_US = 1_000_000

# A message at the top of the screen has at most so many lines.
_TROUBLE_LINES_MAX = 4

# From nothing to full.
_LEVELS = " ▁▂▃▄▅▆▇█"


class Chosen(NamedTuple):
    """The seat under the cursor."""

    worker: int
    seat: int
    pid: int | None
    """A worker that leaves and its successor have one number."""


@dataclass(frozen=True)
class View:
    """The choices of the person who looks."""

    order: Order = Order.AGE
    live: bool = False
    """With a cursor among the seats, and the keys below."""
    chosen: Chosen | None = None
    """The successor's seat if that worker is gone; the first row if there is no such seat."""
    paused: bool = False
    trouble: str | None = None
    """Why there is no newer look than this one."""


KEYS = "sort: a age, w worker, s served · ↑↓ choose · d dump · p pause · ? help · q quit"

PAGE_KEYS = "↑↓ and page keys move · q back"


def screen(model: Model, view: View, width: int, height: int | None) -> list[Text]:
    """The lines, none wider than `width` and no more than `height` of them; None for all there are."""
    status = model.status
    lines_more = len(_causes(status.causes))
    room = _Room(height, len(status.line.lanes), len(status.listeners), len(status.loops), lines_more)
    lines = [
        *_head(model, view, width),
        *the_line(status.line, model.rates, width),
        *_lanes(status.line.lanes, room.lanes),
        *latencies(model.wait, model.service, width),
        *_listeners(status.listeners, room.listeners),
        *_totals(model, width),
        *_causes(status.causes),
        *_sessions(model),
        *_loops(status, room.loops),
    ]
    lines += _seats(model, view, None if height is None else height - len(lines) - view.live)
    if height is not None and view.live:
        lines = [*lines[: height - 1], *[Text()] * (height - 1 - len(lines)), Text(KEYS, "dim")]
    elif height is not None:
        lines = lines[:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def page(text: Sequence[str], first: int, height: int) -> list[Text]:
    """A page before the screen, from some line on, with the keys that it obeys."""
    shown = [Text(line) for line in text[first : first + height - 1]]
    return [*shown, *[Text()] * (height - 1 - len(shown)), Text(PAGE_KEYS, "dim")]


class _Room:
    """How many rows the small tables get, so that the seats have the rest."""

    def __init__(self, height: int | None, lanes: int, listeners: int, loops: int, lines_more: int) -> None:
        if height is None:
            self.lanes, self.listeners, self.loops = lanes, listeners, loops
        else:
            # The lines of a screen of 24 that are not for these: head 1, line 3, latencies 5, totals 1, heads of three
            # tables 3, seats 4, keys 1, and with event loops one more for WebSockets.
            spare = max(2, height - 18 - (loops > 0) - lines_more)
            self.listeners = min(listeners, max(1, spare // 3))
            self.lanes = min(lanes, max(1, spare // 3))
            # With event loops seats are many and short-lived: the loops say more than the seats do.
            self.loops = min(loops, max(1, spare // 2))


def _workers(elastic: Elastic) -> str:
    if elastic.pinned:
        why = ", fixed by a command"
    else:
        why = "" if elastic.held_back is None else f", held back: {printable(elastic.held_back)}"
    return f"workers {elastic.wanted} of {elastic.min} to {elastic.max}{why}"


def _head(model: Model, view: View, width: int) -> Iterable[Text]:
    status = model.status
    head = Text(f"stanchion {printable(status.version)} · ", "bold")
    head.append(*(("STANDING", "bold red") if status.standstill else (printable(status.state), "bold")))
    about = [f"generation {status.generation}", f"master {status.pid}", f"up {duration(status.uptime_s * 1e6)}"]
    if status.elastic is not None:
        about.append(_workers(status.elastic))
    head.append(f" · {' · '.join(about)}")
    if view.paused:
        head.append("  PAUSED", "bold yellow")
    yield head
    troubles = [] if view.trouble is None else [view.trouble]
    if status.standstill is not None:
        troubles.append(f"{status.standstill.why}; the line has stood for {duration(status.standstill.since_s * 1e6)}")
    if not status.ready:
        troubles.append("NOT READY" + (f": {status.not_ready_because}" if status.not_ready_because else ""))
    for trouble in troubles:
        # It takes several lines, within reason: a client has written the path.
        wrapped = textwrap.wrap(printable(trouble), max(1, width), max_lines=_TROUBLE_LINES_MAX, placeholder="…")
        yield from (Text(line, "bold red") for line in wrapped)


def the_line(line: Line, rates: Rates | None, width: int) -> Iterable[Text]:
    """How full the line is, and what comes and goes a second."""
    share = line.waiting / line.waiting_max if line.waiting_max else 0.0
    style = "red" if share > 0.9 else "yellow" if share > 0.5 else "green"
    filled = min(_BAR_COLUMNS, round(share * _BAR_COLUMNS))
    text = Text("line     ", "bold")
    text.append(_LEVELS[-1] * filled, style)
    text.append("░" * (_BAR_COLUMNS - filled), "dim")
    text.append(f" {line.waiting} of {line.waiting_max} waiting, oldest {duration(line.oldest_wait_us)}", style)
    if line.over_target:
        text.append("  OVER TARGET", "bold red")
    yield text
    drain = f"{rate(sum(lane.drain_per_s for lane in line.lanes))} drain"
    if rates is None:
        yield Text("a second ", "bold").append(f"{drain}; the rest takes a second look", "not bold")
        return
    refused = f"{rate(sum(rates.refused.values()))} refused"
    parts = [
        (f"{rate(rates.arrived)} arrive", ""),
        (drain, ""),
        (f"{rate(rates.answered)} answered", ""),
        *([(_by_rate(rates.by_server), "")] if rates.by_server else []),
        (f"{rate(rates.gone)} gone", ""),
        *([(_by_rate(rates.broken), "red")] if rates.broken else []),
        (f"{refused} ({_by_rate(rates.refused)})", "red") if rates.refused else (refused, ""),
    ]
    yield from _packed("a second ", parts, ", ", width)


def _packed(title: str, parts: Sequence[tuple[str, str]], between: str, width: int) -> list[Text]:
    """Parts with their styles in as many lines as they take: none of them is cut that fits into a line of its own."""
    lines = [Text(title, "bold")]
    for at, (part, style) in enumerate(parts):
        ending = between.rstrip() if at + 1 < len(parts) else ""
        if at and lines[-1].cell_len + Text(part + ending).cell_len > width:
            lines[-1].rstrip()
            lines.append(Text(" " * Text(title).cell_len))
        lines[-1].append(part, f"not bold {style}")
        if ending:
            lines[-1].append(between, "not bold")
    return lines


def _by_rate(rates: Mapping[str, float]) -> str:
    most_first = sorted(rates.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{printable(name)} {rate(value)}" for name, value in most_first)


def _lanes(lanes: Sequence[Lane], rows: int) -> list[Text]:
    # One lane is the line itself.
    if len(lanes) < 2:
        return []
    return table(
        ("lane", "priority", "waiting", "bound", "oldest", "handed out", "reserved seats", "drain/s"),
        [
            (
                printable(lane.name),
                str(lane.priority),
                str(lane.waiting),
                "shared" if lane.waiting_max is None else str(lane.waiting_max),
                duration(lane.oldest_wait_us),
                str(lane.in_exchange) if lane.seats_max is None else f"{lane.in_exchange} of {lane.seats_max}",
                str(lane.seats_reserved),
                rate(lane.drain_per_s),
            )
            for lane in lanes
        ],
        rows,
        ["red" if lane.over_target else "" for lane in lanes],
        name_columns=16,
    )


def latencies(wait: Latency, service: Latency, width: int) -> list[Text]:
    """Two histograms, each of late and of ever, with one bar for each column of the same axis."""
    figures = 4 * 9
    columns = max(_AXIS_COLUMNS_MIN, width - 16 - figures - 2)
    shown = [("wait", wait), ("service", service)]
    axis = _axis([spread for _, latency in shown for spread in (latency.lately, latency.ever) if spread], columns)
    head = Text(f"{'latency':16}{axis.label():{len(axis)}}  ", "bold")
    head.append("".join(f"{name:>9}" for name in ("p50", "p90", "p99", "max")))
    return [head, *(line for name, latency in shown for line in _latency(name, latency, axis))]


def _latency(name: str, latency: Latency, axis: "_Axis") -> Iterable[Text]:
    for title, period, spread in ((name, "lately", latency.lately), ("", "ever", latency.ever)):
        line = Text(f"{title:8}{period:8}")
        if spread is None or spread.count == 0:
            line.append(f"{'':{len(axis)}}  " + f"{'-':>9}" * 4, "dim")
        else:
            line.append(axis.bars(spread), "cyan")
            figures = (spread.p50_us, spread.p90_us, spread.p99_us, spread.max_us)
            line.append("  " + "".join(f"{duration(figure):>9}" for figure in figures))
        yield line


class _Axis:
    """Buckets as columns: neighbours together where there is no room for each, else several columns for one."""

    def __init__(self, uppers: Sequence[float], columns: int) -> None:
        self._uppers = uppers
        self._together = max(1, -(-len(uppers) // columns))
        bars = max(1, -(-len(uppers) // self._together))
        self._wide = min(_BUCKET_COLUMNS_MAX, columns // bars)
        self._columns = max(_AXIS_COLUMNS_MIN, bars * self._wide)

    def __len__(self) -> int:
        return self._columns

    def label(self) -> str:
        """Where the first bar ends and where the last one does."""
        finite = [upper for upper in self._uppers if upper != float("inf")]
        if not finite:
            return ""
        first, last = duration(finite[0]), duration(finite[-1])
        gap = self._columns - len(first) - len(last)
        return f"{first}{' ' * gap}{last}" if gap > 0 and len(finite) > 1 else first

    def bars(self, spread: Spread) -> str:
        found = dict(spread.counts)
        counts = [found.get(upper, 0) for upper in self._uppers]
        bars = [sum(counts[at : at + self._together]) for at in range(0, len(counts), self._together)]
        most = max(bars)
        # Upwards, so that anything at all is to be seen.
        drawn = "".join(_LEVELS[-(-bar * (len(_LEVELS) - 1) // most)] * self._wide for bar in bars)
        return f"{drawn:{self._columns}}"


def _axis(spreads: Sequence[Spread], columns: int) -> _Axis:
    """From the first bucket that any of them needs to the last."""
    uppers = sorted({upper for spread in spreads for upper, _ in spread.counts})
    needed = {upper for spread in spreads for upper, number in spread.counts if number}
    if not needed:
        return _Axis([], columns)
    return _Axis([upper for upper in uppers if min(needed) <= upper <= max(needed)], columns)


def _listeners(listeners: Sequence[Listener], rows: int) -> list[Text]:
    return table(
        ("listener", "queued", "backlog", "asked"),
        [
            (printable(one.address), count(one.queued), count(one.backlog), count(one.backlog_asked) + _cut(one))
            for one in listeners
        ],
        rows,
        ["red" if _is_full(one) else "yellow" if _cut(one) else "" for one in listeners],
        name_columns=40,
    )


def _cut(listener: Listener) -> str:
    both = listener.backlog is not None and listener.backlog_asked is not None
    return "  cut: see somaxconn" if both and (listener.backlog or 0) < (listener.backlog_asked or 0) else ""


def _is_full(listener: Listener) -> bool:
    # The kernel takes one more than the backlog (sk_acceptq_is_full), but who comes next is no better off.
    return listener.queued is not None and listener.backlog is not None and listener.queued >= max(1, listener.backlog)


def _totals(model: Model, width: int) -> list[Text]:
    status, running = model.status, model.status.running
    seats, connections = status.seat_counts, status.connections
    longest = f", the longest for {duration(running.max_us)}" if running.count else ""
    kinds = [f"{printable(name)} {number}" for name, number in connections.items() if name not in ("total", "max")]
    causes = [f"{printable(cause)} {number}" for cause, number in status.restarts.items() if number]
    parts = [
        (f"{seats.get('busy', 0)} of {sum(seats.values())} seats busy{longest}", _age_style(running.max_us)),
        (f"{connections.get('total', 0)} of {connections.get('max', 0)} connections ({', '.join(kinds)})", ""),
        *([(f"restarts: {', '.join(causes)}", "yellow")] if causes else []),
    ]
    return _packed("", parts, " · ", width)


# The causes in /status, and how people call them.
_CAUSES = {"line": "line", "core": "core", "gil": "GIL", "cpu": "CPU", "elsewhere": "elsewhere"}


def _causes(causes: Causes | None) -> list[Text]:
    """Recent requests' time by cause, and the verdict on it."""
    if causes is None or causes.verdict == "unknown":
        return []
    line, spent = Text("time     ", "bold"), {cause: causes.recent_us.get(cause, 0) for cause in _CAUSES}
    # Event loops do not measure requests: then only the time in the line is known.
    if sum(spent.values()) > spent["line"]:
        shares = (f"{name} {100 * spent[cause] / sum(spent.values()):.0f} %" for cause, name in _CAUSES.items())
        line.append(f"{', '.join(shares)} · ", "not bold")
    return [line.append(printable(causes.words), "bold")]


def _sessions(model: Model) -> Iterable[Text]:
    """How many WebSockets there are, and what they do, where there can be any."""
    if not model.status.has_websockets:
        return
    text = Text(f"{sum(loop.sessions or 0 for loop in model.status.loops)} WebSockets")
    if (rates := model.session_rates) is not None:
        text.append(f" · a second {rate(rates.opened)} opened, {rate(sum(rates.ended.values()))} ended")
        if rates.ended:
            text.append(f" ({_by_rate(rates.ended)})", "red" if "cut" in rates.ended else "")
        text.append(f", messages {rate(rates.received)} in, {rate(rates.sent)} out")
    yield text


def _loops(status: Status, rows: int) -> list[Text]:
    """The largest lag first, as far as there is room."""
    if not status.loops:
        return []
    worst_first = sorted(status.loops, key=lambda loop: (-loop.lag_us, loop.worker))
    heads = ("event loop", "pid", "rss", "running", "of", "WebSockets", "lag", "at most")
    # Under gevent this column would have no figure.
    columns = [at for at, head in enumerate(heads) if head != "WebSockets" or status.has_websockets]
    cells = [_loop_cells(loop, status.memory_bytes.get(loop.pid)) for loop in worst_first]
    return table(
        [heads[at] for at in columns],
        [tuple(row[at] for at in columns) for row in cells],
        rows,
        ["red" if loop.lag_us >= _LONG_LAG_US else "yellow" if loop.lag_us >= _LAG_US else "" for loop in worst_first],
    )


def _loop_cells(loop: Loop, memory_bytes: int | None) -> tuple[str, ...]:
    return (
        str(loop.worker),
        str(loop.pid),
        size(memory_bytes),
        str(loop.busy),
        str(loop.seats),
        count(loop.sessions),
        duration(loop.lag_us),
        duration(loop.lag_max_us),
    )


_SEAT_HEADS = ("worker", "seat", "pid", "nth", "rss", "state", "age", "served", "request")


def _seats(model: Model, view: View, rows: int | None) -> list[Text]:
    seats = sort(model.status.seats, view.order)
    # A worker with one thread has the one seat 0.
    columns = [at for at in range(len(_SEAT_HEADS)) if at != 1 or any(seat.seat for seat in seats)]
    cells = [_seat_cells(seat, model.status.memory_bytes.get(seat.pid or 0)) for seat in seats]
    lines = table(
        [_SEAT_HEADS[at] for at in columns],
        [tuple(row[at] for at in columns) for row in cells],
        len(seats),
        [_seat_style(seat) for seat in seats],
    )
    head, body = lines[0], lines[1:]
    row = row_of(view.chosen, seats)
    if view.live and body:
        body[row].stylize("reverse")
    # With event loops the status does not list all busy seats.
    untold = max(0, model.status.seat_counts.get("busy", 0) - len(seats)) if model.status.loops else 0
    room = len(body) if rows is None or len(body) + (untold > 0) < rows else max(1, rows - 2)
    # The marked one is always in sight.
    first = max(0, row - room + 1) if view.live else 0
    more = len(body) - room + untold
    return [head, *body[first : first + room], *([Text(f"… {more} more seats", "dim")] if more else [])]


def row_of(chosen: Chosen | None, seats: Sequence[Seat]) -> int:
    if chosen is None:
        return 0
    same = [row for row, seat in enumerate(seats) if (seat.worker, seat.seat) == chosen[:2]]
    return next((row for row in same if seats[row].pid == chosen.pid), same[0] if same else 0)


def _seat_cells(seat: Seat, memory_bytes: int | None) -> tuple[str, ...]:
    request = f"{printable(seat.method or '')} {printable(seat.path or '')}".strip()
    return (
        str(seat.worker),
        str(seat.seat),
        count(seat.pid),
        str(seat.nth),
        size(memory_bytes),
        printable(seat.state),
        duration(seat.running_us),
        str(seat.served),
        request,
    )


def _seat_style(seat: Seat) -> str:
    if seat.running_us is None:
        return "dim" if seat.state == "empty" else ""
    return _age_style(seat.running_us) or "green"


def _age_style(us: float) -> str:
    return "red" if us >= _TOO_LONG_US else "yellow" if us >= _LONG_US else ""


def table(
    heads: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    rows_max: int,
    styles: Sequence[str],
    name_columns: int | None = None,
) -> list[Text]:
    """Columns as wide as they must be; the first to the left if it is a name, the last as it is."""
    left = {len(heads) - 1} | ({0} if name_columns is not None else set())
    cells = [list(heads), *map(list, rows[:rows_max])]
    if name_columns is not None:
        for row in cells:
            row[0] = _cut_to(row[0], name_columns)
    widths = [max(Text(row[at]).cell_len for row in cells) for at in range(len(heads))]
    widths[-1] = 0
    lines = [
        Text(
            "  ".join(
                _aligned(cell, width, at in left) for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )
        for row in cells
    ]
    lines[0].stylize("bold")
    for line, style in zip(lines[1:], styles, strict=False):
        line.stylize(style)
    if len(rows) > rows_max:
        lines.append(Text(f"… {len(rows) - rows_max} more", "dim"))
    return lines


def _aligned(cell: str, width: int, left: bool) -> str:
    gap = " " * (width - Text(cell).cell_len)
    return cell + gap if left else gap + cell


def _cut_to(cell: str, width: int) -> str:
    text = Text(cell)
    text.truncate(width, overflow="ellipsis")
    return text.plain
