"""wsgi.input of requests without a body, asked for more than PEP 3333 has."""

import copy
import io
import pickle
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment


def look(way: str, body: Any) -> None:
    """Find it new, and leave it used."""
    assert not body.closed
    assert (body.tell(), body.getvalue()) == (0, b"")
    match way:
        case "file":
            assert (body.readable(), body.seekable(), body.readinto(bytearray(4)), body.read1()) == (True, True, 0, b"")
        case "lines":
            assert (body.read(), body.read(None), body.read(4), body.readline(), body.readline(9)) == (b"",) * 5
            assert (body.readlines(), body.readlines(9), list(body)) == ([], [], [])
        case "text":
            assert io.TextIOWrapper(io.BufferedReader(body)).read() == ""
        case "close":
            body.close()
            try:
                body.read()
            except ValueError:
                return
            raise AssertionError("it was closed")
        case "write":
            body.write(b"x\ny")
            body.seek(0)
            assert (body.readline(), body.read()) == (b"x\n", b"y")
        case "seek":
            body.seek(7)
            assert body.tell() == 7
        case "with":
            with body as file:
                assert file.read() == b""
            assert body.closed
        case "next":
            assert next(body, "the end") == "the end"
        case "set":
            body.note = "x"
            body.read = lambda _size: body.note
            assert body.read() == "x"
            del body.read, body.note
            assert (body.read(), hasattr(body, "note")) == (b"", False)
        case "copy":
            body.write(b"x")
            assert (copy.copy(body).getvalue(), pickle.loads(pickle.dumps(body)).getvalue()) == (b"x", b"x")
        case "kind":
            assert (isinstance(body, io.BufferedIOBase), isinstance(body, io.IOBase)) == (True, True)
            body.seek(1)
        case "unknown":
            assert not hasattr(body, "no_such_attribute")


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    look(environ["PATH_INFO"].strip("/"), environ["wsgi.input"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"as it should be"]
