"""An app whose worker lies: what it has put into the shared memory it changes before the acceptor looks at it."""

import json
import os
from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass
from shared_memory import exchange


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if environ["PATH_INFO"] != "/lie":
        start_response("200 OK", [])
        return [str(os.getpid()).encode()]
    # In hexadecimal, or the request itself would hold what is looked for.
    lie = json.loads(bytes.fromhex(environ["wsgi.input"].read().decode()))
    announce("asked")
    wait_for_pass()
    mark = os.urandom(16).hex()
    start_response(lie["status"], [*((name, value) for name, value in lie["fields"]), ("X-Mark", mark)])
    return telling(lie, mark)


def telling(lie: dict[str, str], mark: str) -> Iterator[bytes]:
    yield lie["body"].encode()
    # The head and this piece are in the memory, and with a length of so many bytes the answer is over.
    try:
        with exchange() as memory:
            memory.replace(lie["old"].encode("latin-1"), lie["new"].encode("latin-1"), mark.encode())
    except (OSError, AssertionError) as error:
        announce(f"not told: {error}")
        raise
    announce("told")
    wait_for_pass()
    if more := lie["more"].encode():
        yield more
