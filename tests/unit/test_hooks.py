"""Hooks: found in a config file, held to their arguments, and given what they use."""

import copy
import json
import os

import pytest

from stanchion import hooks
from stanchion.cli import main
from stanchion.facades import Answer, Config, Request, server_log
from stanchion.hooks import HookError, Hooks
from stanchion.loader import describe_failure

SETTINGS = {"workers": 3, "bind": ["127.0.0.1:8000", "[::1]:80", "unix:/run/a.sock", "fd://3"], "loglevel": "info"}

ENVIRON = {
    "wsgi.url_scheme": "http",
    "REQUEST_METHOD": "POST",
    "RAW_URI": "/a%2Fb?c=d",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "REMOTE_ADDR": "192.0.2.1",
    "REMOTE_PORT": "4711",
    "HTTP_X_FORWARDED_FOR": "203.0.113.9",
    "CONTENT_TYPE": "text/plain",
}


def test_each_hook_is_found_with_gunicorns_arguments():
    held = {name: eval(f"lambda {', '.join(arguments)}: None") for name, arguments in hooks.ARGUMENTS.items()}
    found, complaints = hooks.find({**held, "helper": len, "workers": 2})
    assert (found, complaints) == (held, [])


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("when_ready", lambda: None, "the hook when_ready must take (server), but it is defined with ()"),
        ("pre_fork", lambda server: None, "the hook pre_fork must take (server, worker), but"),
        ("post_worker_init", lambda server, worker: None, "the hook post_worker_init must take (worker), but"),
        ("post_request", lambda worker: None, "the hook post_request must take (worker, req, environ, resp), but"),
        ("on_exit", 7, "the hook on_exit must be a function of (server), not int"),
        ("on_exit", "os.nothing", "the hook on_exit names 'os.nothing', which cannot be imported: "),
        ("on_exit", "nothing", "the hook on_exit names 'nothing', which cannot be imported: "),
        ("before_fork", lambda: None, "the hook before_fork must take (server, worker), but"),
    ],
)
def test_what_does_not_fit_is_told_by_name(name, value, complaint):
    found, complaints = hooks.find({name: value})
    assert found == {}
    assert len(complaints) == 1
    assert complaints[0].startswith(complaint)


def test_none_is_no_hook_and_a_text_names_one():
    found, complaints = hooks.find({"on_exit": None, "on_starting": "builtins.repr"})
    assert (found, complaints) == ({"on_starting": repr}, [])


def test_unicorns_names_are_aliases_and_not_additions():
    def hook(server, worker):
        pass

    assert hooks.find({"before_fork": hook, "after_fork": hook})[0] == {"pre_fork": hook, "post_fork": hook}
    _, complaints = hooks.find({"pre_fork": hook, "before_fork": hook})
    assert complaints == ["the hooks before_fork and pre_fork mean the same: keep one"]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_post_request_may_leave_out_its_last_arguments(count):
    got = []
    names = "abcd"[:count]
    hook = eval(f"lambda {', '.join(names)}: got.append(({', '.join(names)}))", {"got": got})
    found, _ = hooks.find({"post_request": hook})
    found["post_request"]("worker", "req", "environ", "resp")
    assert got == [("worker", "req", "environ", "resp")[:count]]


