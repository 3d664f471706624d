"""Says what arrived: the environ as JSON and the body's length and hash.

`raw` is the app itself, `app` the same under PEP 3333's validator. `?count=N` reads in pieces of N.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.validate import validator


def plain(value: Any) -> Any:
    """A value of the environ as JSON can carry it: text and flags as they are, objects by what they can do."""
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, tuple):
        return list(value)
    return "callable" if callable(value) else "object"


def raw(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    body, digest, length = environ["wsgi.input"], hashlib.sha256(), 0
    count = int(parse_qs(environ["QUERY_STRING"]).get("count", ["65536"])[0])
    while part := body.read(count):
        digest.update(part)
        length += len(part)
    answer = {
        "environ": {key: plain(value) for key, value in environ.items()},
        "types": {key: type(value).__name__ for key, value in environ.items()},
        "length": length,
        "sha256": digest.hexdigest(),
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


app = validator(raw)
