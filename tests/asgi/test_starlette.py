"""The checks of HTTP that Starlette's own tests do in memory, here through a server and real connections."""

import hashlib
import json
import random
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.wire import chunked, request

pytestmark = pytest.mark.own("it has a server of its own")

CONTENT = random.Random(3).randbytes(200_000)
PREFIX = "/prefix"


@pytest.fixture(scope="module")
def shared_gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    gate = Gate(tmp_path_factory.mktemp("starlette") / "gate")
    yield gate
    gate.close()


@pytest.fixture(scope="module")
def server(shared_serve: Serve, shared_gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> Server:
    static = tmp_path_factory.mktemp("static")
    (static / "file.bin").write_bytes(CONTENT)
    env = {"STATIC": str(static), **shared_gate.environment}
    return shared_serve("frameworks.starlette_cases:app", "--interface", "asgi", "--root-path", PREFIX, env=env)


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    url = f"http://127.0.0.1:{server.address.port}{PREFIX}"
    with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as opened:
        yield opened


def test_a_chunked_upload_is_a_stream(server: Server) -> None:
    parts = [CONTENT[start : start + 30_000] for start in range(0, len(CONTENT), 30_000)]
    with server.connect() as wire:
        wire.send(request("POST", "/upload", ["Transfer-Encoding: chunked"]) + chunked(parts))
        answer = wire.response().json()
        assert answer["sha256"] == hashlib.sha256(CONTENT).hexdigest()
        # Starlette adds a last, empty piece.
        assert answer["pieces"] > 2
        assert wire.get("/status/200").text == "content"


def test_an_upload_that_the_client_breaks_off(server: Server, shared_gate: Gate) -> None:
    mark = server.log.mark()
    with server.connect() as wire:
        wire.send(request("POST", "/broken-off", ["Content-Length: 300000"]) + CONTENT[:100_000])
        assert shared_gate.announcement() == "reads"
    assert shared_gate.announcement() == "client disconnect"
    with server.connect() as wire:
        assert wire.get("/status/200").status == 200
    assert not server.log.matches("Traceback", since=mark), "it is nobody's fault"


def test_answers_without_content_leave_the_connection_for_the_next(server: Server, shared_gate: Gate) -> None:
    with server.connect() as wire:
        for code in (204, 304):
            answer = wire.get(f"/status/{code}")
            assert (answer.status, answer.body, answer.framing) == (code, b"", "none")
            assert (answer.header("X-Case"), answer.header("X-Passed")) == ("status", "GET")
            assert answer.header("Transfer-Encoding") is None
        head = wire.ask("HEAD", "/stream")
        assert (head.status, head.body, head.header("X-Passed")) == (200, b"", "HEAD")
        assert shared_gate.announcement() == "6 bytes"
        assert wire.ask("HEAD", "/status/200").header("Content-Length") == "7"
        whole = wire.get("/stream")
        assert (whole.text, whole.header("X-Counting")) == ("0\n1\n2\n", "1")
        assert shared_gate.announcement() == "6 bytes"


def test_files_of_a_directory(client: httpx.Client) -> None:
    whole = client.get("/static/file.bin")
    assert (whole.status_code, whole.content) == (200, CONTENT)
    for known in ({"If-None-Match": whole.headers["ETag"]}, {"If-Modified-Since": whole.headers["Last-Modified"]}):
        unchanged = client.get("/static/file.bin", headers=known)
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["ETag"] == whole.headers["ETag"]
    parts = client.get("/static/file.bin", headers={"Range": "bytes=0-9,100-109"})
    assert parts.status_code == 206
    assert parts.headers["Content-Type"].startswith("multipart/byteranges")
    assert CONTENT[:10] in parts.content and CONTENT[100:110] in parts.content
    assert client.get("/static/file.bin", headers={"Range": "bytes=300000-"}).status_code == 416
    head = client.head("/static/file.bin")
    assert (head.content, head.headers["Content-Length"]) == (b"", str(len(CONTENT)))
    assert client.get("/static/../starlette_cases.py").status_code == 404
    assert client.post("/static/file.bin").status_code == 405


def test_an_app_asks_whether_its_client_is_still_there(server: Server, shared_gate: Gate) -> None:
    with server.connect() as wire:
        wire.send(request("GET", "/disconnected"))
        assert shared_gate.announcement() == "at first False"
    assert shared_gate.announcement() == "then True"


def test_tasks_run_after_the_answer_in_their_order(server: Server, shared_gate: Gate) -> None:
    mark = server.log.mark()
    with server.connect() as wire:
        assert wire.get("/later").text == "whole"
        # The same connection, while the task waits.
        assert wire.get("/status/200").text == "content"
        assert shared_gate.announced() == []
        shared_gate.let_pass(1)
        assert shared_gate.announcements(2) == ["first", "second"]
    eventually(lambda: server.log.matches("a task fails", since=mark), "what fails after the answer is logged")


def test_where_the_app_is_mounted(server: Server, client: httpx.Client) -> None:
    expected = {
        "url": f"{client.base_url}mounted/this?q=1",
        "url_for": f"{client.base_url}mounted/other",
        "root_path": f"{PREFIX}/mounted",
        "name": "this",
    }
    assert client.get("/mounted/this", params={"q": "1"}).json() == expected
    # A proxy may have cut the prefix off.
    bare = httpx.get(f"http://127.0.0.1:{server.address.port}/mounted/this?q=1", trust_env=False)
    assert bare.json() == expected


def test_fields_that_come_twice(server: Server, client: httpx.Client) -> None:
    with server.connect() as wire:
        wire.send(request("GET", "/fields", ["X-Twice: a", "X-Twice: b", "Cookie: one=1; two=2"]))
        assert wire.response().text == "a b 1 2"
    answer = client.get("/fields")
    assert [cookie.split(";")[0] for cookie in answer.headers.get_list("Set-Cookie")] == ["first=1", "second=2"]
    assert (b"x-latin", "café".encode("latin-1")) in [(name.lower(), value) for name, value in answer.headers.raw]


def test_state_of_the_lifespan(client: httpx.Client) -> None:
    assert [client.get("/state").json() for _ in range(3)] == [[0, 0], [0, 1], [0, 2]]


def test_middleware(client: httpx.Client) -> None:
    asks = {"Origin": "https://site.example", "Access-Control-Request-Method": "PUT"}
    preflight = client.options("/state", headers=asks)
    assert (preflight.status_code, preflight.headers["Access-Control-Allow-Methods"]) == (200, "PUT")
    assert [client.get("/session").json()["visits"] for _ in range(3)] == [1, 2, 3]
    teapot = client.get("/teapot")
    assert (teapot.status_code, teapot.text, teapot.headers["X-Kind"]) == (418, "short and stout", "pot")
    refused = client.post("/teapot")
    assert (refused.status_code, sorted(refused.headers["Allow"].split(", "))) == (405, ["GET", "HEAD"])


def test_websockets_below_a_mount_and_denied_ones(server: Server, shared_gate: Gate) -> None:
    url = f"ws://127.0.0.1:{server.address.port}{PREFIX}"
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{url}/denied", proxy=None)
    answer = refused.value.response
    assert (answer.status_code, answer.headers["X-Kind"], json.loads(answer.body)) == (
        *(401, "denial"),
        {"why": "no ticket"},
    )
    with connect(f"{url}/sockets/talk", proxy=None) as client:
        assert client.response is not None and client.response.headers["X-Kind"] == "talk"
        for number in range(3):
            client.send(json.dumps({"number": number}))
            path = f"{PREFIX}/sockets/talk"
            assert json.loads(client.recv(PATIENCE_S)) == {"heard": {"number": number}, "path": path}
    assert shared_gate.announcement() == "heard the end"
