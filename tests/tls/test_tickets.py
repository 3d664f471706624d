"""Session tickets, as openssl(1) keeps and shows them: they outlive the process that has issued them."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import processes
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.tls import NAME, Authority, Pair
from support.wire import request

pytestmark = pytest.mark.own("other servers forget their keys")

VERSIONS = ("-tls1_2", "-tls1_3")
VALID_S = (4, 8, 16, 32)
"""How long a certificate is valid that is to expire: longer each time that the machine was too busy."""


class Visitor:
    """A client that keeps a ticket for each version."""

    def __init__(self, authority: Authority, home: Path) -> None:
        self._known = ("-CAfile", str(authority.own.certfile), "-verify_return_error", "-servername", NAME)
        self._home = home
        home.mkdir(exist_ok=True)

    def kinds(self, server: Server, *more: str) -> list[str]:
        """How the server received it, with each version: with a session of before, or as a new client."""
        return [self.kind(server, version, *more) for version in VERSIONS]

    def kind(self, server: Server, version: str, *more: str) -> str:
        kept = self._home / f"session{version}"
        session = ["-sess_out", str(kept), *(["-sess_in", str(kept)] if kept.exists() else [])]
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.address.port}", "-ign_eof", version]
        asked = request("GET", "/", ["Connection: close"])
        done = subprocess.run(
            [*command, *self._known, *session, *more], input=asked, capture_output=True, timeout=PATIENCE_S
        )
        assert b"\r\n\r\nhello\n" in done.stdout, done.stderr
        said = re.search(rb"^(New|Reused), TLSv", done.stdout, re.MULTILINE)
        assert said
        return said[1].decode()


NEW, REUSED = ["New"] * 2, ["Reused"] * 2


def reload(server: Server) -> None:
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait(r"reloaded: generation \d+ serves", mark)


def kill_acceptor(server: Server) -> None:
    if os.geteuid() != 0:
        pytest.skip("the acceptor shows its connections to nobody but root")
    server.acceptor().kill()
    server.log.wait("the acceptor was killed by SIGKILL")


def upgrade(server: Server) -> None:
    old = server.pid
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves")[1]))
    processes.gone(old)


@pytest.mark.parametrize("change", [reload, kill_acceptor, upgrade])
def test_a_session_is_resumed_whichever_process_has_issued_its_ticket(
    change: Callable[[Server], None], serve: Serve, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    server = serve("hello:app", *pair.arguments())
    visitor = Visitor(authority, tmp_path)
    assert visitor.kinds(server) == NEW
    assert visitor.kinds(server) == REUSED
    change(server)
    assert visitor.kinds(server) == REUSED


def test_another_server_knows_no_ticket(serve: Serve, authority: Authority, pair: Pair, tmp_path: Path) -> None:
    visitor = Visitor(authority, tmp_path)
    for _ in range(2):
        assert visitor.kinds(serve("hello:app", *pair.arguments())) == NEW


def test_no_ticket_stands_for_a_certificate(serve: Serve, authority: Authority, pair: Pair, tmp_path: Path) -> None:
    """It was issued before one was asked for."""
    config = tmp_path / "conf.py"
    config.write_text("")
    server = serve("hello:app", *pair.arguments(), "--config", str(config), "--ca-certs", str(authority.own.certfile))
    visitor = Visitor(authority, tmp_path)
    assert visitor.kinds(server) == NEW
    config.write_text("cert_reqs = 2")
    reload(server)
    shown = authority.issue("client", client=True)
    assert visitor.kinds(server, *showing(shown)) == NEW
    assert visitor.kinds(server) == REUSED


@pytest.mark.timeout(180)
def test_who_has_a_newer_certificate_is_received_anew_once_the_one_of_its_session_has_expired(
    serve: Serve, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    server = serve("hello:app", *pair.arguments(), "--ca-certs", str(authority.own.certfile), "--cert-reqs", "2")
    renewed = authority.issue("renewed", client=True)
    for valid_s in VALID_S:
        visitor = Visitor(authority, tmp_path / f"{valid_s}")
        # Certificates tell whole seconds.
        until_s = time.time() + valid_s - 1
        short = authority.issue("short", client=True, days=(-1, valid_s / 86_400))
        try:
            assert visitor.kinds(server, *showing(short)) == NEW
            assert visitor.kinds(server, *showing(renewed)) == REUSED
            break
        except AssertionError:
            # A busy machine may take longer than the certificate is valid, which tells nothing of the server.
            if time.time() < until_s or valid_s == VALID_S[-1]:
                raise
    for version in VERSIONS:
        eventually(
            lambda version=version: visitor.kind(server, version, *showing(renewed)) == "New",
            "it has expired",
            within_s=valid_s + PATIENCE_S,
        )
    assert visitor.kinds(server, *showing(renewed)) == REUSED


def showing(pair: Pair) -> tuple[str, ...]:
    return ("-cert", str(pair.certfile), "-key", str(pair.keyfile))
