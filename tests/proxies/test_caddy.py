"""Behind a real Caddy with examples/Caddyfile: who the client is, and what goes through as it comes."""

import hashlib
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from support.events import hear_each_word_as_it_is_said
from support.patience import PATIENCE_S, eventually
from support.ports import LOOPBACK, row_of_ports
from support.proxies import Foreground, program
from support.server import Serve, Server

pytestmark = [
    pytest.mark.own("what gunicorn makes of headers is compared in tests/http"),
    pytest.mark.skipif(not program("caddy"), reason="NOT TESTED BEHIND CADDY: caddy is not installed"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "Caddyfile"
NAME, SOCKET = "example.org", "/run/stanchion/stanchion.sock"
# No port for its own administration, and no certificate authority of its own in the machine's store.
OPTIONS = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"
SPOOFED = {
    "X-Forwarded-Proto": "http",
    "X-Forwarded-For": "203.0.113.9",
    "Forwarded": "for=203.0.113.9",
    "X-Forwarded-Ssl": "off",
    "X-Request-Id": "spoofed",
    "SCRIPT_NAME": "/x",
    "X-Real-IP": "203.0.113.9",
    "X-Forwarded-Port": "1",
    "X-Forwarded-Prefix": "/x",
    "traceparent": f"00-{'1' * 32}-{'1' * 16}-01",
    "tracestate": "a=b",
}
UPLOAD = random.Random(7).randbytes(3_000_000)


def unverified() -> ssl.SSLContext:
    """Its certificate is of its own making."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def has_certificate(port: int) -> bool:
    with socket.create_connection((LOOPBACK, port), PATIENCE_S) as plain:
        try:
            unverified().wrap_socket(plain, server_hostname="localhost").close()
        except ssl.SSLError:
            return False
        return True


@contextmanager
def before(server: Server, home: Path) -> Iterator[str]:
    """Host and port of the file's Caddy."""
    text = EXAMPLE.read_text()
    assert text.count(NAME) == 1
    assert text.count(f"reverse_proxy unix/{SOCKET} ") == 1
    with row_of_ports(1) as port:
        text = text.replace(NAME, f"https://localhost:{port}").replace(f"unix/{SOCKET}", f"unix/{server.address.path}")
        head, rest = text.split("\treverse_proxy", 1)
        text = f"{OPTIONS}{head}\ttls internal\n\treverse_proxy{rest}"
        caddy = Foreground("caddy", home, text, port)
        try:
            caddy.wait()
            eventually(lambda: has_certificate(port), "Caddy has made its certificate")
            yield f"localhost:{port}"
        finally:
            caddy.stop()


def client_of(place: str) -> httpx.Client:
    return httpx.Client(base_url=f"https://{place}", verify=unverified(), trust_env=False, timeout=PATIENCE_S)


def test_caddy_says_who_the_client_is_and_the_client_itself_is_not_believed(serve: Serve, tmp_path: Path) -> None:
    server = serve("echo:raw", bind=f"unix:{tmp_path}/app")
    with before(server, tmp_path / "caddy") as place, client_of(place) as client:
        seen = client.get("/", headers=SPOOFED).json()["environ"]
        assert seen["wsgi.url_scheme"] == "https"
        assert seen["HTTP_X_FORWARDED_FOR"] in ("127.0.0.1", "::1")
        assert (seen["HTTP_HOST"], seen["SCRIPT_NAME"]) == (place, "")
        said = {name: seen.get("HTTP_" + name.upper().replace("-", "_")) for name in SPOOFED}
        assert not {name for name, value in said.items() if value == SPOOFED[name]}
        # In chunks, as its length is not said before.
        said = client.post("/", content=(UPLOAD[at : at + 100_000] for at in range(0, len(UPLOAD), 100_000))).json()
        assert (said["length"], said["sha256"]) == (len(UPLOAD), hashlib.sha256(UPLOAD).hexdigest())


def test_events_and_websockets_go_through_caddy_as_they_come(serve: Serve, tmp_path: Path) -> None:
    server = serve("streaming:app", "--interface", "asgi", bind=f"unix:{tmp_path}/app")
    with before(server, tmp_path / "caddy") as place, client_of(place) as client:
        hear_each_word_as_it_is_said(client, buffering="yes", words=3)
        with connect(f"wss://{place}/echo", ssl=unverified(), subprotocols=["chat"], proxy=None) as talk:
            for message in ("héllo of chat", b"\7" * 100_000):
                talk.send(message)
                assert talk.recv(PATIENCE_S) == message
