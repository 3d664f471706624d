"""Middleware that looks at bodies finds those of files, as under uvicorn: the server offers nothing that hides them."""

from pathlib import Path

import pytest

from support.asgi import OURS, UVICORN, Flavour
from support.server import Serve, Server

pytestmark = pytest.mark.own("it has servers of its own")

PAGE = b"so much of the same\n" * 5000
PATHS = ("/file", "/static/page.txt")
CODINGS = {"none": None, "base": None, "gzip": "gzip", "brotli": "br"}
"""The coding that each middleware gives a file."""
OF_SERVER = {"content-length", "date", "server", "x-request-id", "transfer-encoding"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/page.txt").write_bytes(PAGE)
    return tmp_path / "files"


def answers(server: Server) -> list[object]:
    came: list[object] = []
    for path in PATHS:
        with server.connect() as wire:
            response = wire.get(path, "Accept-Encoding: gzip, br")
        fields = sorted((name.lower(), value) for name, value in response.headers if name.lower() not in OF_SERVER)
        came.append((response.status, fields, response.body))
    return came


@pytest.mark.parametrize("middleware", CODINGS)
def test_a_file_is_what_it_is_under_uvicorn(serve: Serve, files: Path, middleware: str) -> None:
    env = {"FILES": str(files), "MIDDLEWARE": middleware}
    ours, theirs = (
        flavour.serve(serve, "frameworks.starlette:files", env=env)
        for flavour in (OURS["asyncio"], Flavour(UVICORN, "asyncio"))
    )
    assert answers(ours) == answers(theirs)
    with ours.connect() as wire:
        response = wire.get("/file", "Accept-Encoding: gzip, br")
    assert (response.status, response.header("Content-Encoding")) == (200, CODINGS[middleware])
    assert (len(response.body) < 1000) == (CODINGS[middleware] is not None)


def test_the_log_names_the_extension_that_a_middleware_has_dropped(serve: Serve, files: Path) -> None:
    env = {"FILES": str(files), "MIDDLEWARE": "brotli"}
    server = OURS["asyncio"].serve(serve, "frameworks.starlette:files", "--pathsend", env=env)
    with server.connect() as wire:
        assert wire.get("/file", "Accept-Encoding: br").status == 500
        # The middleware passes the message on when it does not compress, and the answer is whole.
        assert wire.get("/file").body == PAGE
    said = server.log.wait(r"returned before its answer was whole, at GET /file .*?\((.*)\)")[1]
    assert said.startswith("its scope offered http.response.pathsend: a middleware may drop")
    assert said.endswith("only with `pathsend`")
