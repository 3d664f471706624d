"""The app's logging goes by gunicorn's settings of it; what these write is what they write under gunicorn."""

import json
import re
import signal

import pytest

from support.address import Address
from support.patience import PATIENCE_S, eventually
from support.server import GUNICORN, STANCHION, Kind, Serve, Server
from support.wire import BrokenOff

DICTIONARY = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(name)s|%(levelname)s|%(message)s"}},
    "handlers": {
        "file": {"class": "logging.handlers.RotatingFileHandler", "filename": "app.log", "formatter": "plain"}
    },
    "root": {"level": "INFO", "handlers": ["file"]},
    "loggers": {"gunicorn.error": {"handlers": ["file"], "propagate": False}},
}
INI = """
[loggers]
keys=root,error
[handlers]
keys=file
[formatters]
keys=plain
[logger_root]
level=INFO
handlers=file
[logger_error]
level=INFO
handlers=file
propagate=0
qualname=gunicorn.error
[handler_file]
class=FileHandler
args=("app.log",)
formatter=plain
[formatter_plain]
format=%(name)s|%(levelname)s|%(message)s
"""
FILTER = """
class NoHealth:
    def filter(self, record):
        return "/health" not in record.getMessage()
"""
WITH_A_FILTER = """
class NoHealth:
    def filter(self, record):
        return "/health" not in record.getMessage()

logconfig_dict = {**DICTIONARY, "filters": {"no_health": {"()": NoHealth}}}
logconfig_dict["handlers"] = {"file": {**DICTIONARY["handlers"]["file"], "filters": ["no_health"]}}
"""
CLASS = """
import logging
from {module} import Logger

class Mine(Logger):
    def setup(self, cfg):
        super().setup(cfg)
        handler = logging.FileHandler("app.log")
        handler.setFormatter(logging.Formatter("%(name)s|%(levelname)s|%(message)s"))
        logging.root.addHandler(handler)
        logging.root.setLevel("INFO")
        self.error_log.addHandler(handler)

    def warning(self, msg, *args, **kwargs):
        super().warning("by mine: " + msg, *args, **kwargs)

def post_worker_init(worker):
    worker.log.warning("worker %d", 0)
"""
SOLD = ["shop|INFO|imported", "shop|INFO|sold at /a", "gunicorn.error|WARNING|borrowed at /a"]


def written(server: Server) -> list[str]:
    """The lines that the app has written after two requests."""
    server.launch()
    # The line that says where it listens may go elsewhere, too.
    server.addresses = [Address.parse(f"unix:{server.home}/socket")]
    for path in ("/a", "/health"):
        assert eventually(lambda path=path: answer(server, path), "it serves", 2 * PATIENCE_S) == 200
    lines = (server.home / "app.log").read_text().splitlines()
    return [line for line in lines if re.search("sold|borrowed|imported|worker 0", line)]


def answer(server: Server, path: str) -> int | None:
    try:
        with server.connect() as wire:
            return wire.get(path).status
    except (OSError, BrokenOff):
        return None


def prepared(build: Serve, kind: Kind, files: dict[str, str], *arguments: str) -> Server:
    server = build("logs:configured", *arguments, kind=kind, bind="unix:socket")
    for name, text in files.items():
        (server.home / name).write_text(text)
    return server


@pytest.mark.parametrize("preload", [True, False])
@pytest.mark.parametrize(
    ("files", "arguments"),
    [
        ({"gunicorn.conf.py": f"logconfig_dict = {DICTIONARY!r}"}, ()),
        ({"l.json": json.dumps(DICTIONARY)}, ("--log-config-json", "l.json")),
        ({"l.ini": INI}, ("--log-config", "l.ini")),
    ],
    ids=["dict", "json", "ini"],
)
def test_lines_are_gunicorns(build: Serve, files: dict[str, str], arguments: tuple[str, ...], preload: bool) -> None:
    ours = written(prepared(build, STANCHION, files, *arguments, *([] if preload else ["--no-preload"])))
    assert ours == written(prepared(build, GUNICORN, files, *arguments, *(["--preload"] if preload else [])))
    assert ours[:3] == SOLD and len(ours) == 5


def test_a_dictionary_may_hold_classes(build: Serve) -> None:
    config = {"gunicorn.conf.py": f"DICTIONARY = {DICTIONARY!r}\n{WITH_A_FILTER}"}
    ours, theirs = (written(prepared(build, kind, config)) for kind in (STANCHION, GUNICORN))
    assert ours == theirs == SOLD


