"""Config files run as gunicorn runs them; what has no meaning here is named, once."""

import subprocess
import sys
from pathlib import Path

import pytest

from stanchion import config, gunicorn, usage
from stanchion.cli import main
from stanchion.config import Layer
from stanchion.effective import UsageError

# Settings that people have in their files.
A_GUNICORN_FILE = """\
import multiprocessing
import os
from pathlib import Path

_private = 1
HERE = Path("logs")

def cores():
    return multiprocessing.cpu_count()

class Helper:
    pass

bind = "0.0.0.0:8080"
workers = cores() * 2 + 1
worker_class = "gthread"
threads = 4
timeout = 120
accesslog = HERE / "access.log"
raw_env = ("A=1", "B=2")
proc_name = "mine"
control_socket = "/run/c"
some_setting_of_another_tool = object()

def post_fork(server, worker):
    server.log.info("forked")

def when_ready(server):
    pass

certfile = os.environ.get("NO_SUCH_VARIABLE")
header_map = "drop"
capture_output = True
"""


ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/config/stanchion.conf.py"
PAGE = (ROOT / "docs/reference/config-file.md").read_text()


def values(location: str) -> dict[str, object]:
    return dict(config.resolve([config.read_file(location).layer]).values)


def test_a_gunicorn_file_runs_unchanged(home):
    (home / "g.py").write_text(A_GUNICORN_FILE)
    layer, hooks, errors, warnings, _ = config.read_file("g.py")
    assert set(layer.values) == {
        *("bind", "workers", "threads", "timeout", "accesslog", "raw_env", "proc_name", "header_map", "capture_output"),
        *("interface", "loop"),  # which its `worker_class` stands for
        "certfile",  # it has none
    }
    assert set(hooks) == {"post_fork", "when_ready"}
    assert errors == []
    assert warnings == [
        "g.py: no effect in stanchion, ignored: control_socket"
        " (gunicornc cannot talk to this server: use --control and `stanchion ctl`)"
    ]
    effective = config.resolve([layer])
    assert effective.values["bind"] == ["0.0.0.0:8080"]
    assert effective.values["accesslog"] == "logs/access.log"
    assert effective.values["raw_env"] == ["A=1", "B=2"]
    assert effective.origins["threads"] == "config file g.py"


def test_the_complete_example_of_the_page_is_read_without_complaint(home):
    assert f"```python\n{EXAMPLE.read_text()}```" in PAGE
    layer, hooks, errors, warnings, _ = config.read_file(str(EXAMPLE))
    assert (errors, warnings, [*hooks]) == ([], [], ["post_fork"])
    effective = config.resolve([layer])
    assert effective.warnings == ()
    assert effective.values["limit_request_body"] == 64 << 20


def test_the_help_and_the_page_have_the_same_order_of_precedence():
    order = "defaults, environment variables, config file, GUNICORN_CMD_ARGS, STANCHION_CMD_ARGS, command line"
    assert all(order in " ".join(text.split()) for text in (usage._TAIL, PAGE))


