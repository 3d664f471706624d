"""Apps of the frameworks that people use, named as people name them: no flag says that they are asynchronous."""

import hashlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support import netns
from support.gate import Gate
from support.netns import Namespace
from support.nginx import NGINX, Nginx
from support.patience import PATIENCE_S, eventually
from support.processes import written_bytes
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("it has servers of its own")

UPLOAD = random.Random(2).randbytes(300_000)
SHA256 = hashlib.sha256(UPLOAD).hexdigest()


def client_of(server: Server) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{server.address.port}", timeout=PATIENCE_S)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    yield made
    made.remove()


@pytest.mark.parametrize("workers", [["-w", "1"], ["-k", "uvicorn.workers.UvicornWorker", "-w", "2"]])
def test_starlette(serve: Serve, gate: Gate, tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "file").write_bytes(UPLOAD)
    server = serve("frameworks.starlette:app", *workers, env={"FILE": str(tmp_path / "file"), **gate.environment})
    with client_of(server) as client:
        hello = client.get("/", params={"name": "café"})
        assert (hello.text, hello.headers["X-Stamp"]) == ("hello café of starlette", "1")
        assert client.post("/json", json=[1]).json() == {"got": [1], "client": "127.0.0.1"}
        assert client.post("/upload", files={"file": UPLOAD}).text == SHA256
        assert client.get("/stream").text == "0\n1\n2\n"
        assert client.get("/below/thread").text == "/below/thread"
        assert client.get("/file").content == UPLOAD
        part = client.get("/file", headers={"Range": "bytes=1000-1999", "Accept-Encoding": "identity"})
        assert (part.status_code, part.content) == (206, UPLOAD[1000:2000])
        assert client.head("/file").headers["Content-Length"] == str(len(UPLOAD))
        assert client.get("/fails").status_code == 500
        assert client.get("/nowhere").status_code == 404
        away = client.get("/away", headers={"X-Forwarded-Proto": "https", "Host": "test"})
        assert (away.status_code, away.headers["Location"]) == (307, "https://test/")
        assert client.get("/later").text == "at once"
        assert gate.announcement() == "done later"
    server.signal(signal.SIGTERM)
    assert gate.announcements(int(workers[-1])) == ["shut down"] * int(workers[-1])
    assert server.exit_code() == 0


def test_streams_end_when_no_client_listens_any_more(serve: Serve) -> None:
    """A word at a time, to many at once; one worker, one thread."""
    server = serve("frameworks.starlette:app")
    mark = server.log.mark()
    with client_of(server) as client:
        before = client.get("/tasks").json()
        wires = [server.connect() for _ in range(200)]
        try:
            for wire in wires:
                wire.send(request("GET", "/endless"))
            for wire in wires:
                assert wire.head().header("Content-Type") == "text/event-stream; charset=utf-8"
                assert b"word 0\n\n" in wire.body_bytes(40)
            assert client.get("/tasks").json() >= before + 200
        finally:
            for wire in wires:
                wire.close()
        eventually(lambda: client.get("/tasks").json() == before, "the tasks of those who have gone end")
    # A client that leaves is no fault of the app's.
    assert not server.log.matches("Traceback", since=mark)


