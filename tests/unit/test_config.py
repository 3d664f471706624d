"""Config files run as gunicorn runs them; what has no meaning here is named, once."""

import subprocess
import sys

import pytest

from stanchion import config
from stanchion.cli import main
from stanchion.config import Layer, UsageError

# What people have in theirs.
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
some_setting_of_another_tool = object()

def post_fork(server, worker):
    server.log.info("forked")

def when_ready(server):
    pass

def ssl_context(config, default_ssl_context_factory):
    return default_ssl_context_factory()
"""


def values(location: str) -> dict[str, object]:
    return dict(config.resolve([config.read_file(location).layer]).values)


def test_a_gunicorn_file_runs_unchanged(home):
    (home / "g.py").write_text(A_GUNICORN_FILE)
    layer, hooks, foreign = config.read_file("g.py")
    assert set(layer.values) == {"bind", "workers", "threads", "timeout", "accesslog", "raw_env"}
    assert set(hooks) == {"post_fork", "when_ready"}
    assert foreign == ["worker_class", "proc_name", "ssl_context"]
    effective = config.resolve([layer])
    assert effective.values["bind"] == ["0.0.0.0:8080"]
    assert effective.values["accesslog"] == "logs/access.log"
    assert effective.values["raw_env"] == ["A=1", "B=2"]
    assert effective.origins["threads"] == "config file g.py"


def test_names_without_meaning_are_one_warning(home, capsys):
    (home / "gunicorn.conf.py").write_text(A_GUNICORN_FILE)
    assert main(["check"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "stanchion: warning: gunicorn.conf.py: ignored, without meaning here: worker_class, proc_name, ssl_context"
    ]


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


def test_a_value_that_is_no_plain_one(home):
    (home / "c.py").write_text("workers = object()\ntimeout = float('nan')\nbind = [1]\n")
    with pytest.raises(UsageError) as caught:
        values("c.py")
    assert caught.value.reasons == (
        "setting `workers` from config file c.py: expected a number, a text or a list, got an object of type object",
        "setting `bind` from config file c.py: expected a list of texts, got 1",
        "setting `timeout` from config file c.py: expected a number of seconds from 0 to 1000000000, got 'nan'",
    )


def test_a_bind_may_be_a_dict(home):
    (home / "c.py").write_text("bind = [':80', {'address': 'unix:s', 'mode': 0o660, 'owner': 33}]\n")
    assert values("c.py")["bind"] == [":80", "unix:s?mode=0o660&owner=33"]
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
    # An empty FORWARDED_ALLOW_IPS trusts nobody; to take it for "not set" would trust more.
    effective = config.resolve(config.environment_layers({"FORWARDED_ALLOW_IPS": ""}))
    assert effective.values["forwarded_allow_ips"] == ""


def test_a_name_that_is_no_setting():
    with pytest.raises(UsageError, match="setting `wrokers` from here: there is no such setting"):
        config.resolve([Layer("here", {"wrokers": 1})])
