"""The server's own logs go by gunicorn's settings of logging, in a process that no other process waits for."""

import contextlib
import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import processes
from support.address import Address
from support.counts import Counts
from support.patience import PATIENCE_S, eventually
from support.server import STANCHION, Serve, Server
from support.wire import BrokenOff, request

pytestmark = pytest.mark.own("gunicorn's own processes run its logging, and wait for it")

JSON = """
import json, logging

class Json(logging.Formatter):
    def format(self, record):
        said = {"name": record.name, "level": record.levelname, "pid": record.process, "created": record.created,
                "message": record.getMessage()}
        if isinstance(record.args, dict):
            said["status"] = record.args["s"]
        return json.dumps(said)

class NoHealth(logging.Filter):
    def filter(self, record):
        return not (isinstance(record.args, dict) and record.args["U"] == "/health")

logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": Json}},
    "filters": {"no_health": {"()": NoHealth}},
    "handlers": {
        "errors": {"class": "logging.FileHandler", "filename": "errors.json", "formatter": "json"},
        "accesses": {"class": "logging.handlers.RotatingFileHandler", "filename": "accesses.json", "formatter": "json",
                     "maxBytes": 0, "backupCount": 50, "filters": ["no_health"]},
    },
    "root": {"handlers": []},
    "loggers": {
        "gunicorn.error": {"level": "INFO", "handlers": ["errors"], "propagate": False},
        "gunicorn.access": {"level": "INFO", "handlers": ["accesses"], "propagate": False},
    },
}
"""
CLASS = """
from stanchion.glogging import Logger

class Mine(Logger):
    def access(self, resp, req, environ, request_time):
        fields = dict(req.headers)
        said = (resp.status, dict(resp.headers)["content-type"], resp.sent, req.method, req.path, req.query,
                fields["X-KIND"], environ["HTTP_X_KIND"], environ["REMOTE_ADDR"], request_time.total_seconds() > 0)
        self.error_log.info("mine: %r", said)
        super().access(resp, req, environ, request_time)

    def atoms(self, resp, req, environ, request_time):
        return {**super().atoms(resp, req, environ, request_time), "mine": "of mine"}

logger_class = Mine
accesslog = "accesses.log"
access_log_format = "%(mine)s %(r)s %(s)s"
"""
PLAIN = """
from stanchion.glogging import Logger

class Mine(Logger):
    pass

logger_class = Mine
"""
ODD = (
    'X-Kind: a \\ "b" \xe9',
    "Authorization: Basic YWRhOnNlY3JldA==",
    "Referer: http://x/?a",
    'User-Agent: U/1 ("q")',
)


def answer(server: Server, path: str = "/") -> int | None:
    try:
        with server.connect() as wire:
            return wire.get(path, "X-Kind: shoes").status
    except (OSError, BrokenOff):
        return None


def configured(build: Serve, config: str, *arguments: str, app: str = "logs:configured") -> Server:
    """A server that serves, with this configuration."""
    server = build(app, *arguments, kind=STANCHION, bind="unix:socket")
    (server.home / "gunicorn.conf.py").write_text(config)
    server.launch()
    # The line that says so may go elsewhere.
    server.addresses = [Address.parse(f"unix:{server.home}/socket")]
    eventually(lambda: answer(server, "/first") == 200, "it serves", 2 * PATIENCE_S)
    return server


@contextlib.contextmanager
def named_files(server: Server, name: str) -> Iterator[None]:
    """If the block fails, the error has the files that processes of this name have open."""
    try:
        yield
    except AssertionError as error:
        paths = {process.pid: processes.open_paths(process) for process in server.of_name(name)}
        raise AssertionError(f"{error}: {paths}") from error


def text(server: Server, name: str) -> str:
    """The content of a file, "" if it is not there yet."""
    path = server.home / name
    return path.read_text() if path.exists() else ""


def scribe(server: Server) -> psutil.Process:
    found = eventually(lambda: server.of_name("stanchion-scrb"), "there is a scribe")
    assert len(found) == 1
    return found[0]


def objects(*paths: Path) -> list[dict[str, Any]]:
    """The objects of whole lines: the last line may be on its way."""
    texts = [path.read_text().rpartition("\n")[0] for path in paths if path.exists()]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def accesses(server: Server) -> list[dict[str, Any]]:
    """All lines, the oldest first; or none if the files are just being renamed."""
    rotated = sorted(server.home.glob("accesses.json.*"), key=lambda path: -int(path.suffix[1:]))
    try:
        return objects(*rotated, server.home / "accesses.json")
    except FileNotFoundError:
        return []


