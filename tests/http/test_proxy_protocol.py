"""The client's address where connections begin with a PROXY header."""

import socket
from pathlib import Path
from typing import Any

import pytest

from support.patience import eventually
from support.proxy_protocol import CAME_BY_TLS, LOCAL, tlv, v1, v2
from support.server import GUNICORN, STANCHION, Serve, Server
from support.wire import Response, Wire, request

CLIENT, ENTRY = "192.0.2.1", "198.51.100.2"
CLIENT_6, ENTRY_6 = "2001:db8::1", "2001:db8::2"
NOT_ON_LIST = "127.0.0.9"


def told(server: Server, header: bytes, *fields: str) -> Response:
    with server.connect() as wire:
        wire.send(header + request("GET", "/", fields))
        return wire.response()


def environ(server: Server, header: bytes, *fields: str) -> dict[str, Any]:
    answer = told(server, header, *fields).json()["environ"]
    assert isinstance(answer, dict)
    return answer


def ends(seen: dict[str, Any]) -> tuple[str, ...]:
    return tuple(seen[name] for name in ("REMOTE_ADDR", "REMOTE_PORT", "SERVER_NAME", "SERVER_PORT", "wsgi.url_scheme"))


@pytest.fixture(scope="module")
def auto(shared_serve: Serve) -> Server:
    return shared_serve("echo:raw", "--proxy-protocol", "auto")


HEADERS = {
    "v1": v1(CLIENT, ENTRY),
    "v1, IPv6": v1(CLIENT_6, ENTRY_6),
    "v2": v2(CLIENT, ENTRY),
    "v2, IPv6": v2(CLIENT_6, ENTRY_6),
    "v2 with much behind the addresses": v2(CLIENT, ENTRY, tlvs=tlv(1, b"http/1.1") + tlv(0xEE, bytes(3000))),
}


@pytest.mark.own("gunicorn has the client's port as a text in another place, and the server's own name")
@pytest.mark.parametrize("form", HEADERS)
def test_the_peer_is_who_the_header_names(auto: Server, form: str) -> None:
    client, entry = (CLIENT_6, ENTRY_6) if "IPv6" in form else (CLIENT, ENTRY)
    assert ends(environ(auto, HEADERS[form])) == (client, "4097", entry, "443", "http")


@pytest.mark.own("this is the comparison with the peer")
def test_the_client_is_the_one_that_gunicorn_sees(serve: Serve) -> None:
    for kind in (STANCHION, GUNICORN):
        server = serve("echo:raw", "--proxy-protocol", "auto", kind=kind)
        for header in HEADERS.values():
            seen = environ(server, header)
            assert seen["REMOTE_ADDR"] in (CLIENT, CLIENT_6) and seen["REMOTE_PORT"] == "4097", kind


@pytest.mark.own("gunicorn refuses UNKNOWN, and does not read what came by TLS")
def test_where_no_client_is_named_the_peer_is_the_proxy(auto: Server) -> None:
    for header in (
        b"PROXY UNKNOWN\r\n",
        v2(),
        v2(CLIENT, command=LOCAL),
        v2(CLIENT, tlvs=CAME_BY_TLS, command=LOCAL),
        b"",
    ):
        seen = environ(auto, header)
        assert (seen["REMOTE_ADDR"], seen["SERVER_NAME"]) == ("127.0.0.1", "127.0.0.1"), header
        assert (seen["SERVER_PORT"], seen["wsgi.url_scheme"]) == (str(auto.address.port), "http"), header


@pytest.mark.own("gunicorn does not read what came by TLS")
def test_the_header_says_that_the_client_came_by_tls(auto: Server) -> None:
    assert ends(environ(auto, v2(CLIENT, tlvs=CAME_BY_TLS)))[4] == "https"
    assert ends(environ(auto, v2(tlvs=CAME_BY_TLS)))[4] == "https"


@pytest.mark.own("gunicorn believes the client, since its proxy is on the list")
def test_a_client_is_not_believed_because_its_proxy_is(auto: Server) -> None:
    said = ["X-Forwarded-Proto: https", "X-Forwarded-For: 203.0.113.9", "SCRIPT_NAME: /x", "X-Request-Id: chosen"]
    seen = environ(auto, v2(CLIENT), *said)
    assert (seen["wsgi.url_scheme"], seen["SCRIPT_NAME"]) == ("http", "")
    assert seen["stanchion.request_id"] != "chosen"
    # A proxy behind the proxy is, and what it says of the scheme is nearer to the client.
    seen = environ(auto, v2("127.0.0.1", "127.0.0.1", tlvs=CAME_BY_TLS), "X-Forwarded-Proto: http", *said[2:])
    assert (seen["wsgi.url_scheme"], seen["SCRIPT_NAME"], seen["stanchion.request_id"]) == ("http", "/x", "chosen")


@pytest.mark.own("gunicorn believes the client, since its proxy is on the list")
def test_a_client_is_not_believed_though_all_proxies_are(serve: Serve) -> None:
    """`*` is meant for the proxy, which alone reaches the port."""
    server = serve("echo:raw", "--proxy-protocol", "v2", "--forwarded-allow-ips", "*")
    seen = environ(server, v2(CLIENT), "X-Forwarded-Proto: https", "SCRIPT_NAME: /x", "X-Request-Id: chosen")
    assert (seen["wsgi.url_scheme"], seen["SCRIPT_NAME"]) == ("http", "")
    assert seen["stanchion.request_id"] != "chosen"


