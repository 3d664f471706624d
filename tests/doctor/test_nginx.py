"""nginx files, the one that users are given among them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stanchion.doctor import nginx, patience, queues, settings
from stanchion.doctor.facts import Facts, Listener
from stanchion.doctor.finding import Finding
from stanchion.doctor.settings import Settings
from stanchion.effective import UsageError
from support.doctor import doctor, facts, network, owner, tcp, unix
from support.nginx import EXAMPLE
from support.server import GUNICORN, Serve

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


def by_default(pid: int) -> Settings:
    """The settings of a server that surely has only defaults."""
    return replace(settings.by_default(""), assumed=frozenset())


def judged(
    tmp_path: Path, text: str, seen: Facts, settings_of: Callable[[int], Settings | None] = by_default
) -> Sequence[Finding]:
    return list(nginx.findings(read(tmp_path, text), seen, settings_of))


def codes(tmp_path: Path, text: str, *listeners: Listener, somaxconn: int = 511) -> list[str]:
    seen = facts(network(*listeners, sysctls={"net.core.somaxconn": str(somaxconn)}))
    return [found.code for found in judged(tmp_path, text, seen)]


def test_our_example_is_well() -> None:
    seen = facts(network(unix(address="/run/stanchion/stanchion.sock", backlog=2048, owners=STANCHION)))
    assert list(nginx.findings(nginx.read(str(EXAMPLE)), seen, by_default)) == []


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
        ((owner("gunicorn", 1 << 30),), [("nginx-gives-up-first", "notice")]),
        ((owner("gunicorn", 1 << 30, "gunicorn -t 10 a:b"),), [("nginx-gives-up-first", "warning")]),
        ((owner("app"),), []),
        (STANCHION, [("nginx-gives-up-first", "warning")]),
        ((), [("nginx-gives-up-first", "notice")]),
    ):
        upstream = unix(address="/run/app.sock", backlog=1024, owners=owners)
        found = judged(tmp_path, text, facts(network(upstream, sysctls={"net.core.somaxconn": "511"})))
        assert [(one.code, one.severity) for one in found] == expected


@pytest.mark.parametrize(
    ("values", "assumed", "expected"),
    [
        ({"queue_timeout": 60, "timeout": 50}, set(), ["warning"]),
        ({"queue_timeout": 60, "timeout": 40}, set(), []),
        ({"queue_timeout": 60, "timeout": 0}, set(), []),
        ({"queue_timeout": 60, "timeout": 50}, {"queue_timeout"}, ["notice"]),
        # This holds for any value of the other setting.
        ({"queue_timeout": 60, "timeout": 120}, {"queue_timeout"}, ["warning"]),
        (None, set(), []),
    ],
)
def test_what_is_assumed_is_no_more_than_a_notice(
    tmp_path: Path, values: dict[str, int] | None, assumed: set[str], expected: list[str]
) -> None:
    sources = {"queue_timeout": "", "timeout": ""}
    plain = settings.by_default("").values
    known = Settings({**plain, **values}, sources, frozenset(assumed)) if values else None
    upstream = unix(address="/run/app.sock", backlog=1024, owners=STANCHION)
    seen = facts(network(upstream, sysctls={"net.core.somaxconn": "511"}))
    found = judged(tmp_path, FILE % "", seen, lambda _: known)
    assert [one.severity for one in found if one.code == "nginx-gives-up-first"] == expected


def gives_up_first(serve: Serve, home: Path, *arguments: str) -> list[dict[str, str]]:
    """The findings on a real server behind nginx's own 60 s, without its pid and directory."""
    server = serve("hello:app", *arguments, bind=f"unix:{home}/s")
    (home / "nginx.conf").write_text((FILE % "").replace("/run/app.sock", f"{home}/s").replace("100s", "60s"))
    findings = doctor("--this-one", "--json", "--nginx", f"{home}/nginx.conf").data["findings"]
    found = [one for one in findings if one["code"] == "nginx-gives-up-first"]
    server.stop()
    return [
        {key: one[key].replace(f"{home}/", "").replace(str(server.pid), "PID") for key in ("severity", "what", "known")}
        for one in found
    ]


