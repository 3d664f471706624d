"""A certificate authority's challenges are answered while the server runs: HTTP-01 in RFC 8555 section 8.3."""

import os
import shutil
from pathlib import Path

import pytest

from support.counts import Counts
from support.gate import Gate
from support.server import Serve, Server
from support.tls import Authority, Pair, connect
from support.wire import Wire, request

pytestmark = pytest.mark.own("it is a setting of ours")

TOKEN = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA"
AUTHORIZATION = f"{TOKEN}.9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI"
WHERE = "/.well-known/acme-challenge/"
LARGEST = 4096


@pytest.fixture
def webroot(tmp_path: Path) -> Path:
    path = tmp_path / "webroot"
    path.mkdir()
    return path


def put(webroot: Path, name: str, text: str) -> None:
    """Write the file as certbot's plugin webroot does, which makes the folders and removes them in the end."""
    folder = webroot / WHERE[1:]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.fixture
def server(serve: Serve, pair: Pair, webroot: Path, tmp_path: Path, gate: Gate) -> Server:
    plain = ("--bind", "localhost:0?tls=false", "--redirect-to-https", "443")
    counts = Counts(tmp_path / "ctl")
    words = (*plain, "--acme-challenge-dir", str(webroot), *counts.arguments)
    return serve("waiting:app", *pair.arguments(), *words, env=gate.environment)


def plain(server: Server) -> Wire:
    return Wire.connect(server.addresses[1])


def test_a_challenge_is_answered_before_the_redirect_and_while_all_workers_are_busy(
    server: Server, webroot: Path, tmp_path: Path, authority: Authority, gate: Gate
) -> None:
    with connect(server.address, authority.context()) as busy, plain(server) as wire:
        busy.send(request("GET", "/wait"))
        gate.announcement()
        # certbot removes the folders that it has made, and makes them again the next time.
        for number in range(2):
            put(webroot, TOKEN, f"{AUTHORIZATION}{number}")
            response = wire.get(WHERE + TOKEN)
            assert (response.status, response.text) == (200, f"{AUTHORIZATION}{number}")
            assert response.header("Content-Type") == "application/octet-stream"
            assert response.header("Cache-Control") == "no-store"
            wire.send(request("HEAD", WHERE + TOKEN))
            assert wire.response("HEAD").header("Content-Length") == str(len(AUTHORIZATION) + 1)
            shutil.rmtree(webroot / ".well-known")
            assert wire.get(WHERE + TOKEN).status == 404
        # Nothing else is different.
        assert wire.get("/pid").status == 301
        assert wire.ask("POST", WHERE + TOKEN, body=b"x").status == 308
        assert Counts(tmp_path / "ctl").requests()["static"] == 6
        gate.open()
        assert busy.response().status == 200


def test_what_is_no_challenge_is_not_there(server: Server, webroot: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_text("secret")
    put(webroot, TOKEN, AUTHORIZATION)
    put(webroot, "a.b", "not base64url")
    put(webroot, "largest", "x" * LARGEST)
    put(webroot, "larger", "x" * (LARGEST + 1))
    folder = webroot / WHERE[1:]
    (folder / "folder").mkdir()
    (folder / "out").symlink_to(outside)
    (folder / "up").symlink_to("../../../secret")
    os.mkfifo(folder / "pipe")
    with plain(server) as wire:
        assert len(wire.get(WHERE + "largest").body) == LARGEST
        for name in ("larger", "folder", "out", "up", "pipe", "a.b", "", ".", "none", f"{TOKEN}/", "x" * 256):
            assert wire.get(WHERE + name).status == 404, name
        # Dots lead nowhere, as nothing resolves them.
        assert wire.get("/.well-known/../.well-known/acme-challenge/" + TOKEN).status == 301
    for name in ("..%2f..%2f..%2fsecret", "../../../secret", "%2e%2e/a", f"{TOKEN}%00", "a=", "%C3%A4"):
        with plain(server) as wire:
            assert wire.get(WHERE + name).status == 404, name


def test_over_tls_it_is_the_apps(server: Server, webroot: Path, authority: Authority) -> None:
    put(webroot, TOKEN, AUTHORIZATION)
    with connect(server.address, authority.context()) as wire:
        assert wire.get(WHERE + TOKEN).text != AUTHORIZATION


def test_without_tls_of_the_servers_own_it_is_answered_too(serve: Serve, webroot: Path) -> None:
    put(webroot, TOKEN, AUTHORIZATION)
    server = serve("hello:app", "--acme-challenge-dir", str(webroot))
    with server.connect() as wire:
        assert wire.get(WHERE + TOKEN).text == AUTHORIZATION
        assert wire.get(WHERE + "none").status == 404
        assert wire.get("/").status == 200


def test_a_directory_that_is_not_there_stops_the_start(build: Serve, tmp_path: Path) -> None:
    server = build("hello:app", "--acme-challenge-dir", str(tmp_path / "nowhere")).launch()
    server.log.wait(f"acme_challenge_dir: the directory {tmp_path}/nowhere cannot be opened: No such file")
    assert server.exit_code() != 0
