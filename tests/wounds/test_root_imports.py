"""Code that root runs: none that others may have written, in the working directory or in a config file."""

import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support import open_house
from support.open_house import NOBODY, OTHERS
from support.patience import PATIENCE_S
from support.server import STANCHION, Server

NOT_HERE = open_house.unavailable()
pytestmark = [pytest.mark.own("files of the process tree"), pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)]

CONSOLE = (str(Path(sys.executable).with_name("stanchion")),)
MODULE = (sys.executable, "-m", "stanchion")


@pytest.fixture
def theirs(home: Path) -> Path:
    """The user's own directory, in which modules lie that record which user has run them."""
    theirs = home / "theirs"
    theirs.mkdir()
    for name in ("argparse", "helper"):
        (theirs / f"{name}.py").write_text(f"import os\nopen({str(home / 'ran')!r}, 'a').write(f'{{os.geteuid()}} ')\n")
    os.chown(theirs, NOBODY, OTHERS)
    return theirs


def run(command: tuple[str, ...], at: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *words], cwd=at, capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S
    )


@pytest.mark.parametrize("command", [CONSOLE, MODULE], ids=["console", "module"])
@pytest.mark.parametrize("words", [("check",), ("serve",), ("ctl", "status"), ("top", "--once"), ("--version",)])
def test_the_working_directory(command: tuple[str, ...], words: tuple[str, ...], home: Path, theirs: Path) -> None:
    done = run(command, theirs, *words)
    assert "Traceback" not in done.stderr
    if words[0] == "top":
        # It looks for servers on this host, where those of other tests are, and they may be gone a moment later.
        assert done.returncode in (0, 2, 3)
    else:
        assert done.returncode == (0 if words in (("check",), ("--version",)) else 2)
    assert not (home / "ran").exists()


def test_what_a_config_file_imports_from_there(home: Path, theirs: Path) -> None:
    (home / "c.py").write_text("import helper\n")
    done = run(CONSOLE, theirs, "check", "-c", str(home / "c.py"))
    assert done.returncode == 2
    assert f"root imports nothing from here, as {theirs} may be changed by others than root" in done.stderr
    assert not (home / "ran").exists()
    (home / "helper.py").write_text("")
    assert run(CONSOLE, home, "check", "-c", "c.py").returncode == 0, "where all is root's, nothing changes"


@pytest.mark.parametrize("whose", ["file", "package", "cache", "cached"])
@pytest.mark.parametrize("how", ["python:", "import"])
def test_a_module_of_others_in_a_directory_of_roots(how: str, whose: str, home: Path) -> None:
    """`COPY --chown=app . .` into a directory of root's makes such a module."""
    package = home / "conf"
    package.mkdir()
    (package / "__init__.py").touch()
    module = package / "base.py"
    module.write_text(f"open({str(home / 'ran')!r}, 'a')\n")
    cache = Path(py_compile.compile(str(module)) or "")
    found = {"file": module, "package": package, "cache": cache.parent, "cached": cache}[whose]
    os.chown(found, NOBODY, OTHERS)
    (home / "c.py").write_text("import conf.base\n")
    done = run(CONSOLE, home, "check", "-c", "python:conf.base" if how == "python:" else "c.py")
    assert done.returncode == 2
    assert f"{found} may be changed by others than root (owner {NOBODY}" in done.stderr
    assert not (home / "ran").exists()
    os.chown(found, 0, 0)
    assert run(CONSOLE, home, "check", "-c", "python:conf.base").returncode == 0, "where all is root's, nothing changes"


def test_the_app_is_not_held_to_it(home: Path, theirs: Path) -> None:
    """Processes that are not root import it, wherever it lies."""
    (home / "app.py").write_text(
        "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'app']\n"
    )
    os.chown(home / "app.py", NOBODY, OTHERS)
    words = ["--user", str(NOBODY), "--group", str(OTHERS), "--bind", "127.0.0.1:0", "--chdir", str(home)]
    server = Server(STANCHION, [*words, "app:app"], home / "server", prefix=open_house.prefix())
    server.home.mkdir()
    try:
        server.start()
        with server.connect() as wire:
            assert wire.get("/").body == b"app"
    finally:
        server.stop()


def test_the_file_that_is_looked_at_is_the_one_that_runs(home: Path, theirs: Path) -> None:
    """`link/..` is the parent of where the link leads to (path_resolution(7))."""
    (home / "current").symlink_to(theirs)
    elsewhere = Path(tempfile.mkdtemp(prefix="stanchion-test-"))
    try:
        elsewhere.chmod(0o755)
        (elsewhere / "current").symlink_to(theirs)
        (home / "c.py").write_text("workers = 3\n")
        for file in (False, True):
            if file:
                (elsewhere / "c.py").touch()
                (home / "c.py").chmod(0o666)
            done = run(CONSOLE, elsewhere, "check", "-c", "current/../c.py")
            assert "Traceback" not in done.stderr
            assert done.returncode == (2 if file else 0)
        assert f"{home / 'c.py'} may be changed by others" in done.stderr
    finally:
        shutil.rmtree(elsewhere)


@pytest.mark.parametrize("words", [("check",), ("serve", "a:b"), ("ctl", "status"), ("top", "--once")])
@pytest.mark.parametrize("whose", ["file", "directory", "mode", "default"])
def test_a_config_file_that_others_may_write(words: tuple[str, ...], whose: str, home: Path, theirs: Path) -> None:
    at = home if whose in ("file", "mode") else theirs
    file = at / ("gunicorn.conf.py" if whose == "default" else "c.py")
    file.write_text(f"open({str(home / 'ran')!r}, 'a')\n")
    if whose == "file":
        os.chown(file, NOBODY, OTHERS)
    if whose == "mode":
        file.chmod(0o666)
    done = run(CONSOLE, at, *words, *(() if whose == "default" else ("-c", str(file))))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "is not run as root" in line
    assert "chown root, chmod go-w" in line
    assert not (home / "ran").exists()


def test_the_app_is_found_there_by_those_who_are_not_root(home: Path, theirs: Path) -> None:
    (theirs / "lib").mkdir()
    (theirs / "lib" / "beside.py").write_text("import os\nWHO = str(os.geteuid()).encode()\n")
    (theirs / "shop.py").write_text(
        "from beside import WHO\n"
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [('Content-Type', 'text/plain')])\n"
        "    return [WHO]\n"
    )
    (home / "c.py").write_text("def when_ready(server):\n    import sys\n    server.log.info('path %s', sys.path)\n")
    for more in ((), ("--no-preload",)):
        words = [
            "--user",
            str(NOBODY),
            "--group",
            str(OTHERS),
            "--bind",
            "127.0.0.1:0",
            "-c",
            str(home / "c.py"),
            *more,
        ]
        server = Server(
            STANCHION,
            [*words, "--chdir", str(theirs), "--pythonpath", "lib", "shop:app"],
            home / "server",
            prefix=open_house.prefix(),
        )
        server.home.mkdir(exist_ok=True)
        try:
            server.start()
            with server.connect() as wire:
                assert wire.get("/").body == str(NOBODY).encode()
            assert str(theirs) not in server.log.wait(r"path \[.*")[0], "the master's"
        finally:
            server.stop()
