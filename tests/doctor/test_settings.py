"""A server's settings as its files in /proc show them, without running any code of it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stanchion import command_line, config
from stanchion.doctor import settings
from stanchion.doctor.settings import Settings


def parse(words: Sequence[str], place: str) -> Mapping[str, Any]:
    """Parse words as `stanchion serve` does."""
    return command_line.settings_in(words, place)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The working directory of process 7."""
    process = tmp_path / "7"
    process.mkdir()
    (process / "cwd").mkdir()
    (process / "root").symlink_to("/")
    return process / "cwd"


def of(home: Path, *words: str, environ: str = "") -> Settings:
    (home.parent / "cmdline").write_text("\0".join(("python", "-m", "stanchion", "serve", *words, "")))
    (home.parent / "environ").write_text(environ)
    found = settings.of(7, parse, home.parent.parent)
    assert found is not None
    return found


def test_the_last_layer_wins_and_is_named(home: Path) -> None:
    (home / "gunicorn.conf.py").write_text("admin = 'unix:/a'\ntimeout = 9\nqueue_timeout = 8\n")
    found = of(home, "--timeout=7", environ="A=b\0STANCHION_CMD_ARGS=--queue-timeout=6\0")
    given = ("admin", "queue_timeout", "timeout")
    assert {name: found.values[name] for name in given} == {"admin": "unix:/a", "queue_timeout": 6, "timeout": 7}
    assert {name: found.sources[name] for name in given} == {
        "admin": "gunicorn.conf.py, as it reads now",
        "queue_timeout": "STANCHION_CMD_ARGS of process 7",
        "timeout": "the command line of process 7",
    }


@pytest.mark.parametrize(
    ("file", "words", "environ"),
    [
        ("worker_class = 'uvicorn.workers.UvicornWorker'", [], {}),
        ("worker_class = 'gevent'\nworker_connections = 50", [], {}),
        ("worker_class = 'gevent'\nworker_connections = 50\nworker_concurrency = 60", [], {}),
        ("worker_class = 'gevent'\nloop = 'auto'", [], {}),
        ("worker_class = 'gevent'", ["-k", "gthread"], {}),
        ("worker_class = 'gevent'", ["-k", "asgi"], {}),
        ("worker_class = 'asgi'\nasgi_loop = 'asyncio'", [], {}),
        ("worker_class = 'uvicorn_worker.UvicornH11Worker'\nasgi_loop = 'auto'", [], {}),
        ("worker_class = None\nworker_connections = None", [], {}),
        ("workers = 3", [], {"WEB_CONCURRENCY": "5"}),
        ("", [], {"WEB_CONCURRENCY": "5"}),
        ("", ["-w", "4"], {"WEB_CONCURRENCY": "5", "GUNICORN_CMD_ARGS": "-k gevent --worker-connections 70"}),
        ("timeout = 1", [], {"GUNICORN_CMD_ARGS": "-t 2 -w 3", "STANCHION_CMD_ARGS": "--timeout 4"}),
        ("timeout = 1", ["-t", "5"], {"GUNICORN_CMD_ARGS": "-c other.py"}),
        ("timeout = 1", ["-c", "/dev/null"], {"GUNICORN_CMD_ARGS": "-c other.py"}),
    ],
)
def test_it_takes_them_as_the_server_does(
    home: Path, monkeypatch: pytest.MonkeyPatch, file: str, words: Sequence[str], environ: Mapping[str, str]
) -> None:
    (home / "gunicorn.conf.py").write_text(file)
    (home / "other.py").write_text("graceful_timeout = 7\nworkers = 9\n")
    found = of(home, *words, environ="".join(f"{name}={value}\0" for name, value in environ.items()))
    monkeypatch.chdir(home)
    for name in ("WEB_CONCURRENCY", *config.FLAG_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    served = command_line.checked(command_line.parse_for_check(words))
    assert dict(found.values) == {name: served.values[name] for name in settings.NAMES}
    assert found.assumed == set()
    told = {name for name in settings.NAMES if served.origins[name] == "default"}
    assert {name for name, source in found.sources.items() if source == "the default"} == told


def test_what_stands_below_a_file_that_is_not_run_is_assumed(home: Path) -> None:
    (home / "gunicorn.conf.py").write_text("import os\nworkers = os.cpu_count()\n")
    found = of(home, environ="WEB_CONCURRENCY=5\0")
    assert (found.values["workers"], found.assumed) == (5, {"workers"})
    assert found.sources["workers"] == (
        "environment WEB_CONCURRENCY of process 7, assumed: only running gunicorn.conf.py would tell"
    )
    assert of(home, "-w", "2", environ="WEB_CONCURRENCY=5\0").assumed == frozenset()


def test_without_a_file_it_is_the_default(home: Path) -> None:
    found = of(home)
    assert (found.values["timeout"], found.sources["timeout"], found.assumed) == (30, "the default", frozenset())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--config=python:shop.conf"], "python:shop.conf may say otherwise, and was not found"),
        (["--chdir=/srv"], "a config file may say otherwise, and was not found"),
        (["--chdir=/srv", "--config=conf.py"], "conf.py may say otherwise, and was not found"),
        (["--config=missing.py"], "missing.py may say otherwise, and cannot be read"),
        (["--config=pipe"], "pipe may say otherwise, and cannot be read"),
        (["--config=long.py"], "long.py may say otherwise, and cannot be read"),
    ],
)
def test_a_file_that_tells_nothing_may_say_anything(home: Path, words: Sequence[str], why: str) -> None:
    os.mkfifo(home / "pipe")
    (home / "long.py").write_text("timeout = 5\n" + "#" * settings.FILE_BYTES_MAX)
    found = of(home, *words, "--queue-timeout=5")
    assert found.assumed == set(settings.NAMES) - {"queue_timeout"}
    assert (found.values["timeout"], found.sources["timeout"]) == (30, f"the default, assumed: {why}")


