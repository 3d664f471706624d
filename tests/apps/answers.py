"""One small app per path, each a case of PEP 3333.

Those marked `legal` run under its validator, the rest break a rule.
"""

import io
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from wsgiref.validate import validator

from rendezvous import announce, wait_for_pass

TEXT = ("Content-Type", "text/plain")
routes: dict[str, WSGIApplication] = {}


def legal(path: str) -> Callable[[WSGIApplication], WSGIApplication]:
    def register(app: WSGIApplication) -> WSGIApplication:
        routes[path] = validator(app)
        return app

    return register


def illegal(path: str) -> Callable[[WSGIApplication], WSGIApplication]:
    def register(app: WSGIApplication) -> WSGIApplication:
        routes[path] = app
        return app

    return register


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    return routes[environ["PATH_INFO"]](environ, start_response)


class Closing:
    """An iterable of chunks that announces each of its close() calls; it may fail or wait before a chunk."""

    def __init__(self, chunks: Iterable[bytes], name: str = "closed", fail_at: int | None = None) -> None:
        self._chunks = list(chunks)
        self._name = name
        self._fail_at = fail_at

    def __iter__(self) -> Iterator[bytes]:
        for number, chunk in enumerate(self._chunks):
            if number == self._fail_at:
                raise RuntimeError(f"chunk {number} fails")
            yield chunk

    def close(self) -> None:
        announce(self._name)


@legal("/with-length")
def with_length(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("Content-Length", "4")])
    return [b"four"]


