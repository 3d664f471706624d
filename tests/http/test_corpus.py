"""Every request of tests/http/corpus, over a live socket: understood, or refused and the connection closed."""

import hashlib
from pathlib import Path

import pytest

from support.corpus import CORPUS, INVALID, VALID, expectation, request_bytes
from support.server import STANCHION, UNHURRIED, Kind, Serve, Server
from support.wire import BrokenOff

BYTE_BY_BYTE_MAX = 2000
"""Longer requests are sent whole only; their point is their length."""


IN_GATE = {
    *("get", "body_by_length", "chunked_trailers", "pipelined_bodies", "absolute_form"),
    *("two_lengths", "length_and_chunked", "unknown_coding", "version_2_0", "length_overflow", "chunk_size_plus"),
}
"""One request for each way in which the server reads or refuses one; crates/stanchion-http/tests/corpus.rs has all."""


def nightly(path: Path, delivery: str = "whole") -> list[pytest.MarkDecorator]:
    is_in_gate = path.stem in IN_GATE if delivery == "whole" else path.stem == "chunked_trailers"
    return [] if is_in_gate else [pytest.mark.large]


DELIVERIES = [
    pytest.param(path, delivery, marks=nightly(path, delivery), id=f"{path.stem}-{delivery}")
    for path in VALID
    for delivery in ("whole", "byte by byte")
]


def skip_peers(echo: Server, expected: dict[str, object]) -> None:
    if echo.kind is not STANCHION and "peers" in expected:
        pytest.skip(str(expected["peers"]))


@pytest.fixture(scope="module")
def echo(shared_serve: Serve, kind: Kind) -> Server:
    return shared_serve("echo:raw", *(UNHURRIED if kind is STANCHION else ()))


def test_each_request_of_the_corpus_has_its_expectation_and_none_is_left_over() -> None:
    for directory in ("valid", "invalid"):
        requests = {path.stem for path in (CORPUS / directory).glob("*.http")}
        expectations = {path.stem for path in (CORPUS / directory).glob("*.toml")}
        assert requests == expectations


@pytest.mark.parametrize(("path", "delivery"), DELIVERIES)
def test_a_valid_request_is_understood(echo: Server, path: Path, delivery: str) -> None:
    data = request_bytes(path)
    if delivery == "byte by byte" and len(data) > BYTE_BY_BYTE_MAX:
        pytest.skip("its point is its length")
    expected_all = expectation(path)
    skip_peers(echo, expected_all)
    with echo.connect() as wire:
        for part in [data] if delivery == "whole" else [data[n : n + 1] for n in range(len(data))]:
            wire.send(part)
        requests = expected_all["request"]
        assert isinstance(requests, list)
        for expected in requests:
            response = wire.response(expected["method"])
            assert response.status == 200, response.body
            got = response.json()
            environ = got["environ"]
            assert environ["REQUEST_METHOD"] == expected["method"]
            assert environ["PATH_INFO"] == expected["path"]
            assert environ["QUERY_STRING"] == expected.get("query", "")
            body = expected.get("body", "").encode("latin-1")
            assert (got["length"], got["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
            for key, value in expected.get("environ", {}).items():
                assert environ.get(key, "") == value, key


@pytest.mark.parametrize("path", [pytest.param(path, marks=nightly(path), id=path.stem) for path in INVALID])
def test_an_invalid_request_is_refused_and_the_connection_closed(echo: Server, path: Path) -> None:
    expected = expectation(path)
    skip_peers(echo, expected)
    statuses = expected["status"]
    assert isinstance(statuses, list)
    with echo.connect() as wire:
        wire.send(request_bytes(path))
        try:
            response = wire.response()
        except BrokenOff:
            assert 0 in statuses, "closed without an answer"
            return
        assert response.status in statuses, f"{expected['why']}; got {response.status} {response.body[:200]!r}"
        assert response.closes(), "the response must say that the connection ends"
        assert wire.closed(), "something came after the refusal: what followed was taken for another request"
