"""The uwsgi protocol on the wire: the app's environ, and packets that the server refuses."""

import hashlib
from typing import Any

import pytest

from support import uwsgi
from support.clock import Clock
from support.patience import eventually
from support.server import UNHURRIED, Serve, Server
from support.unread import until_read
from support.uwsgi import packet
from support.wire import Response, request

pytestmark = pytest.mark.own("gunicorn's answers have other fields, and it lets the app see other variables")

ALL = ("--protocol", "uwsgi")


@pytest.fixture(scope="module")
def echo(shared_serve: Serve) -> Server:
    return shared_serve("echo:raw", *ALL, *UNHURRIED)


def told(server: Server, sent: bytes, method: str = "GET") -> Response:
    """The answer, behind which the connection ends."""
    with server.connect() as wire:
        wire.send(sent)
        response = wire.response(method)
        assert wire.closed()
        return response


def environ(server: Server, sent: bytes) -> dict[str, Any]:
    answer = told(server, sent).json()["environ"]
    assert isinstance(answer, dict)
    return answer


def test_the_variables_are_the_environ(echo: Server) -> None:
    more = {"HTTPS": "on", "REMOTE_USER": "ada", "my_own": "x", "HTTP_X_ONE": "1", "HTTP_CONNECTION": "close"}
    sent = uwsgi.request(
        **more, QUERY_STRING="a=b", REQUEST_URI="/%2Fx?a=b", PATH_INFO="//x", SERVER_PROTOCOL="HTTP/2.0"
    )
    for _ in range(4):  # environs of the like are made otherwise from the third on
        seen = environ(echo, sent)
        expected = {
            "REQUEST_METHOD": "GET",
            "QUERY_STRING": "a=b",
            "REQUEST_URI": "/%2Fx?a=b",
            "RAW_URI": "/%2Fx?a=b",
            "PATH_INFO": "//x",
            "SCRIPT_NAME": "",
            "SERVER_PROTOCOL": "HTTP/2.0",
            "REMOTE_ADDR": "192.0.2.1",
            "REMOTE_PORT": "4097",
            "SERVER_NAME": "shop.example",
            "SERVER_PORT": "80",
            "CONTENT_TYPE": "",
            "CONTENT_LENGTH": "",
            "HTTP_HOST": "shop.example",
            "DOCUMENT_ROOT": "/usr/share/nginx/html",
            "wsgi.url_scheme": "https",
            **more,
        }
        assert {key: seen.get(key) for key in expected} == expected


def test_a_mount_point_is_what_nginx_says_or_the_setting(serve: Serve, echo: Server) -> None:
    seen = environ(echo, uwsgi.request(SCRIPT_NAME="/shop", PATH_INFO="/x", REQUEST_URI="/shop/x"))
    assert (seen["SCRIPT_NAME"], seen["PATH_INFO"], seen["RAW_URI"]) == ("/shop", "/x", "/shop/x")
    mounted = serve("echo:raw", *ALL, "--root-path", "/shop")
    seen = environ(mounted, uwsgi.request(path="/shop/x"))
    assert (seen["SCRIPT_NAME"], seen["PATH_INFO"]) == ("/shop", "/x")
    seen = environ(mounted, uwsgi.request(SCRIPT_NAME="/other", PATH_INFO="/shop/x", REQUEST_URI="/other/shop/x"))
    assert (seen["SCRIPT_NAME"], seen["PATH_INFO"]) == ("/other", "/shop/x")


def test_no_variable_makes_a_key_of_the_server_or_loads_anything(echo: Server) -> None:
    evil = {"wsgi.url_scheme": "evil", "stanchion.queue_wait": "evil", "UWSGI_FILE": "evil", "UWSGI_SCRIPT": "evil"}
    assert "evil" not in str(environ(echo, uwsgi.request(**evil)))


@pytest.mark.parametrize("size", [1, 100_000, 3_000_000])
def test_a_body_comes_behind_its_packet(echo: Server, size: int) -> None:
    body = b"x" * size
    answer = told(echo, uwsgi.request("POST", body=body)).json()
    assert (answer["length"], answer["sha256"]) == (size, hashlib.sha256(body).hexdigest())
    assert answer["environ"]["CONTENT_LENGTH"] == str(size)


def test_an_answer_of_unknown_length_ends_with_its_connection(serve: Serve) -> None:
    """nginx takes no chunks from an upstream of this protocol."""
    server = serve("answers:app", *ALL)
    response = told(server, uwsgi.request(path="/big", QUERY_STRING="64"))
    assert (response.version, response.status, response.framing) == ("HTTP/1.0", 200, "close")
    assert len(response.body) == 64 * 65536


def test_a_packet_may_come_byte_by_byte(echo: Server) -> None:
    with echo.connect() as wire:
        for byte in uwsgi.request("POST", body=b"abc"):
            wire.send(bytes([byte]))
        assert wire.response().json()["length"] == 3


