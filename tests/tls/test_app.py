"""Apps see the TLS of a connection, and the certificates that clients show."""

import ast
import re
import ssl
import subprocess
from contextlib import ExitStack
from typing import Any

import pytest

from support.patience import PATIENCE_S
from support.server import Serve, Server
from support.tls import NAME, Authority, Pair, connect
from support.wire import BrokenOff, Wire

pytestmark = pytest.mark.own("gunicorn tells no app of TLS, nor does uvicorn")

SUBJECT = "/C=DE/O=Shop, Inc./CN=a client"


@pytest.fixture(scope="module")
def client(authority: Authority) -> Pair:
    return authority.issue("client", subject=SUBJECT, client=True)


def asking(authority: Authority, pair: Pair) -> tuple[str, ...]:
    return (*pair.arguments(), "--ca-certs", str(authority.own.certfile), "--cert-reqs", "1")


def session_of(wire: Wire) -> ssl.SSLSocket:
    assert isinstance(wire.sock, ssl.SSLSocket)
    return wire.sock


def told(environ: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in environ.items() if key.startswith("SSL_") or key == "HTTPS"}


def environ_of(wire: Wire, *headers: str) -> dict[str, Any]:
    environ: dict[str, Any] = wire.get("/", *headers).json()["environ"]
    return environ


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_environ_has_version_suite_and_name(
    version: ssl.TLSVersion, serve: Serve, authority: Authority, pair: Pair
) -> None:
    server = serve("echo:app", *pair.arguments(), "--bind", "localhost:0?tls=false")
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    with connect(server.address, context) as wire:
        cipher = session_of(wire).cipher()
        assert cipher
        for _ in range(3):
            assert told(environ_of(wire)) == {
                "HTTPS": "on",
                "SSL_PROTOCOL": version.name.replace("_", "."),
                "SSL_CIPHER": cipher[0],
                "SSL_TLS_SNI": NAME,
                "SSL_CLIENT_VERIFY": "NONE",
            }
    with Wire.connect(server.addresses[1]) as wire:
        assert told(environ_of(wire)) == {}


def test_environ_has_the_certificate_of_each_client(
    serve: Serve, authority: Authority, pair: Pair, client: Pair
) -> None:
    server = serve("echo:app", *asking(authority, pair))
    other = authority.issue("other", client=True)
    expected = {
        "SSL_CLIENT_VERIFY": "SUCCESS",
        "SSL_CLIENT_S_DN": r"CN=a client,O=Shop\, Inc.,C=DE",
        "SSL_CLIENT_S_DN_CN": "a client",
        "SSL_CLIENT_I_DN": "CN=test root",
        "SSL_CLIENT_M_SERIAL": said_by_openssl(client, "-serial"),
        "SSL_CLIENT_V_START": said_by_openssl(client, "-startdate"),
        "SSL_CLIENT_V_END": said_by_openssl(client, "-enddate"),
        "SSL_CLIENT_CERT": client.certfile.read_text(),
        # OpenSSL's clients show all that they know.
        "SSL_CLIENT_CERT_CHAIN_0": authority.own.certfile.read_text(),
    }
    contexts = [authority.context(shown) for shown in (client, None, other)]
    with ExitStack() as stack:
        wires = [stack.enter_context(connect(server.address, context)) for context in contexts]
        for _ in range(2):
            first, none, third = (told(environ_of(wire)) for wire in wires)
            assert {key: value for key, value in first.items() if key.startswith("SSL_CLIENT")} == expected
            assert none["SSL_CLIENT_VERIFY"] == "NONE"
            assert [key for key in none if key.startswith("SSL_CLIENT")] == ["SSL_CLIENT_VERIFY"]
            assert (third["SSL_CLIENT_S_DN"], third["SSL_CLIENT_CERT"]) == ("CN=other", other.certfile.read_text())


def said_by_openssl(pair: Pair, what: str) -> str:
    command = ["openssl", "x509", "-in", str(pair.certfile), "-noout", what]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    return said.strip().partition("=")[2]


def test_no_header_is_taken_for_what_the_handshake_says(
    serve: Serve, authority: Authority, pair: Pair, client: Pair
) -> None:
    server = serve(
        "echo:app",
        *(*asking(authority, pair), "--bind", "localhost:0?tls=false"),
        *("--header-map", "dangerous", "--forwarder-headers", "SSL_CLIENT_VERIFY,HTTPS", "--forwarded-allow-ips", "*"),
    )
    lies = ("SSL_CLIENT_VERIFY: SUCCESS", "SSL-Client-S-DN: CN=root", "HTTPS: off", "SSL_PROTOCOL: SSLv3")
    with connect(server.address, authority.context()) as wire:
        environ = environ_of(wire, *lies)
        assert (environ["SSL_CLIENT_VERIFY"], environ["HTTPS"]) == ("NONE", "on")
        assert "SSL_CLIENT_S_DN" not in environ
        assert environ["HTTP_SSL_CLIENT_VERIFY"] == "SUCCESS"
    with connect(server.address, authority.context(client)) as wire:
        assert environ_of(wire, *lies)["SSL_CLIENT_S_DN_CN"] == "a client"
    with Wire.connect(server.addresses[1]) as wire:
        assert told(environ_of(wire, *lies)) == {}


