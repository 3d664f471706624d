"""A worker under gevent: Python's modules as gevent changes them, and the hub, which is the worker's event loop."""

import os
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, ClassVar, Protocol

from stanchion._stanchion import log
from stanchion.loader import AppLoadError

# A level of the error log, as of `logging`, which is not imported for it.
_INFO = 20
_ERROR = 40

# How often the hub shows that it turns, while it has something to do.
_BEAT_S = 0.25


class GreenPuller(Protocol):
    """The Rust side, which takes requests from the line."""

    def fileno(self) -> int: ...
    def turn(self) -> None: ...
    def begin(self, spawn: Callable[..., Any], run_callback: Callable[..., Any], over: Any, hasten: Any) -> None: ...
    def pace(self) -> float: ...
    def beat(self, lag_us: int) -> None: ...
    def rest(self) -> None: ...
    def leave(self) -> None: ...


def patch(origin: str) -> None:
    """Have gevent change Python's modules, in the process that is to import the app; AppLoadError without gevent."""
    try:
        import gevent  # type: ignore[import-untyped]
        from gevent import monkey
    except ModuleNotFoundError as error:
        if error.name != "gevent":
            raise
        raise AppLoadError(
            f"the setting `loop` from {origin} says gevent, which this Python does not have",
            f"install it: {sys.executable} -m pip install gevent",
        ) from None
    monkey.patch_all()
    # A config file may have done so in the master: this process has the hub from there by a fork.
    gevent.reinit()


def in_greenlet(function: Callable[[], None]) -> None:
    """Call a function that may wait, from a signal handler: it runs in any greenlet, and the hub cannot wait."""
    if HubLoop.hub is not None:
        import gevent

        if gevent.getcurrent() is HubLoop.hub:
            gevent.spawn(function)
            return
    function()


class HubLoop:
    """gevent's hub as the event loop of a worker. `serve` lasts until the worker leaves."""

    hub: ClassVar[Any] = None
    """The hub of this process, once there is one."""

    def __init__(self, puller: GreenPuller) -> None:
        import gevent
        from gevent.event import Event  # type: ignore[import-untyped]

        self._spawn = gevent.spawn
        HubLoop.hub = gevent.get_hub()
        self._loop = HubLoop.hub.loop
        self._puller = puller
        self._over = Event()
        # By how long it is until the next beat; one of them runs.
        self._timers: dict[float, Any] = {}
        self._beat_at = 0.0

    def serve(self) -> None:
        """Serve until the worker is to leave and nothing runs any more."""
        watcher = self._loop.io(self._puller.fileno(), 1)  # when it can be read
        watcher.start(self._puller.turn)

        def forsake() -> None:
            """In a child that the app forks: its hub goes on, with a copy of what the worker runs."""
            for one in (watcher, *self._timers.values()):
                one.stop()

        os.register_at_fork(after_in_child=forsake)
        self._beat_at = monotonic()
        self._beat()
        self._puller.begin(self._spawn, self._loop.run_callback, self._over, self._hasten)
        while not self._over.is_set():
            try:
                self._over.wait()
            except (SystemExit, KeyboardInterrupt, SystemError) as asked:
                # Raised in a greenlet of the app's own, gevent hands it to this one.
                log(_INFO, f"the app asked to exit ({type(asked).__name__}): the worker leaves")
                self._puller.leave()
            except BaseException as thrown:  # noqa: BLE001 - also a gevent.Timeout that was begun by an import
                import traceback

                raised = "".join(traceback.format_exception(thrown)).rstrip()
                log(_ERROR, f"the app has thrown into the main greenlet, which goes on\n{raised}")
        for one in (watcher, *self._timers.values()):
            one.stop()
            one.close()
        self._puller.rest()

    def _beat(self) -> None:
        """Show that the hub turns, and how late it is, and look: so nothing that was not announced waits for long."""
        now = monotonic()
        lag_us = max(0, round((now - self._beat_at) * 1e6))
        self._beat_after(now, self._puller.pace())
        self._puller.beat(lag_us)
        self._puller.turn()

    def _hasten(self) -> None:
        """Beat at the usual pace: there is something to do."""
        now = monotonic()
        # A beat that is due already runs in this turn, and reports how late the hub is.
        if now < self._beat_at:
            self._beat_after(now, _BEAT_S)

    def _beat_after(self, now: float, pause_s: float) -> None:
        self._beat_at = now + pause_s
        for other in self._timers.values():
            other.stop()
        if pause_s not in self._timers:
            # A timer that repeats: libev starts a timer that does not with the rest it had when it stopped, and that is
            # nothing if it had run out.
            self._timers[pause_s] = self._loop.timer(pause_s, pause_s)
        self._timers[pause_s].again(self._beat, update=True)