@pytest.mark.parametrize("asks", ["a dictionary", "JSON"])
@pytest.mark.parametrize("arguments", [(), ("--access-logfile", "unused.log")], ids=["", "with a file"])
def test_a_filter_of_the_access_logger_drops_what_it_does_under_gunicorn(
    build: Serve, asks: str, arguments: tuple[str, ...]
) -> None:
    """The filter is the logger's own, not a handler's."""
    config = {
        **DICTIONARY,
        "filters": {"no_health": {"()": "filtering.NoHealth"}},
        "loggers": {"gunicorn.access": {"handlers": ["file"], "propagate": False, "filters": ["no_health"]}},
    }
    files = {"filtering.py": FILTER, "l.json": json.dumps(config), "gunicorn.conf.py": ""}
    if asks == "JSON":
        arguments = (*arguments, "--log-config-json", "l.json")
    else:
        files["gunicorn.conf.py"] = f"logconfig_dict = {config!r}"
    for kind in (STANCHION, GUNICORN):
        server = prepared(build, kind, files, "--pythonpath", ".", *arguments)
        server.launch()
        server.addresses = [Address.parse(f"unix:{server.home}/socket")]
        for path in ("/first", "/health", "/last"):
            assert eventually(lambda server=server, path=path: answer(server, path), "it serves", 2 * PATIENCE_S) == 200
        log = server.home / "app.log"
        eventually(lambda log=log: "GET /last" in log.read_text(), "it is written")
        accessed = [line.split()[6] for line in log.read_text().splitlines() if line.startswith("gunicorn.access|")]
        assert accessed == ["/first", "/last"], kind.name


@pytest.mark.parametrize("module", ["stanchion.glogging", "gunicorn.glogging"])
@pytest.mark.parametrize("named", ["logger_class = Mine", "logger_class = 'mine.Mine'"])
def test_a_class_of_the_operators(build: Serve, module: str, named: str) -> None:
    files = {"gunicorn.conf.py": CLASS.format(module=module) + named, "mine.py": CLASS.format(module=module)}
    ours = written(prepared(build, STANCHION, files))
    assert ours[:2] == ["shop|INFO|imported", "gunicorn.error|WARNING|by mine: worker 0"]
    assert ours[2:4] == SOLD[1:]


FORMATS = """
import logging
from {module} import Logger

class Mine(Logger):
    error_fmt = "%(name)s|%(levelname)s|%(message)s"

    def setup(self, cfg):
        super().setup(cfg)
        self._set_handler(self.access_log, "accesses.log", logging.Formatter("access|" + self.access_fmt))

def post_worker_init(worker):
    worker.log.warning("sold nothing yet")
    worker.log.access_log.info("sold by %s", "hand")
    worker.log.reopen_files()
    worker.log.close_on_exec()
"""


@pytest.mark.parametrize("module", ["stanchion.glogging", "gunicorn.glogging"])
def test_a_class_may_change_formats_and_handlers(build: Serve, module: str) -> None:
    files = {"gunicorn.conf.py": FORMATS.format(module=module) + "logger_class = Mine\nerrorlog = 'error.log'"}
    kind = STANCHION if module.startswith("stanchion") else GUNICORN
    server = prepared(build, kind, files).launch()
    server.addresses = [Address.parse(f"unix:{server.home}/socket")]
    assert eventually(lambda: answer(server, "/a"), "it serves", 2 * PATIENCE_S) == 200
    lines = (server.home / "error.log").read_text().splitlines()
    assert [line for line in lines if line.startswith("gunicorn.error|WARNING|")] == [
        "gunicorn.error|WARNING|sold nothing yet",
        "gunicorn.error|WARNING|borrowed at /a",
    ]
    assert (server.home / "accesses.log").read_text() == "access|sold by hand\n"


@pytest.mark.own("gunicorn ends with a traceback, and at a reload altogether")
def test_what_cannot_be_set_up_is_named_and_a_reload_keeps_what_there_is(build: Serve) -> None:
    broken = "logconfig_dict = {'version': 1, 'handlers': {'file': {'class': 'no.such.Handler'}}}"
    server = prepared(build, STANCHION, {"gunicorn.conf.py": broken}).launch()
    assert server.exit_code() == 2

    server = prepared(build, STANCHION, {"gunicorn.conf.py": f"logconfig_dict = {DICTIONARY!r}"})
    written(server)
    (server.home / "gunicorn.conf.py").write_text(broken)
    server.signal(signal.SIGHUP)
    log = server.home / "app.log"
    eventually(lambda: "gunicorn.error|ERROR|reload failed" in log.read_text(), "it is said")
    with server.connect() as wire:
        assert wire.get("/later").status == 200
    assert "sold at /later" in (server.home / "app.log").read_text()
