"""The needs of servers with event loops of the host, and nginx's effect on WebSockets."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from stanchion.doctor import event_loops, nginx, processes, settings, systemd
from stanchion.doctor.facts import Facts
from stanchion.doctor.finding import Finding
from stanchion.doctor.settings import Settings
from support.doctor import Said, doctor, facts, network, owner, unix
from support.nginx import EXAMPLE
from support.patience import PATIENCE_S, eventually
from support.server import Serve

pytestmark = pytest.mark.own("the doctor is ours")


def known(assumed: frozenset[str] = frozenset(), **values: Any) -> Settings:
    """The defaults, of an asynchronous app, but for these."""
    plain = settings.by_default("")
    return Settings({**plain.values, "interface": "asgi", **values}, dict.fromkeys(settings.NAMES, "here"), assumed)


def seen(fds_max: int | None = 1 << 20, **more: Any) -> Facts:
    # The master has its limit as it was, and the acceptor the hard one.
    owners = (owner("stanchion", fds_max=fds_max and 1024), owner("stanchion", 8, fds_max=fds_max))
    return facts(network(unix(address="/run/app.sock", backlog=2048, owners=owners)), **more)


def judged(told: Settings | None, at: Facts) -> list[Finding]:
    return list(event_loops.findings(at, lambda pid: told if pid == 7 else None))


def codes(told: Settings | None, at: Facts) -> list[tuple[str, str]]:
    return [(found.code, found.severity) for found in judged(told, at)]


def test_with_the_defaults_there_is_nothing_to_say() -> None:
    assert codes(known(), seen()) == []
    assert codes(known(), seen(fds_max=None)) == []
    assert codes(None, seen()) == []


@pytest.mark.parametrize(
    ("values", "fds_max", "expected"),
    [
        ({"workers": 16}, 1 << 20, []),
        ({"workers": 17}, 1 << 20, ["notice"]),
        ({"workers": 2}, 4_066, []),
        ({"workers": 2}, 4_064, ["warning"]),
        ({"workers": 2, "max_connections": 2_000}, 1 << 20, ["notice"]),
        ({"workers": 2, "max_connections": 2_001}, 1 << 20, []),
        ({"workers": 17, "interface": "auto"}, 1 << 20, []),
        ({"workers": 17, "interface": "wsgi"}, 1 << 20, []),
        ({"workers": 17, "interface": "wsgi", "loop": "gevent"}, 1 << 20, []),
    ],
)
def test_websockets_leave_connections_for_others(values: Mapping[str, Any], fds_max: int, expected: list[str]) -> None:
    found = codes(known(**values), seen(fds_max))
    assert found == [("websockets-take-all", severity) for severity in expected]


def test_what_only_running_the_config_file_would_tell_is_no_reason() -> None:
    for name in ("workers", "worker_sessions", "max_connections"):
        assert codes(known(frozenset({name}), workers=17), seen()) == []
    assert codes(known(frozenset({"worker_concurrency"})), seen(worker_fds_max={7: 100})) == []


def test_what_a_server_says_of_itself_counts_too() -> None:
    told = known(workers=17, interface="auto")
    assert codes(told, seen(event_loops=(7,), websockets=(7,))) == [("websockets-take-all", "notice")]
    assert codes(told, seen(event_loops=(7,))) == [], "they are gevent's, whatever its settings are"
    assert codes(known(workers=17, interface="auto", loop="gevent"), seen()) == []


@pytest.mark.parametrize(
    ("values", "assumed", "expected"),
    [
        ({"session_grace": 15, "graceful_timeout": 30}, (), []),
        ({"session_grace": 16, "graceful_timeout": 30}, (), ["session-grace-cut"]),
        ({"session_grace": 16, "graceful_timeout": 30}, ("graceful_timeout",), []),
        ({"session_grace": 16, "graceful_timeout": 30, "interface": "wsgi"}, (), []),
    ],
)
def test_session_grace_has_room_in_graceful_timeout(
    values: Mapping[str, Any], assumed: tuple[str, ...], expected: list[str]
) -> None:
    assert [code for code, _ in codes(known(frozenset(assumed), **values), seen())] == expected


@pytest.mark.parametrize(
    ("concurrency", "most", "expected"),
    [
        (1_000, 1_024, []),  # the defaults, ours and systemd's
        (1_023, 1_024, []),
        (1_024, 1_024, [("worker-descriptors", "notice")]),
        (4_000, 1_024, [("worker-descriptors", "notice")]),
        (4_000, 8_192, []),
    ],
)
def test_workers_may_open_as_much_as_they_may_have_requests(
    concurrency: int, most: int, expected: list[tuple[str, str]]
) -> None:
    at, told = seen(worker_fds_max={7: most}), {"worker_concurrency": concurrency}
    assert codes(known(**told), at) == expected
    assert codes(known(interface="wsgi", loop="gevent", **told), at) == expected
    assert codes(known(interface="wsgi", **told), at) == []


def test_systemd_waits_for_longer_than_the_server_needs() -> None:
    for interface in ("asgi", "wsgi"):
        told = known(interface=interface, graceful_timeout=30, session_grace=1)
        assert codes(told, seen(stop_timeouts_s={7: 31.0})) == []
        (found,) = judged(told, seen(stop_timeouts_s={7: 30.0}))
        assert (found.code, found.severity) == ("stopped-early", "warning")
        assert found.now == ("systemd:     TimeoutStopSec=35 in the unit",)
        later = known(interface=interface, graceful_timeout=30, session_grace=1, drain_delay=5)
        assert codes(later, seen(stop_timeouts_s={7: 36.0})) == []
        (found,) = judged(later, seen(stop_timeouts_s={7: 35.0}))
        assert found.now == ("systemd:     TimeoutStopSec=40 in the unit",)
        unsure = known(frozenset({"graceful_timeout"}), interface=interface)
        assert codes(unsure, seen(stop_timeouts_s={7: 1.0})) == []


# ---- nginx

FILE = """\
events {}
http {
    proxy_read_timeout 100s;
    upstream app { server unix:/run/app.sock; keepalive 8; }
    server { listen 80 backlog=4096; location / { %s proxy_pass http://app; } }
}
"""
UPGRADE = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection;"


def of_nginx(tmp_path: Path, text: str, told: Settings) -> list[tuple[str, str]]:
    file = tmp_path / "nginx.conf"
    file.write_text(text)
    found = nginx.findings(nginx.read(str(file)), seen(), lambda _: told)
    return [(one.code, one.severity) for one in found]


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (UPGRADE, []),
        (UPGRADE.replace("$connection", '"upgrade"'), []),
        ("", [("nginx-no-upgrade", "notice")]),
        ('proxy_set_header Upgrade "";', [("nginx-no-upgrade", "notice")]),
        (UPGRADE.replace("$connection", '""'), [("nginx-upgrade-fails", "warning")]),
        (UPGRADE.replace("$connection", "close"), [("nginx-upgrade-fails", "warning")]),
        (UPGRADE.replace("proxy_set_header Connection $connection;", ""), [("nginx-upgrade-fails", "warning")]),
        (UPGRADE.replace("1.1", "1.0"), [("nginx-upgrade-fails", "warning")]),
        (UPGRADE.replace("proxy_http_version 1.1;", ""), [("nginx-upgrade-fails", "notice")]),
    ],
)
def test_nginx_passes_websockets_on(tmp_path: Path, inside: str, expected: list[tuple[str, str]]) -> None:
    assert of_nginx(tmp_path, FILE % inside, known()) == expected
    assert of_nginx(tmp_path, FILE % inside, known(interface="wsgi")) == []


def test_it_need_not_do_so_in_each_location(tmp_path: Path) -> None:
    places = """
        location /ws { %s proxy_pass http://app; }
        location / { proxy_pass http://unix:/run/app.sock:/; }
        location /other { proxy_pass http://127.0.0.1:9; }
    """
    text = FILE.replace("location / { %s proxy_pass http://app; }", places)
    assert of_nginx(tmp_path, text % UPGRADE, known()) == []
    assert of_nginx(tmp_path, text % UPGRADE.replace("1.1", "1.0"), known()) == [("nginx-upgrade-fails", "warning")]
    assert of_nginx(tmp_path, text % "", known()) == [("nginx-no-upgrade", "notice")], "once, not for each"


@pytest.mark.parametrize(
    ("ping_s", "read", "expected"),
    [(99, "100s", 0), (100, "100s", 1), (0, "100s", 1), (20, "20s", 1), (20, "21s", 0), (59, "", 0), (60, "", 1)],
)
def test_pings_come_before_nginx_gives_a_websocket_up(tmp_path: Path, ping_s: int, read: str, expected: int) -> None:
    text = (FILE % UPGRADE).replace("proxy_read_timeout 100s;", f"proxy_read_timeout {read};" if read else "")
    told = known(ws_ping_interval=ping_s, timeout=0)
    assert of_nginx(tmp_path, text, told) == [("nginx-cuts-websockets", "warning")] * expected
    unsure = known(frozenset({"ws_ping_interval"}), ws_ping_interval=ping_s, timeout=0)
    assert of_nginx(tmp_path, text, unsure) == []


def test_our_example_passes_websockets_on() -> None:
    at = facts(network(unix(address="/run/stanchion/stanchion.sock", backlog=2048, owners=(owner("stanchion"),))))
    assert list(nginx.findings(nginx.read(str(EXAMPLE)), at, lambda _: known())) == []


# ---- How it is known


def test_the_unit_of_a_process() -> None:
    for cgroup, unit in (
        ("0::/system.slice/shop.service\n", "shop.service"),
        ("1:name=systemd:/system.slice/shop.service\n0::/\n", "shop.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/shop.service\n", None),
        ("0::/user.slice/user-1000.slice/session-1.scope\n", None),
        ("4:memory:/system.slice/shop.service\n", None),
        ("0::/\n", None),
        ("", None),
    ):
        assert systemd.unit(cgroup) == unit, cgroup


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("1min 30s", 90.0),
        ("30s", 30.0),
        ("2h 5ms", 7_200.005),
        ("infinity", None),
        ("", None),
        ("soon", None),
        ("5s later", None),
    ],
)
def test_how_long_systemd_waits_is_asked(tmp_path: Path, said: str, expected: float | None) -> None:
    program = tmp_path / "systemctl"
    asked = "show --property=TimeoutStopUSec --value -- a.service"
    program.write_text(f'#!/bin/sh\n[ "$*" = "{asked}" ] && echo "{said}"\n')
    program.chmod(0o755)
    assert systemd.stop_timeout_s("a.service", [str(program)]) == expected
    program.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n")
    assert systemd.stop_timeout_s("a.service", [str(program)]) is None
    assert systemd.stop_timeout_s("a.service", [str(tmp_path / "missing")]) is None


@pytest.mark.privileges
def test_a_real_server_is_known_by_what_it_says(serve: Serve, tmp_path: Path) -> None:
    """No setting says that the app is asynchronous."""
    admin = f"unix:{tmp_path}/admin.sock"
    server = serve("sockets:app", "--admin", admin, "--max-connections", "900")
    said: list[Said] = []

    def is_known() -> bool:
        # It waits a second at most for what the server says, which a busy machine may take.
        said.append(doctor("--this-one", "--json"))
        return server.pid in said[-1].data["facts"]["event_loops"]

    eventually(is_known, "the server says that it has event loops", 3 * PATIENCE_S)
    about = {one["code"]: one for one in said[-1].data["findings"] if one["about"] == f"stanchion ({server.pid})"}
    assert "900 connections" in about["websockets-take-all"]["known"]
    (worker,) = server.of_name("stanchion-work")
    soft, _ = worker.rlimit(psutil.RLIMIT_NOFILE)
    assert processes.worker_fds_max(Path("/proc"), server.pid) == soft
    assert processes.worker_fds_max(Path("/proc"), os.getpid()) is None
    assert server.pid in said[-1].data["facts"]["websockets"]


def test_gevent_has_loops_and_no_websockets(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("import os\nworker_class = os.environ['CLASS']\n")
    admin = f"unix:{tmp_path}/admin.sock"
    server = serve("hello:app", "-c", str(tmp_path / "conf.py"), "--admin", admin, env={"CLASS": "gevent"})
    said: list[Said] = []

    def is_known() -> bool:
        said.append(doctor("--this-one", "--json"))
        return server.pid in said[-1].data["facts"]["event_loops"]

    eventually(is_known, "the server says that it has event loops", 3 * PATIENCE_S)
    assert server.pid not in said[-1].data["facts"]["websockets"]
