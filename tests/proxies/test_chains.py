"""The client's address behind a real HAProxy, a real nginx, and both in a row."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.address import Address
from support.patience import PATIENCE_S
from support.ports import LOOPBACK, row_of_ports
from support.proxies import Foreground, program, temp_paths
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = [
    pytest.mark.own("what gunicorn makes of headers is compared in tests/http"),
    pytest.mark.skipif(not program("haproxy"), reason="NOT TESTED BEHIND HAPROXY: haproxy is not installed"),
    pytest.mark.skipif(not program("nginx"), reason="NOT TESTED BEHIND NGINX: nginx is not installed"),
]

CLIENT = "127.0.0.5"
"""The client's address: no proxy connects from it, and the server does not believe it."""

HAPROXY = """
global
    nbthread 1
defaults
    mode {mode}
    timeout connect 60s
    timeout client 60s
    timeout server 60s
    retries 0
frontend clients
    bind 127.0.0.1:{port} {bind}
    default_backend app
backend app
    {backend}
    server app {upstream} {options}
"""

NGINX = """
daemon off; master_process off; worker_processes 1; pid {home}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    {temp_paths}
    server {{
        listen 127.0.0.1:{port} {listen};
        location / {{
            proxy_pass http://{upstream};
            proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto {scheme};
            proxy_set_header X-Forwarded-For {client};
            proxy_set_header Forwarded "for={client};proto={scheme}";
        }}
    }}
}}
"""

Front = Callable[..., Address]


@pytest.fixture
def before(tmp_path: Path) -> Iterator[Front]:
    """Puts a proxy before an address, and gives its own."""
    with contextlib.ExitStack() as stack:
        count = 0

        def put(name: str, upstream: Address, **words: str) -> Address:
            nonlocal count
            count += 1
            port, home = stack.enter_context(row_of_ports(1)), tmp_path / f"{name}{count}"
            unix = "unix@" if name == "haproxy" else "unix:"
            place = f"{unix}{upstream.path}" if upstream.path else f"{upstream.host}:{upstream.port}"
            if name == "haproxy":
                fill = {"mode": "tcp", "bind": "", "backend": "", **words}
                text = HAPROXY.format(port=port, upstream=place, **fill)
            else:
                fill = {"listen": "", "scheme": "$scheme", "client": "$remote_addr", **words}
                text = NGINX.format(port=port, home=home, temp_paths=temp_paths(home), upstream=place, **fill)
            proxy = Foreground(name, home, text, port)
            stack.callback(proxy.stop)
            proxy.wait()
            return proxy.address

        yield put


def came_from(front: Address, *fields: str) -> tuple[dict[str, Any], int]:
    """The environ of a request of CLIENT as the app sees it, and the port that it came from."""
    with socket.create_connection((front.host, front.port), PATIENCE_S, source_address=(CLIENT, 0)) as sock:
        wire = Wire(sock)
        wire.send(request("GET", "/", fields))
        seen = wire.response().json()["environ"]
        return seen, sock.getsockname()[1]


