"""What a process of /proc tells of its settings without anything of it being run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stanchion.doctor import settings
from stanchion.doctor.settings import Settings


def parse(words: Sequence[str], _: str) -> Mapping[str, str]:
    return dict(word.removeprefix("--").split("=") for word in words)


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
    found = of(home, "--timeout=7", environ="A=b\0STANCHION_CMD_ARGS=--queue_timeout=6\0")
    given = ("admin", "queue_timeout", "timeout")
    assert {name: found.values[name] for name in given} == {"admin": "unix:/a", "queue_timeout": 6, "timeout": 7}
    assert {name: found.sources[name] for name in given} == {
        "admin": "gunicorn.conf.py, as it reads now",
        "queue_timeout": "STANCHION_CMD_ARGS of process 7",
        "timeout": "the command line of process 7",
    }


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
    found = of(home, *words, "--queue_timeout=5")
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
        ("raise SystemExit", {}, set()),
    ],
)
def test_a_config_file_is_read_and_not_run(source: str, values: dict[str, object], opaque: set[str]) -> None:
    assert settings.plain_values(source.encode()) == (values, opaque)
