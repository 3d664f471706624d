"""Says what the worker keeps for later requests: what its templates of environs say, and which keys it has interned."""

import gc
import json
import sys
from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment


def templates(environ: WSGIEnvironment) -> Iterator[WSGIEnvironment]:
    # The first one is made before the fork, and frozen with all that there is then.
    gc.unfreeze()
    for thing in gc.get_objects():
        if type(thing) is dict and "wsgi.input" in thing and thing is not environ:
            yield thing


def is_interned(text: str) -> bool:
    """Whether this string is the interned one. If there is none, the copy becomes interned, until it is gone."""
    return sys.intern(text.encode("latin-1").decode("latin-1")) is text


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    kept = {text for each in templates(environ) for pair in each.items() for text in pair if isinstance(text, str)}
    answer = {
        "environ": {key: value for key, value in environ.items() if isinstance(value, str)},
        "kept": sorted(kept),
        "interned": [key for key in environ if key.startswith("HTTP_") and is_interned(key)],
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