def test_a_bad_hook_stops_the_start_with_a_line(home, capsys):
    (home / "gunicorn.conf.py").write_text("def when_ready(): pass\ndef on_exit(a, b): pass\n")
    assert main(["check"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("stanchion: config file gunicorn.conf.py: the hook when_ready must take (server)")


def test_a_hook_is_called_with_what_its_moment_tells():
    seen = []
    names = ("on_starting", "nworkers_changed", "child_exit", "pre_fork", "post_fork", "post_worker_init", "worker_int")
    functions = {name: (lambda *given, name=name: seen.append((name, *given))) for name in names}
    run = Hooks(functions, SETTINGS)
    run.run("on_starting")
    run.run("nworkers_changed", 5, 3)
    run.run("child_exit", 1, 4711)
    run.run("pre_fork", 2)
    run.run("post_fork", 2)
    run.run("post_worker_init")
    run.run("worker_int")
    run.run("worker_exit")
    assert [name for name, *_ in seen] == list(names)
    given = {name: arguments for name, *arguments in seen}
    [server] = given["on_starting"]
    assert (server.pid, server.num_workers, server.cfg.workers) == (os.getpid(), 5, 3)
    assert server.address == [("127.0.0.1", 8000), ("::1", 80), "/run/a.sock", "fd://3"]
    assert given["nworkers_changed"] == [server, 5, 3]
    gone = given["child_exit"][1]
    assert (gone.nr, gone.age, gone.pid, gone.ppid, gone.alive) == (1, 2, 4711, os.getpid(), False)
    assert given["pre_fork"][1].pid == "[booting]"
    worker = given["post_fork"][1]
    assert (worker.nr, worker.pid, worker.ppid, worker.aborted) == (2, os.getpid(), os.getpid(), False)
    assert given["post_worker_init"] == given["worker_int"] == [worker]
    assert not worker.alive


def test_an_unknown_setting_is_an_attribute_error():
    with pytest.raises(AttributeError, match="there is no setting 'worker_class' here"):
        _ = Config(SETTINGS).worker_class


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_a_hook_raises_is_told_with_its_traceback(kind):
    def when_ready(server):
        raise kind("no luck")

    with pytest.raises(HookError) as caught:
        Hooks({"when_ready": when_ready}, SETTINGS).run("when_ready")
    lines = describe_failure(caught.value).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in when_ready" in lines[1]
    assert "hooks.py" not in lines[1].replace("test_hooks.py", "")
    assert lines[-1].startswith(f"the hook when_ready raised {kind.__name__}: no luck at ")


def test_a_request_as_hooks_see_it():
    req = Request(dict(ENVIRON))
    assert (req.method, req.uri, req.path, req.query) == ("POST", "/a%2Fb?c=d", "/a%2Fb", "c=d")
    assert (req.version, req.scheme, req.remote_addr) == ((1, 1), "http", ("192.0.2.1", 4711))
    assert req.headers == [("X-FORWARDED-FOR", "203.0.113.9"), ("CONTENT-TYPE", "text/plain")]
    over_unix = {key: value for key, value in ENVIRON.items() if key != "REMOTE_PORT"} | {"REMOTE_ADDR": ""}
    assert Request(over_unix).remote_addr == ""
    assert Request({**ENVIRON, "RAW_URI": "http://host/x?y"}).path == "/x"


def test_headers_that_pre_request_adds_reach_the_app():
    def pre_request(worker, req):
        req.headers.append(("X-Request-Id", "7"))
        req.headers.append(("Content-Type", "text/html"))

    run = Hooks({"pre_request": pre_request}, SETTINGS)
    environ = dict(ENVIRON)
    run.before_request(run.request(environ), environ)
    assert environ == {**ENVIRON, "HTTP_X_REQUEST_ID": "7", "CONTENT_TYPE": "text/html"}


def test_an_answer_as_hooks_see_it():
    seen = []
    run = Hooks({"post_request": lambda worker, req, environ, resp: seen.append(resp)}, SETTINGS)
    run.after_request(Request(ENVIRON), ENVIRON, (404, "Not Found", [("a", "b")], 12))
    run.after_request(Request(ENVIRON), ENVIRON, None)
    answer = seen[0]
    assert isinstance(answer, Answer)
    assert (answer.status, answer.status_code, answer.headers, answer.sent) == ("404 Not Found", 404, [("a", "b")], 12)
    assert seen[1] is None


def test_only_hooks_of_requests_cost_a_request_something():
    assert not Hooks({"when_ready": print}, SETTINGS).of_requests
    assert Hooks({"pre_request": print}, SETTINGS).of_requests
    assert Hooks({"post_request": print}, SETTINGS).of_requests


def test_a_line_that_cannot_be_written_fails_no_hook(capsys):
    server_log().info("%d", "no number")
    assert "--- Logging error ---" in capsys.readouterr().err


def test_the_settings_can_be_copied():
    assert copy.copy(Config(SETTINGS)).workers == SETTINGS["workers"]


def test_a_module_that_breaks_while_a_hook_is_looked_up_in_it_is_told(home, monkeypatch):
    monkeypatch.syspath_prepend(home)
    (home / "breaks.py").write_text("import sys\nsys.exit('enough')\n")
    _, complaints = hooks.find({"on_exit": "breaks.on_exit"})
    assert complaints == ["the hook on_exit names 'breaks.on_exit', which cannot be imported: SystemExit: enough"]


def test_a_worker_listens_with_the_options_of_bind():
    asked: list[str] = []

    def listen(wanted: str) -> str | None:
        asked.append(wanted)
        return None if "9293" in wanted else "127.0.0.1:1"

    def hook(server, worker):
        given.append(worker.listen("127.0.0.1:9293", tries=-1, delay=5, tcp_nopush=True))
        given.append(worker.listen("127.0.0.1:0?backlog=7"))
        given.append(worker.listen("127.0.0.1:0", backlog=7, keepalive=False))

    given: list[str | None] = []
    ours = Hooks({"post_fork": hook}, SETTINGS)
    ours.entered(listen)
    ours.run("post_fork", 0)
    assert given == [None, "127.0.0.1:1", "127.0.0.1:1"]
    assert [json.loads(text) for text in asked] == [
        {"address": "127.0.0.1:9293", "tries": -1, "delay": 5},
        "127.0.0.1:0?backlog=7",
        {"address": "127.0.0.1:0", "backlog": 7, "keepalive": False},
    ]


def test_who_is_no_worker_cannot_listen():
    def hook(server, worker):
        worker.listen(":80")

    with pytest.raises(HookError) as raised:
        Hooks({"pre_fork": hook}, SETTINGS).run("pre_fork", 0)
    assert isinstance(raised.value.__cause__, RuntimeError)
