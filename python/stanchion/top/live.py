"""The live screen: waits for keys, looks and signals, and draws what follows."""

import locale
import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO

from rich.console import Console
from rich.text import Text

from stanchion.top import lines
from stanchion.top.keys import Do, State, press, split
from stanchion.top.lines import View, row_of
from stanchion.top.looker import Looker
from stanchion.top.model import Model, model, sort
from stanchion.top.source import Place
from stanchion.top.status import Status
from stanchion.top.terminal import Closed, Terminal

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)

# A byte of the pipe that is no signal.
_NEWS = 0

PAGE_KEYS = "↑↓ and page keys move · q back"


def run(where: Place, control: str | None, interval_s: float) -> int:
    """Until somebody has seen enough; the exit code."""
    with _woken() as (wake, told), Terminal(locale.getpreferredencoding(False)) as terminal:
        looker = Looker(where, interval_s, lambda: _write_one(told))
        live = _Live(terminal, looker, where, control)
        looker.start()
        try:
            return live.run(wake)
        except Closed:
            return 128 + signal.SIGHUP
        finally:
            looker.end()


@contextmanager
def _woken() -> Iterator[tuple[int, int]]:
    """A pipe that gets a byte for each signal, its number, and for what others write into it."""
    wake, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    # Without a handler of Python's there would be no byte; it does nothing besides.
    before = {number: signal.signal(number, lambda *_: None) for number in (*_ENDING, signal.SIGWINCH, signal.SIGCONT)}
    fd_before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield wake, told
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        # `told` stays open: a thread that looks for the last time may still write to it.
        os.close(wake)


def _write_one(told: int) -> None:
    try:
        os.write(told, bytes([_NEWS]))
    except (BlockingIOError, BrokenPipeError):
        return  # Full, so it wakes anyway; or over.


class _Live:
    def __init__(self, terminal: Terminal, looker: Looker, where: Place, control: str | None) -> None:
        self._terminal = terminal
        self._looker = looker
        self._where = where
        self._control = control
        self._state = State(View(live=True))
        self._before: Status | None = None
        self._model: Model | None = None
        self._trouble: str | None = f"looking at {where.text} for the first time"
        # Its environment says which colours the terminal has.
        self._console = Console(file=StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False)

    def run(self, wake: int) -> int:
        terminal = self._terminal
        while True:
            self._draw()
            writing = [terminal.fd] if terminal.behind else []
            readable, writable, _ = select.select([terminal.fd, wake], writing, [])
            if writable:
                terminal.send()
            if wake in readable:
                for number in os.read(wake, 4096):
                    if number in _ENDING:
                        return 128 + number
                    if number == signal.SIGCONT:
                        terminal.enter()
                    if number == signal.SIGWINCH:
                        terminal.forget()
                self._take()
            if terminal.fd in readable:
                for key in split(terminal.typed()):
                    if self._press(key) is Do.QUIT:
                        return 0

    def _take(self) -> None:
        page = self._looker.take_page()
        if page is not None:
            self._state = replace(self._state, page=page, first=0)
        if self._state.view.paused:
            return
        match self._looker.take():
            case Status() as now:
                self._model = model(self._before, now)
                self._before = now
                self._trouble = None
            case str() as trouble:
                self._trouble = f"trying again: {trouble}"

    def _press(self, key: str) -> Do:
        seats = self._model.status.seats if self._model else ()
        self._state, do = press(self._state, key, seats, self._terminal.size()[1])
        match do:
            case Do.DUMP:
                self._dump()
            case Do.REDRAW:
                self._terminal.forget()
            case Do.SUSPEND:
                self._terminal.leave()
                # Stopped here until SIGCONT, which also draws the screen anew.
                signal.raise_signal(signal.SIGTSTP)
                self._terminal.enter()
        return do

    def _dump(self) -> None:
        assert self._model is not None
        view = self._state.view
        seats = sort(self._model.status.seats, view.order)
        worker = seats[row_of(view.chosen, seats)].worker
        if self._control is None:
            page: tuple[str, ...] = (
                "No control socket is known, and stacks come through it.",
                "Start the server with --control unix:PATH, and this with the same.",
            )
        else:
            page = (f"Waiting for the stacks of worker {worker}",)
            self._looker.dump(self._control, worker)
        self._state = replace(self._state, page=page, first=0)

    def _draw(self) -> None:
        width, height = self._terminal.size()
        drawn = self._lines(width, height)[:height]
        drawn += [Text()] * (height - len(drawn))
        self._terminal.draw(self._coloured(drawn, width))

    def _lines(self, width: int, height: int) -> list[Text]:
        state = self._state
        if state.page is not None:
            shown = [Text(line) for line in state.page[state.first : state.first + height - 1]]
            return [*shown, *[Text()] * (height - 1 - len(shown)), Text(PAGE_KEYS, "dim")]
        if self._model is None:
            return [Text(f"stanchion top · {self._where.text}", "bold"), Text(self._trouble or "", "bold red")]
        return lines.screen(self._model, replace(state.view, trouble=self._trouble), width, height)

    def _coloured(self, drawn: Sequence[Text], width: int) -> list[str]:
        coloured = []
        for line in drawn:
            line.truncate(width, overflow="ellipsis", pad=True)
            with self._console.capture() as capture:
                self._console.print(line, end="", soft_wrap=True)
            coloured.append(capture.get())
        return coloured
