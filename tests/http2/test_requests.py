"""Requests of HTTP/2 without TLS, as clients and apps see them."""

import hashlib
import json
import subprocess
from pathlib import Path

import httpx
import pytest

from support.gate import Gate
from support.http2 import Talk
from support.patience import PATIENCE_S
from support.server import UNHURRIED, Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("only peers that it trusts may speak HTTP/2 without TLS with gunicorn")

HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")


@pytest.fixture(scope="module")
def echo(shared_serve: Serve) -> Server:
    return shared_serve("echo:raw", *HTTP2, *UNHURRIED)


@pytest.fixture(scope="module")
def flowing(shared_serve: Serve) -> Server:
    return shared_serve("bodies:flowing", *HTTP2)


def test_a_get_is_answered_and_the_app_finds_what_it_would_of_http_1_1(echo: Server) -> None:
    with Talk(echo.address) as talk:
        crumbs = [("cookie", "a=1"), ("cookie", "b=2")]
        answer = talk.get("/a%20b?c=d", ("x-twice", "1"), *crumbs, ("x-twice", "2"), ("te", "trailers"), host="shop:81")
    assert answer.status == 200
    assert answer.header("content-type") == "application/json"
    assert answer.header("server") == "stanchion"
    assert not {"connection", "transfer-encoding", "keep-alive"} & {name for name, _ in answer.fields}
    environ = json.loads(answer.body)["environ"]
    expected = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/a b",
        "QUERY_STRING": "c=d",
        "SERVER_PROTOCOL": "HTTP/2.0",
        "HTTP_HOST": "shop:81",
        "HTTP_COOKIE": "a=1; b=2",
        "HTTP_X_TWICE": "1,2",
        "wsgi.url_scheme": "http",
        "REMOTE_ADDR": "127.0.0.1",
    }
    assert {name: environ.get(name) for name in expected} == expected
    assert "CONTENT_LENGTH" not in environ or environ["CONTENT_LENGTH"] == ""


def test_an_app_that_closes_its_connection_ends_no_other_stream(serve: Serve) -> None:
    """The server drops the field: a connection of HTTP/2 is not the app's (RFC 9113 section 8.2.2)."""
    server = serve("answers:app", *HTTP2)
    with Talk(server.address) as talk:
        for _ in range(2):
            answer = talk.get("/closes?close")
            assert (answer.status, answer.body, answer.reset) == (200, b"last", None)
            assert "connection" not in {name for name, _ in answer.fields}


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 3_000_000])
def test_a_body_arrives_whole_whether_or_not_its_length_is_told(echo: Server, length: int, tells: bool) -> None:
    body = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
    with Talk(echo.address) as talk:
        answer = talk.post("/", body, *([("content-length", str(length))] if tells else []))
    told = json.loads(answer.body)
    assert (answer.status, told["length"], told["sha256"]) == (200, length, hashlib.sha256(body).hexdigest())
    # PEP 3333 has no other way to tell the app where a body ends.
    assert told["environ"].get("CONTENT_LENGTH", "0") == str(length)


def test_many_requests_at_once_are_answered_each_on_its_stream(echo: Server) -> None:
    with Talk(echo.address) as talk:
        numbers = [talk.begin(f"/{place}") for place in range(80)]
        for place, number in enumerate(numbers):
            answer = talk.answer(number)
            assert json.loads(answer.body)["environ"]["PATH_INFO"] == f"/{place}"


