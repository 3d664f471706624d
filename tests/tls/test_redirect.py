"""Clients in clear text are sent on to https, and no worker hears of them."""

from pathlib import Path

import pytest

from support.counts import Counts
from support.gate import Gate
from support.haste import LINGERS_S, in_haste
from support.http2 import Talk
from support.server import Serve
from support.tls import NAME, Pair
from support.wire import Wire, request

pytestmark = pytest.mark.own("it is a setting of ours")

PLAIN = ("--bind", "localhost:0?tls=false", "--redirect-to-https")


def test_each_request_is_sent_on_while_all_workers_are_busy(
    serve: Serve, gate: Gate, pair: Pair, tmp_path: Path
) -> None:
    counts = Counts(tmp_path / "ctl")
    served = (*counts.arguments, "--health-path", "/-", "--forwarded-allow-ips", "127.0.0.1")
    server = serve("waiting:app", *pair.arguments(), *PLAIN, "auto", *served, env=gate.environment)
    port = server.addresses[0].port
    proxied = "X-Forwarded-Proto: https"
    with Wire.connect(server.addresses[1]) as busy, Wire.connect(server.addresses[1]) as wire:
        # The server serves it: the client has spoken https to a proxy that the server believes.
        busy.send(request("GET", "/wait", [proxied]))
        gate.announcement()
        for method, status in (("GET", 301), ("HEAD", 301), ("POST", 308), ("OPTIONS", 308)):
            wire.send(request(method, "/a%20b?c=d&e", host=f"{NAME}:80"))
            response = wire.response(method)
            assert (response.status, response.header("Location")) == (status, f"https://{NAME}:{port}/a%20b?c=d&e")
            assert not response.closes()
        assert wire.get("/-/live").status == 200
        assert counts.requests()["redirected"] == 4
        gate.open()
        assert busy.response().status == 200


@pytest.mark.parametrize("framing", ["Content-Length: 30000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("more", [[], ["Expect: 100-continue"]])
def test_a_body_is_neither_asked_for_nor_waited_for(framing: str, more: list[str], serve: Serve) -> None:
    server = serve("hello:app", "--redirect-to-https", "443", "--limit-request-body", "40000000")

    def ask() -> None:
        with Wire.connect(server.address) as wire:
            wire.send(request("POST", "/", [framing, *more]))
            response = wire.response()
            assert (response.status, response.header("Location")) == (308, "https://test/")
            assert response.closes()
            # A client that sends it nevertheless gets no reset before it has read the answer.
            wire.send(b"x" * 5_000_000)
            wire.half_close()
            assert wire.closed()

    in_haste(ask, LINGERS_S)


def test_a_body_is_read_of_who_has_spoken_https_to_a_proxy(serve: Serve) -> None:
    server = serve("echo:app", "--redirect-to-https", "443", "--forwarded-allow-ips", "127.0.0.1")
    with Wire.connect(server.address) as wire:
        response = wire.ask("POST", "/", "X-Forwarded-Proto: https", body=b"x" * 1000)
        assert (response.status, response.closes()) == (200, False)
        assert wire.ask("POST", "/", "X-Forwarded-Proto: http", body=b"x").status == 308


def test_streams_of_http_2_are_sent_on_before_their_bodies_come_and_the_connection_goes_on(serve: Serve) -> None:
    protocols = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
    server = serve("hello:app", "--redirect-to-https", "443", *protocols)
    with Talk(server.address) as talk:
        for _ in range(2):
            answer = talk.answer(talk.begin("/a", method="POST", ends=False))
            assert (answer.header(":status"), answer.header("location")) == ("308", "https://test/a")


def test_the_port_that_clients_see_may_be_another_one(serve: Serve, pair: Pair) -> None:
    server = serve("hello:app", *pair.arguments(), *PLAIN, "443")
    with Wire.connect(server.addresses[1]) as wire:
        assert wire.get("/").header("Location") == "https://test/"


def test_without_tls_of_its_own_it_needs_a_port(serve: Serve, build: Serve) -> None:
    server = build("hello:app", "--redirect-to-https", "auto").launch()
    assert server.exit_code() == 2
    server.log.wait("setting `redirect_to_https`: there is no `certfile`")
    with Wire.connect(serve("hello:app", "--redirect-to-https", "8443").address) as wire:
        assert wire.get("/").header("Location") == "https://test:8443/"


@pytest.mark.parametrize("bind", [("localhost:0?tls=false",), ("unix:{tmp}/socket", "localhost:0?tls=false")])
def test_without_a_port_of_its_own_for_tls_it_needs_one(
    build: Serve, pair: Pair, tmp_path: Path, bind: tuple[str, ...]
) -> None:
    """Otherwise the server would serve clients in clear text that it is to redirect."""
    where = [word for one in bind for word in ("--bind", one.format(tmp=tmp_path))]
    server = build("hello:app", *pair.arguments(), *where, "--redirect-to-https", "auto", bind=None).launch()
    assert server.exit_code() == 5
    server.log.wait("`redirect_to_https`: auto finds no port here that speaks TLS")
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a!b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n",
    ],
)
def test_no_client_is_sent_to_what_is_no_host(sent: bytes, serve: Serve) -> None:
    server = serve("hello:app", "--redirect-to-https", "443")
    with Wire.connect(server.address) as wire:
        wire.send(sent)
        assert wire.response().status == 400
