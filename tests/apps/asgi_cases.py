"""Behaviours of ASGI apps, one per path; /seen answers what the one before saw, /messages sends what the test names.

Each is a call `(scope, receive, send)`; the next request asks for the notes that it has made after its answer.
"""

import asyncio
import contextvars
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from rendezvous import announce, wait_for_pass

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Any], Awaitable[None]]

SEEN: list[Any] = []
KEPT: list[Any] = []
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


def start(status: Any = 200, headers: Any = ()) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(piece: Any = b"", more: bool = False) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}


def some_headers() -> Iterator[tuple[bytes, bytes]]:
    yield (b"x-one", b"1")
    yield (b"x-two", b"2")


LENGTH = b"content-length"

MESSAGES: dict[str, list[Any]] = {
    "plain": [start(), body(b"plain")],
    "in pieces": [start(), body(b"a", True), body(b"", True), body(b"b", True), body()],
    "no body key": [start(), {"type": "http.response.body"}],
    "no headers key": [{"type": "http.response.start", "status": 201}, body(b"x")],
    "memoryview": [start(), body(memoryview(b"memoryview"))],
    "bytearray": [start(), body(bytearray(b"bytearray"))],
    "headers of a generator": [start(headers=some_headers()), body(b"x")],
    "headers as lists": [start(headers=[[b"x-one", b"1"], [b"x-two", b"2"]]), body(b"x")],
    "headers twice": [start(headers=[(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]), body(b"x")],
    "hop-by-hop": [start(headers=[(b"connection", b"x-y"), (b"transfer-encoding", b"chunked")]), body(b"x")],
    "closes": [start(headers=[(b"connection", b"Close")]), body(b"last")],
    "closes in pieces": [start(headers=[(b"connection", b"x-y, close")]), body(b"a", True), body(b"b")],
    "204": [start(204), body(b"not sent")],
    "304": [start(304, [(LENGTH, b"5")]), body(b"not sent")],
    "length": [start(headers=[(LENGTH, b"4")]), body(b"ab", True), body(b"cd")],
    "length too short": [start(headers=[(LENGTH, b"3")]), body(b"ab", True), body(b"cd")],
    "length too long": [start(headers=[(LENGTH, b"9")]), body(b"ab", True), body(b"cd")],
    "no end": [start(), body(b"ab", True)],
    "start alone": [start()],
    "nothing": [],
    "body first": [body(b"x")],
    "two starts": [start(), start(201)],
    "after the end": [start(), body(b"whole"), body(b"more")],
    "start after the end": [start(), body(b"whole"), start()],
    "no status": [{"type": "http.response.start"}, body()],
    "status as text": [start("200"), body()],
    "status 99": [start(99), body()],
    "status 1000": [start(1000), body()],
    "headers as text": [start(headers=[("x-one", "1")]), body()],
    "not a pair": [start(headers=[(b"x-one",)]), body()],
    "a header in a header": [start(headers=[(b"x-one", b"1\r\nx-two: 2")]), body()],
    "a bad name": [start(headers=[(b"x one", b"1")]), body()],
    "a bad length": [start(headers=[(LENGTH, b"-1")]), body()],
    "two lengths": [start(headers=[(LENGTH, b"1"), (LENGTH, b"2")]), body(b"x")],
    "body as text": [start(), body("text")],
    "body as number": [start(), body(5)],
    "unknown type": [{"type": "http.response.nonsense"}],
    "no type": [{"status": 200}],
    "not a dict": [b"message"],
}


async def answer(send: Send, what: Any) -> None:
    text = json.dumps(what, default=repr).encode()
    await send(start(headers=[(b"content-type", b"application/json")]))
    await send(body(text))


async def whole(receive: Receive) -> bytes:
    pieces = []
    while True:
        event = await receive()
        pieces.append(event.get("body", b""))
        if not event.get("more_body"):
            return b"".join(pieces)


async def events(receive: Receive) -> list[list[Any]]:
    got = []
    while not got or got[-1][2]:
        event = await receive()
        got.append([event["type"], len(event.get("body", b"")), event.get("more_body", False)])
    return got


async def outcome(awaitable: Awaitable[Any]) -> Any:
    """The result, or the name of the exception."""
    try:
        return await awaitable
    except BaseException as raised:
        return type(raised).__name__


async def scope_(scope: Message, receive: Receive, send: Send) -> None:
    """The scope, with types that JSON does not tell apart."""
    shown = {key: repr(value) for key, value in scope.items()}
    extensions = scope.get("extensions", {})
    for spoiled in (scope["asgi"], scope["state"], *extensions.values(), extensions):
        spoiled["spoilt"] = None
    scope["headers"] = None
    await answer(send, shown)


async def seen(scope: Message, receive: Receive, send: Send) -> None:
    await answer(send, SEEN)
    SEEN.clear()


async def messages(scope: Message, receive: Receive, send: Send) -> None:
    for number, message in enumerate(MESSAGES[scope["query_string"].decode().replace("+", " ")]):
        try:
            await send(message)
        except Exception as raised:
            SEEN.append([number, type(raised).__name__])
            raise
    SEEN.append("returned")


async def received(scope: Message, receive: Receive, send: Send) -> None:
    await answer(send, await events(receive))


async def digest(scope: Message, receive: Receive, send: Send) -> None:
    await answer(send, (await whole(receive)).decode("latin-1"))


async def after_the_body(scope: Message, receive: Receive, send: Send) -> None:
    """Again and again, for as long as nothing comes."""
    got = [await whole(receive)]
    got += [await outcome(asyncio.wait_for(receive(), 0.02)) for _ in range(3)]
    await answer(send, [text if isinstance(text, str) else text.decode() for text in got])


async def after_the_answer(scope: Message, receive: Receive, send: Send) -> None:
    await answer(send, await events(receive))
    SEEN.append(await receive())
    SEEN.append(await receive())


async def before_reading(scope: Message, receive: Receive, send: Send) -> None:
    """The body is never asked for before the answer."""
    await answer(send, "early")
    SEEN.append(await receive())


async def twice_at_once(scope: Message, receive: Receive, send: Send) -> None:
    tasks = [asyncio.create_task(receive()) for _ in range(2)]
    await asyncio.wait(tasks, timeout=0.1)
    await answer(send, sorted(task.result()["body"].decode() if task.done() else "waits" for task in tasks))
    for task in tasks:
        await task


async def cancelled_before_it_begins(scope: Message, receive: Receive, send: Send) -> None:
    task = asyncio.create_task(receive())
    task.cancel()
    first = await outcome(task)
    await answer(send, [first, (await whole(receive)).decode()])


async def not_awaited(scope: Message, receive: Receive, send: Send) -> None:
    receive().close()
    send(start(500)).close()
    await answer(send, (await whole(receive)).decode())


async def in_task_groups(scope: Message, receive: Receive, send: Send) -> None:
    # Few tests ask for this, and the import takes long.
    import anyio

    async with asyncio.TaskGroup() as group:
        first = group.create_task(receive())
    async with anyio.create_task_group() as started:
        started.start_soon(send, start())
    with anyio.move_on_after(0.02) as scope_of_wait:
        await receive()
    await send(body(first.result()["body"] + (b" timed out" if scope_of_wait.cancelled_caught else b" came")))


async def of_a_thread(scope: Message, receive: Receive, send: Send) -> None:
    loop = asyncio.get_running_loop()

    def talk() -> None:
        def wait_for(awaitable: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(awaitable, loop).result(10)

        event = wait_for(receive())
        wait_for(send(start()))
        for _ in range(3):
            wait_for(send(body(event["body"], True)))
        wait_for(send(body()))

    await asyncio.to_thread(talk)


async def of_many_tasks(scope: Message, receive: Receive, send: Send) -> None:
    await send(start())
    await asyncio.gather(*(send(body(bytes([letter]) * 300_000, True)) for letter in b"abcde"))
    await send(body())


async def send_given_up(scope: Message, receive: Receive, send: Send) -> None:
    """The client does not read yet: an app that gives up waiting loses nothing that it has sent."""
    await send(start())
    SEEN.append(await outcome(asyncio.wait_for(send(body(b"a" * 30_000_000, True)), 0.2)))
    announce("given up")
    await send(body(b"b" * 10))


async def left_to_a_child(scope: Message, receive: Receive, send: Send) -> None:
    """The task of the request ends before the send of another one does, which is the last."""
    await send(start(headers=[(LENGTH, b"30000000")]))
    KEPT.append(asyncio.create_task(send(body(b"c" * 30_000_000))))
    await asyncio.sleep(0)
    announce("returned")


async def child_that_is_late(scope: Message, receive: Receive, send: Send) -> None:
    """The same, but there was to be more."""

    async def child() -> None:
        SEEN.append(await outcome(send(body(b"d" * 30_000_000, True))))

    await send(start())
    KEPT.append(asyncio.create_task(child()))
    await asyncio.sleep(0)
    announce("returned")


async def gone(scope: Message, receive: Receive, send: Send) -> None:
    """Waits for the client to leave, and still sends to it."""
    await whole(receive)
    announce("waits")
    SEEN.append(await receive())
    last = None
    for message in (start(), body(b"x")):
        try:
            await send(message)
            SEEN.append("sent")
        except OSError as raised:
            SEEN.append("OSError")
            last = raised
    announce("over")
    if last is not None:
        # Frameworks do so.
        raise RuntimeError("the client is gone") from last


async def beyond(scope: Message, receive: Receive, send: Send) -> None:
    """Has more to say when the client has all that it is to have."""
    await send(start(headers=[(LENGTH, b"4")]))
    outcomes = [await outcome(send(body(piece, True))) for piece in (b"ab", b"cd")]
    await asyncio.to_thread(wait_for_pass)
    outcomes += [await outcome(send(body(b"", more))) for more in (True, False)]
    SEEN.append(outcomes)


async def endless(scope: Message, receive: Receive, send: Send) -> None:
    await send(start())
    sent = 0
    try:
        while True:
            await send(body(b"x", True))
            sent += 1
    except OSError:
        SEEN.append(sent)


async def cancels_itself(scope: Message, receive: Receive, send: Send) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


class Odd(BaseException):
    """An exception that no `except Exception` catches."""


async def burns(scope: Message, receive: Receive, send: Send) -> None:
    """Has the core for so many milliseconds, however long that takes."""
    until_s = time.thread_time() + int(scope["query_string"]) / 1000
    while time.thread_time() < until_s:
        pass
    await answer(send, "burnt")


async def raises(scope: Message, receive: Receive, send: Send) -> None:
    match scope["query_string"].decode():
        case "odd":
            raise Odd
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "late":
            await answer(send, "whole")
            raise RuntimeError("raised after the answer")
        case "halfway":
            await send(start())
            await send(body(b"half", True))
            raise RuntimeError("raised halfway")
    raise RuntimeError("raised at once")


async def background(scope: Message, receive: Receive, send: Send) -> None:
    await answer(send, "whole")
    announce("answered")
    event = asyncio.Event()
    KEPT.append(event)
    await event.wait()
    announce("done")


async def release(scope: Message, receive: Receive, send: Send) -> None:
    KEPT.pop().set()
    await answer(send, "released")


async def context(scope: Message, receive: Receive, send: Send) -> None:
    before = VARIABLE.get()
    VARIABLE.set(before + 1)
    task = asyncio.current_task()
    await asyncio.sleep(0)
    await answer(send, [before, VARIABLE.get(), task is not None and task is asyncio.current_task()])


CALLS: dict[str, Callable[[Message, Receive, Send], Awaitable[None]]] = {
    f"/{call.__name__.strip('_')}": call
    for call in (
        scope_, seen, messages, received, digest, after_the_body, after_the_answer, before_reading, twice_at_once,
        cancelled_before_it_begins, not_awaited, in_task_groups, of_a_thread, of_many_tasks, send_given_up,
        left_to_a_child, child_that_is_late, gone, beyond, endless, cancels_itself, burns, raises, background, release,
        context,
    )
}  # fmt: skip


async def app(scope: Message, receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    await CALLS.get(scope["path"], scope_)(scope, receive, send)


async def socket(scope: Message, receive: Receive, send: Send) -> None:
    """Opens a WebSocket once it is let, in a context of its own, and answers other requests as `app` does."""
    if scope["type"] != "websocket":
        await app(scope, receive, send)
        return
    VARIABLE.set(100)
    announce("asked")
    await asyncio.to_thread(wait_for_pass)
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


class Plain:
    """One whose call is no coroutine function, and looks at its task before it gives an awaitable."""

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]:
        assert asyncio.current_task() is not None
        VARIABLE.set(VARIABLE.get() + 10)
        return asyncio.ensure_future(app(scope, receive, send))


plain = Plain()


async def pathsend(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Sends files by the extension http.response.pathsend: the path is the file's, the query a Content-Length."""
    length = scope["query_string"]
    headers = [(b"content-length", length)] if length else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.pathsend", "path": scope["path"]})
