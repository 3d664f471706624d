"""The live screen: waits for keys, looks and signals, and draws what follows."""

import locale
import os
import select
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from stanchion.top import board, hosts_board, lines, sockets
from stanchion.top.hosts import AllHosts, summed
from stanchion.top.hosts_watch import HostsWatch
from stanchion.top.keys import Do, State, press, split
from stanchion.top.lines import View, row_of
from stanchion.top.looker import Looker, look
from stanchion.top.model import Model, model, sort
from stanchion.top.source import Place
from stanchion.top.status import Status
from stanchion.top.terminal import Closed, Terminal

T = TypeVar("T")

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)

# Seconds between two pictures of several hosts at most: each is asked at an interval of its own.
_REDRAW_S = 0.5

# A byte of the pipe that is no signal.
_NEWS = 0


def run(where: Place, control: str | None, interval_s: float) -> int:
    """Show one server until the user quits; the exit code."""
    return _run(lambda: look(where), interval_s, lambda terminal, looker: _Server(terminal, looker, where, control))


def run_any(interval_s: float) -> int:
    """Show every listening socket of the host until the user quits; the exit code."""
    return _run(sockets.look, interval_s, _Sockets)


def run_hosts(watch: HostsWatch, interval_s: float) -> int:
    """Show several servers until the user quits; the exit code."""
    return _run(lambda: summed(watch.seen()), min(interval_s, _REDRAW_S), _SeveralHosts)


def _run(look: Callable[[], T], interval_s: float, make: Callable[[Terminal, Looker[T]], "_Live"]) -> int:
    with _woken() as (wake, told), Terminal(locale.getpreferredencoding(False)) as terminal:
        looker = Looker(look, interval_s, lambda: _write_one(told))
        live = make(terminal, looker)
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


class _Live(ABC):
    """A screen that is redrawn after each key, look and signal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        # Its environment says which colours the terminal has.
        self._console = Console(file=StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False)

    @abstractmethod
    def _take(self) -> None:
        """Take over the looker's latest look, if there is a new one."""

    @abstractmethod
    def _press(self, key: str) -> Do:
        """Handle a key; the act that is left for the loop."""

    @abstractmethod
    def _lines(self, width: int, height: int) -> list[Text]:
        """The lines to draw."""

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
                    if self._do(self._press(key)) is Do.QUIT:
                        return 0

    def _do(self, do: Do) -> Do:
        match do:
            case Do.REDRAW:
                self._terminal.forget()
            case Do.SUSPEND:
                self._terminal.leave()
                # The process stops here until SIGCONT, which also redraws the screen.
                signal.raise_signal(signal.SIGTSTP)
                self._terminal.enter()
        return do

    def _draw(self) -> None:
        width, height = self._terminal.size()
        drawn = self._lines(width, height)[:height]
        drawn += [Text()] * (height - len(drawn))
        self._terminal.draw(self._coloured(drawn, width))

    def _coloured(self, drawn: Sequence[Text], width: int) -> list[str]:
        coloured = []
        for line in drawn:
            line.truncate(width, overflow="ellipsis", pad=True)
            with self._console.capture() as capture:
                self._console.print(line, end="", soft_wrap=True)
            coloured.append(capture.get())
        return coloured


class _Server(_Live):
    def __init__(self, terminal: Terminal, looker: Looker[Status], where: Place, control: str | None) -> None:
        super().__init__(terminal)
        self._looker = looker
        self._where = where
        self._control = control
        self._state = State(View(live=True))
        self._before: Status | None = None
        self._model: Model | None = None
        self._trouble: str | None = f"looking at {where.text} for the first time"

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
        if do is Do.DUMP:
            self._dump()
        return do

    def _dump(self) -> None:
        assert self._model is not None
        view = self._state.view
        seats = sort(self._model.status.seats, view.order)
        seat = seats[row_of(view.chosen, seats)]
        if self._control is None:
            page: tuple[str, ...] = (
                "No control socket is known, and stacks come through it.",
                "Start the server with --control unix:PATH, and this with the same.",
            )
        else:
            page = (f"Waiting for the stacks of worker {seat.worker}",)
            self._looker.dump(self._control, seat)
        self._state = replace(self._state, page=page, first=0)

    def _lines(self, width: int, height: int) -> list[Text]:
        state = self._state
        if state.page is not None:
            return lines.page(state.page, state.first, height)
        if self._model is None:
            return [Text(f"stanchion top · {self._where.text}", "bold"), Text(self._trouble or "", "bold red")]
        return lines.screen(self._model, replace(state.view, trouble=self._trouble), width, height)


class _Sockets(_Live):
    def __init__(self, terminal: Terminal, looker: Looker[sockets.Look]) -> None:
        super().__init__(terminal)
        self._looker = looker
        self._view = board.View(live=True)
        self._before: sockets.Look | None = None
        self._host: sockets.Host | None = None
        self._trouble: str | None = None

    def _take(self) -> None:
        if self._view.paused:
            return
        match self._looker.take():
            case sockets.Look() as now:
                self._host = sockets.host(self._before, now)
                self._before = now
                self._trouble = None
            case str() as trouble:
                self._trouble = f"trying again: {trouble}"

    def _press(self, key: str) -> Do:
        there = len(self._host.sockets) if self._host else 0
        self._view, do = board.press(self._view, key, there, self._terminal.size()[1])
        return do

    def _lines(self, width: int, height: int) -> list[Text]:
        if self._view.help is not None:
            return lines.page(board.HELP, self._view.help, height)
        if self._host is None:
            return [Text("stanchion top --any", "bold"), Text(self._trouble or "looking at the host", "bold red")]
        return board.screen(self._host, replace(self._view, trouble=self._trouble), width, height)


class _SeveralHosts(_Live):
    def __init__(self, terminal: Terminal, looker: Looker[AllHosts]) -> None:
        super().__init__(terminal)
        self._looker = looker
        self._view = hosts_board.View(live=True)
        self._shown: AllHosts | None = None

    def _take(self) -> None:
        if self._view.paused:
            return
        taken = self._looker.take()
        if isinstance(taken, AllHosts):
            self._shown = taken

    def _press(self, key: str) -> Do:
        there = len(self._shown.hosts) if self._shown else 0
        self._view, do = hosts_board.press(self._view, key, there, self._terminal.size()[1])
        return do

    def _lines(self, width: int, height: int) -> list[Text]:
        if self._view.help is not None:
            return lines.page(hosts_board.HELP, self._view.help, height)
        if self._shown is None:
            return [Text("stanchion top --hosts", "bold")]
        return hosts_board.screen(self._shown, self._view, width, height)
