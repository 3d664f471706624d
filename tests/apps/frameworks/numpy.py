"""A matrix product by OpenBLAS's threads, at the import and in each request: both have to be equal."""

import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

import numpy
from rendezvous import announce

announce(f"loaded {os.getpid()}")
# Whole numbers, whose sums are exact in any order; large enough for OpenBLAS to divide them among its threads.
matrix = numpy.arange(400 * 400, dtype=numpy.float64).reshape(400, 400) % 97
before = matrix @ matrix.T


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    is_equal = numpy.array_equal(before, matrix @ matrix.T)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {is_equal}".encode()]
