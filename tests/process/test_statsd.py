"""Metrics for a statsd server: gunicorn's as gunicorn sends them, and those of the line."""

import json
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.address import Address
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import GUNICORN, STANCHION, Kind, Serve, Server
from support.statsd import Statsd
from support.wire import Wire, request

pytestmark = pytest.mark.own("the peer is in the test where it matters")

TARGETS = ["/with-length", "/with-length", "/one-chunk", "/unusual-status", "/no-content", "/raises", "/raises"]


def asked(serve: Serve, kind: Kind, statsd: Statsd) -> list[tuple[str, str, str | None, float]]:
    """The metrics of a server that was asked for all `TARGETS`: name, kind, tags, and the sum of a counter or how
    many values there were of anything else."""
    tags = ("--dogstatsd-tags", "env:test,service:shop")
    server = serve("answers:app", "--statsd-host", statsd.address, "--statsd-prefix", "pre.fix..", *tags, kind=kind)

    def ask() -> None:
        for target in TARGETS:
            with server.connect() as wire:
                wire.get(target, "Connection: close")

    # Both at once: a unix socket holds ten datagrams (net.unix.max_dgram_qlen), and gunicorn waits until they are read.
    with ThreadPoolExecutor(1) as other:
        asking = other.submit(ask)
        statsd.wait("pre.fix.gunicorn.requests", lambda count: count >= len(TARGETS))
        asking.result()
    # gunicorn sends the status after that.
    statsd.wait("pre.fix.gunicorn.request.status.500", lambda count: count >= 2)
    statsd.wait("pre.fix.gunicorn.workers", lambda count: count == 1)
    amounts: Counter[tuple[str, str, str | None]] = Counter()
    for metric in statsd.metrics:
        amount = metric.value if metric.kind.startswith("c") else 1
        amounts[(metric.name, metric.kind, metric.tags)] += amount  # type: ignore[assignment]
    return sorted((*key, amount) for key, amount in amounts.items())


@pytest.mark.parametrize("family", ["udp", "unix"])
def test_the_metrics_are_gunicorns(serve: Serve, tmp_path: Path, family: str) -> None:
    seen = {}
    for kind in (GUNICORN, STANCHION):
        with Statsd(tmp_path / kind.name if family == "unix" else None) as statsd:
            seen[kind.name] = asked(serve, kind, statsd)
            assert all(0 < ms < 10_000 for ms in statsd.values("pre.fix.gunicorn.request.duration"))

    def gunicorns(kind: Kind) -> list[tuple[str, str, str | None, float]]:
        told = [one for one in seen[kind.name] if one[0].startswith("pre.fix.gunicorn.")]
        if kind is STANCHION and os.geteuid() == 0:
            # It warns that the app runs as root.
            told = [one for one in told if one[0] != "pre.fix.gunicorn.log.warning"]
        # Stanchion sends the gauge again every second.
        return [(*one[:3], 0 if one[1] == "g" else one[3]) for one in told]

    assert gunicorns(STANCHION) == gunicorns(GUNICORN)
    names = {name for name, *_ in gunicorns(STANCHION)}
    assert {"pre.fix.gunicorn.workers", "pre.fix.gunicorn.log.exception", "pre.fix.gunicorn.request.status.204"} < names
    own = {name: amount for name, _, _, amount in seen["stanchion"] if name.startswith("pre.fix.stanchion.")}
    assert own.pop("pre.fix.stanchion.line.waiting") >= 1
    assert own == {
        "pre.fix.stanchion.request.wait": len(TARGETS),
        "pre.fix.stanchion.request.outcome.answered": len(TARGETS),
    }


@pytest.mark.parametrize("kind", [STANCHION, GUNICORN], ids=lambda kind: kind.name)
def test_a_worker_that_takes_too_long_is_critical_and_the_backlog_is_told(serve: Serve, kind: Kind) -> None:
    with Statsd() as statsd:
        arguments = ("--statsd-host", statsd.address, "--timeout", "1", "--enable-backlog-metric")
        server = serve("waiting:app", *arguments, kind=kind)
        with server.connect() as wire:
            wire.send(request("GET", "/nap?60000"))
            statsd.wait("gunicorn.log.critical", lambda count: count == 1)
        while "gunicorn.backlog" not in {metric.name for metric in statsd.metrics}:
            statsd.take()
        assert {metric.kind for metric in statsd.metrics if metric.name == "gunicorn.backlog"} == {"h"}


def test_the_line_and_who_is_refused(serve: Serve, gate: Gate) -> None:
    with Statsd() as statsd:
        arguments = ("--statsd-host", statsd.address, "--max-waiting", "3")
        server = serve("waiting:app", *arguments, env=gate.environment)
        with server.connect() as held:
            held.send(request("GET", "/wait?held"))
            gate.announcement()
            waiting = [server.connect() for _ in range(3)]
            for wire in waiting:
                wire.send(request("GET", "/pid?x"))
            # The acceptor hands out one of them ahead.
            statsd.wait("stanchion.line.waiting", lambda length: length == 2)
            last = [server.connect() for _ in range(3)]
            last[0].send(request("GET", "/pid?x"))
            statsd.wait("stanchion.line.waiting", lambda length: length == 3)
            for wire in last[1:]:
                wire.send(request("GET", "/pid?x"))
            statsd.wait("stanchion.request.outcome.refused_line_full", lambda count: count >= 2)
            statuses = [wire.response().status for wire in last[1:]]
            assert statuses == [503, 503]
            gate.let_pass(1)
            for wire in [held, *waiting, last[0]]:
                assert wire.response().status == 200
            for wire in [*waiting, *last]:
                wire.close()
        statsd.wait("gunicorn.requests", lambda count: count == 7)
        statsd.wait("stanchion.line.waiting", lambda length: length == 0)
        assert statsd.sums()["gunicorn.request.status.503"] == 2
        assert statsd.sums()["gunicorn.request.status.200"] == 5
        waits = sorted(statsd.values("stanchion.request.wait"))
        assert len(waits) == 7
        durations = sorted(statsd.values("gunicorn.request.duration"))
        assert all(wait <= duration for wait, duration in zip(waits, durations, strict=True))