def accessed(server: Server, path: str) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [line for line in accesses(server) if f" {path} " in line["message"]]


def errors(server: Server) -> list[dict[str, Any]]:
    return objects(server.home / "errors.json")


def said(server: Server, words: str) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [one for one in errors(server) if words in one["message"]]


def ask(server: Server, requests: int) -> None:
    """All of them are answered."""
    with server.connect() as wire:
        for done in range(0, requests, 500):
            count = min(500, requests - done)
            wire.send(request("GET", "/pid?" + "a" * 200, ["X-Kind: shoes"]) * count)
            for _ in range(count):
                assert wire.response().status == 200


@pytest.mark.privileges
def test_both_logs_go_by_a_dictionary(build: Serve) -> None:
    server = configured(build, JSON.replace('"maxBytes": 0', '"maxBytes": 2000'))
    (worker,) = server.of_name("stanchion-work")
    for number in range(40):
        assert answer(server, f"/{number}") == 200
        assert answer(server, "/health") == 200
    eventually(lambda: len(accesses(server)) >= 41, "all are written")
    written = accesses(server)
    assert [line["message"].split()[6] for line in written] == ["/first", *(f"/{number}" for number in range(40))]
    assert {(line["name"], line["level"], line["status"], line["pid"]) for line in written} == {
        ("gunicorn.access", "INFO", "200", worker.pid)
    }
    assert (server.home / "accesses.json.1").exists(), "it was rotated"
    (ready,) = eventually(said(server, "ready: 1 worker"), "what the master has said is written")
    assert (ready["name"], ready["level"], ready["pid"]) == ("gunicorn.error", "INFO", server.pid)
    (acceptor,) = server.of_name("stanchion-acpt")
    (confined,) = eventually(said(server, "acceptor confined"), "what the acceptor has said is written")
    assert confined["pid"] == acceptor.pid
    assert psutil.Process(server.pid).create_time() - 5 < confined["created"] <= ready["created"]
    assert not [line for line in server.log.lines() if "ready" in line or "confined" in line]


def test_the_access_of_a_class_is_called_with_what_gunicorns_gets(build: Serve) -> None:
    server = configured(build, CLASS, "--error-logfile", "errors.log")
    assert answer(server, "/a/b?c=d") == 200
    eventually(lambda: "/a/b" in text(server, "accesses.log"), "it is written")
    written = text(server, "accesses.log").splitlines()
    assert written == ["of mine GET /first HTTP/1.1 200", "of mine GET /a/b?c=d HTTP/1.1 200"]
    (line,) = [line for line in text(server, "errors.log").splitlines() if "/a/b" in line and "mine" in line]
    expected = "mine: ('200 OK', 'text/plain', 4, 'GET', '/a/b', 'c=d', 'shoes', 'shoes', '', True)"
    assert line.endswith(expected)
    (worker,) = server.of_name("stanchion-work")
    assert re.match(rf"\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \+\d{{4}}\] \[{worker.pid}\] \[INFO\] mine: ", line)


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_line_is_as_without(build: Serve, json_lines: bool) -> None:
    default = '%(h)s %(l)s %(u)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s" %(U)s %(q)s %({x-kind}i)s %({content-type}o)s'
    arguments = ["--access-logfile", "accesses.log", "--access-logformat", f"{default} %({{lane}}x)s %({{outcome}}x)s"]
    if json_lines:
        arguments.append("--access-log-json")
    lines = []
    for config in ("", PLAIN):
        server = configured(build, config, *arguments)
        with server.connect() as wire:
            wire.send(request("GET", "/caf%C3%A9%0Ax?a=%22", ODD))
            assert wire.response().status == 200
            wire.send(b"GET / HTTP/1.0\r\n\r\n")
            assert wire.response().status == 200
        eventually(lambda server=server: len(text(server, "accesses.log").splitlines()) == 3, "all are written")
        written = text(server, "accesses.log").splitlines()
        if json_lines:
            objects = [json.loads(line) for line in written]
            for one in objects:
                assert one.pop("duration_us") > 0 and one.pop("service_us") > 0 and one.pop("pid") > 0
                del one["time"], one["wait_us"], one["request_id"], one["cpu_us"], one["core_us"], one["arrived_us"]
            lines.append(objects)
        else:
            lines.append(written)
        server.stop()
    assert lines[0] == lines[1]
    assert len(lines[0]) == 3


