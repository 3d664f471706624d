"""The event loop of a worker whose app is an ASGI one: its start-up, its requests, its end (lifespan 2.0)."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from stanchion._stanchion import log

Message = MutableMapping[str, Any]
ASGIApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

# Levels of the error log, as of `logging`, which is not imported for them.
_INFO, _ERROR = 20, 40

# How often the loop shows that it turns.
_BEAT_S = 0.25


class Puller(Protocol):
    """What pulls requests: the Rust side."""

    def fileno(self) -> int: ...
    def turn(self) -> None: ...
    def begin(
        self,
        app: ASGIApp,
        event_loop: asyncio.AbstractEventLoop,
        state: dict[str, Any] | None,
        over: asyncio.Event,
        task_options: dict[str, Any] | None,
    ) -> None: ...
    def beat(self) -> None: ...
    def is_leaving(self) -> bool: ...
    def leave(self) -> None: ...


class StartUpError(Exception):
    """The app has said, or shown, that it cannot start up."""


class EventLoop:
    """An event loop with an app. `start_up` comes before the worker is ready, `serve` lasts until it leaves."""

    def __init__(self, app: ASGIApp, puller: Puller, kind: str, lifespan: str) -> None:
        self._app = app
        self._puller = puller
        self._loop = _new_loop(kind)
        self._loop.set_exception_handler(self._report)
        asyncio.set_event_loop(self._loop)
        self._lifespan = None if lifespan == "off" else Lifespan(app, is_needed=lifespan == "on")
        self._over = asyncio.Event()

    def start_up(self) -> None:
        """Let the app start up; StartUpError if it cannot."""
        if self._lifespan is not None:
            self._loop.run_until_complete(self._lifespan.start_up())

    def serve(self) -> None:
        """Serve until the worker is to leave and nothing runs any more, then let the app shut down."""
        state = None if self._lifespan is None else self._lifespan.state
        # A task whose app never waits needs no turn of the loop of its own (Python 3.12).
        options = {"loop": self._loop, "eager_start": True} if sys.version_info >= (3, 12) else None
        self._loop.add_reader(self._puller.fileno(), self._puller.turn)
        self._beat()
        self._puller.begin(self._app, self._loop, state, self._over, options)
        while not self._over.is_set():
            self._run(self._over.wait())
        self._loop.remove_reader(self._puller.fileno())
        if self._lifespan is not None:
            self._run(self._lifespan.shut_down())
        self._close()

    def _run(self, awaitable: Awaitable[object]) -> None:
        """Run the loop; what asks the process to exit makes the worker leave."""
        try:
            self._loop.run_until_complete(awaitable)
        except SystemExit:
            log(_INFO, "the app asked to exit: the worker leaves")
            self._puller.leave()

    def _beat(self) -> None:
        self._puller.beat()
        self._loop.call_later(_BEAT_S, self._beat)

    def _report(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody has caught goes to the error log."""
        # Imported here, as most loops have nothing to report.
        import traceback

        text = f"event loop: {context['message']}"
        failure = context.get("exception")
        if failure is not None:
            text += "\n" + "".join(traceback.format_exception(failure)).rstrip()
        log(_ERROR, text)

    def _close(self) -> None:
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._run(asyncio.gather(*left, return_exceptions=True))
        self._run(self._loop.shutdown_asyncgens())
        self._run(self._loop.shutdown_default_executor())
        self._loop.close()


class Lifespan:
    """The app's lifespan: `state` is what it has put there at its start, for every request."""

    def __init__(self, app: ASGIApp, *, is_needed: bool) -> None:
        self._app = app
        self._is_needed = is_needed
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.state: dict[str, Any] = {}

    async def _call_app(self) -> None:
        scope: dict[str, Any] = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        await self._app(scope, self._events.get, self._answers.put)

    async def _tell(self, event: str) -> Message | None:
        """Send an event, and give the answer; `None` if the app's call ends without one."""
        assert self._task is not None
        self._events.put_nowait({"type": event})
        answer = asyncio.ensure_future(self._answers.get())
        await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        answer.cancel()
        return None

    async def start_up(self) -> None:
        """Let the app start up; StartUpError if it says that it cannot."""
        self._task = asyncio.get_running_loop().create_task(self._call_app())
        answer = await self._tell("lifespan.startup")
        if answer is None:
            failure = self._task.exception()
            self._task = None
            if self._is_needed:
                raise StartUpError("the app does not support lifespan, which `lifespan` is `on` for") from failure
            return
        if answer["type"] == "lifespan.startup.failed":
            raise StartUpError(answer.get("message") or "the app sent lifespan.startup.failed")
        if answer["type"] != "lifespan.startup.complete":
            raise StartUpError(f"the app answered lifespan.startup by {answer['type']!r}")

    async def shut_down(self) -> None:
        """Let the app shut down."""
        if self._task is None or self._task.done():
            return
        answer = await self._tell("lifespan.shutdown")
        if answer is not None and answer["type"] == "lifespan.shutdown.failed":
            log(_ERROR, f"the app does not shut down: {answer.get('message') or 'it did not say why'}")
        await asyncio.wait({self._task})


def _new_loop(kind: str) -> asyncio.AbstractEventLoop:
    if kind != "asyncio":
        try:
            import uvloop
        except ModuleNotFoundError:
            if kind == "uvloop":
                raise StartUpError("`loop` is uvloop, which this Python does not have: pip install uvloop") from None
        else:
            loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
            return loop
    return asyncio.new_event_loop()
