"""After TERM a server with a drain delay sends clients elsewhere, and serves those that come until it is over."""

import json
import signal
from pathlib import Path

import pytest

from support.clock import Clock
from support.ctl import ctl
from support.gate import Gate
from support.http2 import Talk
from support.patience import eventually
from support.server import Serve, Server
from support.wire import ask, request

pytestmark = pytest.mark.own("gunicorn has no drain delay")

DELAY_S = 100
DELAY = ("--drain-delay", str(DELAY_S), "--timeout", "0", "--keep-alive", "1000")
BEGUN = rf"draining in {DELAY_S} s \(drain_delay\): not ready any more, but accepting until then"
DRAINS = "drain_delay: draining, then leaving"


def begin(server: Server, admin: str) -> None:
    """TERM, and wait until balancers see it."""
    server.signal(signal.SIGTERM)
    server.log.wait(f"TERM: {BEGUN}")
    eventually(lambda: ask(admin, "/ready").status == 503, "it is not ready")


def test_clients_that_still_come_are_served_sent_away_and_counted(serve: Serve, admin: str, clock: Clock) -> None:
    server = serve("hello:app", "--admin", admin, *DELAY, env=clock.environment)
    with server.connect() as kept:
        assert not kept.get("/", "Connection: keep-alive").closes()
        begin(server, admin)
        assert "shutting down" in ask(admin, "/ready").text
        assert ask(admin, "/live").status == 200
        assert json.loads(ask(admin, "/status").text)["state"] == "draining"
        # The client may just have sent a request on a connection that idles: such connections stay for one more.
        assert kept.get("/", "Connection: keep-alive").closes()
        assert kept.closed()
    for _ in range(3):
        with server.connect() as late:
            answer = late.get("/", "Connection: keep-alive")
            assert answer.status == 200 and answer.closes()
    clock.advance(DELAY_S)
    assert server.exit_code() == 0
    server.log.wait(DRAINS)
    server.log.wait("drain_delay is over: requests that came meanwhile: 4")


def test_the_graceful_timeout_begins_when_the_delay_is_over(serve: Serve, gate: Gate, admin: str, clock: Clock) -> None:
    arguments = ("--admin", admin, *DELAY, "--graceful-timeout", "50")
    server = serve("waiting:app", *arguments, env=gate.environment | clock.environment)
    with server.connect() as held:
        held.send(request("GET", "/wait?held"))
        gate.announcement()
        begin(server, admin)
        clock.advance(DELAY_S)
        server.log.wait(DRAINS)
        clock.advance(49)
        assert held.silent(0.3)
        gate.open()
        assert held.response().status == 200
    assert server.exit_code() == 0


def test_a_second_term_ends_the_delay(serve: Serve, admin: str, clock: Clock) -> None:
    server = serve("hello:app", "--admin", admin, *DELAY, env=clock.environment)
    begin(server, admin)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait("TERM: draining, then leaving")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_int_and_quit_do_not_wait_for_it(serve: Serve, admin: str, clock: Clock, number: signal.Signals) -> None:
    server = serve("hello:app", "--admin", admin, *DELAY, env=clock.environment)
    begin(server, admin)
    server.signal(number)
    assert server.exit_code() == 0
    assert not list(server.log.matches(DRAINS))


def test_a_server_that_is_not_ready_yet_leaves_without_a_delay(
    build: Serve, gate: Gate, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / "kind").write_text("wsgi")
    environment = gate.environment | clock.environment | {"KIND": str(tmp_path / "kind")}
    server = build("imports.loaded:app", *DELAY, env=environment).launch()
    gate.announcement()
    server.signal(signal.SIGTERM)
    server.log.wait("TERM: draining, then leaving")
    gate.open()
    assert server.exit_code() == 0


def test_ctl_drain_has_the_delay_too_and_says_so(serve: Serve, admin: str, clock: Clock, tmp_path: Path) -> None:
    control = tmp_path / "control"
    arguments = ("--admin", admin, "--control", f"unix:{control}", *DELAY)
    server = serve("hello:app", *arguments, env=clock.environment)
    begun = ctl(control, "drain")
    assert (begun.returncode, begun.stdout) == (0, f"draining in {DELAY_S} s\n")
    refused = ctl(control, "reload")
    assert refused.returncode == 1 and "not while the server leaves" in refused.stderr
    again = ctl(control, "drain")
    assert (again.returncode, again.stdout) == (0, "draining\n")
    assert server.exit_code() == 0


@pytest.mark.parametrize("lost", ["stanchion-acpt", "stanchion-work"])
def test_a_process_that_dies_meanwhile_is_replaced(serve: Serve, admin: str, clock: Clock, lost: str) -> None:
    server = serve("hello:app", "-w", "2", "--admin", admin, *DELAY, env=clock.environment)
    begin(server, admin)
    victim = server.of_name(lost)[0]
    victim.kill()
    eventually(lambda: victim.pid not in {process.pid for process in server.of_name(lost)}, "it is gone")
    eventually(lambda: len(server.of_name(lost)) == (1 if lost == "stanchion-acpt" else 2), "another one is there")
    eventually(lambda: ask(admin, "/ready").status == 503, "it is not ready")
    with server.connect() as late:
        answer = late.get("/", "Connection: keep-alive")
        assert answer.status == 200 and answer.closes()
    clock.advance(DELAY_S)
    assert server.exit_code() == 0


def test_http2_clients_get_goaway_when_it_begins_and_are_served_until_it_is_over(
    serve: Serve, gate: Gate, admin: str, clock: Clock
) -> None:
    http2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
    arguments = ("--admin", admin, "--threads", "2", *DELAY, *http2)
    server = serve("waiting:app", *arguments, env=gate.environment | clock.environment)
    with Talk(server.address) as busy, Talk(server.address) as idle:
        number = busy.begin("/wait")
        gate.announcement()
        assert idle.get("/pid").status == 200
        begin(server, admin)
        for talk in (busy, idle):
            talk.until(lambda talk=talk: talk.goodbye is not None)
            assert talk.goodbye is not None and talk.goodbye.error_code == 0
        with Talk(server.address) as late:
            assert late.get("/pid").status == 200
        gate.open()
        assert busy.answer(number).status == 200
    clock.advance(DELAY_S)
    assert server.exit_code() == 0


def test_a_reload_and_an_upgrade_have_no_delay(serve: Serve, clock: Clock) -> None:
    """Another process accepts on the same listeners."""
    server = serve("hello:app", *DELAY, env=clock.environment)
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2 serves")
    server.signal(signal.SIGUSR2)
    [heir] = server.log.wait(r"upgraded: the new master (\d+) serves").groups()
    eventually(lambda: server.process.poll() == 0, "the first master has left")
    server.follow(int(heir))
    with server.connect() as wire:
        assert wire.get("/").status == 200
    assert not list(server.log.matches("drain_delay"))
