"""Apps that keep what they were given, look for what the worker keeps, or wait before they give."""

import gc
import json
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

kept: list[Any] = []
notes: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def things(environ: WSGIEnvironment, start_response: StartResponse) -> dict[str, Callable[[], Any]]:
    return {
        "environ": lambda: environ,
        "start_response": lambda: start_response,
        "response": lambda: start_response.__self__,  # type: ignore[attr-defined]
        "write": lambda: start_response("200 OK", [("X-By", "itself")]),
        "client_gone": lambda: environ["stanchion.client_gone"],
        "extend_deadline": lambda: environ["stanchion.extend_deadline"],
        "early_hints": lambda: environ["wsgi.early_hints"],
        "input": lambda: environ["wsgi.input"],
    }


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Keeps one of the things that it gets with a request, or a note on it, and uses it during a later one."""
    _, verb, name = environ["PATH_INFO"].split("/")
    thing = things(environ, start_response)[name]()
    if name != "write":
        start_response("200 OK", [("X-By", "itself")])
    if verb == "keep":
        kept.append(thing)
        return [b"kept"]
    if verb == "note":
        notes[thing] = "of an earlier request"
        return [b"noted"]
    if verb == "look":
        return [json.dumps(notes.get(thing)).encode()]
    old = kept.pop()
    return [json.dumps({"is_same": old is thing, "came_of_it": use(name, old)}).encode()]


def use(name: str, old: Any) -> object:
    """Has the thing do what it would do for its own request."""
    match name:
        case "start_response":
            try:
                old("201 Created", [("X-By", "another")])
            except AssertionError as refused:
                return str(refused)
            return "replaced"
        case "write":
            return old(b"by another")
        case "client_gone":
            return old()
        case "extend_deadline":
            return old(3)
        case "early_hints":
            return old([("Link", "</of-another>")])
        case "environ":
            return use("client_gone", old["stanchion.client_gone"])
        case "response":
            return use("client_gone", old.client_gone)
        case _:
            return old.read().decode()


def templates(environ: WSGIEnvironment) -> Iterator[WSGIEnvironment]:
    # The first one is made before the fork, and frozen with all that there is then.
    gc.unfreeze()
    for thing in gc.get_objects():
        if type(thing) is dict and "wsgi.input" in thing and thing is not environ:
            yield thing


def is_interned(text: str) -> bool:
    """Whether this string is the interned one. If there is none, the copy becomes interned, until it is gone."""
    return sys.intern(text.encode("latin-1").decode("latin-1")) is text


def retained(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Says what the worker keeps for later requests: the texts of its templates of environs, and the interned keys."""
    kept = {text for each in templates(environ) for pair in each.items() for text in pair if isinstance(text, str)}
    answer = {
        "environ": {key: value for key, value in environ.items() if isinstance(value, str)},
        "kept": sorted(kept),
        "interned": [key for key in environ if key.startswith("HTTP_") and is_interned(key)],
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


hoarded: list[WSGIEnvironment] = []


class Endless:
    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    def close(self) -> None:
        announce("closed")


def hoarding(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Keeps the environ that it was given, or waits before it gives a file, as the path says."""
    match environ["PATH_INFO"]:
        case "/keep-environ":
            hoarded.append(environ)
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