def test_streams_of_http_2_have_the_certificate_of_their_connection(
    serve: Serve, authority: Authority, pair: Pair, client: Pair
) -> None:
    server = serve("echo:app", *asking(authority, pair), "--http-protocols", "h2,h1")
    port = server.address.port
    curl = ["curl", "--silent", "--show-error", "--http2", "--cacert", str(authority.own.certfile)]
    curl += ["--cert", str(client.certfile), "--key", str(client.keyfile)]
    curl += ["--resolve", f"{NAME}:{port}:127.0.0.1", f"https://{NAME}:{port}/"]
    said = subprocess.run(curl, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    assert '"SERVER_PROTOCOL": "HTTP/2' in said
    assert '"SSL_CLIENT_S_DN_CN": "a client"' in said


def test_who_resumes_a_session_is_who_it_was(serve: Serve, authority: Authority, pair: Pair, client: Pair) -> None:
    server = serve("echo:app", *asking(authority, pair))
    context = authority.context(client)
    with connect(server.address, context) as wire:
        before = told(environ_of(wire))
        session = session_of(wire).session
    with resumed(server, context, session) as wire:
        assert told(environ_of(wire)) == before
        assert session_of(wire).session_reused


def resumed(server: Server, context: ssl.SSLContext, session: ssl.SSLSession | None) -> Wire:
    sock = context.wrap_socket(server.address.connect(), server_hostname=NAME, session=session)
    return Wire(sock)


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
@pytest.mark.parametrize("length", [26_000, 20_000])
def test_certificates_that_are_too_long_to_tell_of_are_refused_and_the_log_says_so_once(
    interface: str, length: int, serve: Serve, authority: Authority, pair: Pair, client: Pair
) -> None:
    """A certificate that is too long alone, or one that is so together with the others: here it comes twice."""
    app = "echo:app" if interface == "wsgi" else "asgi_cases:app"
    server = serve(app, *asking(authority, pair), "--interface", interface)
    long = authority.issue("long", client=True, comment="x" * length)
    if length < 24_000:
        long.certfile.write_text(2 * long.certfile.read_text())
    for _ in range(2):
        with connect(server.address, authority.context(long)) as wire, pytest.raises(BrokenOff):
            wire.get("/")
    with connect(server.address, authority.context(client)) as wire:
        assert wire.get("/").status == 200
    said = server.log.wait(
        "is not served over TLS: its certificates, with the values read from them, have more than the 32768 bytes"
    )
    assert said
    assert len(server.log.matches("is not served over TLS")) == 1


def test_a_scope_has_the_extension(serve: Serve, authority: Authority, client: Pair) -> None:
    pairs = {name: authority.issue(name) for name in (NAME, "other.test")}
    server = serve(
        "asgi_cases:app",
        *[word for pair in pairs.values() for word in pair.arguments()],
        *("--ca-certs", str(authority.own.certfile), "--cert-reqs", "1", "--interface", "asgi"),
        *("--bind", "localhost:0?tls=false"),
    )
    for name, pair in pairs.items():
        for shown in (client, None):
            with connect(server.address, authority.context(shown), name) as wire:
                # An app's change to one request's extension is not in the next one's.
                extensions = [extensions_of(wire) for _ in range(2)]
                assert [one["tls"] for one in extensions] == [
                    {
                        "server_cert": pair.certfile.read_text(),
                        "client_cert_chain": [one.certfile.read_text() for one in (client, authority.own) if shown],
                        "client_cert_name": r"CN=a client,O=Shop\, Inc.,C=DE" if shown else None,
                        "client_cert_error": None,
                        "tls_version": 0x0304,
                        "cipher_suite": suite_of(wire),
                    }
                ] * 2
    with Wire.connect(server.addresses[1]) as wire:
        assert "tls" not in extensions_of(wire)


SUITES = {"TLS_AES_128_GCM_SHA256": 0x1301, "TLS_AES_256_GCM_SHA384": 0x1302, "TLS_CHACHA20_POLY1305_SHA256": 0x1303}
"""RFC 8446 appendix B.4."""


def suite_of(wire: Wire) -> int:
    cipher = session_of(wire).cipher()
    assert cipher
    return SUITES[cipher[0]]


def extensions_of(wire: Wire) -> dict[str, Any]:
    shown = wire.get("/scope").json()["extensions"]
    # An event has no literal.
    extensions: dict[str, Any] = ast.literal_eval(re.sub(r"<asyncio[^>]*>", "None", shown))
    return extensions
