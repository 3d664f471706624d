"""`make demo`'s app: what its buttons do to the line."""

import json
from pathlib import Path

import pytest

from support.address import Address
from support.example import EXAMPLES
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire

pytestmark = pytest.mark.own("the example is stanchion's")


def pressed(server: Server, button: str) -> int:
    """The status of what a button sends."""
    with server.connect() as wire:
        return wire.post(button, b"").status


def test_its_buttons_show_a_burst_a_kill_and_a_reload(serve: Serve, tmp_path: Path) -> None:
    admin = f"unix:{tmp_path}/admin.sock"
    server = serve("app:app", "--chdir", str(EXAMPLES / "demo"), "--workers", "2", "--admin", admin)
    with server.connect() as wire:
        page = wire.get("/").text
    assert all(f'data-path="{path}"' in page for path in ("/fast", "/burst", "/kill", "/reload"))

    def waiting() -> int:
        with Wire.connect(Address.parse(admin)) as operator:
            return int(json.loads(operator.get("/status").body)["line"]["waiting"])

    assert pressed(server, "/burst") == 200
    assert eventually(waiting, "the burst stands in the line") > 1
    mark = server.log.mark()
    assert pressed(server, "/kill") == 502
    server.log.wait("worker ready", mark)
    assert pressed(server, "/reload") == 200
    server.log.wait("reloaded: generation 2 serves", mark)
    with server.connect() as wire:
        assert wire.get("/fast").json()["wait_ms"] >= 0
