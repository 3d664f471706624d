"""WebSockets over TLS."""

import pytest

from support.server import Serve
from support.tls import Authority, Pair, connect
from support.websocket import END, WebSocket

pytestmark = pytest.mark.own("gunicorn has none, and uvicorn other limits")


@pytest.mark.parametrize("size", [1, 16 << 10, 1 << 20])
def test_messages_go_both_ways_and_the_end_is_told(size: int, serve: Serve, authority: Authority, pair: Pair) -> None:
    server = serve("sockets:app", "--interface", "asgi", *pair.arguments())
    websocket = WebSocket(server, "/echo", wire=connect(server.address, authority.context()))
    assert websocket.status == 101
    data, text = b"b" * size, "ü" * (size // 2)
    for _ in range(3):
        websocket.bytes(data)
        websocket.text(text)
        assert [websocket.hear(), websocket.hear()] == [data, text]
    websocket.close()
    assert websocket.until_end() == [(1000, "")]
    # The server closes it by close_notify: anything else raises.
    assert websocket.hear() == END
    websocket.drop()
    with connect(server.address, authority.context()) as wire:
        [[event, scheme, _, extensions], *_] = wire.get("/seen").json()["seen"]
    assert (event, scheme, extensions) == ("websocket.connect", "wss", ["stanchion", "tls", "websocket.http.response"])
