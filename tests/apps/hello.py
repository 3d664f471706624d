"""The smallest whole app."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.validate import validator


def hello(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
    return [b"hello\n"]


app = validator(hello)
application = app


def create_app(greeting: str = "made\n") -> object:
    """A factory; `module:create_app()` and `module:create_app("other")` call it."""

    def made(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [greeting.encode()]

    return validator(made)


class Holder:
    """An app that is an attribute of an object: `module:holder.app`."""

    app = staticmethod(app)


holder = Holder()
text = "not callable"