def test_answers_come_as_they_are_ready(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--threads", "2", *HTTP2, env=gate.environment)
    with Talk(server.address) as talk:
        waits = talk.begin("/wait")
        gate.announcement()
        assert talk.get("/pid").status == 200
        assert not talk.answers[waits].is_over
        gate.open()
        assert talk.answer(waits).status == 200


def test_a_head_asked_for_alone_has_no_body(echo: Server) -> None:
    with Talk(echo.address) as talk:
        answer = talk.get("/", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.header("content-length") or 0) > 0


def test_who_expects_to_be_told_to_continue_is(echo: Server) -> None:
    with Talk(echo.address) as talk:
        number = talk.begin("/", ("expect", "100-continue"), ("content-length", "2"), method="POST", ends=False)
        answer = talk.answers[number]
        talk.until(lambda: bool(answer.interim))
        assert answer.interim == [(100, [])]
        talk.say(number, b"hi")
        assert json.loads(talk.answer(number).body)["length"] == 2


@pytest.mark.parametrize("path", ["/long", "/told"])
@pytest.mark.parametrize("length", [0, 1, 65_535, 5_000_000])
def test_an_answer_in_pieces_arrives_whole(flowing: Server, path: str, length: int) -> None:
    with Talk(flowing.address) as talk:
        answer = talk.get(f"{path}?{length}")
    assert (answer.status, answer.is_over, len(answer.body)) == (200, True, length)
    assert answer.body == (bytes(range(256)) * (length // 256 + 1))[:length]
    # The server knows it of an answer that is whole before any of it is sent, which a short one may be.
    unknown = {None} if path == "/long" and length > 0 else set()
    assert answer.header("content-length") in {str(length)} | unknown


def test_a_static_file_arrives_whole(shared_serve: Serve, tmp_path: Path) -> None:
    content = bytes(range(251)) * 20_000
    (tmp_path / "large").write_bytes(content)
    (tmp_path / "small").write_bytes(b"small")
    server = shared_serve("hello:app", "--static", f"/s={tmp_path}", *HTTP2)
    with Talk(server.address) as talk:
        large, small = talk.begin("/s/large"), talk.begin("/s/small")
        part = talk.get("/s/large", ("range", "bytes=1000000-1000009"))
        assert (part.status, part.body) == (206, content[1_000_000:1_000_010])
        assert talk.answer(small).body == b"small"
        assert talk.answer(large).body == content


def test_http_1_1_is_spoken_as_before_also_where_it_comes_in_pieces(echo: Server) -> None:
    with echo.connect() as wire:
        assert wire.get("/").json()["environ"]["SERVER_PROTOCOL"] == "HTTP/1.1"
    with echo.connect() as wire:
        # The preface of HTTP/2 begins so, too.
        for part in (b"P", b"RI"):
            wire.send(part)
        wire.send(request("PRINT", "/")[3:])
        assert wire.response().json()["environ"]["REQUEST_METHOD"] == "PRINT"


def test_a_preface_may_come_in_pieces(echo: Server) -> None:
    with echo.connect() as wire:
        for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":
            wire.send(bytes([byte]))
        wire.send(bytes.fromhex("000000040000000000"))
        # SETTINGS (RFC 9113 section 3.4).
        assert wire.sock.recv(9)[3] == 4


@pytest.mark.parametrize(
    ("fields", "host"),
    [
        ([("host", "other")], "test"),
        ([("content-length", "x")], "test"),
        ([("x", "v" * 9000)], "test"),
        ([], "a b"),
    ],
)
def test_what_is_refused_of_http_1_1_is_refused(echo: Server, fields: list[tuple[str, str]], host: str) -> None:
    with Talk(echo.address) as talk:
        talk.frames.config.validate_outbound_headers = False
        answer = talk.get("/", *fields, host=host)
        assert answer.status in (400, 431) or answer.reset == 1
        # Only its stream is over.
        assert talk.get("/").status == 200


def test_other_peoples_clients_are_served(echo: Server) -> None:
    url = f"http://127.0.0.1:{echo.address.port}/"
    with httpx.Client(http1=False, http2=True, timeout=PATIENCE_S) as client:
        for _ in range(2):
            answer = client.post(url, content=b"x" * 100_000)
            assert (answer.http_version, answer.json()["length"]) == ("HTTP/2", 100_000)
    command = ["curl", "--silent", "--show-error", "--http2-prior-knowledge", "--data-binary", "@-", url]
    said = subprocess.run(command, input=b"y" * 200_000, check=True, capture_output=True)
    assert json.loads(said.stdout)["length"] == 200_000


def test_without_the_settings_it_is_not_spoken(shared_serve: Serve) -> None:
    server = shared_serve("echo:raw", "--http-protocols", "h2,h1")
    server.log.wait("http2_cleartext is off")
    with server.connect() as wire:
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert wire.response().status == 505
