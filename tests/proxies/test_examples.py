"""Behind the real proxies of examples/behind, run as shipped: the client's address, and streams that pass at once."""

import asyncio
import hashlib
import json
import random
import re
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from websockets.asyncio.client import connect

from support.address import Address
from support.behind import CADDY, CLIENT, ENVOY, HAPROXY, NAME, NGINX, STYLE, Kind, Shop
from support.events import hear_each_word_as_it_is_said
from support.example import EXAMPLES, settings
from support.http2 import Talk
from support.ports import LOOPBACK
from support.proxies import program
from support.server import Serve
from support.tls import Authority
from support.wire import Wire, request

pytestmark = pytest.mark.own("what gunicorn makes of headers is compared in tests/http")

VERSIONS = ["http/1.1", "h2"]
SPOOFED = {
    "x-forwarded-proto": "http",
    "x-forwarded-for": "203.0.113.9",
    "forwarded": "for=203.0.113.9",
    "x-forwarded-ssl": "off",
    "x-request-id": "spoofed",
    "script_name": "/x",
    "x-real-ip": "203.0.113.9",
    "x-forwarded-port": "1",
    "x-forwarded-prefix": "/x",
    "traceparent": f"00-{'1' * 32}-{'1' * 16}-01",
    "tracestate": "a=b",
}
UPLOAD = random.Random(7).randbytes(3_000_000)

Behind = Callable[[str], AbstractContextManager[Shop]]


def named(kind: Kind) -> str:
    return kind.program