def test_one_that_is_killed_is_replaced_and_requests_go_on(build: Serve, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    server = configured(build, JSON, *counts.arguments, app="waiting:app")
    killed = scribe(server)
    ask(server, 1_000)
    killed.kill()
    ask(server, 1_000)
    eventually(lambda: server.of_name("stanchion-scrb") and scribe(server).pid != killed.pid, "another one is there")
    ask(server, 1_000)
    lost = "the scribe was killed by SIGKILL; another one is started in 100 ms"
    eventually(lambda: lost in server.log.text(), "it is said where nobody needs a scribe to read it")
    eventually(said(server, "another scribe is ready"), "its own readers hear of it")
    eventually(lambda: answer(server, "/last") == 200 and accessed(server, "/last")(), "it writes")
    assert counts.settled()["answered"] == counts.settled()["arrived"] >= 3_000


def test_while_there_is_none_what_the_master_says_is_in_the_error_log_itself(build: Serve) -> None:
    fails = "import os\n\nclass Picky(logging.Filter):\n    def __init__(self):\n        super().__init__()\n"
    fails += "        if os.path.exists('broken'):\n            os._exit(7)\n\n"
    fails += "logconfig_dict['filters']['picky'] = {'()': Picky}\n"
    # A template, which has set up the loggers of the app before, forks the successor.
    server = configured(build, JSON + fails, "--preload")
    (worker,) = server.of_name("stanchion-work")
    (server.home / "broken").touch()
    scribe(server).kill()
    eventually(lambda: "the scribe exited with code 7 before it was ready" in server.log.text(), "none comes up")
    worker.kill()
    eventually(lambda: re.search(rf"worker 0 \({worker.pid}\) was killed by SIGKILL", server.log.text()), "it is said")
    eventually(lambda: answer(server, "/after") == 200, "another worker serves")
    (server.home / "broken").unlink()
    eventually(accessed(server, "/after"), "what waited is written")


def test_one_that_is_stopped_holds_up_no_process_and_what_it_does_not_take_is_counted(
    build: Serve, tmp_path: Path
) -> None:
    counts = Counts(tmp_path / "control")
    server = configured(build, JSON, *counts.arguments, app="waiting:app")
    stopped = scribe(server)
    stopped.suspend()
    before = counts.events()["log_lines_dropped"]
    ask(server, 10_000)
    dropped = eventually(lambda: counts.events()["log_lines_dropped"] - before, "lines are dropped and counted")
    assert 0 < dropped < 10_000
    unread = "the access log: the scribe does not take its lines, they are dropped"
    eventually(lambda: unread in server.log.text(), "it is said where nobody needs a scribe to read it")
    stopped.resume()
    eventually(said(server, "the access log does not take its lines, they are dropped: the scribe"), "it is said")
    eventually(said(server, "lines were dropped"), "it is said how many")
    eventually(lambda: answer(server, "/last") == 200 and accessed(server, "/last")(), "it goes on writing")
    assert scribe(server).pid == stopped.pid


def test_what_is_logged_last_is_written(build: Serve) -> None:
    server = configured(build, JSON)
    assert answer(server, "/last") == 200
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert "/last" in accesses(server)[-1]["message"]
    assert said(server, "requests arrived=2 answered=2")(), "of the acceptor, at its end"


def test_without_a_scribe_at_the_end_the_error_log_itself_has_what_was_left(build: Serve) -> None:
    server = configured(build, JSON)
    eventually(lambda: accesses(server), "the first is written")
    stopped = scribe(server)
    stopped.suspend()
    assert answer(server, "/last") == 200
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.only(rf"\[{server.pid}\] \[INFO\] TERM: draining, then leaving")
    server.log.only(rf"\[{server.pid}\] \[WARNING\] the scribe \({stopped.pid}\) did not write what was left in time")
    server.log.only(r"\[WARNING\] log lines that the scribe did not take, and that are lost: 1$")


def test_settings_that_are_no_good_stop_the_start_and_no_reload(build: Serve) -> None:
    broken = "logconfig_dict = {'version': 1, 'handlers': {'file': {'class': 'no.such.Handler'}}}"
    server = build("logs:configured", bind="unix:socket")
    (server.home / "gunicorn.conf.py").write_text(broken)
    server.launch()
    assert server.exit_code() == 2
    named = r"logging cannot be set up by `logconfig_dict`: ValueError.*'no\.such\.Handler'"
    server.log.only(rf"\] {named}: No module named 'no'$")
    server.log.only(rf"\] {named}.*: the server leaves$")

    server = configured(build, JSON)
    first = scribe(server)
    (server.home / "gunicorn.conf.py").write_text(broken)
    server.signal(signal.SIGHUP)
    eventually(said(server, "reload failed: logging cannot be set up by `logconfig_dict`"), "it is said")
    eventually(lambda: len(server.processes()) == 4, "the other house is gone")
    assert answer(server, "/later") == 200
    eventually(accessed(server, "/later"), "it is written as before")
    assert scribe(server).pid == first.pid


def test_a_reload_takes_one_away_and_brings_one(build: Serve) -> None:
    server = configured(build, JSON, "--access-logfile", "accesses.log")
    first = scribe(server)
    (server.home / "gunicorn.conf.py").write_text("")
    server.signal(signal.SIGHUP)
    eventually(lambda: not server.of_name("stanchion-scrb"), "there is none")
    processes.gone(first.pid)
    assert answer(server, "/without") == 200
    eventually(lambda: "/without" in text(server, "accesses.log"), "the acceptor writes it")
    assert "/without" not in text(server, "accesses.json")
    (server.home / "gunicorn.conf.py").write_text(JSON)
    server.signal(signal.SIGHUP)
    eventually(said(server, "reloaded: generation 3 serves"), "it is said through it")
    assert answer(server, "/again") == 200
    eventually(accessed(server, "/again"), "it writes")
    assert "/again" not in text(server, "accesses.log")


def test_usr1_opens_files_of_handlers_anew(build: Serve) -> None:
    app = 'logconfig_dict["handlers"]["app"] = {"class": "logging.FileHandler", "filename": "app.log"}\n'
    app += 'logconfig_dict["loggers"]["shop"] = {"level": "INFO", "handlers": ["app"]}\n'
    for threads in ("1", "2"):
        server = configured(build, JSON + app, "--threads", threads)
        for name in ("accesses.json", "app.log"):
            (server.home / name).rename(server.home / f"{name}.old")
        server.signal(signal.SIGUSR1)

        def is_written_anew(server: Server = server) -> bool:
            assert answer(server, "/anew") == 200
            # Others make the file too, but only the scribe writes to it.
            return "/anew" in text(server, "accesses.json")

        eventually(is_written_anew, "the scribe goes on in a new file")

        def is_sold_anew(server: Server = server) -> bool:
            # The worker hears the signal when it gets a core.
            assert answer(server, "/later") == 200
            return "sold at /later" in text(server, "app.log")

        with named_files(server, "stanchion-work"):
            eventually(is_sold_anew, "the app goes on there")
        server.stop()


@pytest.mark.privileges
def test_an_app_writes_no_lines_of_other_processes(build: Serve) -> None:
    server = configured(build, JSON, app="hostile:forging")
    with server.connect() as wire:
        pid = int(wire.get("/real").body)
    eventually(lambda: "the scribe has refused lines" in server.log.text(), "it is said")
    eventually(accessed(server, "/real"), "it is written")
    assert not [line for line in accesses(server) if "forged" in line["message"]]
    forged = eventually(said(server, "forged by an app"), "it may speak for itself")
    assert {line["pid"] for line in forged} == {pid}


def test_one_whose_master_was_killed_writes_what_the_others_still_do_and_leaves(build: Serve) -> None:
    server = configured(build, JSON)
    with server.connect() as wire:
        assert wire.get("/before").status == 200
        server.process.kill()
        eventually(lambda: not server.processes(), "all have left")
    assert "/before" in accesses(server)[-1]["message"]
    assert said(server, "requests arrived=2 answered=2")(), "of the acceptor, at its end"


def test_one_that_hangs_does_not_outlive_its_master(build: Serve) -> None:
    hangs = "import time\n\nclass Hanging(Json):\n    def format(self, record):\n        time.sleep(1_000_000)\n\n"
    hangs += "logconfig_dict['formatters']['hanging'] = {'()': Hanging}\n"
    hangs += "logconfig_dict['handlers']['accesses']['formatter'] = 'hanging'\n"
    server = configured(build, JSON + hangs, "--graceful-timeout", "1")
    hung = scribe(server)
    server.process.kill()
    processes.gone(hung.pid)


def test_without_such_settings_there_is_none(build: Serve) -> None:
    logs = "accesslog = 'accesses.log'\ncapture_output = True\nerrorlog = 'errors.log'"
    server = configured(build, f"{logs}\npreload_app = True")
    names = server.names()
    assert names == ["stanchion", "stanchion-acpt", "stanchion-tmpl", "stanchion-work"]
    (template,) = server.of_name("stanchion-tmpl")
    assert "logging" not in Path(f"/proc/{template.pid}/maps").read_text()
