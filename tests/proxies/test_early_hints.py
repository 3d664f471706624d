"""Early hints behind a real HAProxy and a real nginx: nothing breaks by itself, and HAProxy passes them on."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.gate import Gate
from support.ports import row_of_ports
from support.proxies import Proxy, program
from support.server import Serve, Server
from support.wire import Malformed, Response, Wire, request

pytestmark = [
    pytest.mark.own("gunicorn has no setting for it"),
    pytest.mark.skipif(not program("haproxy"), reason="NOT TESTED BEHIND HAPROXY: haproxy is not installed"),
    pytest.mark.skipif(not program("nginx"), reason="NOT TESTED BEHIND NGINX: nginx is not installed"),
]

LINK = "</a.css>; rel=preload; as=style"
APPS = {"wsgi": ("fields:hints", "/kinds/one"), "asgi": ("frameworks.starlette:hinting", "/")}

Before = Callable[[str, Server], Proxy]


@pytest.fixture
def before(tmp_path: Path) -> Iterator[Before]:
    """Puts a proxy before a server."""
    with ExitStack() as stack:

        def put(kind: str, server: Server) -> Proxy:
            port = stack.enter_context(row_of_ports(1))
            proxy = Proxy(kind, tmp_path / kind, port, server.address, "secret", patience_s=60)
            stack.callback(proxy.stop)
            proxy.wait()
            return proxy

        yield put


def nginx_version() -> tuple[int, ...]:
    command = program("nginx")
    if not command:
        return ()
    said = subprocess.run([command, "-v"], check=True, capture_output=True, text=True).stderr
    found = re.search(r"nginx/(\d+)\.(\d+)", said)
    assert found, said
    return tuple(map(int, found.groups()))


def final(wire: Wire) -> Response:
    """The head of the answer, whatever goes ahead of it."""
    while (response := wire.head()).status == 103:
        pass
    return response


@pytest.mark.parametrize("kind_of_proxy", ["nginx", "haproxy"])
@pytest.mark.parametrize("interface", APPS)
def test_an_app_that_gives_hints_is_served_behind_any_proxy(
    serve: Serve, before: Before, kind_of_proxy: str, interface: str
) -> None:
    """They go through also over connections that the proxy keeps."""
    app, path = APPS[interface]
    proxy = before(kind_of_proxy, serve(app, "--interface", interface))
    with Wire.connect(proxy.address) as wire:
        for _ in range(5):
            response = wire.get(path)
            assert (response.status, len(response.body) > 0) == (200, True)


@pytest.mark.parametrize("interface", APPS)
def test_haproxy_passes_them_on(serve: Serve, before: Before, interface: str) -> None:
    app, path = APPS[interface]
    proxy = before("haproxy", serve(app, "--interface", interface, "--early-hints"))
    with Wire.connect(proxy.address) as wire:
        for _ in range(3):
            wire.send(request("GET", path))
            hint = wire.head()
            assert (hint.status, hint.all("Link")[0]) == (103, LINK)
            assert wire.response().status == 200


def test_no_hint_is_too_long_for_haproxy(serve: Serve, before: Before) -> None:
    """One beyond its buffer (`tune.bufsize`, 16 KiB) it would answer 502."""
    proxy = before("haproxy", serve("fields:hints", "--early-hints"))
    with Wire.connect(proxy.address) as wire:
        wire.send(request("GET", "/sizes/16000/3550/3550/3550/3550/2014"))
        assert [len(wire.head().all("Link")[0]) for _ in range(5)] == [3550] * 4 + [2014]
        assert wire.response().status == 200


@pytest.mark.skipif(nginx_version() >= (1, 29), reason="this nginx knows early hints")
def test_nginx_before_1_29_takes_them_for_the_answer(serve: Serve, before: Before) -> None:
    """Why they are off by default: the client waits for an answer, or gets as a body what is none."""
    proxy = before("nginx", serve("fields:hints", "--early-hints"))
    with Wire.connect(proxy.address, timeout_s=1.0) as wire:
        wire.send(request("GET", "/kinds/one"))
        with pytest.raises((TimeoutError, Malformed)):
            final(wire)


@pytest.mark.skipif(nginx_version() < (1, 29), reason="this nginx knows no early hints")
def test_nginx_since_1_29_knows_them(serve: Serve, before: Before) -> None:
    proxy = before("nginx", serve("fields:hints", "--early-hints"))
    with Wire.connect(proxy.address) as wire:
        assert wire.get("/kinds/one").status == 200, "without early_hints in its config it keeps them"
        # One beyond its buffer (`proxy_buffer_size`, 4 KiB) it would answer 502.
        assert wire.get("/sizes/16000/3551/3550").status == 200


def test_no_client_gets_the_answer_to_the_head_of_another(serve: Serve, before: Before, gate: Gate) -> None:
    """An older nginx would take a 103 for the answer to HEAD, and use the connection again before that has come."""
    server = serve("fields:hints", "--early-hints", "--threads", "2", env=gate.environment)
    proxy = before("nginx", server)
    with Wire.connect(proxy.address) as one, Wire.connect(proxy.address) as other:
        one.send(request("HEAD", "/step/1"))
        assert gate.announcement() == "hinted"
        assert one.silent(0.2)
        assert other.get("/kinds/nothing").text == "None", "it does not wait for the connection of the first"
        gate.let_pass(1)
        response = one.response("HEAD")
        assert (response.status, response.header("Content-Length")) == (200, "8")