@pytest.mark.own("the doctor is ours")
def test_the_settings_of_the_server_that_is_there_count(serve: Serve, tmp_path: Path) -> None:
    assert gives_up_first(serve, tmp_path, "-t20", "--queue-timeout=40") == []
    (tmp_path / "conf.py").write_text("import os\n\nqueue_timeout = 9\ntimeout = int(os.environ.get('T', '5'))\n")
    (found,) = gives_up_first(serve, tmp_path, "-c", f"{tmp_path}/conf.py", "--timeout", "55")
    assert found == {
        "severity": "warning",
        "what": "nginx gives up before stanchion (PID) would.",
        "known": "proxy_read_timeout is 60 s (nginx.conf:3). A request may wait 9 s (queue_timeout; conf.py, as it "
        "reads now) and run 55 s (timeout; the command line of process PID).",
    }
    (tmp_path / "conf.py").write_text("import os\n\nqueue_timeout = 40\ntimeout = int(os.environ.get('T', '5'))\n")
    (found,) = gives_up_first(serve, tmp_path, "-c", f"{tmp_path}/conf.py")
    assert found["severity"] == "notice"
    assert "run 30 s (timeout; the default, assumed: only running conf.py would tell)" in found["known"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("gunicorn a:b", "notice"),
        ("gunicorn: master [a:b]", "notice"),
        ("/v/bin/python /v/bin/gunicorn --timeout 10 a:b", "warning"),
        ("gunicorn --timeout=10 a:b", "warning"),
        ("gunicorn -t10 a:b", "warning"),
        ("gunicorn -t 9 a:b", None),
        ("gunicorn -t 99 -t 9 a:b", None),
        ("gunicorn -t 0 a:b", None),
        ("gunicorn -k sync --threads 1 -t 99 a:b", "warning"),
        # Their workers live on while a request runs, however long.
        ("gunicorn -k gthread -t 99 a:b", None),
        ("gunicorn --worker-class=gevent -t 99 a:b", None),
        ("gunicorn --threads 4 -t 99 a:b", None),
        ("uwsgi --http-socket :9 --harakiri 10", "warning"),
        ("uwsgi --harakiri=10", "warning"),
        ("uwsgi --ini shop.ini", None),
    ],
)
def test_timeouts_of_other_servers_are_those_of_their_command_lines(
    tmp_path: Path, command: str, expected: str | None
) -> None:
    # A process that there is not: nothing else is known of it.
    owners = (owner(command.split("/")[-1].split()[0].rstrip(":"), 1 << 30, command),)
    upstream = unix(address="/run/app.sock", backlog=1024, owners=owners)
    seen = facts(network(upstream, sysctls={"net.core.somaxconn": "511"}))
    for text in (
        FILE % "proxy_read_timeout 9s;",
        (FILE % "uwsgi_read_timeout 9s;").replace("proxy_pass http://app/x;", "uwsgi_pass app;"),
    ):
        found = judged(tmp_path, text, seen)
        assert [(one.code, one.severity) for one in found] == ([("nginx-gives-up-first", expected)] if expected else [])


def test_a_uwsgi_pass_has_timeouts_and_targets_of_its_own(tmp_path: Path) -> None:
    inside = "proxy_read_timeout 9s; uwsgi_read_timeout 89s; uwsgi_next_upstream error non_idempotent; "
    text = (FILE % inside).replace("proxy_pass http://app/x;", "uwsgi_pass unix:/run/app.sock;")
    upstream = unix(address="/run/app.sock", backlog=1024, owners=STANCHION)
    seen = facts(network(upstream, sysctls={"net.core.somaxconn": "511"}))
    repeats, early = judged(tmp_path, text, seen)
    assert (repeats.code, early.code) == ("nginx-repeats-posts", "nginx-gives-up-first")
    assert early.known.startswith("uwsgi_read_timeout is 89 s (") and "wait 60 s" in early.known
    assert early.now == ("nginx.conf:  uwsgi_read_timeout 100s;",)


DEFAULT = "timeout; gunicorn's default"
TOLD = "timeout; the command line of process 7"
BY_FILE = f"{DEFAULT}, assumed: its config file may say otherwise"


@pytest.mark.parametrize(
    ("words", "environ", "file", "expected"),
    [
        ("", "A=b\0", "", (30.0, DEFAULT, False)),
        ("", "", "", (30.0, f"{DEFAULT}, assumed: its command line is out of sight", True)),
        ("", "A=b\0", "gunicorn.conf.py", (30.0, BY_FILE, True)),
        ("-c x.py", "A=b\0", "", (30.0, BY_FILE, True)),
        ("", "A=b\0GUNICORN_CMD_ARGS=-t 9\0", "gunicorn.conf.py", (9.0, TOLD, False)),
        ("-t 8", "A=b\0GUNICORN_CMD_ARGS=-t 9\0", "", (8.0, TOLD, False)),
        ("-t 8", "GUNICORN_CMD_ARGS=-k gthread\0", "", None),
    ],
)
def test_what_a_gunicorn_was_started_with(
    tmp_path: Path, words: str, environ: str, file: str, expected: tuple[float, str, bool] | None
) -> None:
    (tmp_path / "7/cwd").mkdir(parents=True)
    (tmp_path / "7/environ").write_text(environ)
    if file:
        (tmp_path / "7/cwd" / file).touch()
    found = patience.of_another(owner("gunicorn", 7, f"gunicorn {words} a:b"), tmp_path)
    limits = [(one.seconds, one.known, one.is_assumed) for one in found.limits] if found else []
    assert limits == ([expected] if expected else [])


@pytest.mark.own("the doctor is ours")
def test_a_real_gunicorn_behind_a_shorter_timeout(serve: Serve, tmp_path: Path) -> None:
    """Its worker is of the default class, and nothing says otherwise, so the default of its timeout is in force."""
    for words, run in (
        ([], "30 s (timeout; gunicorn's default)"),
        (["--timeout", "7"], "7 s (timeout; the command line"),
    ):
        path = tmp_path / f"s{len(words)}"
        server = serve("hello:app", *words, bind=f"unix:{path}", kind=GUNICORN)
        (tmp_path / "nginx.conf").write_text((FILE % "").replace("/run/app.sock", str(path)).replace("100s", "5s"))
        said = doctor("--this-one", "--json", "--nginx", f"{tmp_path}/nginx.conf")
        found = said.finding("nginx-gives-up-first")
        assert (found["severity"], found["what"]) == (
            "warning",
            f"nginx gives up before gunicorn ({server.pid}) would.",
        )
        assert f"proxy_read_timeout is 5 s ({tmp_path}/nginx.conf:3). A request may run {run}" in found["known"]


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
    assert not [one for one in nginx.findings(configuration, facts(network_seen), by_default) if "listen" in one.code]


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
