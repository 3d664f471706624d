"""From facts to findings: which facts count, and the words of the findings."""

from dataclasses import replace

import pytest

from stanchion.doctor import finding, limits, queues
from stanchion.doctor.facts import Cgroup, Facts, Listener, Pressure
from support.doctor import facts, network, owner, tcp, unix

STANCHION = (owner("stanchion"),)


def codes(seen: Facts) -> list[str]:
    found = [*queues.findings(seen), *limits.findings(seen), *queues.of_idle(seen)]
    return [one.code for one in finding.by_harm(found)]


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        (tcp(), []),
        (tcp(waiting=1, backlog=1), []),
        (tcp(waiting=1, backlog=0), ["queue-full"]),
        (tcp(waiting=4, backlog=4), ["queue-filling"]),
        (tcp(waiting=5, backlog=4), ["queue-full"]),
        (tcp(waiting=255), []),
        (tcp(waiting=256), ["queue-filling"]),
        (unix(waiting=512), ["queue-full"]),
        (tcp(waiting_peak=512, drops_grown=0), ["queue-full"]),
        (tcp(drops=1), ["drops"]),
        (tcp(drops=1, drops_grown=0, waiting_peak=0), ["drops"]),
        (tcp(drops=1, drops_grown=1, waiting_peak=0), ["drops-growing"]),
        # One socket, one finding: the worst.
        (tcp(waiting=512, drops=9, backlog_asked=2048), ["queue-full"]),
        (tcp(backlog=4096), ["backlog-probably-cut"]),
        (tcp(backlog=4096, backlog_asked=4096), []),
        (tcp(backlog=4096, backlog_asked=5000), ["backlog-cut"]),
        (tcp(backlog=128, backlog_asked=2048), ["backlog-cut-earlier"]),
        (tcp(backlog=8192), []),
    ],
)
def test_what_is_found_about_a_socket(listener: Listener, expected: list[str]) -> None:
    assert codes(facts(network(listener), watched_s=2.0)) == expected


def test_idle_sockets_that_are_probably_cut_are_one_finding() -> None:
    names = ("prometheus", "systemd", "dbus-daemon", "systemd", "e", "f", "g")
    idle = [unix(backlog=4096, address=f"/{n}", owners=(owner(name, n),)) for n, name in enumerate(names)]
    busy = tcp(waiting=1, backlog=4096, owners=(owner("redis", 9),))
    there = network(tcp(backlog=4096), name="shop.service", pid=9, link="net:[2]")
    seen = facts(network(*idle, busy, tcp(backlog=4096)), there)
    (of_busy,) = queues.findings(seen)
    of_idle, of_there = queues.of_idle(seen)
    assert of_busy.what == "The backlog of 127.0.0.1:80 of redis (9) is probably cut."
    assert of_idle.what == (
        "The backlogs of 8 idle sockets are probably cut: systemd (2), dbus-daemon, e, f, g and 2 more."
    )
    assert of_idle.known.startswith("In force 4096 (sock_diag, as in `ss -ltxn`), which is just net.core.somaxconn.")
    assert of_idle.about.startswith("unix:/0 of prometheus (0), unix:/1 of systemd (1), ")
    assert of_idle.about.endswith(", 127.0.0.1:80")
    assert (of_there.about, of_there.network) == ("127.0.0.1:80 in shop.service", "net:[2]")


def test_idle_sockets_below_what_kernels_allow_by_themselves_want_more() -> None:
    idle = [unix(backlog=128, address=f"/{n}") for n in range(2)]
    (found,) = queues.of_idle(facts(network(*idle, sysctls={"net.core.somaxconn": "128"})))
    assert (found.severity, found.sysctls) == ("warning", {"net.core.somaxconn": "4096"})
    assert found.now[0] == "$ sysctl -w net.core.somaxconn=4096"
    assert found.now[1].startswith("Then restart the servers that need a longer queue.")


