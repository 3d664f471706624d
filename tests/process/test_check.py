"""Whether an app could be served, asked without serving it: here and of gunicorn."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from support import open_house
from support.open_house import NOBODY
from support.patience import PATIENCE_S

APPS = Path(__file__).parents[1] / "apps"

GOOD = "app = lambda environ, start_response: start_response('200 OK', []) and []\n"
BAD = {
    "missing:app": "there is no module 'missing'",
    "shop:ap": "'shop' has no 'ap'; did you mean app?",
    "broken:app": "importing 'broken' raised RuntimeError: no database",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(GOOD)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no database')\n")
    return tmp_path


def run(
    home: Path, module: str, *words: str, prefix: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [*prefix, sys.executable, "-m", module, *words],
        cwd=home,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("app", ["shop:app", *BAD])
def test_check_load_ends_as_serve_would(home, app):
    done = run(home, "stanchion", "check", "--load", app)
    assert done.returncode == (4 if app in BAD else 0), done.stderr
    assert BAD.get(app, "") in done.stderr
    assert f"{app} " in done.stdout, "the settings are shown all the same"
    # Without --load it imports no app, and so finds nothing wrong.
    assert run(home, "stanchion", "check", app).returncode == 0


def test_check_load_wants_an_app(home):
    done = run(home, "stanchion", "check", "--load")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no app to serve" in done.stderr


@pytest.mark.parametrize("flag", ["--check-config", "--print-config"])
@pytest.mark.parametrize("app", ["shop:app", *BAD])
def test_gunicorns_checks_end_as_gunicorns(home, flag, app):
    ours, theirs = (run(home, module, flag, app) for module in ("stanchion", "gunicorn"))
    assert ours.returncode == theirs.returncode == (1 if app in BAD else 0), ours.stderr
    assert BAD.get(app, "") in ours.stderr
    assert bool(ours.stdout) == bool(theirs.stdout) == (flag == "--print-config")


def test_logging_that_cannot_be_set_up_ends_as_the_start_does(home):
    words = ("--log-config", "nowhere.ini", "shop:app")
    for command, code in ((["check", "--load"], 2), (["serve"], 2), (["--check-config"], 1)):
        done = run(home, "stanchion", *command, *words)
        assert done.returncode == code, done.stderr
        assert "logging cannot be set up by `logconfig`: FileNotFoundError" in done.stderr
    assert run(home, "gunicorn", "--check-config", *words).returncode == 0, "it does not try them"


def test_a_reason_of_several_lines_is_whole_where_the_server_leaves(home):
    """Python's own logging quotes the line of a file that it does not understand, on a line of its own."""
    (home / "logging.yaml").write_text("version: 1\n")
    done = run(home, "stanchion", "serve", "--log-config", "logging.yaml", "shop:app")
    assert done.returncode == 2, done.stderr
    assert re.search(
        r"logging cannot be set up by `logconfig`: .*'version: 1\\n': the server leaves$", done.stderr, re.M
    )


@pytest.mark.parametrize("place", ["file", "GUNICORN_CMD_ARGS"])
def test_they_are_settings_like_others(home, place):
    environment = {}
    if place == "file":
        (home / "gunicorn.conf.py").write_text("print_config = True\n")
    else:
        environment = {place: "--print-config"}
    done = run(home, "stanchion", "--workers", "3", "shop:app", **environment)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" = ") for line in done.stdout.splitlines()]
    assert [name.strip() for name, _ in rows] == sorted(name.strip() for name, _ in rows)
    assert {name.strip(): value for name, value in rows}["workers"] == "3"


@pytest.mark.privileges
def test_the_app_finds_what_it_would_find(home):
    (home / "site").mkdir()
    (home / "site" / "shop.py").write_text(
        "import os\nassert os.environ['GREETING'] == 'hi' and os.getcwd().endswith('/site')\n" + GOOD
    )
    done = run(home, "stanchion", "check", "--load", "--chdir", "site", "-e", "GREETING=hi", "shop:app")
    assert done.returncode == 0, done.stderr


def test_a_thread_that_the_app_has_left_does_not_keep_it(home):
    (home / "shop.py").write_text("import threading\nthreading.Thread(target=threading.Event().wait).start()\n" + GOOD)
    for words in (["check", "--load"], ["--check-config"]):
        assert run(home, "stanchion", *words, "shop:app").returncode == 0


@pytest.mark.skipif(bool(open_house.unavailable()), reason=open_house.unavailable())
def test_the_app_is_not_imported_as_root():
    # Outside pytest's own directory, which only its user may enter.
    with tempfile.TemporaryDirectory(prefix="stanchion-test-") as name:
        home = Path(name)
        home.chmod(0o755)
        (home / "shop.py").write_text("import os\nprint(os.getresuid(), os.getresgid(), os.getgroups())\n" + GOOD)
        account = ("--user", str(NOBODY), "--group", str(NOBODY))
        done = run(home, "stanchion", "check", "--load", *account, "shop:app", prefix=open_house.prefix())
    assert done.returncode == 0, done.stderr
    ids = f"({NOBODY}, {NOBODY}, {NOBODY})"
    assert done.stdout.splitlines()[-1] == f"{ids} {ids} [{NOBODY}]"


@pytest.mark.parametrize("other", ["127.0.0.1:8000?tls=false", "tcp://127.0.0.1", "127.0.0.1:8000"])
def test_a_listener_that_is_given_twice_is_refused(home, other):
    """They would share what is said of one of them."""
    for module, verb in (("stanchion", "check"), ("stanchion", "serve")):
        done = run(home, module, verb, "--bind", "127.0.0.1:8000", "--bind", other, "shop:app")
        assert done.returncode == 2
        assert "setting `bind` from command line: expected each address once, got 127.0.0.1:8000 and " in done.stderr


def test_check_says_how_many_workers_auto_is_and_why(home: Path) -> None:
    done = run(home, "stanchion", "check", "--changed", "--workers", "auto", "shop:app")
    found = re.search(
        r"^workers: auto is (\d+) to (\d+), as many as keep the cores busy \(cores: (\d+) by affinity, (.*)\)$",
        done.stdout,
        re.M,
    )
    assert found, done.stdout
    least, most, affinity = map(int, found.groups()[:3])
    assert 1 <= least <= affinity == len(os.sched_getaffinity(0))
    assert most == 10 * least
    assert "cpu.max" in found[4] and "memory.max" in found[4]
    done = run(home, "stanchion", "check", "--workers", "auto", "--loop", "gevent", "shop:app")
    assert f"workers: auto is {least}, an event loop for each core (" in done.stdout
    assert "workers: auto" not in run(home, "stanchion", "check", "--workers", "2..3", "shop:app").stdout