def test_a_client_is_not_believed_because_nginx_is(echo: Server) -> None:
    said = {"HTTP_X_FORWARDED_PROTO": "https", "HTTP_X_REQUEST_ID": "chosen", "HTTP_SCRIPT_NAME": "/x"}
    seen = environ(echo, uwsgi.request(**said))
    assert (seen["wsgi.url_scheme"], seen["SCRIPT_NAME"]) == ("http", "")
    assert seen["stanchion.request_id"] != "chosen"
    seen = environ(echo, uwsgi.request(**said, REMOTE_ADDR="127.0.0.1"))
    assert (seen["wsgi.url_scheme"], seen["stanchion.request_id"]) == ("https", "chosen")


def test_fields_of_the_message_are_not_taken_from_the_client(echo: Server) -> None:
    said = {"HTTP_TRANSFER_ENCODING": "chunked", "HTTP_CONTENT_LENGTH": "7", "HTTP_EXPECT": "100-continue"}
    answer = told(echo, uwsgi.request("POST", body=b"abc", **said)).json()
    assert (answer["length"], answer["environ"]["CONTENT_LENGTH"]) == (3, "3")
    assert "HTTP_TRANSFER_ENCODING" not in answer["environ"]


class TestRefusals:
    def test_http_is_not_spoken_there(self, echo: Server) -> None:
        with echo.connect() as wire:
            wire.send(request("GET", "/"))
            assert "not a request of the uwsgi protocol" in wire.response().text

    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            (packet([]), 400),
            (uwsgi.request(HTTP_A="x" * 9000), 431),
        ],
    )
    def test_what_is_no_request(self, echo: Server, sent: bytes, status: int) -> None:
        with echo.connect() as wire:
            wire.send(sent)
            assert wire.response().status == status

    def test_who_is_not_on_the_list(self, serve: Serve) -> None:
        server = serve("echo:raw", *ALL, "--uwsgi-allow-from", "192.0.2.9,unix")
        with server.connect() as wire:
            wire.send(uwsgi.request())
            answer = wire.response()
        assert (answer.status, answer.text) == (
            403,
            "403 Forbidden: the uwsgi protocol is for peers in uwsgi_allow_ips\n",
        )

    def test_a_packet_that_does_not_come_whole_in_time(self, serve: Serve, clock: Clock) -> None:
        server = serve("echo:raw", *ALL, "--header-timeout", "100", env=clock.environment)
        with server.connect() as wire:
            wire.send(uwsgi.request()[:50])
            until_read(wire)
            clock.advance(60)
            assert wire.silent(0.1)
            clock.advance(40)
            assert wire.response().status == 408

    def test_a_body_that_is_cut_short_reaches_no_app(self, serve: Serve) -> None:
        server = serve("echo:raw", *ALL)
        with server.connect() as wire:
            wire.send(uwsgi.request("POST", body=b"abcdef")[:-1])
            wire.half_close()
            assert wire.response().status == 400

    def test_proxy_headers_go_with_http(self, build: Serve) -> None:
        server = build("echo:raw", *ALL, "--proxy-protocol", "v2").launch()
        assert server.exit_code() == 2
        server.log.wait("`proxy_protocol` is for HTTP")


def test_connections_count_as_the_clients(serve: Serve) -> None:
    limits = ("--max-connections-per-client", "1", "--forwarded-allow-ips", "unix")
    server = serve("echo:raw", *ALL, *UNHURRIED, *limits)
    body = b"x" * 10

    def held(client: str) -> Any:
        wire = server.connect()
        wire.send(uwsgi.request("POST", body=body, REMOTE_ADDR=client)[:-1])
        return wire

    wires = [held("192.0.2.1"), held("192.0.2.2")]
    until_read(*wires)
    assert all(wire.silent(0.2) for wire in wires)
    with server.connect() as wire:
        wire.send(uwsgi.request(REMOTE_ADDR="192.0.2.1"))
        assert wire.response().status == 429
    wires[0].close()

    def answers() -> bool:
        with server.connect() as again:
            again.send(uwsgi.request(REMOTE_ADDR="192.0.2.1"))
            return again.response().status == 200

    eventually(answers, "its place is free again")
    wires[1].close()


def test_an_asynchronous_app_is_told_as_much_as_its_scope_has_room_for(serve: Serve) -> None:
    server = serve("asgi_cases:app", *ALL, "--interface", "asgi")
    for client in ("192.0.2.1", "192.0.2.2"):
        sent = uwsgi.request(
            path="/scope", HTTPS="on", SCRIPT_NAME="/shop", REQUEST_URI="/shop/scope", REMOTE_ADDR=client
        )
        scope = told(server, sent).text
        assert repr((client, 4097)) in scope and repr(("shop.example", 80)) in scope
        assert "'https'" in scope and "'/shop'" in scope and "b':" not in scope