def test_names_without_meaning_are_one_warning(home, capsys):
    (home / "gunicorn.conf.py").write_text(A_GUNICORN_FILE)
    assert main(["check"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "stanchion: warning: gunicorn.conf.py: no effect in stanchion, ignored: control_socket"
        " (gunicornc cannot talk to this server: use --control and `stanchion ctl`)"
    ]


# Settings that once only got a warning: the server then spoke in plain, or parsed otherwise than asked.
NOT_HONOURED = {
    "ssl_context": "print",
    "worker_class": "'eventlet'",
    "dirty_apps": "['mine:app']",
}


RISKY = {
    "header_map": "dangerous",
    "forwarder_headers": "*",
    "permit_unconventional_http_method": True,
    "casefold_http_method": True,
    "permit_unconventional_http_version": True,
    "permit_obsolete_folding": True,
    "strip_header_spaces": True,
}


def test_a_setting_that_lets_in_dangerous_requests_is_warned_of_with_its_risk(home, capsys):
    (home / "gunicorn.conf.py").write_text("".join(f"{name} = {value!r}\n" for name, value in RISKY.items()))
    assert main(["check"]) == 0
    shown = capsys.readouterr()
    warnings = shown.err.splitlines()
    assert [line.partition(": ")[2].partition(" from ")[0] for line in warnings] == [
        f"warning: setting `{name}`" for name in RISKY
    ]
    assert all("from config file gunicorn.conf.py: " in line and len(line) > 90 for line in warnings)
    assert "dangerous" in shown.out
    (home / "gunicorn.conf.py").write_text("".join(f"{name} = False\n" for name in RISKY if RISKY[name] is True))
    assert main(["check", "--header-map", "refuse"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["check", "--forwarder-headers", "SCRIPT_NAME, *"]) == 0
    assert "warning: setting `forwarder_headers` from command line" in capsys.readouterr().err


def test_fields_of_proxies_are_a_mapping_of_a_file(home, capsys):
    (home / "gunicorn.conf.py").write_text("secure_scheme_headers = {'Front-End-Https': 'on'}\n")
    assert values("gunicorn.conf.py")["secure_scheme_headers"] == {"Front-End-Https": "on"}
    assert main(["check"]) == 0
    assert "Front-End-Https: on" in capsys.readouterr().out
    for wrong, reason in [
        ("['X-Forwarded-Proto']", "expected a mapping of strings to strings"),
        ("{'X-Forwarded-Proto': 1}", "expected a mapping of strings to strings"),
        ("{'X Forwarded': 'on'}", "a name in it is not a name of a field"),
        ("{'X-Forwarded-Ssl': 'o\\n'}", "a value in it is none that a field can have"),
    ]:
        (home / "gunicorn.conf.py").write_text(f"secure_scheme_headers = {wrong}\n")
        assert main(["check"]) == 2
        assert f"setting `secure_scheme_headers` from config file gunicorn.conf.py: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["shop", "/shop/", "/", "/a?b", "/a#b"])
def test_a_mount_point_is_a_path(path, home, capsys):
    assert main(["check", "--root-path", "/shop/v1"]) == 0
    assert main(["check", "--root-path", path]) == 2
    assert "it is written /PATH, with no slash at its end" in capsys.readouterr().err


def test_names_of_forwarders_are_names_of_fields(home, capsys):
    assert main(["check", "--forwarder-headers", "SCRIPT_NAME, REMOTE_USER,"]) == 0
    assert main(["check", "--forwarder-headers", "REMOTE USER"]) == 2
    assert "'REMOTE USER' is not a name of a field" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "check"])
@pytest.mark.parametrize(("name", "value"), NOT_HONOURED.items())
def test_what_cannot_be_honoured_stops_the_start(command, name, value, home, capsys, served):
    (home / "gunicorn.conf.py").write_text(f"{name} = {value}\nworkers = 0\n")
    assert main([command, "site:app"]) == 2
    assert not hasattr(served, "settings")
    refusal, other = capsys.readouterr().err.splitlines()
    written = name if value == "print" else f"{name} = {value}"
    reason = gunicorn.BY_NAME[name].refusal
    assert refusal == f"stanchion: config file gunicorn.conf.py: {written} is gunicorn's and not supported: {reason}"
    assert other.startswith("stanchion: setting `workers` from config file gunicorn.conf.py")


# A switch, and what is nothing without it.
SUBORDINATE = {
    "dirty_apps = ['mine:app']": "dirty_workers = 2\n",
}


@pytest.mark.parametrize(("switch", "rest"), SUBORDINATE.items())
def test_what_belongs_to_a_refused_setting_is_harmless_without_it(switch, rest, home, capsys, served):
    (home / "gunicorn.conf.py").write_text(rest)
    assert main(["serve", "site:app"]) == 7
    assert capsys.readouterr().err == ""
    (home / "gunicorn.conf.py").write_text(rest + switch)
    assert main(["serve", "site:app"]) == 2
    assert f"{switch} is gunicorn's and not supported" in capsys.readouterr().err


