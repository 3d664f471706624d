"""The event loop of a worker whose app is an ASGI one: its start-up, its requests, its end (lifespan 2.0).

Apps that are no coroutine functions are called within the task of their request, so that they find its context.
"""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, Protocol

from stanchion._stanchion import log

Message = MutableMapping[str, Any]
ASGIApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

# Levels of the error log, as of `logging`, which is not imported for them.
_INFO, _ERROR = 20, 40

# How often the loop shows that it turns, while it has something to do.
_BEAT_S = 0.25

# The process ends in order in this last part of `graceful_timeout`, before the master kills it; at most a tenth of it.
_MARGIN_S = 1.0

# Each of the last steps has at least this long: most have nothing to wait for.
_STEP_S = 0.1


class Puller(Protocol):
    """The Rust side, which takes requests from the line."""

    def fileno(self) -> int: ...
    def silence(self) -> None: ...
    def turn(self) -> None: ...
    def begin(
        self,
        app: ASGIApp,
        event_loop: asyncio.AbstractEventLoop,
        state: dict[str, Any],
        over: asyncio.Event,
        hasten: Callable[[], None],
        task_options: dict[str, Any] | None,
    ) -> None: ...
    def pace(self) -> float: ...
    def beat(self, lag_us: int) -> None: ...
    def rest(self) -> None: ...
    def end_if_forked(self, raised: BaseException | None = None) -> None: ...
    def is_leaving(self) -> bool: ...
    def leave(self) -> None: ...


class StartUpError(Exception):
    """The app has said, or shown, that it cannot start up."""