@pytest.fixture(params=["tcp", "unix"])
def server(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Server:
    bind = {"bind": f"unix:{tmp_path}/app"} if request.param == "unix" else {}
    return serve("echo:raw", "--proxy-protocol", "auto", **bind)


SPOOFED = ["X-Forwarded-Proto: https", "X-Forwarded-For: 203.0.113.9", "SCRIPT_NAME: /x"]
SENT = {
    "v1": "send-proxy",
    "v2": "send-proxy-v2",
    "v2 with all that HAProxy can add": "send-proxy-v2 proxy-v2-options crc32c,unique-id,authority,ssl",
}


@pytest.mark.parametrize("sent", SENT)
def test_haproxy_says_who_the_client_is_and_the_client_itself_is_not_believed(
    server: Server, before: Front, sent: str
) -> None:
    front = before("haproxy", server.address, options=SENT[sent])
    seen, port = came_from(front, *SPOOFED)
    assert (seen["REMOTE_ADDR"], seen["REMOTE_PORT"]) == (CLIENT, str(port))
    assert (seen["SERVER_NAME"], seen["SERVER_PORT"]) == (LOOPBACK, str(front.port)), "where the client connected to"
    assert (seen["wsgi.url_scheme"], seen["SCRIPT_NAME"]) == ("http", "")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if not shutil.which("openssl"):
        pytest.skip("NOT TESTED BEHIND HAPROXY WITH TLS: openssl is not installed")
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "1"]
    subprocess.run([*made, "-keyout", key, "-out", chain], check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_text(chain.read_text() + key.read_text())
    return both


def test_haproxy_says_that_the_client_came_by_tls(server: Server, before: Front, certificate: Path) -> None:
    import ssl

    front = before("haproxy", server.address, bind=f"ssl crt {certificate}", options="send-proxy-v2-ssl")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((front.host, front.port), PATIENCE_S, source_address=(CLIENT, 0)) as plain:
        wire = Wire(context.wrap_socket(plain))
        wire.send(request("GET", "/", ["X-Forwarded-Proto: http"]))
        seen = wire.response().json()["environ"]
        wire.close()
    assert (seen["REMOTE_ADDR"], seen["wsgi.url_scheme"]) == (CLIENT, "https")


def test_haproxy_before_nginx(server: Server, before: Front) -> None:
    """nginx takes the header, and names the client in fields."""
    nginx = before("nginx", server.address, listen="proxy_protocol", client="$proxy_protocol_addr", scheme="https")
    front = before("haproxy", nginx, options="send-proxy-v2")
    seen, _ = came_from(front, *SPOOFED)
    assert (seen["HTTP_X_FORWARDED_FOR"], seen["wsgi.url_scheme"]) == (CLIENT, "https")
    assert seen["REMOTE_ADDR"] in (LOOPBACK, ""), "nginx's own"


def test_nginx_before_haproxy(server: Server, before: Front) -> None:
    """HAProxy names nginx, which is believed."""
    haproxy = before("haproxy", server.address, options="send-proxy-v2")
    front = before("nginx", haproxy, scheme="https")
    seen, _ = came_from(front, *SPOOFED)
    assert (seen["HTTP_X_FORWARDED_FOR"], seen["wsgi.url_scheme"]) == (CLIENT, "https")
    assert (seen["REMOTE_ADDR"], seen["SERVER_PORT"]) == (LOOPBACK, str(haproxy.port))


def test_checks_of_haproxy_are_its_own(serve: Serve, before: Front) -> None:
    """They come with LOCAL, and so where a header must be."""
    server = serve("echo:raw", "--proxy-protocol", "v2", "--access-logfile", "-", "--access-logformat", "%(h)s %(r)s")
    # HAProxy takes a server for dead that is late so many times in a row, and on a busy machine it is.
    options = "send-proxy-v2 check check-send-proxy inter 100ms fall 1000"
    front = before("haproxy", server.address, mode="http", backend="option httpchk GET /check", options=options)
    assert server.stdout.wait(r"^(\S+) GET /check")[1] == LOOPBACK
    seen, _ = came_from(front)
    assert seen["REMOTE_ADDR"] == CLIENT


def test_both_add_to_the_forwarded_header(serve: Serve, before: Front) -> None:
    """The client has sent a Forwarded header of its own."""
    log = ("--access-logfile", "-", "--access-logformat", "%({client}x)s!")
    server = serve("echo:raw", "--forwarded-header", "forwarded", *log)
    # `option forwarded` of later versions does the same.
    adds = "http-request add-header Forwarded for=%[src]"
    haproxy = before("haproxy", server.address, mode="http", backend=adds, options="")
    front = before("nginx", haproxy, scheme="https")
    seen, _ = came_from(front, *SPOOFED, "Forwarded: for=203.0.113.9;proto=http")
    assert seen["HTTP_FORWARDED"] == f"for={CLIENT};proto=https,for={LOOPBACK}"
    assert seen["wsgi.url_scheme"] == "https"
    assert server.stdout.wait(r"^(\S+)!")[1] == CLIENT


def test_haproxy_that_sends_no_header_is_refused_where_one_must_be(serve: Serve, before: Front) -> None:
    server = serve("echo:raw", "--proxy-protocol", "v2")
    front = before("haproxy", server.address, options="")
    with Wire.connect(front) as wire:
        assert wire.get("/").status == 400
    server.log.wait("no PROXY header from a peer in proxy_allow_ips")
