"""The server exchanges keys by X25519MLKEM768 with clients that know it: with a browser, which asks for it first, and
with OpenSSL from 3.5 on, whose defaults do too."""

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

from support.address import Address
from support.chromium import NEEDS_CHROMIUM, browser
from support.counts import Counts
from support.patience import eventually
from support.server import Serve, Server
from support.tls import NAME, Authority, Pair, connect
from support.wire import request

pytestmark = pytest.mark.own("other servers leave it to OpenSSL")


@NEEDS_CHROMIUM
def test_a_browser_and_the_server_agree_on_it(serve: Serve, authority: Authority, pair: Pair, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    server = serve("hello:app", *pair.arguments(), *counts.arguments)
    # Python's client has an OpenSSL that does not know it.
    with connect(server.address, authority.context()) as wire:
        assert wire.get("/").status == 200
    assert counts.events()["tls_handshakes_post_quantum"] == 0
    with browser(f"https://127.0.0.1:{server.address.port}/", "ignore-certificate-errors"):
        eventually(lambda: counts.events()["tls_handshakes_post_quantum"] > 0, "the browser has exchanged keys", 60)


def context(authority: Authority) -> SSL.Context:
    """OpenSSL's client as it is, but for the authority that it knows."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.load_verify_locations(str(authority.own.certfile))
    context.set_verify(SSL.VERIFY_PEER)
    return context


def group_of_an_answer(address: Address, context: SSL.Context) -> str | None:
    """The group by which the client and the server have exchanged keys, once a request is answered."""
    with address.connect() as sock:
        # pyOpenSSL would take the timeout of a socket for a wish never to wait.
        sock.setblocking(True)
        client = SSL.Connection(context, sock)
        client.set_tlsext_host_name(NAME.encode())
        client.set_connect_state()
        client.do_handshake()
        client.sendall(request("GET", "/"))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        client.shutdown()
        return client.get_group_name()


@pytest.fixture
def server(serve: Serve, pair: Pair, counts: Counts) -> Server:
    return serve("hello:app", *pair.arguments(), *counts.arguments)


def test_openssl_and_the_server_agree_on_it(server: Server, counts: Counts, authority: Authority) -> None:
    text = SSL.OpenSSL_version(SSL.OPENSSL_VERSION).decode()
    version = re.fullmatch(r"OpenSSL (\d+)\.(\d+)\..*", text)
    assert version, text
    assert (int(version[1]), int(version[2])) >= (3, 5), text
    assert group_of_an_answer(server.address, context(authority)) == "X25519MLKEM768"
    assert counts.events()["tls_handshakes_post_quantum"] == 1


def test_openssl_gets_another_group_if_it_knows_no_other(server: Server, counts: Counts, authority: Authority) -> None:
    """pyOpenSSL can restrict its groups to a curve of elliptic keys, which X25519 is not."""
    restricted = context(authority)
    restricted.set_tmp_ecdh(ec.SECP256R1())
    assert group_of_an_answer(server.address, restricted) == "secp256r1"
    assert counts.events()["tls_handshakes"] == 1
    assert counts.events()["tls_handshakes_post_quantum"] == 0
