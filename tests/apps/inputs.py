"""wsgi.input read in every way PEP 3333 names; the path chooses, under the validator where it allows the call."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.validate import validator


def pieces(body: Any, how: str, count: int) -> Iterator[bytes]:
    match how:
        case "/read-all":
            yield body.read()
        case "/read-negative":
            yield body.read(-1)
        case "/read-count":
            while piece := body.read(count):
                yield piece
        case "/readline":
            while piece := body.readline():
                yield piece
        case "/readline-count":
            while piece := body.readline(count):
                yield piece
        case "/readlines":
            yield from body.readlines()
        case "/readlines-hint":
            while lines := body.readlines(count):
                yield from lines
        case "/iterate":
            yield from body
        case "/mixed":
            yield body.read(1)
            yield body.readline()
            yield body.read(count)
            yield body.readline(count)
            yield b"".join(body)
            assert body.read(10) == b"", "at the end read gives nothing"
            assert body.readline() == b"", "at the end readline gives nothing"
            assert body.readlines() == [], "at the end readlines gives nothing"
        case "/nothing":
            pass


def raw(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    how, count = environ["PATH_INFO"], int(environ["QUERY_STRING"] or "0")
    digest, sizes, ends_in_newline = hashlib.sha256(), [], 0
    for piece in pieces(environ["wsgi.input"], how, count):
        digest.update(piece)
        sizes.append(len(piece))
        ends_in_newline += piece.endswith(b"\n")
    answer = {
        "sha256": digest.hexdigest(),
        "length": sum(sizes),
        "pieces": len(sizes),
        "longest": max(sizes, default=0),
        "lines": ends_in_newline,
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


app = validator(raw)
