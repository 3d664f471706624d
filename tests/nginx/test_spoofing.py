"""False claims of clients about themselves do not get past the nginx of the example."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import netns
from support.netns import Namespace
from support.nginx import NGINX, Nginx
from support.server import Serve
from support.wire import Wire, request

pytestmark = [
    pytest.mark.own("the example is for stanchion"),
    pytest.mark.skipif(not NGINX, reason="NOT TESTED BEHIND NGINX: nginx is not installed"),
    pytest.mark.skipif(bool(netns.unavailable()), reason=f"NOT TESTED BEHIND NGINX: {netns.unavailable()}"),
]

MARK = "spoofed"
SPOOFED = [
    *(f"X-Forwarded-{what}: {MARK}" for what in ("For", "Host", "Port", "Prefix", "Protocol", "Ssl")),
    f"X-Real-IP: {MARK}",
    f"Forwarded: for={MARK};proto=https",
    f"X-Request-Id: {MARK}",
    f"SCRIPT_NAME: /{MARK}",
    f"PATH_INFO: /{MARK}",
    f"REMOTE_USER: {MARK}",
    "X-Forwarded-Proto: https",
    "X-Request-Start: t=1.5",
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    f"tracestate: a={MARK}",
]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    yield made
    made.remove()


def test_what_the_server_believes_is_nginxs_own(serve: Serve, namespace: Namespace, tmp_path: Path) -> None:
    bind = f"unix:{tmp_path}/app.sock"
    nginx = Nginx(tmp_path / "nginx", bind, namespace)
    try:
        server = serve("echo:raw", "--access-logfile", "-", bind=bind)
        with namespace.run(lambda: Wire.connect(nginx.address)) as wire:
            wire.send(request("GET", "/", [*SPOOFED, "X-Untouched: as it was"]))
            environ = wire.response().json()["environ"]
        assert server.stdout.wait("GET").string.startswith("127.0.0.1 - - ["), "the client of nginx"
    finally:
        nginx.stop()
    assert environ["HTTP_X_UNTOUCHED"] == "as it was"
    assert not {key: value for key, value in environ.items() if MARK in str(value)}
    assert (environ["wsgi.url_scheme"], environ["SCRIPT_NAME"]) == ("http", "")
    assert environ["HTTP_X_FORWARDED_FOR"] == "127.0.0.1"
    assert "HTTP_TRACEPARENT" not in environ
    assert re.fullmatch("[0-9a-f]{32}", environ["stanchion.request_id"])
    assert 0 <= environ["stanchion.proxy_wait"] < 60


def test_what_nginx_says_in_forwarder_headers_is_what_the_app_sees(
    serve: Serve, namespace: Namespace, tmp_path: Path
) -> None:
    """This holds for any field of the client's, and also where nginx passes on names with an underscore."""
    bind = f"unix:{tmp_path}/app.sock"
    changes = {
        "        location / {": "        underscores_in_headers on;\n        location / {",
        'SCRIPT_NAME "";': "SCRIPT_NAME /shop; proxy_set_header REMOTE_USER $remote_user;",
    }
    nginx = Nginx(tmp_path / "nginx", bind, namespace, changes)
    try:
        serve("echo:raw", "--forwarder-headers", "SCRIPT_NAME,REMOTE_USER", bind=bind)
        with namespace.run(lambda: Wire.connect(nginx.address)) as wire:
            wire.send(
                request("GET", "/shop/x", [*SPOOFED, "X_Forwarded_For: spoofed", "Authorization: Basic YWRhOng="])
            )
            environ = wire.response().json()["environ"]
    finally:
        nginx.stop()
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"], environ["HTTP_REMOTE_USER"]) == ("/shop", "/x", "ada")
    assert not {key: value for key, value in environ.items() if MARK in str(value)}
