"""The sockets of a host as lines of a screen of some size, and what a key does there. Pure."""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.text import Text

from stanchion.output import printable
from stanchion.top.keys import Do, leaf, name_of
from stanchion.top.lines import table
from stanchion.top.sockets import Host, Order, Socket, sort
from stanchion.top.words import count, rate

KEYS = "sort: w waiting, d drops, a address · ↑↓ move · p pause · ? help · q quit"

HELP = """\
Keys

  w          sort by how full the queues are: the fullest first
  d          by what the kernel drops now
  a          by address
  up, down   move (also k, j, and page keys)
  p, space   pause: the screen stays as it is; again to go on
  ?, h       this page
  Ctrl-L     redraw the screen
  Ctrl-Z     suspend
  q, Ctrl-C  quit, or back from this page

Columns

  waiting    connections that the server has not accepted yet
  backlog    the one in force; one more than that fits, and then it is full
  drops      what the kernel has dropped since the socket listens; it does
             not count that for unix sockets: -
  lately     how many of these between the last two looks
  owner      the process with the lowest number that has it open, and how
             many others have; -: not for us to see
  address    and the network namespace, if it is another one

Red: full, or dropping now. Yellow: more than half full. stanchion doctor
says what to do; docs/diagnosis.md says more.""".splitlines()

_HEADS = ("waiting", "backlog", "drops", "lately", "owner", "address")

_ORDERS = {"w": Order.WAITING, "d": Order.DROPS, "a": Order.ADDRESS}

# Lines that are no sockets: the head, the heads of the columns, and the keys.
_FRAME_ROWS = 3


@dataclass(frozen=True)
class View:
    """The choices of the person who looks."""

    order: Order = Order.WAITING
    live: bool = False
    """With the keys below."""
    first: int = 0
    """The socket that is on top."""
    help: int | None = None
    """The line of the help that is on top, if that is before the screen."""
    paused: bool = False
    trouble: str | None = None
    """Why there is no newer look than this one."""


def press(view: View, key: str, sockets: int, rows: int) -> tuple[View, Do]:
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
            return replace(view, first=max(0, min(view.first + steps, sockets - room))), Do.NOTHING
    return view, Do.NOTHING


def screen(host: Host, view: View, width: int, height: int | None) -> list[Text]:
    """The lines, none wider than `width` and no more than `height` of them; None for all there are."""
    head = list(_head(host, view))
    shown = sort(host.sockets, view.order)[view.first :]
    rows = len(shown) if height is None else height - len(head) - 1 - view.live
    if len(shown) > rows:
        rows -= 1  # For the line that says how many more there are.
    rows = max(0, rows)
    lines = [*head, *table(_HEADS, [_cells(one) for one in shown], rows, [_style(one) for one in shown])]
    if height is None:
        # On paper there is room for what was passed over.
        passed = (f"not looked at: {printable(what)}" for what in host.not_looked_at)
        lines += [Text(line) for what in passed for line in textwrap.wrap(what, width, subsequent_indent="  ")]
    elif view.live:
        lines = [*lines[: height - 1], *[Text()] * (height - 1 - len(lines)), Text(KEYS, "dim")]
    else:
        lines = lines[:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _head(host: Host, view: View) -> Iterable[Text]:
    full = sum(one.listener.is_full for one in host.sockets)
    dropped = sum(one.drops_grown or 0 for one in host.sockets)
    head = Text(f"{len(host.sockets)} listening sockets", "bold")
    head.append(f" · {full} full", "bold red" if full else "not bold")
    if host.over_s:
        head.append(f" · {rate(dropped / host.over_s)} drops a second", "bold red" if dropped else "not bold")
    if host.not_looked_at:
        head.append(" · not all is for us to see", "not bold dim")
    if view.paused:
        head.append(" · PAUSED", "bold yellow")
    yield head
    if view.trouble is not None:
        yield Text(printable(view.trouble), "bold red")


def _cells(one: Socket) -> tuple[str, ...]:
    at = one.listener
    owner = f"{printable(at.owners[0].name)} ({at.owners[0].pid})" if at.owners else "-"
    others = f" +{len(at.owners) - 1}" if len(at.owners) > 1 else ""
    address = f"unix:{at.address}" if at.family == "unix" else at.address
    return (
        str(at.waiting),
        str(at.backlog),
        count(at.drops),
        "-" if one.drops_grown is None else f"+{one.drops_grown}",
        owner + others,
        printable(address) + (f"  in the network {printable(one.network)}" if one.network else ""),
    )


def _style(one: Socket) -> str:
    if one.listener.is_full or one.drops_grown:
        return "red"
    return "yellow" if one.listener.waiting * 2 > one.listener.room else ""
