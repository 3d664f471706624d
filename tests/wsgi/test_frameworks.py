"""Ready-made apps of the frameworks people use, and every way to name an app."""

import hashlib
import random
from pathlib import Path

import pytest

from support.server import Serve

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("spec", ["frameworks.flask:app", "frameworks.flask:create_app()"])
def test_flask(serve: Serve, spec: str) -> None:
    server = serve(spec, "-w", "2")
    upload = random.Random(2).randbytes(300_000)
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + upload + b"\r\n--b--\r\n"
    with server.connect() as wire:
        assert wire.get("/?name=caf%C3%A9").text == "hello café"
        assert wire.post("/json", b'{"a": [1]}', "Content-Type: application/json").json() == {"got": {"a": [1]}}
        assert wire.post("/upload", form, "Content-Type: multipart/form-data; boundary=b").text == (
            hashlib.sha256(upload).hexdigest()
        )
        assert wire.get("/stream").text == "0\n1\n2\n"
        away = wire.get("/away", "X-Forwarded-Proto: https")
        assert (away.status, away.header("Location")) == (302, "https://test/")
        assert wire.get("/nowhere").status == 404
        assert wire.get("/fails").status == 500
        assert wire.ask("HEAD", "/").status == 200


def test_falcon(serve: Serve) -> None:
    server = serve("frameworks.falcon:app")
    with server.connect() as wire:
        assert wire.get("/?name=you").text == "hello you"
        assert wire.post("/", b"[1, 2]", "Content-Type: application/json").json() == {"got": [1, 2]}
        assert wire.get("/nowhere").status == 404


def test_bottle(serve: Serve, tmp_path: Path) -> None:
    content = random.Random(3).randbytes(500_000)
    (tmp_path / "static.bin").write_bytes(content)
    server = serve("frameworks.bottle:app", env={"FILE": str(tmp_path / "static.bin")})
    with server.connect() as wire:
        assert wire.get("/?name=you").text == "hello you"
        assert wire.post("/json", b"{}", "Content-Type: application/json").json() == {"got": {}}
        assert wire.get("/file").body == content
        part = wire.get("/file", "Range: bytes=1000-1999")
        assert (part.status, part.body) == (206, content[1000:2000])


def test_django_named_by_its_module_alone(serve: Serve) -> None:
    server = serve("project.wsgi", "--chdir", str(EXAMPLES / "django_project"), "-w", "2")
    with server.connect() as wire:
        assert wire.get("/hello/caf%C3%A9").json()["hello"] == "caf\u00e9"
        body = random.Random(4).randbytes(300_000)
        assert wire.post("/echo", body, "Content-Type: application/octet-stream").body == body
        assert wire.get("/nowhere").status == 404


@pytest.mark.parametrize(
    ("spec", "body"),
    [
        ("hello", b"hello\n"),
        ("hello:app", b"hello\n"),
        ("hello:application", b"hello\n"),
        ("hello:create_app()", b"made\n"),
        ("hello:create_app('other')", b"other"),
        ("hello:create_app(greeting='named')", b"named"),
    ],
)
def test_every_form_of_an_app_name(serve: Serve, spec: str, body: bytes) -> None:
    server = serve(spec)
    with server.connect() as wire:
        assert wire.get("/").body == body
