"""W3C Trace Context, with no spans exported: what clients send is the app's, unread and unchanged."""

import pytest

from support.server import Serve, Server

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def echo(shared_serve: Serve) -> Server:
    return shared_serve("echo:app")


@pytest.mark.parametrize("traceparent", [TRACEPARENT, TRACEPARENT.upper(), TRACEPARENT[:-2] + "00", "ff-nonsense"])
@pytest.mark.parametrize("connection", ["keep-alive", "keep-alive, traceparent, tracestate"])
def test_it_is_carried_through(echo: Server, traceparent: str, connection: str) -> None:
    """This holds for any value, even if a client counts them among the fields of one hop (RFC 9110 section 7.6.1)."""
    fields = (f"Traceparent: {traceparent}", "tracestate: a=1,b@v=2", "tracestate: c=3", f"Connection: {connection}")
    with echo.connect() as wire:
        environ = wire.get("/", *fields).json()["environ"]
    assert environ["HTTP_TRACEPARENT"] == traceparent
    assert environ["HTTP_TRACESTATE"].replace(" ", "") == "a=1,b@v=2,c=3"


def test_nothing_is_added(echo: Server) -> None:
    with echo.connect() as wire:
        environ = wire.get("/").json()["environ"]
    assert "HTTP_TRACEPARENT" not in environ
    assert "HTTP_TRACESTATE" not in environ
