"""A client that asks the admin listener too much, or has no business there, does not harm the legitimate ones."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.address import Address
from support.clock import US, Clock
from support.server import Serve
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn has no such listener")

PLACES = 64
ANEW_US = 100_000
"""The acceptor gathers a status once in so long at most (crates/stanchion-acceptor/src/admin/told.rs)."""
HOUR_S = 3600


@pytest.fixture(params=["tcp", "unix"])
def admin(request: pytest.FixtureRequest, serve: Serve, clock: Clock, tmp_path: Path) -> Address:
    where = "127.0.0.2:0" if request.param == "tcp" else f"unix:{tmp_path}/admin.sock"
    server = serve("hello:app", "--admin", where, env=clock.environment)
    (address,) = [one for one in server.addresses if one != server.address]
    return address


@contextlib.contextmanager
def occupied(admin: Address, message: bytes) -> Iterator[list[Wire]]:
    """More connections than there are places, each of which has sent this, and stays."""
    with contextlib.ExitStack() as stack:
        wires = []
        for _ in range(PLACES + 10):
            wires.append(stack.enter_context(Wire.connect(admin)))
            # Connections that have lost their places by now may not take it.
            with contextlib.suppress(ConnectionError):
                wires[-1].send(message)
        yield wires


@pytest.mark.parametrize(
    "message",
    [b"", b"GET /live HTTP/1.1\r\nHost: a", request("GET", "/live"), request("GET", "/status", host="localhost") * 200],
    ids=["idle", "half a head", "asked once", "reads nothing"],
)
def test_probes_have_a_place_whatever_connections_stay(admin: Address, message: bytes) -> None:
    with occupied(admin, message):
        for _ in range(3):
            for probe in ("/live", "/ready"):
                with Wire.connect(admin) as wire:
                    assert wire.get(probe).status == 200


def test_who_has_asked_nothing_for_longest_goes_first(admin: Address) -> None:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire.connect(admin)) for _ in range(PLACES)]
        for wire in wires:
            assert wire.get("/live").status == 200
        assert wires[0].get("/live").status == 200, "now the second has been silent for longest"
        newcomer = stack.enter_context(Wire.connect(admin))
        assert newcomer.get("/live").status == 200
        assert wires[1].closed()
        for wire in (wires[0], *wires[2:]):
            assert wire.get("/live").status == 200


def test_asking_in_a_loop_has_nothing_gathered_anew_each_time(admin: Address, clock: Clock) -> None:
    def moment(wire: Wire) -> int:
        wire.send(request("GET", "/status", host="localhost"))
        return int(wire.response().json()["now_us"])

    with Wire.connect(admin) as wire:
        moments = [moment(wire) for _ in range(300)]
    steps_us = {later - earlier for earlier, later in itertools.pairwise(moments)}
    assert min(steps_us - {0}, default=ANEW_US) >= ANEW_US
    # The server answers with the same status for longer if gathering took long, as on a busy machine, but not so long.
    clock.advance(HOUR_S)
    with Wire.connect(admin) as wire:
        assert moment(wire) >= moments[-1] + HOUR_S * US, "and yet it is not told for ever"


class TestRebinding:
    """A web page whose name leads to the admin listener reads nothing: the name gives it away."""

    @pytest.mark.parametrize("target", ["/", "/status", "/metrics", "/nothing"])
    def test_a_name_of_strangers_is_told_so(self, serve: Serve, target: str) -> None:
        server = serve("hello:app", "--admin", "127.0.0.2:0", "--admin-allowed-host", "metrics.example")
        admin = server.addresses[1]
        with Wire.connect(admin) as wire:
            for host, expected in {
                "evil.example": False,
                f"evil.example:{admin.port}": False,
                f"127.0.0.1:{admin.port}": True,
                "10.1.2.3": True,
                "[::1]:8299": True,
                "localhost": True,
                "metrics.example:8299": True,
                None: True,
            }.items():
                wire.send(request("GET", target, host=host))
                response = wire.response()
                assert (response.status != 421) == expected, host
                if not expected:
                    assert "admin_allowed_hosts" in response.text
                    assert "stanchion_" not in response.text

    def test_probes_come_by_any_name(self, serve: Serve) -> None:
        server = serve("hello:app", "--admin", "127.0.0.2:0")
        with Wire.connect(server.addresses[1]) as wire:
            for target in ("/live", "/ready"):
                wire.send(request("GET", target, host="shop.example"))
                assert wire.response().status == 200

    def test_no_browser_gets_to_a_unix_socket(self, serve: Serve, tmp_path: Path) -> None:
        serve("hello:app", "--admin", f"unix:{tmp_path}/admin.sock")
        with Wire.connect(Address(path=f"{tmp_path}/admin.sock")) as wire:
            wire.send(request("GET", "/status", host="whatever"))
            assert wire.response().status == 200
