"""Says in a field of its answer, and in a line of the file SAW, what request it saw: an answer to HEAD has no body."""

import hashlib
import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

FILE = os.open(os.environ["SAW"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    body, digest, length = environ["wsgi.input"], hashlib.sha256(), 0
    while part := body.read(65536):
        digest.update(part)
        length += len(part)
    target = environ["RAW_URI"].encode("latin-1").hex()
    meant = environ.get("HTTP_X_MEANT", "")
    saw = " ".join(
        [environ["REQUEST_METHOD"], target, str(length), digest.hexdigest(), meant.encode("latin-1").hex() or "-"]
    )
    os.write(FILE, saw.encode() + b"\n")
    start_response("200 OK", [("X-Saw", saw), ("Content-Length", "0")])
    return [b""]