def test_fastapi(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.fastapi:app", env=gate.environment)
    with client_of(server) as client:
        priced = client.post("/items/7", json={"name": "chair", "price": 10})
        assert priced.json() == {"name": "7 chair", "gross": 12.0}
        assert client.post("/items/7", json={"name": "chair"}).status_code == 422
        assert client.get("/depends").json() == {"with": "connection"}
        assert gate.announcement() == "connection closed"
        assert client.post("/upload", files={"file": ("f.bin", UPLOAD)}).json() == {"name": "f.bin", "sha256": SHA256}
        assert client.get("/stream").text == "".join(f"data: {number}\n\n" for number in range(20))
        assert client.get("/later").json() == "at once"
        assert gate.announcement() == "done later"
        assert client.get("/thread").json() == "127.0.0.1"
        assert client.get("/missing").json() == {"detail": "not here"}
        assert client.get("/openapi.json").json()["info"]["title"] == "FastAPI"


def test_64_mib_go_through_fastapi_both_ways_in_little_memory(serve: Serve) -> None:
    piece, pieces, allowed = bytes(1 << 20), 64, 8 << 20
    server = serve("frameworks.fastapi:app", "--interface", "asgi")
    start = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    most = 0

    def uploaded(count: int) -> Iterator[bytes]:
        nonlocal most
        yield start
        for _ in range(count):
            yield piece
            most = max(most, written_bytes(server.processes()))
        yield b"\r\n--b--\r\n"

    with client_of(server) as client:

        def upload(count: int) -> str:
            form = {"Content-Type": "multipart/form-data; boundary=b"}
            return str(client.post("/digest", content=uploaded(count), headers=form).json())

        upload(2)
        before, most = written_bytes(server.processes()), 0
        assert upload(pieces) == hashlib.sha256(bytes(pieces << 20)).hexdigest()
        assert most - before < allowed, f"{before >> 20} MiB, then {most >> 20} MiB"
        count = most = 0
        with client.stream("GET", f"/zeroes/{pieces}") as response:
            for part in response.iter_bytes(1 << 20):
                count += len(part)
                most = max(most, written_bytes(server.processes()))
        assert count == pieces << 20
        assert most - before < allowed, f"{before >> 20} MiB, then {most >> 20} MiB"


def test_quart(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.quart:app", env=gate.environment)
    with client_of(server) as client:
        assert client.get("/", params={"name": "you"}).text == "hello you of quart"
        assert client.post("/json", json={"a": 1}).json() == {"got": {"a": 1}}
        assert client.post("/upload", files={"file": UPLOAD}).text == SHA256
        assert client.get("/stream").text == "0\n1\n2\n"
        assert client.get("/fails").status_code == 500
    server.signal(signal.SIGTERM)
    assert gate.announcement() == "shut down"
    assert server.exit_code() == 0


def test_litestar(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.litestar:app", env=gate.environment)
    with client_of(server) as client:
        assert client.get("/", params={"name": "you"}).text == "hello you"
        assert client.get("/thread").text == "of a thread"
        assert client.post("/items", json={"name": "chair", "price": 2}).json() == {"name": "CHAIR", "price": 4.0}
        assert client.get("/stream").text == "0\n1\n2\n"
        assert client.get("/events").text == "".join(f"data: {number}\r\n\r\n" for number in range(3))
    server.signal(signal.SIGTERM)
    assert gate.announcement() == "shut down"
    assert server.exit_code() == 0


def test_django(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.django", env=gate.environment)
    with client_of(server) as client:
        hello = client.get("/", params={"name": "café"})
        assert hello.json() == {"hello": "café", "client": "127.0.0.1"}
        assert hello.headers["X-Old"] == "1"
        assert client.get("/thread").json() == {"loop": False}
        assert client.post("/echo", content=UPLOAD).text == SHA256
        assert client.get("/stream").text == "0\n1\n2\n"
        assert client.get("/nowhere").status_code == 404
    with server.connect() as wire:
        wire.send(request("GET", "/waits"))
        assert gate.announcement() == "waits"
    assert gate.announcement() == "cancelled"


@pytest.mark.skipif(not NGINX, reason="NOT TESTED BEHIND NGINX: nginx is not installed")
@pytest.mark.skipif(bool(netns.unavailable()), reason=f"NOT TESTED BEHIND NGINX: {netns.unavailable()}")
@pytest.mark.parametrize("app", ["frameworks.starlette:app", "frameworks.fastapi:app"])
def test_behind_nginx(serve: Serve, gate: Gate, namespace: Namespace, tmp_path: Path, app: str) -> None:
    bind = f"unix:{tmp_path}/app.sock"
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + UPLOAD + b"\r\n--b--\r\n"
    nginx = Nginx(tmp_path / "nginx", bind, namespace)
    try:
        serve(app, bind=bind, env=gate.environment)
        with namespace.run(lambda: Wire.connect(nginx.address)) as wire:
            uploaded = wire.post("/upload", form, "Content-Type: multipart/form-data; boundary=b")
            assert SHA256 in uploaded.text
            assert wire.get("/stream").text.split("\n")[0] in ("0", "data: 0")
            # nginx names the client; the unix socket has no address.
            asked = wire.post("/json", b"1") if "starlette" in app else wire.get("/thread")
            assert "127.0.0.1" in asked.text
            assert wire.get("/later").text.strip('"') == "at once"
            assert gate.announcement() == "done later"
    finally:
        nginx.stop()