def test_what_is_left_is_told_when_the_server_leaves_and_many_go_together(serve: Serve) -> None:
    with Statsd() as statsd:
        server = serve("hello:app", "--statsd-host", statsd.address)
        with server.connect() as wire:
            wire.send(request("GET", "/") * 500)
            for _ in range(500):
                assert wire.response().status == 200
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        statsd.wait("gunicorn.requests", lambda count: count == 500)
        assert len(statsd.values("gunicorn.request.duration")) == 500
        assert 1_000 < statsd.longest_bytes <= 1_432


def status(server: Server) -> dict[str, int]:
    """The counts of events, by the admin listener."""
    (admin,) = [server.arguments[at + 1] for at, word in enumerate(server.arguments) if word == "--admin"]
    with Wire.connect(Address.parse(admin)) as wire:
        events = json.loads(wire.get("/status").body)["events"]
        assert isinstance(events, dict)
        return events


def test_a_server_that_is_not_there_or_reads_nothing_costs_only_metrics(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "statsd"
    arguments = ("--statsd-host", f"unix://{path}", "--admin", f"unix:{tmp_path}/admin", "--keep-alive", "60")
    server = serve("hello:app", *arguments)
    with server.connect() as wire:
        assert wire.get("/").status == 200
        eventually(lambda: status(server)["metrics_dropped"] >= 4, "they are counted")
        server.log.wait("metrics cannot be sent to statsd_host, and are dropped: No such file")
        assert len(server.log.matches("metrics cannot be sent")) == 1, "it is one event"
        with Statsd(path) as statsd:
            statsd.wait("gunicorn.workers", lambda count: count == 1)
            dropped = status(server)["metrics_dropped"]
            # Its queue holds a few datagrams (net.unix.max_dgram_qlen), of some hundred metrics each.
            while status(server)["metrics_dropped"] == dropped:
                wire.send(request("GET", "/") * 1_000)
                for _ in range(1_000):
                    assert wire.response().status == 200
            # It goes on where it reads again.
            have = len(statsd.metrics)
            wire.get("/")
            while not any(one.name == "gunicorn.workers" for one in statsd.metrics[have:]):
                statsd.take()
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0


def test_lines_are_counted_that_the_log_does_not_show(build: Serve, tmp_path: Path) -> None:
    with Statsd() as statsd:
        arguments = ("--statsd-host", statsd.address, "--log-level", "error")
        server = build("answers:app", *arguments, bind=f"unix:{tmp_path}/s").launch()
        eventually((tmp_path / "s").exists, "it listens", 2 * PATIENCE_S)
        statsd.wait("gunicorn.workers", lambda count: count == 1)
        server.addresses = [Address.parse(f"unix:{tmp_path}/s")]
        with server.connect() as wire:
            assert wire.get("/raises").status == 500
        statsd.wait("gunicorn.log.exception", lambda count: count == 1)
        before = statsd.sums()["gunicorn.log.warning"]
        (worker,) = server.of_name("stanchion-work")
        worker.kill()
        statsd.wait("gunicorn.log.warning", lambda count: count == before + 1)
        assert not server.log.matches("WARNING")


def test_one_acceptor_at_a_time_tells_how_it_is_and_a_reload_takes_another_prefix(
    build: Serve, gate: Gate, tmp_path: Path
) -> None:
    config = tmp_path / "shop.py"
    with Statsd() as statsd:
        config.write_text('statsd_prefix = "old"\n')
        arguments = ("--statsd-host", statsd.address, "-c", str(config))
        server = build("waiting:app", *arguments, env=gate.environment).start()
        with server.connect() as held:
            held.send(request("GET", "/wait?held"))
            gate.announcement()
            statsd.wait("old.gunicorn.workers", lambda count: count == 1)
            config.write_text('statsd_prefix = "new"\nworkers = 2\n')
            server.signal(signal.SIGHUP)
            statsd.wait("new.gunicorn.workers", lambda count: count == 2)
            server.log.wait("statsd of the error log takes effect when the server is restarted")
            server.log.wait("reloaded")
            # All that the old acceptor sent until it retired has come by now.
            statsd.take_all()
            have = len(statsd.metrics)
            # The new one sends it again and again.
            for _ in range(2):
                before = len(statsd.values("new.gunicorn.workers"))
                while len(statsd.values("new.gunicorn.workers")) == before:
                    statsd.take()
            gate.let_pass(1)
            assert held.response().status == 200
        # The old generation still counts its own request, and sends nothing else.
        statsd.wait("old.gunicorn.requests", lambda count: count == 1)
        assert not [one for one in statsd.metrics[have:] if one.name.startswith("old.") and one.kind == "g"]
