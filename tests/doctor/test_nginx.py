"""nginx files, the one that users are given among them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stanchion.config import UsageError
from stanchion.doctor import nginx, queues
from stanchion.doctor.facts import Facts, Listener
from stanchion.doctor.finding import Finding
from support.doctor import doctor, facts, network, owner, tcp, unix
from support.nginx import EXAMPLE

STANCHION = (owner("stanchion"),)

FILE = """\
events {}
http {
    proxy_read_timeout 100s;
    upstream app { server unix:/run/app.sock; keepalive 8; }
    server {
        listen 80;
        location / { %s proxy_pass http://app/x; }
    }
}
"""


def read(tmp_path: Path, text: str) -> nginx.Configuration:
    file = tmp_path / "nginx.conf"
    file.write_text(text)
    return nginx.read(str(file))


def judged(tmp_path: Path, text: str, seen: Facts) -> Sequence[Finding]:
    return list(nginx.findings(read(tmp_path, text), seen))


def codes(tmp_path: Path, text: str, *listeners: Listener, somaxconn: int = 511) -> list[str]:
    seen = facts(network(*listeners, sysctls={"net.core.somaxconn": str(somaxconn)}))
    return [found.code for found in judged(tmp_path, text, seen)]


def test_our_example_is_well() -> None:
    seen = facts(network(unix(address="/run/stanchion/stanchion.sock", backlog=2048, owners=STANCHION)))
    found = list(nginx.findings(nginx.read(str(EXAMPLE)), seen))
    assert [(one.code, one.severity) for one in found] == [("nginx-listen-short", "notice")]


def test_a_file_in_which_nothing_is_wrong(tmp_path: Path) -> None:
    assert codes(tmp_path, FILE % "") == []


@pytest.mark.parametrize(
    ("listen", "somaxconn", "expected"),
    [
        ("listen 80;", 128, ["nginx-listen-cut"]),
        ("listen 80;", 511, []),
        ("listen 80;", 4096, ["nginx-listen-short"]),
        ("listen 80 default_server backlog=4096;", 4096, []),
        ("listen 80 backlog=4097;", 4096, ["nginx-listen-cut"]),
        ("listen 80 backlog=64;", 4096, []),
    ],
)
def test_backlogs_of_listen(tmp_path: Path, listen: str, somaxconn: int, expected: list[str]) -> None:
    assert codes(tmp_path, (FILE % "").replace("listen 80;", listen), somaxconn=somaxconn) == expected


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("proxy_read_timeout 89s;", ["nginx-gives-up-first"]),
        ("proxy_read_timeout 90;", []),
        ("proxy_read_timeout 1m30s;", []),
        ("proxy_next_upstream error timeout;", []),
        ("proxy_next_upstream error non_idempotent;", ["nginx-repeats-posts"]),
        ("if ($a) { proxy_pass http://unix:/run/app.sock:/; }", []),
    ],
)
def test_what_stands_at_a_proxy_pass(tmp_path: Path, inside: str, expected: list[str]) -> None:
    assert codes(tmp_path, FILE % inside) == expected


def test_directives_are_inherited_until_one_of_the_same_name(tmp_path: Path) -> None:
    outer = (FILE % "").replace("proxy_read_timeout 100s;", "")
    assert codes(tmp_path, outer) == ["nginx-gives-up-first"], "nginx's default is 60 s"
    assert codes(tmp_path, outer.replace("listen 80;", "listen 80; proxy_read_timeout 2m;")) == []


def test_timeouts_are_held_against_ours_only_if_it_may_be_us(tmp_path: Path) -> None:
    text = FILE % "proxy_read_timeout 9s;"
    for owners, expected in (
        ((owner("gunicorn"),), []),
        ((owner("app"),), []),
        (STANCHION, [("nginx-gives-up-first", "warning")]),
        ((), [("nginx-gives-up-first", "notice")]),
    ):
        upstream = unix(address="/run/app.sock", backlog=1024, owners=owners)
        found = judged(tmp_path, text, facts(network(upstream, sysctls={"net.core.somaxconn": "511"})))
        assert [(one.code, one.severity) for one in found] == expected


def test_an_upstream_without_keepalive(tmp_path: Path) -> None:
    assert codes(tmp_path, (FILE % "").replace("keepalive 8;", "")) == ["nginx-no-keepalive"]


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        (unix(address="/run/app.sock", backlog=128), ["nginx-upstream-cut"]),
        (unix(address="/run/app.sock", backlog=128, backlog_asked=2048), ["nginx-upstream-cut"]),
        (unix(address="/run/app.sock", backlog=128, backlog_asked=2048, owners=STANCHION), []),
        (unix(address="/run/app.sock", backlog=128, backlog_asked=128), []),
        (unix(address="/run/other.sock", backlog=128), []),
        (tcp(address="127.0.0.1:9", backlog=128), []),
    ],
)
def test_an_upstream_whose_queue_is_cut(tmp_path: Path, listener: Listener, expected: list[str]) -> None:
    found = codes(tmp_path, (FILE % "").replace("listen 80;", "listen 80 backlog=1;"), listener, somaxconn=128)
    assert found == expected


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("80", "0.0.0.0:80"),
        ("*:80", "0.0.0.0:80"),
        ("127.0.0.1", "127.0.0.1:80"),
        ("localhost:8000", "127.0.0.1:8000"),
        ("[::]:80", "[::]:80"),
    ],
)
def test_the_file_tells_what_a_socket_asked_for(tmp_path: Path, listen: str, address: str) -> None:
    configuration = read(tmp_path, (FILE % "").replace("listen 80;", f"listen {listen} backlog=900;"))
    seen = facts(network(tcp(backlog=511, address=address, owners=(owner("nginx"),))))
    (network_seen,) = nginx.with_backlog_asked(configuration, seen).networks
    (listener,) = network_seen.listeners
    assert (listener.backlog_asked, listener.asked_by) == (900, f"{tmp_path}/nginx.conf:6")
    (found,) = queues.findings(facts(network_seen))
    assert found.code == "backlog-cut-earlier"
    assert not [one for one in nginx.findings(configuration, facts(network_seen)) if "listen" in one.code]


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("1m30s", 90), ("1m 30s", 90), ("500ms", 0.5)])
def test_times_of_nginx(text: str, expected: float) -> None:
    assert nginx.seconds(text) == expected


def test_a_file_that_cannot_be_read_to_its_end_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, "http { server")
    assert "unexpected end of file" in refused.value.reasons[0]


def test_the_command_reads_it(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text(FILE % "proxy_next_upstream error non_idempotent;")
    said = doctor("--this-one", "--json", "--nginx", str(tmp_path / "nginx.conf"))
    assert said.finding("nginx-repeats-posts")["about"] == f"{tmp_path}/nginx.conf:7"
    assert said.exit_code == 1