class EventLoop:
    """An event loop with an app. `start_up` comes before the worker is ready, `serve` lasts until it leaves."""

    def __init__(self, app: ASGIApp, puller: Puller, settings: Mapping[str, Any]) -> None:
        self._app = app if _is_coroutine_function(app) else _awaited(app)
        self._puller = puller
        self._loop = _new_loop(settings["loop"])
        self._loop.set_exception_handler(self._report)
        asyncio.set_event_loop(self._loop)
        lifespan = settings["lifespan"]
        self._lifespan = None if lifespan == "off" else Lifespan(self._app, is_needed=lifespan == "on")
        self._over = asyncio.Event()
        self._beat_at = 0.0
        # How long the worker may take to leave, and until when, once it is to.
        graceful_s = settings["graceful_timeout"]
        self._grace_s = graceful_s - min(_MARGIN_S, graceful_s / 10)
        self._leave_by: float | None = None

    def start_up(self) -> bool:
        """Let the app start up; StartUpError if it cannot. False if the worker is to leave before it has."""
        if self._lifespan is None:
            return True
        starting = self._loop.create_task(self._lifespan.start_up())
        self._loop.add_reader(self._puller.fileno(), self._give_up_if_leaving, starting)
        try:
            self._loop.run_until_complete(starting)
        except (SystemExit, KeyboardInterrupt) as failure:
            self._puller.end_if_forked(failure)
            raise StartUpError(f"the app raised {type(failure).__name__} when it started up") from failure
        except asyncio.CancelledError:
            if not self._puller.is_leaving():
                raise StartUpError("the app cancelled all tasks when it started up") from None
        finally:
            self._puller.end_if_forked(sys.exc_info()[1])
            self._loop.remove_reader(self._puller.fileno())
        if starting.cancelled():
            self._close()
            return False
        return True

    def serve(self) -> None:
        """Serve until the worker is to leave and nothing runs any more, then let the app shut down."""
        state = {} if self._lifespan is None else self._lifespan.state
        # A task whose app never waits needs no turn of the loop of its own (Python 3.12). An app that has a factory of
        # its own for tasks wants it for those of requests, too.
        is_eager = sys.version_info >= (3, 12) and self._loop.get_task_factory() is None
        options = {"loop": self._loop, "eager_start": True} if is_eager else None
        self._loop.add_reader(self._puller.fileno(), self._puller.turn)
        self._beat_at = self._loop.time()
        self._beat()
        self._puller.begin(self._app, self._loop, state, self._over, self._hasten, options)
        while not self._over.is_set():
            self._run(self._over.wait())
        self._loop.remove_reader(self._puller.fileno())
        if self._lifespan is not None:
            self._finish("the app's lifespan.shutdown", self._lifespan.shut_down())
        self._close()

    def _run(self, awaitable: Awaitable[object]) -> None:
        """Run the loop; what asks the process to exit, or stops the loop, makes the worker leave."""
        try:
            self._loop.run_until_complete(awaitable)
        except (SystemExit, KeyboardInterrupt) as asked:
            self._puller.end_if_forked(asked)
            log(_INFO, f"the app asked to exit ({type(asked).__name__}): the worker leaves")
            self._puller.leave()
        except RuntimeError:
            if self._loop.is_closed():
                raise
            # The awaited future raises no RuntimeError, so the app has called `loop.stop()`. Let running requests end.
            log(_INFO, "the app stopped the event loop: the worker leaves")
            self._puller.leave()

    def _finish(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        """Do one of the last things. It is waited for no longer than a worker may take to leave."""
        task = self._loop.create_task(work)
        self._wait_for(task, max(self._when_to_be_gone(), self._loop.time() + _STEP_S))
        if not task.done():
            log(_ERROR, f"{what} does not end within graceful_timeout, and is given up")
        elif not task.cancelled() and isinstance(failure := task.exception(), Exception):
            raise failure

    def _wait_for(self, task: "asyncio.Task[object]", until: float) -> None:
        while not task.done() and self._loop.time() < until:
            self._run(asyncio.wait({task}, timeout=until - self._loop.time()))

    def _when_to_be_gone(self) -> float:
        if self._leave_by is None:
            self._leave_by = self._loop.time() + self._grace_s
        return self._leave_by

    def _give_up_if_leaving(self, starting: "asyncio.Task[None]") -> None:
        self._puller.silence()
        if self._puller.is_leaving():
            starting.cancel()

    def _beat(self) -> None:
        """Show that the loop turns, and how late it is."""
        if self._puller.is_leaving():
            self._when_to_be_gone()
        now = self._loop.time()
        lag_us = max(0, round((now - self._beat_at) * 1e6))
        # Set the next beat first: then it is on time, however long the app holds up this turn.
        self._beat_after(now, self._puller.pace())
        self._puller.beat(lag_us)

    def _hasten(self) -> None:
        """Beat at the usual pace: there is something to do."""
        now = self._loop.time()
        # A beat that is due already runs in this turn, and reports how late the loop is.
        if now < self._beat_at:
            self._next_beat.cancel()
            self._beat_after(now, _BEAT_S)

    def _beat_after(self, now: float, pause_s: float) -> None:
        self._beat_at = now + pause_s
        self._next_beat = self._loop.call_at(self._beat_at, self._beat)

    def _report(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Write an exception that the app has not caught to the error log."""
        text = f"event loop: {context['message']}"
        failure = context.get("exception")
        if failure is not None:
            text += "\n" + described(failure)
        log(_ERROR, text)

    def _close(self) -> None:
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._finish("a task of the app's that was cancelled", _ended(left))
        self._finish("an asynchronous generator of the app's", self._loop.shutdown_asyncgens())
        self._let_threads_end()
        self._puller.rest()
        self._loop.close()

    def _let_threads_end(self) -> None:
        """Threads of the loop's executor have a moment. The log names those that then stay when the process leaves."""
        # Imported here, as a worker has no use for it before.
        from stanchion import leaving

        task = self._loop.create_task(self._loop.shutdown_default_executor())
        now = self._loop.time()
        until = max(min(self._when_to_be_gone(), now + leaving.seconds_for_threads()), now + _STEP_S)
        self._wait_for(task, until)
        if not task.done():
            # Its coroutine joins a thread when it is closed (`shutdown_default_executor`), so nothing may close it.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            leaving.unfinished.append(task)


class Lifespan:
    """The app's lifespan: `state` is what it has put there at its start, for every request."""

    def __init__(self, app: ASGIApp, *, is_needed: bool) -> None:
        self._app = app
        self._is_needed = is_needed
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._answer: Message | None = None
        self._is_answered = asyncio.Event()
        # The event that the app has received last and may answer: `startup` or `shutdown`.
        self._asked: str | None = None
        # The app waits for an event after the last one, which never comes.
        self._is_waiting_on = asyncio.Event()
        self.state: dict[str, Any] = {}

    async def _receive(self) -> Message:
        if self._asked == "shutdown" and self._is_answered.is_set():
            self._is_waiting_on.set()
        event = await self._events.get()
        self._asked = event["type"].removeprefix("lifespan.")
        return event

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind not in (f"lifespan.{self._asked}.complete", f"lifespan.{self._asked}.failed"):
            raise RuntimeError(f"{kind!r} is no answer to what the server sent last")
        if self._is_answered.is_set():
            raise RuntimeError(f"lifespan.{self._asked} was answered already")
        self._answer = message
        self._is_answered.set()

    async def _call_app(self) -> None:
        scope: dict[str, Any] = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        await self._app(scope, self._receive, self._send)

    async def _tell(self, event: str) -> Message | None:
        """Send an event, and give the answer; `None` if the app's call ends without one."""
        assert self._task is not None
        self._answer = None
        self._is_answered.clear()
        self._events.put_nowait({"type": event})
        await self._first_of(self._is_answered)
        return self._answer

    async def _first_of(self, event: asyncio.Event) -> None:
        """Wait for it, or for the end of the app's call."""
        assert self._task is not None
        happens = asyncio.ensure_future(event.wait())
        await asyncio.wait({happens, self._task}, return_when=asyncio.FIRST_COMPLETED)
        happens.cancel()

    async def start_up(self) -> None:
        """Let the app start up; StartUpError if it says that it cannot."""
        self._task = asyncio.get_running_loop().create_task(self._call_app())
        # Fetch the exception in a callback, so that asyncio does not log it as never retrieved.
        self._task.add_done_callback(_raised)
        answer = await self._tell("lifespan.startup")
        if answer is None:
            self._is_unsupported(_raised(self._task))
            self._task = None
        elif answer["type"] == "lifespan.startup.failed":
            raise StartUpError(answer.get("message") or "the app sent lifespan.startup.failed")

    def _is_unsupported(self, failure: BaseException | None) -> None:
        """The app's call has ended: it has failed if it had received an event, else it does not know lifespan."""
        if failure is not None and self._asked is not None:
            if self._is_needed:
                raise StartUpError(f"the app raised {type(failure).__name__} at lifespan.startup") from failure
            said = described(failure)
            log(_ERROR, f"the app failed at lifespan.startup, and is served as if it had no lifespan\n{said}")
        elif self._is_needed:
            raise StartUpError("the app does not support lifespan, which `lifespan` is `on` for") from failure

    async def shut_down(self) -> None:
        """Let the app shut down."""
        if self._task is None:
            return
        answer = None if self._task.done() else await self._tell("lifespan.shutdown")
        if answer is not None and answer["type"] == "lifespan.shutdown.failed":
            log(_ERROR, f"the app does not shut down: {answer.get('message') or 'it did not say why'}")
        # Let the app do what follows its answer, until it returns or waits for an event that never comes.
        await self._first_of(self._is_waiting_on)
        failure = _raised(self._task) if self._task.done() else None
        if failure is not None:
            log(_ERROR, f"the app failed in its lifespan\n{described(failure)}")


async def _ended(tasks: "set[asyncio.Task[Any]]") -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _raised(task: "asyncio.Task[None]") -> BaseException | None:
    """The exception by which a finished task has ended."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def described(failure: BaseException) -> str:
    """The traceback of what was raised, as Python shows it."""
    # Imported here, as most loops have nothing to report.
    import traceback

    return "".join(traceback.format_exception(failure)).rstrip()


def _is_coroutine_function(app: ASGIApp) -> bool:
    """Whether what the app returns can be made a task as it is, and nothing of the app runs before that."""
    return inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(type(app).__call__)


def _awaited(app: ASGIApp) -> ASGIApp:
    """An app that returns some awaitable, called within the task of its request as if it were a coroutine function."""

    async def call(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        await app(scope, receive, send)

    return call


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
