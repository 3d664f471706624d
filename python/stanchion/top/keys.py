"""The effect of each key. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from stanchion.top.lines import Chosen, View, row_of
from stanchion.top.model import Order, sort
from stanchion.top.status import Seat

HELP = """\
Keys

  a          sort the seats by age: the longest running request first
  w          by worker
  s          by served: the busiest first
  up, down   choose a seat (also k, j)
  d          dump the Python stacks of the chosen seat's worker (by the control
             socket: --control)
  p, space   pause: the screen stays as it is; again to go on
  ?, h       this page
  Ctrl-L     redraw the screen
  Ctrl-Z     suspend
  q, Ctrl-C  quit, or back from a page

Columns

  oldest     how long the head of the line has waited
  OVER TARGET: the oldest of a lane has waited for longer than `queue_target`
  seat       runs one request at a time: a worker's thread or event loop task
  drain      requests that seats finish while others wait
  refused    answered by the server in the app's place, by reason
  gone       the client left before its answer
  lately     between the last two looks;  ever: since the server's start
  time       where requests of the last 10 to 20 s spent theirs: line, core and
             GIL are waits for these, CPU is their own; and what would help
  queued     connections that the server has not accepted yet
  backlog    how many it would hold;  asked: how many the server asked for
  nth        how many workers have had this number
  age        how long the seat has run its request

docs/diagnosis.md says more.""".splitlines()


class Do(Enum):
    """The act that a key asks of the loop (live.py), which has the terminal and the sockets."""

    NOTHING = "nothing"
    QUIT = "quit"
    DUMP = "dump"
    REDRAW = "redraw"
    SUSPEND = "suspend"


@dataclass(frozen=True)
class State:
    """The state of the screen: the view, or a page before it."""

    view: View
    page: tuple[str, ...] | None = None
    first: int = 0
    """The line of the page that is on top."""


_ORDERS = {"a": Order.AGE, "w": Order.WORKER, "s": Order.SERVED}

# The bytes that a terminal sends, in either mode of its cursor keys, without modifiers.
_NAMES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "k": "up",
    "j": "down",
    "\x1b": "q",
    "\x03": "q",
    "\x04": "q",
    "h": "?",
    " ": "p",
}


def split(typed: str) -> list[str]:
    """The keys in what a terminal sent, each escape sequence as one (ECMA-48 section 5.4, and SS3)."""
    keys = []
    at = 0
    while at < len(typed):
        end = at + 1
        if typed.startswith("\x1b[", at):
            end += 1
            while end < len(typed) and not "@" <= typed[end] <= "~":
                end += 1
            end += 1
        elif typed.startswith("\x1bO", at):
            end += 2
        keys.append(typed[at:end])
        at = end
    return keys


def name_of(key: str) -> str:
    """The name of a key that terminals send in several ways, else the key itself."""
    return _NAMES.get(key, key)


def press(state: State, key: str, seats: tuple[Seat, ...], rows: int) -> tuple[State, Do]:
    """The state after a key, and what else to do; `rows` is how many the screen has."""
    name = name_of(key)
    if name == "\x0c":
        return state, Do.REDRAW
    if name == "\x1a":
        return state, Do.SUSPEND
    if state.page is not None:
        first = leaf(state.first, name, rows, len(state.page))
        return (replace(state, page=None) if first is None else replace(state, first=first)), Do.NOTHING
    view = state.view
    if name in _ORDERS:
        return replace(state, view=replace(view, order=_ORDERS[name])), Do.NOTHING
    match name:
        case "q":
            return state, Do.QUIT
        case "d" if seats:
            return state, Do.DUMP
        case "?":
            return replace(state, page=tuple(HELP), first=0), Do.NOTHING
        case "p":
            return replace(state, view=replace(view, paused=not view.paused)), Do.NOTHING
        case "up" | "down" | "page up" | "page down" if seats:
            chosen = _moved(view, sort(seats, view.order), _steps(name, rows))
            return replace(state, view=replace(view, chosen=chosen)), Do.NOTHING
    return state, Do.NOTHING


def leaf(first: int, name: str, rows: int, lines: int) -> int | None:
    """The line of a page that is on top after a key; None if that ends the page."""
    if name in ("q", "?"):
        return None
    steps = rows if name == "p" else _steps(name, rows)
    # The last line of the screen says which keys there are.
    return max(0, min(first + steps, lines - (rows - 1)))


def _steps(name: str, rows: int) -> int:
    return {"up": -1, "down": 1, "page up": -(rows - 2), "page down": rows - 2}.get(name, 0)


def _moved(view: View, seats: Sequence[Seat], steps: int) -> Chosen:
    row = row_of(view.chosen, seats)
    seat = seats[max(0, min(row + steps, len(seats) - 1))]
    return Chosen(seat.worker, seat.seat, seat.pid)