@pytest.mark.parametrize(
    ("somaxconn", "listener", "severity"),
    [
        (128, tcp(backlog=128), "warning"),
        (511, tcp(backlog=511), "warning"),
        (512, tcp(backlog=512), "notice"),
        (4096, tcp(backlog=4096), "notice"),
        (128, tcp(backlog=128, backlog_asked=511), "warning"),
        (128, tcp(backlog=128, backlog_asked=511, owners=STANCHION), "notice"),
        (4096, tcp(backlog=128, backlog_asked=2048), "warning"),
        (4096, tcp(backlog=128, backlog_asked=2048, owners=STANCHION), "notice"),
    ],
)
def test_how_bad_a_cut_backlog_is(somaxconn: int, listener: Listener, severity: str) -> None:
    seen = facts(network(listener, sysctls={"net.core.somaxconn": str(somaxconn)}))
    (found,) = [*queues.findings(seen), *queues.of_idle(seen)]
    assert found.severity == severity


def test_the_worst_comes_first() -> None:
    seen = network(
        tcp(drops=3), tcp(waiting=9, backlog=8, address="127.0.0.1:81"), sysctls={"net.ipv4.tcp_syncookies": "0"}
    )
    assert codes(facts(seen)) == ["queue-full", "drops", "syncookies-off"]


@pytest.mark.parametrize(
    ("sysctls", "words"),
    [
        ({}, "tries again 1, 2, 3, 4, 5, 7, 11, 19, 35, 67 s after its first, and gets ETIMEDOUT after about 127 s."),
        ({"net.ipv4.tcp_syn_linear_timeouts": "0"}, "tries again 1, 3, 7, 15, 31, 63 s after"),
        # Kernels before 6.5 do not have it.
        ({"net.ipv4.tcp_syn_linear_timeouts": ""}, "tries again 1, 3, 7, 15, 31, 63 s after"),
        (
            {"net.ipv4.tcp_syn_retries": "2"},
            "tries again 1, 2, 3, 4, 5 s after its first, and gets ETIMEDOUT after about 7 s",
        ),
        ({"net.ipv4.tcp_abort_on_overflow": "1"}, "get ECONNRESET"),
    ],
)
def test_what_clients_see_follows_the_settings(sysctls: dict[str, str], words: str) -> None:
    seen = network(tcp(waiting=9, backlog=8), sysctls=sysctls)
    (found,) = queues.findings(facts(seen))
    assert words in found.clients_see


def test_a_queue_shorter_than_the_limit_is_for_the_server_to_lengthen() -> None:
    (found,) = queues.findings(facts(network(tcp(waiting=9, backlog=8, owners=(owner("nginx"),)))))
    assert not found.sysctls
    assert found.for_good == ("nginx.conf:  listen 127.0.0.1:80 backlog=4096;",)


@pytest.mark.parametrize("backlog", [8, 4096])
def test_of_gunicorn_an_access_log_says_how_many_workers_it_needs(backlog: int) -> None:
    (found,) = queues.findings(facts(network(tcp(waiting=4097, backlog=backlog, owners=(owner("gunicorn"),)))))
    assert found.for_good[-1] == "$ stanchion plan ACCESS_LOG --now WORKERSxTHREADS"
    (other,) = queues.findings(facts(network(tcp(waiting=4097, backlog=backlog, owners=(owner("nginx"),)))))
    assert not any("stanchion plan" in step for step in other.for_good)


def test_a_full_queue_at_the_limit_wants_a_higher_one() -> None:
    (found,) = queues.findings(facts(network(tcp(waiting=4097, backlog=4096))))
    assert found.sysctls == {"net.core.somaxconn": "8192"}


