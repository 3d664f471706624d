"""Two servers behind each front, with the file that `stanchion fleet` prints for it."""

import re
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from support.fleet import HOSTS, SETTINGS, Fleet, Load, behind, printed
from support.gate import Gate
from support.patience import eventually
from support.proxies import program
from support.server import Serve
from support.wire import Wire, request

pytestmark = pytest.mark.own("other servers print no file for a front")

NGINX_FORGETS_S = 2.1
"""Its proxy_connect_timeout and fail_timeout, of a second each."""

SPOOFED = ("X-Request-Start: t=1", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https")
FULL = (
    "--keep-alive",
    "75",
    "--interface",
    "wsgi",
    "--drain-delay",
    "2",
    "--max-waiting",
    "1",
    "--queue-timeout",
    "300",
)


@pytest.fixture(
    params=[
        "haproxy",
        "nginx",
        "caddy",
        *(pytest.param(name, marks=pytest.mark.large) for name in ("envoy", "traefik")),
    ]
)
def front(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not program(name):
        pytest.skip(f"NOT TESTED BEHIND {name.upper()}: {name} is not installed")
    return name


def test_a_deploy_loses_no_request_and_a_death_no_get(front: str, serve: Serve, tmp_path: Path) -> None:
    with behind(front, serve, tmp_path) as fleet:
        with Load(fleet) as load:
            load.more()
            fleet.servers[0].signal(signal.SIGTERM)
            load.more()
            assert fleet.servers[0].exit_code() == 0
            load.more()
            fleet.start(0)
            fleet.wait_for(0)
            if front == "nginx":
                # A connection to the server that left may fail only now, and nginx then leaves that server alone.
                time.sleep(NGINX_FORGETS_S)
            load.more()
            assert load.lost == []
            fleet.kill(1)
            load.more()
        # A POST that the dead server may have run is not sent again, so its client gets no 200.
        assert [one for one in load.lost if one.startswith("GET")] == []
        load.check()


def test_the_front_tells_the_server_who_asks_and_since_when(front: str, serve: Serve, tmp_path: Path) -> None:
    with behind(front, serve, tmp_path) as fleet:
        for method in ("GET", "POST"):
            told = fleet.ask(*SPOOFED, method=method).json()
            assert (told["client"], told["scheme"], told["length"]) == ("127.0.0.1", "http", 100 * (method == "POST"))
            # Traefik has no word for the time, and drops the client's.
            assert (told["proxy_wait"] is None) == (front == "traefik")
            assert told["proxy_wait"] is None or 0 <= told["proxy_wait"] < 60


def test_while_all_are_full_clients_get_the_servers_refusal(
    front: str, serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    with behind(front, serve, tmp_path, gate.environment, FULL) as fleet, ExitStack() as stack:
        fill(fleet, gate, stack, 0, 1)
        # More than once: the front may take servers out that refuse, and must not.
        for number in range(10):
            for method in ("GET", "POST"):
                answer = fleet.ask(method=method, path=f"/{number}")
                assert (answer.status, answer.header("Stanchion-Not-Run")) == (503, "1")
        gate.open()


# Envoy alone knows that the app did not run.
@pytest.mark.parametrize("front", [pytest.param("envoy", marks=pytest.mark.large)], indirect=True)
def test_a_refusal_goes_to_another_server(front: str, serve: Serve, gate: Gate, tmp_path: Path) -> None:
    with behind(front, serve, tmp_path, gate.environment, FULL) as fleet, ExitStack() as stack:
        fill(fleet, gate, stack, 0)
        sent = [f"{method} /{number}" for number in range(30) for method in ("GET", "POST")]
        for one in sent:
            method, path = one.split()
            answer = fleet.ask(method=method, path=path)
            assert (answer.status, answer.json()["server"]) == (200, "1")
        ran = [f"{method} {path}" for _, method, path in fleet.runs()]
        assert [one for one in ran if one in sent] == sent, "each once"
        gate.open()


def fill(fleet: Fleet, gate: Gate, stack: ExitStack, *indices: int) -> None:
    """Fill these servers past their front, which does not know it."""
    for index in indices:
        # The first runs, the second is handed out, the third waits.
        for count in (1, 2, 3):
            wire = stack.enter_context(Wire.connect(fleet.direct(index)))
            wire.send(request("GET", "/hold"))
            eventually(lambda: fleet.in_flight(index) == count, f"server {index} has {count} requests")  # noqa: B023
    assert sorted(gate.announcements(len(indices))) == sorted(map(str, indices))


def test_keda_finds_a_number_in_line(serve: Serve) -> None:
    [trigger] = yaml.safe_load(printed("keda", *SETTINGS, "--admin", "0.0.0.0:8299")[0])["spec"]["triggers"]
    given = trigger["metadata"]
    server = serve("hello:app", "--admin", f"{HOSTS[0]}:0")
    # KEDA asks each pod by its address.
    with Wire.connect(server.addresses[1]) as wire:
        wire.send(request("GET", urlsplit(given["url"]).path, host=HOSTS[0]))
        answer = wire.response()
    assert answer.status == 200
    # A path of GJSON without a special character is the key itself.
    assert re.fullmatch(r"\w+", given["valueLocation"])
    assert type(answer.json()[given["valueLocation"]]) in (int, float)