def test_what_is_said_of_tls_is_nothing_without_a_certificate(home, capsys, served):
    (home / "gunicorn.conf.py").write_text(
        "ca_certs = 'ca.pem'\ncert_reqs = 2\nciphers = 'ECDHE+AESGCM'\nssl_version = 5\n"
        "do_handshake_on_connect = True\nsuppress_ragged_eofs = False\ncertfile = ''\nkeyfile = None\n"
    )
    assert main(["serve", "site:app"]) == 7
    assert capsys.readouterr().err == ""
    assert main(["check", "site:app", "--certfile", "c.pem"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "stanchion: setting `ciphers` from config file gunicorn.conf.py: 'ECDHE+AESGCM' is no cipher"
    )


def test_a_setting_that_operators_may_miss_is_ignored_with_advice(home, capsys, served):
    (home / "gunicorn.conf.py").write_text("control_socket = '/run/c'\ncontrol_socket_mode = 0o660\n")
    assert main(["serve", "site:app", "--control-socket", "/run/c", "--worker-tmp-dir", "/dev/shm"]) == 7
    assert capsys.readouterr().err.splitlines() == [
        f"stanchion: warning: {place}: no effect in stanchion, ignored: {name} (gunicornc cannot talk to this server: "
        "use --control and `stanchion ctl`)"
        for place, name in (("gunicorn.conf.py", "control_socket"), ("command line", "--control-socket"))
    ]


def test_what_python_says_of_logging_is_kept_as_it_is(home, capsys, served):
    (home / "mine.py").write_text("class Logger: pass\n")
    (home / "gunicorn.conf.py").write_text(
        "from mine import Logger\nlogger_class = Logger\n"
        "logconfig_dict = {'version': 1, 'filters': {'f': {'()': Logger}}}\n"
    )
    assert main(["serve", "site:app", "--log-config", "l.ini"]) == 7
    assert capsys.readouterr().err == "", "all of it goes by them"
    file = config.read_file("gunicorn.conf.py")
    held = config.resolve([file.layer], objects=file.objects)
    assert held.values["logger_class"] == "mine.Logger"
    assert held.objects["logconfig_dict"]["filters"]["f"]["()"] is held.objects["logger_class"]
    above = config.Layer("command line", {"logger_class": "other.Logger"})
    assert set(config.resolve([file.layer, above], objects=file.objects).objects) == {"logconfig_dict"}


@pytest.mark.parametrize("flag", [flag for foreign in gunicorn.FOREIGN for flag in foreign.flags])
def test_a_flag_and_a_file_are_held_to_one_rule(flag, home, capsys):
    foreign = next(foreign for foreign in gunicorn.FOREIGN if flag in foreign.flags)
    value = "other" if foreign.takes_value else "True"
    (home / "c.py").write_text(f"{foreign.name} = {value!r}\n")
    of_file = main(["check", "-c", "c.py"])
    words = capsys.readouterr().err
    assert main(["check", flag, *([value] if foreign.takes_value else [])]) == of_file
    of_flag = capsys.readouterr().err
    assert ("ignored" in words, "not supported" in words) == ("ignored" in of_flag, "not supported" in of_flag)
    if foreign.refusal is not None and not foreign.is_honoured(value):
        assert of_file == 2
        assert words.endswith(f"{foreign.refusal}\n")
        assert of_flag.endswith(f"{foreign.refusal}\n")


SAME_AS_HERE = {
    "worker_class": ["gthread", "gunicorn.workers.sync.SyncWorker"],
    "dirty_apps": [[]],
    "ssl_version": [2, "TLSv1_2"],
    "ssl_context": [None],
}


def test_what_asks_for_what_happens_here_anyway_is_accepted_without_a_word(home, capsys):
    defaults = {}
    for setting in pytest.importorskip("gunicorn.config").KNOWN_SETTINGS:
        if setting.name in gunicorn.BY_NAME and not callable(setting.default) and setting.name != "control_socket":
            defaults[setting.name] = setting.default
    assert {"ssl_version", "suppress_ragged_eofs", "dirty_apps"} < defaults.keys()
    held = [defaults, *({name: value} for name, values in SAME_AS_HERE.items() for value in values)]
    assert [gunicorn.sort_out(one) for one in held] == [([], [])] * len(held)
    text = "".join(f"{name} = {value!r}\n" for name, value in defaults.items() if name != "ssl_version")
    (home / "c.py").write_text(text)
    assert main(["check", "-c", "c.py"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "name", "meant"),
    [
        ("workerz = 3", "workerz", "workers"),
        ("max_requets = 5", "max_requets", "max_requests"),
        ("def on_staring(server): pass", "on_staring", "on_starting"),
        ("keep_alive = 5", "keep_alive", "keepalive"),
        ("certfiles = 'c.pem'", "certfiles", "certfile"),
        ("access_logfile = '-'", "access_logfile", "accesslog"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_slip_is_told(command, line, name, meant, home, capsys, served):
    (home / "c.py").write_text(f"{line}\n")
    assert main([command, "-c", "c.py", "site:app"]) == (7 if command == "serve" else 0)
    expected = f"stanchion: warning: c.py: {name} is no setting and no hook; did you mean {meant}?"
    assert capsys.readouterr().err.splitlines() == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "log_level = 'info'\nloglevel = log_level\n",
        "import threading as threadz\n",
        "class Workers: pass\n",
        "def worker(): return 3\nWORKERS = 3\n",
        "_workers = 3\nport = 80\nhost = 'a'\ncores = 4\n",
    ],
)
def test_a_helper_is_no_slip(text, home):
    (home / "c.py").write_text(text)
    assert config.read_file("c.py").warnings == []


def test_our_own_file_is_preferred_to_gunicorns(home):
    assert config.default_file() is None
    (home / "gunicorn.conf.py").write_text("")
    assert config.default_file() == "gunicorn.conf.py"
    (home / "stanchion.conf.py").write_text("")
    assert config.default_file() == "stanchion.conf.py"


@pytest.mark.parametrize("location", ["c.py", "file:c.py", "python:c", "./c.conf"])
def test_ways_to_name_a_file(location, home):
    for name in ("c.py", "c.conf"):
        (home / name).write_text("workers = 6\n")
    assert values(location)["workers"] == 6


def test_a_file_imports_what_lies_beside_it_and_may_look_itself_up(home):
    (home / "beside.py").write_text("WORKERS = 5\n")
    (home / "stanchion.conf.py").write_text(
        "from __future__ import annotations\n"
        "import beside, dataclasses\n"
        "@dataclasses.dataclass\n"
        "class Limits:\n"
        "    workers: int = beside.WORKERS\n"
        "workers = Limits().workers\n"
    )
    # A process of its own: its import path begins with the script's directory, not with this one.
    command = [sys.executable, "-P", "-m", "stanchion", "check"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "config file stanchion.conf.py" in done.stdout


def test_the_app_may_be_named_in_the_file(home, served):
    (home / "gunicorn.conf.py").write_text("wsgi_app = 'site:app'\n")
    assert main(["serve"]) == 7
    assert served.host.spec == "site:app"
    assert main(["serve", "other:app"]) == 7
    assert served.host.spec == "other:app"


def test_a_failing_file_shows_where_and_one_line(home, capsys):
    (home / "c.py").write_text("x = 1\nraise ValueError('two\\nlines')\n")
    assert main(["check", "-c", "c.py"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", '  File "c.py", line 2, in <module>']
    assert "stanchion/config.py" not in "".join(lines)
    assert lines[-1].startswith("stanchion: the config file 'c.py'")


@pytest.mark.parametrize(("location", "part"), [("nowhere.py", "no config file 'nowhere.py'"), ("python:no", "'no'")])
def test_a_missing_file(location, part, capsys):
    assert main(["check", "-c", location]) == 2
    assert part in capsys.readouterr().err


def test_dev_null_is_no_file_in_place_of_the_one_that_would_be_read(home, capsys):
    (home / "gunicorn.conf.py").write_text("workers = 6\n")
    assert main(["check", "-c", "/dev/null"]) == 0
    out, err = capsys.readouterr()
    assert (err, "config file" in out) == ("", False)


def test_a_value_that_is_no_plain_one(home):
    (home / "c.py").write_text("workers = object()\ntimeout = float('nan')\nbind = [1]\n")
    with pytest.raises(UsageError) as caught:
        values("c.py")
    assert caught.value.reasons == (
        "setting `workers` from config file c.py: expected a number, a text or a list, got an object of type object",
        "setting `bind` from config file c.py: expected a list of strings, got 1",
        "setting `timeout` from config file c.py: expected a number of seconds from 0 to 1000000000, got 'nan'",
    )


def test_a_bind_may_be_a_dict(home):
    (home / "c.py").write_text("bind = [':80', {'address': 'unix:s', 'mode': 0o660, 'owner': 33}]\n")
    assert values("c.py")["bind"] == [":80", "unix:s?mode=0660&owner=33"]
    (home / "c.py").write_text("bind = {1: 2}\n")
    with pytest.raises(UsageError, match="got an object of type dict"):
        values("c.py")


def test_variables_of_the_environment():
    layers = config.environment_layers({"PORT": "80", "FORWARDED_ALLOW_IPS": "*", "HOME": "/"})
    assert layers == [
        Layer("environment PORT", {"bind": "0.0.0.0:80"}),
        Layer("environment FORWARDED_ALLOW_IPS", {"forwarded_allow_ips": "*"}),
    ]


def test_an_empty_variable_is_a_value():
    # An empty FORWARDED_ALLOW_IPS trusts no peer; to take it for "not set" would trust more.
    effective = config.resolve(config.environment_layers({"FORWARDED_ALLOW_IPS": ""}))
    assert effective.values["forwarded_allow_ips"] == ""


def test_a_name_that_is_no_setting():
    with pytest.raises(UsageError, match="setting `wrokers` from here: there is no such setting"):
        config.resolve([Layer("here", {"wrokers": 1})])