@pytest.mark.own("gunicorn waits for the whole header in a worker")
def test_a_header_may_come_byte_by_byte_and_is_read_once(auto: Server) -> None:
    for header in (HEADERS["v1"], HEADERS["v2, IPv6"]):
        with auto.connect() as wire:
            wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in header:
                wire.send(bytes([byte]))
            for _ in range(2):
                assert wire.get("/").json()["environ"]["REMOTE_PORT"] == "4097"
            wire.send(header + request("GET", "/"))
            assert wire.response().status == 400


@pytest.mark.own("gunicorn takes what has no header, and answers 400 where the peer is not on the list")
class TestRefusals:
    @pytest.mark.parametrize(
        ("version", "header", "reason"),
        [
            ("v1", b"", "no PROXY header from a peer in proxy_allow_ips"),
            ("v2", v1(CLIENT, ENTRY), "a PROXY header of version 1 where proxy_protocol is v2"),
        ],
    )
    def test_a_header_that_is_missing_or_makes_no_sense(
        self, serve: Serve, version: str, header: bytes, reason: str
    ) -> None:
        server = serve("echo:raw", "--proxy-protocol", version)
        answer = told(server, header)
        assert (answer.status, answer.text) == (400, f"400 Bad Request: {reason}\n") and answer.closes()
        server.log.wait(f"400: a client's fault: {reason}")

    @pytest.mark.parametrize("header", [v1(CLIENT, ENTRY), v2(CLIENT), v2(command=LOCAL)])
    def test_a_header_of_a_client_that_is_not_believed(self, serve: Serve, header: bytes) -> None:
        off = told(serve("echo:raw"), header)
        assert (off.status, off.text) == (403, "403 Forbidden: a PROXY header where proxy_protocol is off\n")
        server = serve("echo:raw", "--proxy-protocol", "v2", "--proxy-allow-from", "192.0.2.7,unix")
        answer = told(server, header)
        assert answer.status == 403 and "not in proxy_allow_ips" in answer.text
        assert environ(server, b"")["REMOTE_ADDR"] == "127.0.0.1", "who is not on the list is served without a header"

    def test_a_header_that_does_not_come_whole_in_time(self, serve: Serve) -> None:
        server = serve("echo:raw", "--proxy-protocol", "v2", "--header-timeout", "1")
        with server.connect() as wire, server.connect() as silent:
            wire.send(v2(CLIENT)[:20])
            assert wire.closed() and silent.closed()

    def test_a_header_that_cannot_come_whole_any_more_is_not_waited_for(self, serve: Serve) -> None:
        with serve("echo:raw", "--proxy-protocol", "v2", "--header-timeout", "1000").connect() as wire:
            wire.send(v2(CLIENT)[:20])
            wire.half_close()
            assert wire.closed(), "nobody sends the rest"


@pytest.mark.own("gunicorn has no such limit")
def test_connections_count_as_the_clients_and_not_as_the_proxys(serve: Serve) -> None:
    """The proxy is listed nowhere else: without the header its connections would count as one client's."""
    limits = ("--max-connections-per-client", "2", "--forwarded-allow-ips", "unix")
    server = serve("echo:raw", "--proxy-protocol", "v2", *limits, "--keep-alive", "30")

    def comes(client: str) -> Wire:
        wire = server.connect()
        wire.send(v2(client) + request("GET", "/"))
        return wire

    held = [comes(client) for client in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1")]
    assert [wire.response().status for wire in held] == [200] * 5
    with comes("192.0.2.1") as wire:
        assert wire.response().status == 429
    held[0].close()
    eventually(lambda: answers(comes("192.0.2.1")), "its place is free again")
    for wire in held:
        wire.close()


def answers(wire: Wire) -> bool:
    with wire:
        return wire.response().status == 200


@pytest.mark.own("gunicorn always takes headers of peers on unix sockets")
def test_a_peer_on_a_unix_socket_is_on_the_list_as_unix(serve: Serve, tmp_path: Path) -> None:
    server = serve("echo:raw", "--proxy-protocol", "v2", bind=f"unix:{tmp_path}/s")
    assert ends(environ(server, v2(CLIENT))) == (CLIENT, "4097", ENTRY, "443", "http")
    server = serve("echo:raw", "--proxy-protocol", "v2", "--proxy-allow-from", "127.0.0.1", bind=f"unix:{tmp_path}/t")
    assert told(server, v2(CLIENT)).status == 403


@pytest.mark.own("gunicorn's log has other formats")
def test_logs_name_the_client(serve: Serve) -> None:
    server = serve(
        "echo:raw", "--proxy-protocol", "v1", "--access-logfile", "-", "--access-logformat", "%(h)s %({client}x)s!"
    )
    environ(server, v1(CLIENT, ENTRY))
    assert server.stdout.wait(r"^(\S+) (\S+)!").groups() == (CLIENT, CLIENT)


@pytest.mark.own("that of gunicorn is compared above")
def test_a_config_file_says_it_as_gunicorns_does(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "conf.py"
    config.write_text("proxy_protocol = True\n")
    server = serve("echo:raw", "--config", str(config))
    assert ends(environ(server, v1(CLIENT, ENTRY)))[0] == CLIENT
