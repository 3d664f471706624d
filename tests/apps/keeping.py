"""Keeps one of the things that it gets with a request, or a note on it, and uses it during a later one."""

import json
import weakref
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

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