@pytest.fixture(params=[NGINX, HAPROXY, CADDY, ENVOY], ids=named)
def kind_of_proxy(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    if not program(kind.program):
        pytest.skip(f"NOT TESTED BEHIND {kind.program.upper()}: {kind.program} is not installed")
    return kind


@pytest.fixture
def behind(kind_of_proxy: Kind, serve: Serve, tmp_path: Path) -> Behind:
    """A shop with this app behind a proxy."""
    authority = Authority(tmp_path)
    return lambda app: kind_of_proxy.before(serve, app, tmp_path / "shop", authority)


def ask(
    shop: Shop, version: str, path: str, fields: dict[str, str], body: bytes = b"", client: str = CLIENT
) -> tuple[int, bytes]:
    """Status and body of the answer."""
    method = "POST" if body else "GET"
    with shop.speak(version, client) as sock:
        if version == "h2":
            talk = Talk(Address(), sock=sock)
            number = talk.begin(path, *fields.items(), method=method, host=shop.place, ends=not body)
            if body:
                talk.say(number, body)
            answer = talk.answer(number)
            return answer.status, answer.body
        wire = Wire(sock)
        headers = [f"{name}: {value}" for name, value in fields.items()]
        wire.send(request(method, path, headers, body, host=shop.place))
        response = wire.response()
        return response.status, response.body


@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_is_who_the_proxy_says(kind_of_proxy: Kind, behind: Behind, version: str) -> None:
    with behind("echo:raw") as shop:
        status, body = ask(shop, version, "/x?y", SPOOFED, UPLOAD)
        said: dict[str, Any] = json.loads(body)
    assert (status, said["length"], said["sha256"]) == (200, len(UPLOAD), hashlib.sha256(UPLOAD).hexdigest())
    seen = said["environ"]
    assert (seen["wsgi.url_scheme"], seen["HTTP_HOST"]) == ("https", shop.place)
    assert (seen["SCRIPT_NAME"], seen["PATH_INFO"], seen["QUERY_STRING"]) == ("", "/x", "y")
    if kind_of_proxy is HAPROXY:
        # It passes on what the client says, and the server believes none of it.
        assert seen["SERVER_PROTOCOL"] == {"h2": "HTTP/2.0"}.get(version, "HTTP/1.1")
        assert (seen["REMOTE_ADDR"], seen["SERVER_PORT"]) == (CLIENT, str(shop.port + 1))
        assert seen.get("stanchion.request_id") != "spoofed"
        return
    assert (seen["REMOTE_ADDR"], seen["HTTP_X_FORWARDED_FOR"]) == ("", CLIENT)
    found = {name: seen.get("HTTP_" + name.upper().replace("-", "_")) for name in SPOOFED}
    assert not {name for name, value in found.items() if value == SPOOFED[name]}


@pytest.mark.parametrize("kind_of_proxy", [HAPROXY], ids=named, indirect=True)
def test_not_even_a_client_on_the_proxys_host_is_believed(behind: Behind) -> None:
    with behind("echo:raw") as shop:
        seen = json.loads(ask(shop, "http/1.1", "/", SPOOFED, client=LOOPBACK)[1])["environ"]
    assert (seen["REMOTE_ADDR"], seen["wsgi.url_scheme"], seen["SCRIPT_NAME"]) == (LOOPBACK, "https", "")


@pytest.mark.parametrize("version", VERSIONS)
def test_static_files_come_from_the_server_that_is_to_send_them(behind: Behind, version: str) -> None:
    with behind("echo:raw") as shop:
        assert ask(shop, version, "/static/a.css", {}) == (200, STYLE)
        for path in ("/static/.git/config", "/static/none.css"):
            status, body = ask(shop, version, path, {})
            # The server gives to the app what is no file.
            assert status == 404 or json.loads(body)["environ"]["PATH_INFO"] == path


def test_events_and_websockets_go_through_as_they_come(behind: Behind) -> None:
    """Though the app does not ask for it (X-Accel-Buffering)."""
    with behind("frameworks.fastapi:streams") as shop, shop.http() as client:
        hear_each_word_as_it_is_said(client, buffering="", words=3)
        asyncio.run(hear_echoes(shop))


async def hear_echoes(shop: Shop) -> None:
    """The talk is in one thread: `ssl` loses bytes when one thread reads and another writes (python/cpython#143756)."""
    async with connect(f"wss://{shop.place}/echo", ssl=shop.context, subprotocols=["chat"], proxy=None) as talk:
        for message in ("héllo of chat", b"\7" * 100_000):
            await talk.send(message)
            assert await talk.recv() == message


# Caddy does it by itself, on port 80.
@pytest.mark.parametrize("kind_of_proxy", [NGINX, HAPROXY, ENVOY], ids=named, indirect=True)
def test_who_comes_without_tls_is_sent_to_it(behind: Behind) -> None:
    with behind("echo:raw") as shop, socket.create_connection((LOOPBACK, shop.port)) as sock:
        wire = Wire(sock)
        wire.send(request("GET", "/x?y", host=NAME))
        answer = wire.response()
    assert (answer.status, answer.header("Location")) == (301, f"https://{NAME}/x?y")


WAITS = {
    "nginx": ("nginx.conf", r"proxy_read_timeout (\d+)s;", r"keepalive_timeout (\d+)s;"),
    "haproxy": ("haproxy.cfg", r"timeout tunnel (\d+)s", None),
    "caddy": ("Caddyfile", r"response_header_timeout (\d+)s", r"keepalive (\d+)s"),
    "envoy": ("envoy.yaml", r"stream_idle_timeout: (\d+)s", r" idle_timeout: (\d+)s\n +explicit_http_config"),
}
"""Its file, and in it how long it waits for an answer, and how long it keeps a connection to the server that idles."""


@pytest.mark.parametrize("name", WAITS)
def test_the_server_gives_up_first_and_the_proxy_closes_first(name: str, tmp_path: Path) -> None:
    file, waits, keeps = WAITS[name]
    # In a directory that is there, and for a group that is known here.
    given = re.sub(r"&group=[\w-]+", "", text(f"{name}.conf.py"))
    given = given.replace("/srv/shop/static", str(tmp_path)).replace("/srv/shop", ".")
    (tmp_path / "conf.py").write_text(given)
    set_to = settings(["stanchion", "serve", "-c", "conf.py"], tmp_path)
    both_s = set_to["queue_timeout"] + set_to["timeout"]
    assert [both_s < int(wait_s) for wait_s in re.findall(waits, text(file))] == [True]
    if keeps:
        assert [int(kept_s) < set_to["keepalive"] for kept_s in re.findall(keeps, text(file))] == [True]


def test_the_parts_of_envoys_file_refer_to_one_another() -> None:
    """Where there is no Envoy it is not run, and Debian has none."""
    [listener, redirecting] = (resources := yaml.safe_load(text("envoy.yaml"))["static_resources"])["listeners"]
    [cluster] = resources["clusters"]
    assert [manager(one)["stat_prefix"] for one in (listener, redirecting)] == ["https", "http"]
    [virtual] = manager(listener)["route_config"]["virtual_hosts"]
    assert [route["route"]["cluster"] for route in virtual["routes"]] == [cluster["name"]]
    assert cluster["load_assignment"]["cluster_name"] == cluster["name"]
    path = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["pipe"]["path"]
    assert f"unix:{path}?" in text("envoy.conf.py")
    # All that the others drop.
    dropped = {name.lower() for name in re.findall(r"header_up -(\S+)", text("Caddyfile"))}
    # With an underscore it drops any, and it has an X-Request-Id of its own.
    assert dropped - {"script_name", "path_info", "x-request-id"} <= set(virtual["request_headers_to_remove"])


def text(name: str) -> str:
    return (EXAMPLES / "behind" / name).read_text()


def manager(listener: dict[str, Any]) -> dict[str, Any]:
    [chain] = listener["filter_chains"]
    [only] = chain["filters"]
    typed: dict[str, Any] = only["typed_config"]
    return typed


def test_nginx_says_the_same_with_tls_and_without() -> None:
    """examples/nginx.conf is the other one."""
    lines = [
        {line.strip() for line in file.read_text().splitlines() if "proxy_set_header" in line}
        for file in (EXAMPLES / "nginx.conf", EXAMPLES / "behind/nginx.conf")
    ]
    assert lines[0] == lines[1]