@illegal("/closes")
def closes(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """`Connection` is the server's to say (PEP 3333), but apps do."""
    start_response("200 OK", [TEXT, ("Connection", environ["QUERY_STRING"])])
    return [b"last"]


@legal("/one-chunk")
def one_chunk(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    return [b"alone"]


@legal("/chunks")
def chunks(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    yield from (b"one,", b"", b"two,", b"three")


@legal("/no-content")
def no_content(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("204 No Content", [])
    return []


@illegal("/no-content-with-body")
def no_content_with_body(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("204 No Content", [])
    return [b"must not be sent"]


@illegal("/not-modified-with-body")
def not_modified_with_body(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("304 Not Modified", [])
    return [b"must not be sent"]


@legal("/unusual-status")
def unusual_status(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("299 Something of its own", [TEXT])
    return [b"fine"]


@legal("/own-server-and-date")
def own_server_and_date(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("Server", "mine/1"), ("Date", "Sun, 06 Nov 1994 08:49:37 GMT")])
    return [b"fine"]


@legal("/twice-the-same-header")
def twice_the_same_header(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
    return [b"fine"]


@legal("/latin-1-header")
def latin_1_header(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("X-Got", environ["HTTP_X_SENT"]), ("X-Own", "caf\xe9 \xff")])
    return [b"fine"]


@legal("/write-goes-out-at-once")
def write_goes_out_at_once(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    writer = start_response("200 OK", [TEXT])
    writer(b"early")
    wait_for_pass()
    return [b"late"]


@legal("/chunk-goes-out-at-once")
def chunk_goes_out_at_once(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    yield b"early"
    wait_for_pass()
    yield b"late"


@illegal("/start-twice")
def start_twice(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    start_response("201 Again", [TEXT])
    return [b"never"]


@legal("/start-again-after-the-head")
def start_again_after(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    yield b"sent"
    try:
        raise RuntimeError("too late to change")
    except RuntimeError:
        start_response("500 Too Late", [TEXT], sys.exc_info())
    yield b"never"


@illegal("/never-starts")
def never_starts(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    return [b"no status"]


@illegal("/raises")
def raises(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    raise RuntimeError("the app itself fails")


@illegal("/raises-after-start")
def raises_after_start(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    raise RuntimeError("fails after start_response")


@illegal("/exits")
def exits(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    raise SystemExit("the app wants to leave")


@legal("/closing")
def closing(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    return Closing([b"one", b"two"])


@legal("/closing-head")
def closing_head(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("Content-Length", "6")])
    return Closing([b"one", b"two"])


@legal("/fails-before-the-first-chunk")
def fails_before(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("X-From", "app")])
    return Closing([b"never"], fail_at=0)


@legal("/fails-after-the-first-chunk")
def fails_after(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    return Closing([b"one", b"never"], fail_at=1)


@legal("/fails-after-the-first-chunk-with-length")
def fails_after_with_length(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("Content-Length", "100")])
    return Closing([b"one", b"never"], fail_at=1)


@illegal("/close-fails")
def close_fails(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    class Failing(Closing):
        def close(self) -> None:
            super().close()
            raise RuntimeError("close fails")

    start_response("200 OK", [TEXT, ("Content-Length", "4")])
    return Failing([b"four"])


@legal("/endless")
def endless(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Goes on until the server tells it to stop, by close()."""

    class Endless:
        def __iter__(self) -> Iterator[bytes]:
            announce("started")
            while True:
                yield b"x" * 65536

        def close(self) -> None:
            announce("closed")

    start_response("200 OK", [TEXT])
    return Endless()


@legal("/big")
def big(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """`?N` chunks of 64 KiB."""
    start_response("200 OK", [TEXT])
    for number in range(int(environ["QUERY_STRING"])):
        yield bytes([number % 256]) * 65536


@legal("/big-whole")
def big_whole(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """`?N` bytes in one piece."""
    size = int(environ["QUERY_STRING"])
    start_response("200 OK", [TEXT, ("Content-Length", str(size))])
    return [b"w" * size]


def noise(count: int) -> Iterator[bytes]:
    """`count` chunks of 64 KiB, each unlike all others."""
    return (random.Random(number).randbytes(65536) for number in range(count))


@legal("/noise")
def noise_of_unknown_length(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT])
    yield from noise(int(environ["QUERY_STRING"]))


@legal("/noise-with-length")
def noise_with_length(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    count = int(environ["QUERY_STRING"])
    start_response("200 OK", [TEXT, ("Content-Length", str(count * 65536))])
    yield from noise(count)


@legal("/noise-and-wait")
def noise_and_wait(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Says when all but the last chunk are out of its hands."""
    start_response("200 OK", [TEXT])
    yield from noise(int(environ["QUERY_STRING"]))
    announce(str(os.getpid()))
    wait_for_pass()
    yield b"the end"


@illegal("/body-too-short")
def body_too_short(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("Content-Length", "10")])
    return [b"four"]


@illegal("/body-too-long")
def body_too_long(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TEXT, ("Content-Length", "4")])
    return [b"fo", b"ur and more", b"still more"]


@illegal("/bad-start")
def bad_start(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """start_response with what PEP 3333 forbids; the query names the case."""
    status: Any = "200 OK"
    headers: Any = [TEXT]
    match environ["QUERY_STRING"]:
        case "newline-in-value":
            headers = [TEXT, ("X-A", "1\r\nX-Injected: yes")]
        case "newline-in-status":
            status = "200 OK\r\nX-Injected: yes"
        case "two-lengths":
            headers = [("Content-Length", "4"), ("Content-Length", "5")]
    start_response(status, headers)
    return [b"four"]


@illegal("/hop-by-hop")
def hop_by_hop(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The app frames the message itself, which is the server's business (PEP 3333, "Other HTTP Features")."""
    start_response("200 OK", [TEXT, ("Transfer-Encoding", "chunked")])
    return [b"5\r\nhello\r\n0\r\n\r\n"]


@legal("/errors")
def errors(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    environ["wsgi.errors"].write("a line of the app\n")
    environ["wsgi.errors"].writelines(["in two ", "parts é\n"])
    environ["wsgi.errors"].flush()
    start_response("200 OK", [TEXT])
    return [b"logged"]


@illegal("/print-to-errors")
def print_to_errors(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    print("printed by the app", file=environ["wsgi.errors"])
    print("printed to stderr", file=sys.stderr, flush=True)
    start_response("200 OK", [TEXT])
    return [b"logged"]


@illegal("/keeps-start-response")
def keeps_start_response(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """write() after the end of the request must not reach another's response."""
    if late := _kept.pop("write", None):
        try:
            late(b"from the past")
        except Exception as error:
            print(f"late write refused: {type(error).__name__}", file=sys.stderr, flush=True)
    _kept["write"] = start_response("200 OK", [TEXT])
    return [b"now"]


_kept: dict[str, Any] = {}


@illegal("/file-like-only")
def file_like_only(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """file_wrapper around an object with no descriptor."""
    start_response("200 OK", [TEXT])
    answer: Iterable[bytes] = environ["wsgi.file_wrapper"](io.BytesIO(b"m" * 20_000), 8192)
    return answer
