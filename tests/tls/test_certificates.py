"""The certificate that a client gets, and the ones that clients have to show."""

import os
import signal
import ssl
import subprocess
from pathlib import Path

import pytest

from support.patience import PATIENCE_S
from support.server import Serve, Server
from support.tls import NAME, Authority, Pair, connect
from support.wire import Wire

pytestmark = pytest.mark.own("other servers have no SNI, and other ways to reload")


def subject(wire: Wire) -> str:
    """The subject of the certificate that the server has shown."""
    assert isinstance(wire.sock, ssl.SSLSocket)
    shown = wire.sock.getpeercert()
    assert shown
    return str(dict(part[0] for part in shown["subject"])["commonName"])


def shown_to(server: Server, authority: Authority, name: str = NAME) -> str:
    with connect(server.address, authority.context(), name) as wire:
        assert wire.get("/").body == b"hello\n"
        return subject(wire)


def test_a_client_gets_the_certificate_of_the_name_that_it_asks_for(serve: Serve, authority: Authority) -> None:
    pairs = [authority.issue("one.test"), authority.issue("two.test", key="rsa")]
    server = serve("hello:app", *pairs[0].arguments(), *pairs[1].arguments())
    assert [shown_to(server, authority, name) for name in ("one.test", "two.test")] == ["one.test", "two.test"]
    with pytest.raises(ssl.SSLCertVerificationError, match="three"):
        shown_to(server, authority, "three.test")


@pytest.mark.privileges
def test_a_reload_brings_in_a_new_certificate_or_keeps_the_old(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    old, new = [authority.issue(NAME, subject=f"/CN={name}") for name in ("old", "new")]
    old.copy_to(used)
    server = serve("hello:app", *used.arguments())
    assert shown_to(server, authority) == "old"
    used.keyfile.write_bytes(new.keyfile.read_bytes())
    server.signal(signal.SIGHUP)
    server.log.wait(r"reload failed: setting `keyfile`: \S+ does not fit.*; generation 1 goes on serving")
    assert shown_to(server, authority) == "old"
    used.keyfile.unlink()
    server.signal(signal.SIGHUP)
    server.log.wait(r"reload failed: .*setting `keyfile`: \S+ cannot be read")
    assert shown_to(server, authority) == "old"
    new.copy_to(used)
    server.signal(signal.SIGHUP)
    server.log.wait(r"reloaded: generation \d+ serves")
    assert shown_to(server, authority) == "new"


def test_an_acceptor_that_follows_a_dead_one_needs_no_file(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    authority.issue(NAME).copy_to(used)
    server = serve("hello:app", *used.arguments())
    if os.geteuid() != 0:
        pytest.skip("the acceptor shows its connections to nobody but root")
    used.keyfile.unlink()
    server.acceptor().kill()
    server.log.wait("the acceptor was killed by SIGKILL")
    # A client that comes meanwhile waits in the kernel.
    assert shown_to(server, authority) == NAME


def test_clients_without_a_certificate_are_turned_away_where_one_is_required(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    known = ("--ca-certs", str(authority.own.certfile))
    client = authority.issue("client", client=True)
    required = serve("hello:app", *pair.arguments(), *known, "--cert-reqs", "2")
    with connect(required.address, authority.context(client)) as wire:
        assert wire.get("/").body == b"hello\n"
    with pytest.raises((ssl.SSLError, ConnectionResetError)), connect(required.address, authority.context()) as wire:
        wire.get("/")
    optional = serve("hello:app", *pair.arguments(), *known, "--cert-reqs", "1")
    for context in (authority.context(), authority.context(client)):
        with connect(optional.address, context) as wire:
            assert wire.get("/").body == b"hello\n"


def test_older_versions_are_refused(hello: Server) -> None:
    where = ["-connect", f"127.0.0.1:{hello.address.port}", "-servername", NAME]
    asked = ["openssl", "s_client", "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0", *where]
    told = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
    assert told.returncode != 0
    # The server's alert ends it, not a client that has no such version.
    assert "SSL alert number" in told.stderr


def test_http_2_is_agreed_on_where_it_is_asked_for(serve: Serve, authority: Authority, pair: Pair) -> None:
    server = serve("hello:app", *pair.arguments(), "--http-protocols", "h2,h1")
    port = server.address.port
    curl = ["curl", "--silent", "--show-error", "--cacert", str(authority.own.certfile)]
    curl += ["--write-out", "%{http_version}", "--resolve", f"{NAME}:{port}:127.0.0.1", f"https://{NAME}:{port}/"]
    for flag, version in (("--http2", "2"), ("--http1.1", "1.1")):
        told = subprocess.run([*curl, flag], check=True, capture_output=True, text=True, timeout=PATIENCE_S)
        assert told.stdout == f"hello\n{version}"