def test_another_namespace_is_entered_for_the_remedy() -> None:
    there = network(
        tcp(backlog=128), sysctls={"net.core.somaxconn": "128"}, name="that of x (9)", pid=9, link="net:[2]"
    )
    (found,) = queues.of_idle(facts(network(), there))
    assert found.now[0] == "$ nsenter --net=/proc/9/ns/net sysctl -w net.core.somaxconn=4096"
    assert found.about == "127.0.0.1:80 in that of x (9)"
    assert found.network == "net:[2]"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nginx", "Then restart nginx: a reload keeps"),
        ("gunicorn", "Then restart gunicorn"),
        ("stanchion", "Then let stanchion reload"),
        ("other", "Then restart the server"),
    ],
)
def test_how_to_listen_again_depends_on_the_server(name: str, words: str) -> None:
    (found,) = queues.findings(facts(network(tcp(backlog=128, backlog_asked=511, owners=(owner(name),)))))
    assert found.now[0].startswith(words)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (network(tcp(), counters={"ListenDrops": 99, "ListenOverflows": 99}), []),
        (network(tcp(drops=5, drops_grown=3), counters_grown={"ListenDrops": 3}), ["drops-growing"]),
        (network(tcp(drops_grown=0), counters_grown={"ListenDrops": 3}), ["listen-drops-growing"]),
        (network(counters={"TCPReqQFullDrop": 1}), ["syn-queue-dropped"]),
        (network(counters={"TCPReqQFullDoCookies": 1}), ["syn-cookies-sent"]),
        (network(sysctls={"net.ipv4.tcp_abort_on_overflow": "1"}), []),
        (network(tcp(), sysctls={"net.ipv4.tcp_abort_on_overflow": "1"}), ["abort-on-overflow"]),
        (network(unix(), sysctls={"net.ipv4.tcp_syncookies": "0"}), []),
        (network(tcp(), tcp(inode=3)), ["reuseport-loses"]),
        (network(tcp(), tcp(inode=3), sysctls={"net.ipv4.tcp_migrate_req": "1"}), []),
        (network(tcp(), tcp(address="[::1]:80")), []),
        (network(tcp_in_use=10, tcp_time_wait=25_398), []),
        (network(tcp_in_use=10, tcp_time_wait=25_399), ["ports-run-out"]),
        (network(tcp(owners=(owner(fds=921, fds_max=1024),))), []),
        (network(tcp(owners=(owner(fds=922, fds_max=1024),))), ["descriptors-run-out"]),
        (network(tcp(owners=(owner(fds=None, fds_max=1024),))), []),
    ],
)
def test_what_is_found_about_a_namespace(seen: object, expected: list[str]) -> None:
    assert codes(facts(seen)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (Cgroup("/a"), []),
        (Cgroup("/a", oom_kills=0, pids_refused=0, pids=1, cpu_periods=0, cpu_periods_throttled=0), []),
        (Cgroup("/a", oom_kills=1), ["oom-killed"]),
        (Cgroup("/a", pids=89, pids_max=100), []),
        (Cgroup("/a", pids=90, pids_max=100), ["pids-run-out"]),
        (Cgroup("/a", pids=1, pids_max=100, pids_refused=1), ["pids-run-out"]),
        (Cgroup("/a", cpu_periods=100, cpu_periods_throttled=9), []),
        (Cgroup("/a", cpu_periods=100, cpu_periods_throttled=10), ["cpu-throttled"]),
        (Cgroup("/a", pressure={"memory": Pressure(10.0, 1.0)}), ["pressure-memory"]),
        (Cgroup("/a", pressure={"memory": Pressure(9.9, 1.0)}), []),
    ],
)
def test_what_is_found_about_a_cgroup(cgroup: Cgroup, expected: list[str]) -> None:
    assert codes(facts(network(), cgroups=(cgroup,))) == expected


def test_what_is_found_about_the_host() -> None:
    well = facts(network(), files_open=89, files_max=100, backlog_dropped=5, pressure={"cpu": Pressure(49.0, 0.0)})
    assert codes(well) == []
    ill = replace(well, files_open=90, backlog_dropped_grown=1, watched_s=1.0, pressure={"cpu": Pressure(50.0, 0.0)})
    assert codes(ill) == ["files-run-out", "packets-dropped", "pressure-cpu"]
