"""Several hosts as lines of a screen of some size, and what a key does there. Pure."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from stanchion.output import printable
from stanchion.top.hosts import AllHosts, Figures, Order, Seen, cut, figures, sort
from stanchion.top.keys import Do, leaf, name_of
from stanchion.top.lines import latencies, table, the_line
from stanchion.top.status import Status
from stanchion.top.words import duration, rate

KEYS = "sort: a address, w waiting, o oldest · ↑↓ move · p pause · ? help · q quit"

HELP = """\
Keys

  a          sort as the hosts were given, those of a name by address
  w          by how many wait: the longest line first
  o          by how long the oldest waits
  up, down   move (also k, j, and page keys)
  p, space   pause: the screen stays as it is; again to go on
  ?, h       this page
  Ctrl-L     redraw the screen
  Ctrl-Z     suspend
  q, Ctrl-C  quit, or back from this page

Columns

  seats      busy of all
  oldest     how long the head of the host's line has waited
  wait p95   time in the line of those that seats took between the last two
             looks
  wanted     seats that the load of the last 10 s needs, and those that wait;
             -: a version that does not publish it
  gen        generation: how many reloads there were, and one
  silent     the time since the host answered last, and why it does not now

The line, the rates and the latencies are of all hosts that answer, together.
stanchion top --admin HOST shows one of them.""".splitlines()

_HEADS = (
    "host",
    "state",
    "seats",
    "waiting",
    "oldest",
    "arrive/s",
    "refused/s",
    "wait p95",
    "wanted",
    "gen",
    "version",
)

_ALL = "all that answer"

_ORDERS = {"a": Order.ADDRESS, "w": Order.WAITING, "o": Order.OLDEST}

_NAME_COLUMNS = 40

# Reasons at the top of the screen, each in as many lines at most.
_TROUBLES_MAX = 3
_TROUBLE_LINES_MAX = 2

# Lines that are no hosts, at least: the head, 2 of the line, 5 of latencies, the heads of columns, the sum, the keys.
_FRAME_ROWS = 11


@dataclass(frozen=True)
class View:
    """The choices of the person who looks."""

    order: Order = Order.ADDRESS
    live: bool = False
    """With the keys below."""
    first: int = 0
    """The host that is on top."""
    help: int | None = None
    """The line of the help that is on top, if that is before the screen."""
    paused: bool = False


def press(view: View, key: str, hosts: int, rows: int) -> tuple[View, Do]:
    """The view after a key, and what else to do; `rows` is how many the screen has."""
    name = name_of(key)
    if name == "\x0c":
        return view, Do.REDRAW
    if name == "\x1a":
        return view, Do.SUSPEND
    if view.help is not None:
        return replace(view, help=leaf(view.help, name, rows, len(HELP))), Do.NOTHING
    if name in _ORDERS:
        return replace(view, order=_ORDERS[name], first=0), Do.NOTHING
    match name:
        case "q":
            return view, Do.QUIT
        case "?":
            return replace(view, help=0), Do.NOTHING
        case "p":
            return replace(view, paused=not view.paused), Do.NOTHING
        case "up" | "down" | "page up" | "page down":
            room = max(1, rows - _FRAME_ROWS)
            steps = {"up": -1, "down": 1, "page up": -room, "page down": room}[name]
            return replace(view, first=max(0, min(view.first + steps, hosts - room))), Do.NOTHING
    return view, Do.NOTHING


def screen(all_hosts: AllHosts, view: View, width: int, height: int | None) -> list[Text]:
    """The lines, none wider than `width` and no more than `height` of them; None for all there are."""
    lines = [
        *_head(all_hosts, view, width),
        *the_line(all_hosts.line, all_hosts.rates, width),
        *latencies(all_hosts.wait, all_hosts.service, width),
    ]
    lines += _hosts(all_hosts, view, None if height is None else height - len(lines) - view.live)
    if height is not None and view.live:
        lines = [*lines[: height - 1], *[Text()] * (height - 1 - len(lines)), Text(KEYS, "dim")]
    elif height is not None:
        lines = lines[:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _head(all_hosts: AllHosts, view: View, width: int) -> Iterable[Text]:
    answering = all_hosts.answering
    head = Text(f"{len(all_hosts.hosts)} hosts", "bold")
    head.append(f" · {len(answering)} answer", "not bold" if len(answering) == len(all_hosts.hosts) else "bold red")
    head.append(f" · {all_hosts.ready} ready", "not bold" if all_hosts.ready == len(answering) else "bold red")
    if view.paused:
        head.append("  PAUSED", "bold yellow")
    yield head
    troubles = [f"{name}: {trouble}" for name, model in answering if (trouble := _trouble(model.status)) is not None]
    if len(troubles) > _TROUBLES_MAX:
        troubles[_TROUBLES_MAX - 1 :] = [
            f"… and {len(troubles) - _TROUBLES_MAX + 1} more hosts that stand or are not ready"
        ]
    for trouble in troubles:
        wrapped = textwrap.wrap(printable(trouble), max(1, width), max_lines=_TROUBLE_LINES_MAX, placeholder="…")
        yield from (Text(line, "bold red") for line in wrapped)


def _trouble(status: Status) -> str | None:
    if status.standstill is not None:
        return f"the line has stood for {duration(status.standstill.since_s * 1e6)}: {cut(status.standstill.why)}"
    if not status.ready:
        return "NOT READY" + (f": {cut(status.not_ready_because)}" if status.not_ready_because else "")
    return None


def _hosts(all_hosts: AllHosts, view: View, rows: int | None) -> list[Text]:
    hosts = sort(all_hosts.hosts, view.order)
    room = len(hosts) if rows is None or len(hosts) + 2 <= rows else max(1, rows - 3)
    first = max(0, min(view.first, len(hosts) - room))
    shown = hosts[first : first + room]
    cells = [(_ALL, "", *_cells(all_hosts.total), "", ""), *map(_row, shown)]
    styles = ["bold", *map(_style, shown)]
    drawn = table(_HEADS, cells, len(cells), styles, name_columns=_NAME_COLUMNS)
    columns = min(_NAME_COLUMNS, max(Text(row[0]).cell_len for row in cells))
    for number, host in enumerate(shown, 2):
        if host.trouble is not None:
            # The reason is where the figures would be.
            reason = f"  silent {duration(host.silent_s * 1e6)}: {printable(host.trouble)}"
            drawn[number] = drawn[number][:columns].append(reason, "red")
    left_out = len(hosts) - len(shown)
    return [*drawn, *([Text(f"… {left_out} more hosts", "dim")] if left_out else [])]


def _row(host: Seen) -> tuple[str, ...]:
    if host.model is None:
        return (printable(host.name), *[""] * (len(_HEADS) - 1))
    status = host.model.status
    state = "STANDING" if status.standstill else "NOT READY" if not status.ready else printable(cut(status.state))
    cells = _cells(figures(host.model))
    return printable(host.name), state, *cells, str(status.generation), printable(cut(status.version))


def _cells(of: Figures) -> Sequence[str]:
    return (
        f"{of.busy}/{of.seats}",
        str(of.waiting),
        duration(of.oldest_wait_us),
        "-" if of.arrivals_per_s is None else rate(of.arrivals_per_s),
        "-" if of.refused_per_s is None else rate(of.refused_per_s),
        duration(of.wait_p95_us),
        "-" if of.seats_wanted is None else f"{of.seats_wanted:.1f}",
    )


def _style(host: Seen) -> str:
    if host.model is None:
        return "red"
    status = host.model.status
    if status.standstill or not status.ready:
        return "red"
    return "yellow" if status.line.over_target or (host.model.rates and host.model.rates.refused) else ""