def test_a_process_that_is_gone_or_wrong_tells_nothing(home: Path) -> None:
    assert settings.of(8, parse, home.parent.parent) is None
    (home / "gunicorn.conf.py").write_text("timeout = 'soon'\n")
    (home.parent / "cmdline").write_text("stanchion\0")
    assert settings.of(7, parse, home.parent.parent) is None


@pytest.mark.parametrize(
    ("source", "values", "opaque"),
    [
        ("timeout = 9\nadmin = 'unix:/a'", {"timeout": 9, "admin": "unix:/a"}, set()),
        ("timeout = 9\ntimeout = 8", {"timeout": 8}, set()),
        ("import os\ntimeout = int(os.environ['T'])", {}, {"timeout"}),
        ("timeout = 9\nif True:\n    timeout = 8", {}, {"timeout"}),
        ("timeout = 9\ntimeout += 1", {}, {"timeout"}),
        ("from base import timeout, admin as other", {}, {"timeout"}),
        ("from base import *", {}, set(settings.NAMES)),
        ("timeout = ", {}, set(settings.NAMES)),
        ("worker_class = 'gevent'", {"interface": "wsgi", "loop": "gevent"}, set()),
        ("import os\nworker_class = os.environ['K']", {}, {"interface", "loop"}),
        ("import os\nworker_class = os.environ['K']\ninterface = 'wsgi'", {"interface": "wsgi"}, {"loop"}),
        ("worker_connections = 5 * 10", {}, {"worker_concurrency"}),
        ("worker_connections = 5\nworker_concurrency = f()", {}, {"worker_concurrency"}),
        ("worker_concurrency = 5\nworker_connections = f()", {"worker_concurrency": 5}, set()),
        ("raise SystemExit", {}, set()),
    ],
)
def test_a_config_file_is_read_and_not_run(source: str, values: dict[str, object], opaque: set[str]) -> None:
    assert settings.plain_values(source.encode()) == (values, opaque)
