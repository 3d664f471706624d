"""A configuration that is read again takes effect whole or not at all."""

import os
import sys
from pathlib import Path

import pytest

from stanchion import config
from stanchion.cli import main
from stanchion.configuration import Configuration
from stanchion.effective import Effective, UsageError
from stanchion.loader import AppHost, describe_failure


def read() -> Effective:
    file = config.read_file("c.py")
    return config.resolve([file.layer], (), file.hooks, file.errors)


@pytest.fixture
def write(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEPT", "outside")
    monkeypatch.delenv("PWD", raising=False)
    for name in ("one", "two"):
        (home / name).mkdir()

    def write(text: str) -> None:
        (home / "c.py").write_text(text)

    return write


def test_all_of_it_takes_effect_anew(home, write):
    write("import beside\nworkers = beside.N\nchdir = 'one'\npythonpath = 'lib'\nraw_env = ['KEPT=a', 'GONE=b']\n")
    (home / "beside.py").write_text("N = 2\n")
    configuration = Configuration(read)
    configuration.apply()
    assert (os.getcwd(), os.environ["KEPT"], os.environ["GONE"]) == (f"{home}/one", "a", "b")
    os.environ["BY_A_HOOK"] = "stays"
    write("import beside\nworkers = beside.N\nchdir = 'two'\nraw_env = ['NEW=c']\ndef on_exit(server): pass\n")
    (home / "beside.py").write_text("N = 3\n")
    configuration.reread()
    assert configuration.effective.values["workers"] == 3
    assert os.getcwd() == f"{home}/two"
    assert f"{home}/one/lib" not in sys.path
    assert sys.path[0] == f"{home}/two"
    environ = [os.environ.get(name) for name in ("KEPT", "GONE", "NEW", "BY_A_HOOK")]
    assert environ == ["outside", None, "c", "stays"]
    assert set(configuration.effective.hooks) == {"on_exit"}
    for name in ("NEW", "BY_A_HOOK"):
        del os.environ[name]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("import beside\nraise ValueError('why')", "ValueError: why"),
        ("import sys\nsys.exit(3)", "raised an error"),
        ("workers = 0", "setting `workers`"),
        ("def on_exit(): pass", "the hook on_exit must take (server)"),
        ("raise SystemExit('enough')", "enough"),
        ("chdir = 'nowhere'", "there is no directory 'nowhere'"),
    ],
)
def test_what_is_wrong_changes_nothing(home, write, text, part):
    write("import beside\nchdir = 'one'\nraw_env = ['KEPT=a']\n")
    (home / "beside.py").write_text("N = 2\n")
    configuration = Configuration(read)
    configuration.apply()
    before = (os.getcwd(), list(sys.path), dict(os.environ), sys.modules["beside"], configuration.effective)
    write(text)
    with pytest.raises((UsageError, SystemExit)) as caught:
        configuration.reread()
    assert part in describe_failure(caught.value)
    now = (os.getcwd(), list(sys.path), dict(os.environ), sys.modules["beside"], configuration.effective)
    assert now == before


def test_a_reading_that_came_to_nothing_is_reverted(home, write):
    write("chdir = 'one'\nraw_env = ['KEPT=a']\nworkers = 2\n")
    configuration = Configuration(read)
    configuration.apply()
    before = (os.getcwd(), list(sys.path), dict(os.environ))
    configuration.revert()
    write("chdir = 'two'\nraw_env = ['KEPT=b', 'NEW=c']\nworkers = 3\n")
    configuration.reread()
    configuration.revert()
    assert (os.getcwd(), list(sys.path), dict(os.environ)) == before
    assert configuration.effective.values["workers"] == 2


def test_one_that_was_wrong_leaves_nothing_to_revert_to(home, write):
    write("workers = 2\n")
    configuration = Configuration(read)
    configuration.apply()
    write("workers = 3\n")
    configuration.reread()
    write("workers =\n")
    with pytest.raises(UsageError):
        configuration.reread()
    configuration.revert()
    assert configuration.effective.values["workers"] == 3


def test_a_symlink_leads_to_the_next_release(home, write, monkeypatch):
    for release in ("one", "two"):
        (home / release / "c.py").write_text(f"wsgi_app = '{release}:app'\n")
    (home / "current").symlink_to("one")
    monkeypatch.chdir(home / "current")
    monkeypatch.setenv("PWD", f"{home}/current")
    configuration = Configuration(read)
    configuration.apply()
    (home / "current").unlink()
    (home / "current").symlink_to("two")
    configuration.reread()
    assert configuration.effective.values["wsgi_app"] == "two:app"
    assert os.getcwd() == f"{home}/two"


def test_a_directory_that_was_removed_and_made_anew_is_entered_again(home, write, monkeypatch):
    release = home / "one"
    (release / "c.py").write_text("workers = 2\n")
    monkeypatch.chdir(release)
    monkeypatch.setenv("PWD", str(release))
    configuration = Configuration(read)
    configuration.apply()
    (release / "c.py").unlink()
    release.rmdir()
    release.mkdir()
    (release / "c.py").write_text("workers = 0\n")
    with pytest.raises(UsageError):
        configuration.reread()
    assert configuration.effective.values["workers"] == 2
    (release / "c.py").write_text("workers = 3\n")
    configuration.reread()
    assert configuration.effective.values["workers"] == 3
    assert os.path.samefile(os.curdir, release)


def test_the_command_line_is_asked_again(home, served, write):
    write("workers = 2\nthreads = 2\n")
    assert main(["serve", "site:app", "-c", "c.py", "--threads", "5"]) == 7
    write("workers = 4\nthreads = 4\nwsgi_app = 'other:app'\n")
    host = served.host
    assert isinstance(host, AppHost)
    assert '"workers": 4' in host.reconfigure()
    assert '"threads": 5' in host.reconfigure()
    assert host.spec == "site:app"
