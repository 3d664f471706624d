"""Gives heads that have strings, pairs and lists in common: the very same objects, time and again."""

from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

OK = "200 OK"
KIND = ("Content-Type", "text/plain")
NAME, VALUE = "X-By", "the app"
BY = (NAME, VALUE)
USUAL = [KIND, BY]


class Text(str):
    """A str of the app's own class."""


HEADS: dict[str, tuple[str, list[Any]]] = {
    "usual": (OK, USUAL),
    "equal": ("200 " + "OK"[:], [KIND, (NAME, VALUE)]),
    "other-status": ("404 Not Here", USUAL),
    "other-name": (OK, [KIND, ("X-For", VALUE)]),
    "other-value": (OK, [KIND, (NAME, "another app")]),
    "other-order": (OK, [BY, KIND]),
    "fewer": (OK, [KIND]),
    "more": (OK, [*USUAL, BY]),
    "none": (OK, []),
    "told": (OK, [*USUAL, ("Content-Length", "4")]),
    "of-the-connection": (OK, [KIND, ("Connection", "close"), BY]),
    "of-own-class": (OK, [KIND, (NAME, Text(VALUE))]),
    "long": (OK, [*USUAL, ("X-Long", "a" * 8192)]),
    "many": (OK, [BY] * 40),
    "no-content": ("204 No Content", USUAL),
    "half-a-pair": (OK, [KIND, (NAME,)]),
    "three-of-a-pair": (OK, [KIND, (NAME, VALUE, VALUE)]),
    "a-list-for-a-pair": (OK, [KIND, [NAME, VALUE]]),
    "not-a-name": (OK, [KIND, ("X By", VALUE)]),
    "not-a-length": (OK, [*USUAL, ("Content-Length", "four")]),
}
growing: list[tuple[str, str]] = [KIND]
"""The very list that was given before, with more in it each time."""


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    name = environ["PATH_INFO"].removeprefix("/")
    if name == "growing":
        growing.append(BY)
        start_response(OK, growing)
    else:
        start_response(*HEADS[name])
    return [environ["QUERY_STRING"].encode() or b"four"]
