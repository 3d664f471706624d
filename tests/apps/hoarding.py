"""Apps that keep what they were given, or wait before they give, as the path says."""

from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

kept: list[WSGIEnvironment] = []


class Endless:
    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    def close(self) -> None:
        announce("closed")


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    match environ["PATH_INFO"]:
        case "/keep-environ":
            kept.append(environ)
            start_response("200 OK", [])
            return Endless()
        case "/file-on-pass":
            announce("waits")
            wait_for_pass()
            start_response("200 OK", [])
            answer: Iterable[bytes] = environ["wsgi.file_wrapper"](open(__file__, "rb"))
            return answer
    start_response("200 OK", [])
    return [b"fine"]
