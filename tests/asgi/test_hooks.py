"""gunicorn's hooks of requests around an asynchronous app."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.gate import Gate
from support.server import Serve, Server
from support.websocket import WebSocket

Start = Callable[..., Server]


@pytest.fixture
def start(serve: Serve, gate: Gate, tmp_path: Path) -> Start:
    """A server with this config file."""

    def start(text: str, app: str = "asgi_cases:app") -> Server:
        config = tmp_path / "hooks.conf.py"
        config.write_text("from rendezvous import announce\n" + text)
        return serve(app, "--interface", "asgi", "-c", str(config), env=gate.environment)

    return start


def test_each_request_is_between_its_hooks(start: Start, gate: Gate) -> None:
    server = start(
        "def pre_request(worker, req):\n"
        "    host = dict(req.headers)['HOST']\n"
        "    announce(f'pre {worker.nr} {req.method} {req.path} {req.query} {req.version} {req.scheme} {host}')\n"
        "    req.headers += [('X-Added', 'by the hook'), ('Host', 'changed')]\n"
        "def post_request(worker, req, environ, resp):\n"
        "    added, kind = environ['HTTP_X_ADDED'], dict(resp.headers)['content-type']\n"
        "    announce(f'post {req.path} {added} {resp.status} {resp.status_code} {kind} {resp.sent}')\n",
    )
    with server.connect() as wire:
        answer = wire.get("/scope?a=b")
    assert gate.announcements(2) == [
        "pre 0 GET /scope a=b (1, 1) http test",
        f"post /scope by the hook 200 OK 200 application/json {len(answer.body)}",
    ]
    headers = answer.json()["headers"]
    assert "(b'x-added', b'by the hook')" in headers
    assert "(b'host', b'changed')" in headers
    assert "b'test'" not in headers


@pytest.mark.parametrize(
    ("target", "status", "told"),
    [
        ("/messages?204", 204, "204 No Content"),
        ("/messages?in+pieces", 200, "200 OK"),
        ("/messages?headers+of+a+generator", 200, "200 OK x-one=1 x-two=2"),
        ("/messages?start+alone", 500, "500 Internal Server Error"),
        ("/raises", 500, "500 Internal Server Error"),
        ("/raises?odd", 500, "500 Internal Server Error"),
        ("/cancels_itself", 500, "None"),
    ],
)
def test_post_request_is_told_what_the_client_got(
    start: Start, gate: Gate, target: str, status: int, told: str
) -> None:
    server = start(
        "def post_request(worker, req, environ, resp):\n"
        "    announce(' '.join([resp.status, *map('='.join, resp.headers)]) if resp else 'None')\n"
    )
    with server.connect() as wire:
        assert wire.get(target).status == status
    assert gate.announcement() == told


def test_a_pre_request_that_raises_is_a_500_and_post_request_is_told(start: Start, gate: Gate) -> None:
    server = start(
        "def pre_request(worker, req):\n"
        "    if req.query: raise SystemExit('not you')\n"
        "def post_request(worker, req, environ, resp): announce(f'{req.path} {resp.status_code}')\n"
    )
    with server.connect() as wire:
        assert wire.get("/seen?bad").status == 500
        assert gate.announcement() == "/seen 500"
        server.log.wait(r"the hook pre_request failed at GET /seen\?bad")
        server.log.wait("^SystemExit: not you")
        assert wire.get("/seen").status == 200, "the connection and the worker go on"
    assert gate.announcement() == "/seen 200"


def test_a_post_request_that_raises_is_only_told(start: Start) -> None:
    server = start("def post_request(worker, req): raise LookupError('too late')\n")
    with server.connect() as wire:
        for _ in range(2):
            assert wire.get("/seen").status == 200
    server.log.wait("the hook post_request failed after GET /seen")
    server.log.wait("^LookupError: too late")


def test_hooks_of_requests_do_not_run_for_websockets(start: Start, gate: Gate) -> None:
    server = start("def pre_request(worker, req): announce(req.path)\n", app="sockets:app")
    client = WebSocket(server)
    try:
        client.text("return")
        assert client.until_end() == [(1000, "")]
    finally:
        client.drop()
    with server.connect() as wire:
        assert wire.get("/seen").status == 200
    assert gate.announcement() == "/seen"
