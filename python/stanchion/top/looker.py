"""Looks at an interval, in a thread, so that a server that is slow to answer does not hold up the keys."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from stanchion import ctl
from stanchion.output import printable
from stanchion.top import source
from stanchion.top.status import Seat, Status, Unexpected, parse

T = TypeVar("T")

# Seconds for all workers to write down their stacks.
DUMP_S = 30.0

# Longer than any page that a person reads.
STACK_LINES_MAX = 10_000


def look(where: source.Place) -> Status:
    """One look. Failed if it shows nothing."""
    try:
        return parse(source.status(where))
    except Unexpected as error:
        reason = f"{where.text} answers otherwise than this version expects ({error}); --json shows it as it is"
        raise source.Failed(reason) from error


class Looker(Generic[T]):
    """The latest look, or why there is none. `tell` is called from its threads when there is something new."""

    def __init__(self, look: Callable[[], T], interval_s: float, tell: Callable[[], None]) -> None:
        self._look_now = look
        self._interval_s = interval_s
        self._tell = tell
        self._lock = threading.Lock()
        self._look: T | str | None = None
        self._page: tuple[str, ...] | None = None
        self._dumping = False
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        """No more looks; one that is under way ends by itself."""
        self._ended.set()

    def take(self) -> T | str | None:
        """The look that has come since the last time; or a text that says why none came."""
        with self._lock:
            look, self._look = self._look, None
            return look

    def take_page(self) -> tuple[str, ...] | None:
        with self._lock:
            page, self._page = self._page, None
            return page

    def dump(self, control: str, seat: Seat) -> None:
        """Ask for the stacks of a seat's worker, unless a thread does so already; they come as a page."""
        with self._lock:
            if self._dumping:
                return
            self._dumping = True
        threading.Thread(target=self._dump, args=(control, seat), daemon=True).start()

    def _run(self) -> None:
        while not self._ended.is_set():
            found: T | str
            try:
                found = self._look_now()
            except source.Failed as failure:
                found = str(failure)
            with self._lock:
                self._look = found
            self._tell()
            self._ended.wait(self._interval_s)

    def _dump(self, control: str, seat: Seat) -> None:
        page = stacks(control, seat)
        with self._lock:
            self._page, self._dumping = page, False
        self._tell()


def stacks(control: str, seat: Seat) -> tuple[str, ...]:
    """The lines of a page: the stacks of a seat's worker, or why there are none."""
    try:
        with ctl.Call(control, DUMP_S) as call:
            answer = ctl.checked(call.ask({"command": "dump"}))
        if not answer["ok"]:
            raise ctl.Failed(answer["message"])
        lines = [line for one in answer["data"] if one["pid"] == seat.pid for line in _stack(one)]
    except ctl.Failed as failure:
        lines = ["No stacks:", str(failure)]
    except (AttributeError, KeyError, TypeError) as error:
        lines = [f"No stacks: the answer is not as expected ({error!r})"]
    lines = lines or [f"The server has no stacks of worker {seat.worker}: it is gone, or could not write them in time."]
    return tuple(printable(line) for line in lines[:STACK_LINES_MAX])


def _stack(one: Mapping[str, Any]) -> list[str]:
    head = f"worker {one['index']}, pid {one['pid']}, generation {one['generation']}"
    return [head, "", *str(one["stacks"]).splitlines(), ""]
