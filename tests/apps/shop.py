"""The app of the examples: `/held` waits for the test's pass, all else is echo's."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from echo import raw
from rendezvous import announce, wait_for_pass


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if environ["PATH_INFO"].endswith("/held"):
        announce("held")
        wait_for_pass()
    return raw(environ, start_response)
