"""Apps that a PasteDeploy file describes; --spew; both as with gunicorn."""

import sys
from pathlib import Path

import pytest

from support.patience import PATIENCE_S
from support.server import GUNICORN, STANCHION, Kind, Serve

APP = """\
def make(global_conf, **local_conf):
    text = repr((sorted(global_conf.items()), sorted(local_conf.items()))).encode()

    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
        return [text]

    return app

def broken(global_conf):
    raise RuntimeError("no database")
"""

INI = """\
[DEFAULT]
debug = false

[app:main]
paste.app_factory = pasted:make
greeting = hi

[app:admin]
paste.app_factory = pasted:make
greeting = %(who)s

[app:broken]
paste.app_factory = pasted:broken

[server:main]
use = egg:gunicorn#main
workers = 7
"""

KINDS = pytest.mark.parametrize("kind", [STANCHION, GUNICORN], ids=lambda kind: kind.name)


@pytest.fixture
def ini(tmp_path: Path) -> Path:
    (tmp_path / "pasted.py").write_text(APP)
    (tmp_path / "shop.ini").write_text(INI)
    return tmp_path / "shop.ini"


def body(serve: Serve, kind: Kind, ini: Path, *words: str) -> bytes:
    server = serve("", *words, kind=kind, env={"PYTHONPATH": str(ini.parent)})
    with server.connect() as wire:
        return wire.get("/").body


@KINDS
def test_the_main_app_of_a_file(serve, kind, ini):
    told = body(serve, kind, ini, "--paste", str(ini))
    assert b"('debug', 'false')" in told and b"('greeting', 'hi')" in told


@KINDS
def test_another_app_with_variables_of_its_own(serve, kind, ini):
    told = body(
        serve, kind, ini, "--paster", f"{ini}#admin", "--paste-global", "who=me=you", "--paste-global", "a\\=b=c"
    )
    assert b"('greeting', 'me=you')" in told and b"('a=b', 'c')" in told


LOGGERS = """
[loggers]
keys = root
[handlers]
keys = file
[formatters]
keys =
[logger_root]
level = INFO
handlers = file
[handler_file]
class = FileHandler
args = ("app.log",)
"""


@KINDS
def test_the_file_sets_up_logging_if_it_says_how(build, kind, ini):
    logged = APP.replace("    text =", "    logging.info('made')\n    text =", 1)
    (ini.parent / "pasted.py").write_text(f"import logging\n\n{logged}")
    ini.write_text(INI + LOGGERS)
    server = build("", "--paste", str(ini), kind=kind, env={"PYTHONPATH": str(ini.parent)}).start()
    with server.connect() as wire:
        wire.get("/")
    assert "made" in (server.home / "app.log").read_text().splitlines()


def failing(build: Serve, ini: Path, *words: str, **environment: str) -> tuple[int, str]:
    """The exit code and the log of a server that does not come up."""
    server = build("", *words, kind=STANCHION, env={"PYTHONPATH": str(ini.parent), **environment}).launch()
    code = server.process.wait(timeout=PATIENCE_S)
    return code, server.log.text()


def test_a_broken_one_ends_as_a_broken_app(build, ini):
    code, log = failing(build, ini, "--paste", f"{ini}#broken")
    assert code == 4
    assert "RuntimeError: no database" in log and "correct the file or the app at " in log and "pasted.py:11" in log


def test_a_section_that_is_not_there(build, ini):
    code, log = failing(build, ini, "--paste", f"{ini}#nobody")
    assert code == 4
    assert "PasteDeploy loads no app from" in log


def test_a_file_that_is_not_there(build, ini):
    code, log = failing(build, ini, "--paste", "nowhere.ini")
    assert code == 2
    assert "setting `paste` from command line: there is no file" in log


def test_without_pastedeploy_it_says_what_to_install(build, ini):
    # Python imports sitecustomize at its start; an import of None fails like that of a missing module.
    (ini.parent / "sitecustomize.py").write_text("import sys\nsys.modules['paste.deploy'] = None\n")
    code, log = failing(build, ini, "--paste", str(ini))
    assert code == 4
    assert f"install it: {sys.executable} -m pip install PasteDeploy" in log


def test_the_path_is_not_read_from_chdir(build, ini):
    server = build("", "--paste", "shop.ini", "--chdir", "elsewhere", env={"PYTHONPATH": str(ini.parent)})
    (server.home / "elsewhere").mkdir()
    (server.home / "shop.ini").write_text(INI)
    with server.start().connect() as wire:
        assert b"('greeting', 'hi')" in wire.get("/").body


@KINDS
def test_spew_prints_each_line_of_the_app(serve, kind, tmp_path):
    (tmp_path / "noisy.py").write_text(
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    for part in (b'a', b'b'):\n"
        "        yield part\n"
    )
    # gunicorn traces only the thread that its own threads are made in.
    threads = "2" if kind is STANCHION else "1"
    # Without buffers each print is a write(2) or two. With them gunicorn's master, traced too, writes into lines.
    env = {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    server = serve("noisy:app", "--spew", "--threads", threads, kind=kind, env=env)
    for _ in range(4):
        with server.connect() as wire:
            assert wire.get("/").body == b"ab"
    server.stop()
    printed = server.stdout.text()
    assert printed.count("noisy:4:         yield part") == 8
    assert printed.count("noisy:2:     start_response('200 OK', [])") == 4
