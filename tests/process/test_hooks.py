"""Hooks of the config file: where they run, what they are given, and what becomes of one that raises."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.gate import Gate
from support.server import Serve, Server

pytestmark = pytest.mark.own("gunicorn has the same hooks, in other processes")

BOOT_FAILED = 3

# The master's hooks are called by the master's loop, which is being rewritten.

Start = Callable[..., Server]


@pytest.fixture
def start(build: Serve, gate: Gate, tmp_path: Path) -> Start:
    """A server with this config file."""

    def start(text: str, *arguments: str, app: str = "waiting:app", ready: bool = True) -> Server:
        config = tmp_path / "hooks.conf.py"
        config.write_text("import os\nfrom rendezvous import announce\n" + text)
        server = build(app, "-c", str(config), *arguments, env=gate.environment)
        return server.start() if ready else server.launch()

    return start


@pytest.mark.privileges
def test_a_worker_is_born_between_its_hooks(start: Start, gate: Gate) -> None:
    server = start(
        "def pre_fork(server, worker): announce(f'pre_fork {worker.nr} {worker.pid} {os.getpid()} {server.pid}')\n"
        "def post_fork(server, worker): announce(f'post_fork {worker.nr} {worker.pid} {os.getpid()} {worker.ppid}')\n"
        "def post_worker_init(worker): announce(f'init {worker.pid} {worker.wsgi.__name__} {worker.cfg.threads}')\n"
        "threads = 2\n"
        "preload_app = True\n"
    )
    first = gate.announcement().split()
    second = gate.announcement().split()
    third = gate.announcement().split()
    template, worker = first[3], second[3]
    assert first == ["pre_fork", "0", "[booting]", template, str(server.pid)]
    assert second == ["post_fork", "0", worker, worker, str(server.pid)]
    assert third == ["init", worker, "app", "2"]
    assert len({template, worker, str(server.pid)}) == 3
    with server.connect() as wire:
        assert wire.get("/pid").text.split()[0] == worker


@pytest.mark.privileges
def test_a_single_worker_has_the_same_hooks_in_one_process(start: Start, gate: Gate) -> None:
    server = start(
        "def pre_fork(server, worker): announce(f'pre_fork {worker.nr} {worker.pid} {os.getpid()} {server.pid}')\n"
        "def post_fork(server, worker): announce(f'post_fork {worker.nr} {worker.pid} {os.getpid()} {worker.ppid}')\n"
        "def post_worker_init(worker): announce(f'init {worker.pid} {worker.wsgi.__name__}')\n"
    )
    with server.connect() as wire:
        worker = wire.get("/pid").text.split()[0]
    assert gate.announcement().split() == ["pre_fork", "0", "[booting]", worker, str(server.pid)]
    assert gate.announcement().split() == ["post_fork", "0", worker, worker, str(server.pid)]
    assert gate.announcement().split() == ["init", worker, "app"]


def test_without_preloading_the_app_is_loaded_between_fork_and_init(start: Start, gate: Gate) -> None:
    start(
        "def post_fork(server, worker): announce(f'post_fork {worker.wsgi}')\n"
        "def post_worker_init(worker): announce(f'init {worker.wsgi.__name__}')\n",
        "--no-preload",
    )
    assert gate.announcements(2) == ["post_fork None", "init app"]


def test_unicorns_names(start: Start, gate: Gate) -> None:
    start("def before_fork(server, worker): announce('before')\ndef after_fork(server, worker): announce('after')\n")
    assert gate.announcements(2) == ["before", "after"]


@pytest.mark.parametrize(
    ("hook", "line"),
    [
        ("def post_fork(server, worker):", "post_fork"),
        ("def post_worker_init(worker):", "post_worker_init"),
    ],
)
def test_a_worker_whose_boot_hook_raises_does_not_come_up(start: Start, hook: str, line: str) -> None:
    server = start(f"{hook}\n    raise LookupError('no luck')\n", ready=False)
    assert server.exit_code() == BOOT_FAILED
    text = server.log.text()
    assert "Traceback (most recent call last):" in text
    assert f"the hook {line} raised LookupError: no luck at " in text
    assert "stanchion/hooks.py" not in text


def test_a_pre_fork_that_raises_is_that_forks_end_and_the_next_is_tried(
    start: Start, gate: Gate, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    server = start(
        "def pre_fork(server, worker):\n"
        f"    if not os.path.exists({str(done)!r}):\n"
        f"        open({str(done)!r}, 'w').close()\n"
        "        raise LookupError('once')\n",
        ready=False,
    )
    server.log.wait("the hook pre_fork raised LookupError: once")
    server.log.wait("ready: 1 worker")


def test_a_leaving_workers_hook_that_raises_is_told_and_no_more(start: Start) -> None:
    server = start("def worker_exit(server, worker): raise SystemExit('stop')\n", "--max-requests", "1")
    mark = server.log.mark()
    with server.connect() as wire:
        assert wire.get("/pid").status == 200
        server.log.wait("the hook worker_exit raised SystemExit: stop", mark)
        server.log.wait("worker ready", mark)
        assert wire.get("/pid").status == 200


def test_a_slow_hook_is_told(start: Start) -> None:
    server = start("import time\ndef post_fork(server, worker): time.sleep(1.2)\n")
    took = server.log.wait(r"WARNING\] the hook post_fork took (\d+\.\d) s")
    assert float(took[1]) >= 1.2


def test_the_log_of_hooks_is_the_error_log(start: Start) -> None:
    server = start(
        "def post_fork(server, worker):\n"
        "    server.log.info('hello from %s', worker.nr)\n"
        "    worker.log.debug('unseen')\n"
        "    worker.log.warning('careful')\n"
        "    try:\n"
        "        1 / 0\n"
        "    except ZeroDivisionError:\n"
        "        worker.log.exception('went wrong')\n"
    )
    for line in (r"\[INFO\] hello from 0$", r"\[WARNING\] careful$", r"\[ERROR\] went wrong$", "^ZeroDivisionError"):
        server.log.wait(line)
    assert "unseen" not in server.log.text()


def test_each_request_is_between_its_hooks(start: Start, gate: Gate) -> None:
    server = start(
        "def pre_request(worker, req):\n"
        "    host = dict(req.headers)['HOST']\n"
        "    announce(f'pre {worker.nr} {req.method} {req.path} {req.query} {req.version} {host}')\n"
        "    req.headers.append(('X-Added', 'by the hook'))\n"
        "def post_request(worker, req, environ, resp):\n"
        "    added, length = environ['HTTP_X_ADDED'], dict(resp.headers)['Content-Length']\n"
        "    announce(f'post {req.path} {added} {resp.status} {resp.status_code} {length} {resp.sent}')\n",
    )
    with server.connect() as wire:
        body = wire.get("/pid?a=b").body
    assert gate.announcements(2) == [
        "pre 0 GET /pid a=b (1, 1) test",
        f"post /pid by the hook 200 OK 200 {len(body)} {len(body)}",
    ]


def test_a_pre_request_that_raises_is_a_500_and_post_request_is_told(start: Start, gate: Gate) -> None:
    server = start(
        "def pre_request(worker, req):\n"
        "    if req.query: raise LookupError('not you')\n"
        "def post_request(worker, req, environ): announce(f'post {req.query} {environ[\"REQUEST_METHOD\"]}')\n"
    )
    with server.connect() as wire:
        assert wire.get("/pid?bad").status == 500
        assert gate.announcement() == "post bad GET"
        server.log.wait("the hook pre_request failed at GET /pid")
        server.log.wait("^LookupError: not you")
        assert wire.get("/pid").status == 200, "the connection and the worker go on"
    assert gate.announcement() == "post  GET"


def test_a_post_request_that_raises_is_only_told(start: Start) -> None:
    server = start("def post_request(worker, req): raise LookupError('too late')\n")
    with server.connect() as wire:
        for _ in range(2):
            assert wire.get("/pid").status == 200
    server.log.wait("the hook post_request failed after GET /pid")
    server.log.wait("^LookupError: too late")


def test_post_request_sees_an_app_that_failed(start: Start, gate: Gate) -> None:
    server = start(
        "def post_request(worker, req, environ, resp): announce(f'{resp.status_code}')\n", app="answers:raises"
    )
    with server.connect() as wire:
        assert wire.get("/").status == 500
    assert gate.announcement() == "500"


@pytest.mark.privileges
def test_the_masters_hooks_run_in_the_master(start: Start, gate: Gate) -> None:
    server = start(
        "def on_starting(server): announce(f'on_starting {os.getpid()}')\n"
        "def when_ready(server): announce(f'when_ready {os.getpid()}')\n"
        "def on_exit(server): announce(f'on_exit {os.getpid()}')\n"
    )
    assert gate.announcements(2) == [f"on_starting {server.pid}", f"when_ready {server.pid}"]
    server.stop()
    assert gate.announcement() == f"on_exit {server.pid}"


def test_an_on_starting_that_raises_is_the_end(start: Start) -> None:
    server = start("def on_starting(server): raise LookupError('no luck')\n", ready=False)
    assert server.exit_code() == BOOT_FAILED
    assert "the hook on_starting raised LookupError: no luck at " in server.log.text()


def test_the_master_tells_of_its_workers(start: Start, gate: Gate) -> None:
    server = start(
        "def child_exit(server, worker): announce(f'child_exit {worker.nr} {worker.pid} {os.getpid()}')\n"
        "def nworkers_changed(server, new, old): announce(f'changed {new} {old} {server.num_workers}')\n"
    )
    with server.connect() as wire:
        pid = int(wire.get("/pid").text.split()[0])
    os.kill(pid, signal.SIGKILL)
    assert gate.announcement() == f"child_exit 0 {pid} {server.pid}"
    server.signal(signal.SIGTTIN)
    assert gate.announcement() == "changed 2 1 2"


def test_a_hook_that_raises_does_not_end_the_master(start: Start) -> None:
    server = start(
        "def when_ready(server): raise SystemExit('enough')\ndef nworkers_changed(server, new, old): raise ValueError\n"
    )
    server.log.wait("the hook when_ready raised SystemExit: enough")
    server.signal(signal.SIGTTIN)
    server.log.wait("the hook nworkers_changed raised ValueError")
    with server.connect() as wire:
        assert wire.get("/pid").status == 200


def test_what_the_master_has_is_frozen_before_it_forks(start: Start, gate: Gate) -> None:
    """Else a collection in the template writes to it, and so copies it."""
    start("import gc\ndef on_starting(server): announce(f'{gc.get_freeze_count() > 1000}')\n")
    assert gate.announcement() == "True"


def test_hup_brings_in_hooks_where_there_were_none(start: Start, gate: Gate, tmp_path: Path) -> None:
    server = start("")
    config = tmp_path / "hooks.conf.py"
    config.write_text(config.read_text() + "def post_fork(server, worker): announce(f'forked {worker.nr}')\n")
    server.signal(signal.SIGHUP)
    assert gate.announcement() == "forked 0"


def test_on_reload_is_the_new_files(start: Start, gate: Gate, tmp_path: Path) -> None:
    server = start("def on_reload(server): announce('old')\n")
    config = tmp_path / "hooks.conf.py"
    text = config.read_text()
    config.write_text(text.replace("'old'", "f'new {server.cfg.workers}'") + "workers = 2\n")
    server.signal(signal.SIGHUP)
    assert gate.announcement() == "new 2"


def test_hup_brings_in_new_hooks_and_a_broken_file_changes_nothing(start: Start, gate: Gate, tmp_path: Path) -> None:
    server = start("def post_fork(server, worker): announce('old')\ndef on_reload(server): announce('reload')\n")
    assert gate.announcement() == "old"
    config = tmp_path / "hooks.conf.py"
    text = config.read_text()
    config.write_text("def post_fork(server, worker):\n")
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("SyntaxError|IndentationError", mark)
    config.write_text(text.replace("'old'", "f'new {server.cfg.workers}'"))
    server.signal(signal.SIGHUP)
    while (line := gate.announcement()) != "new 1":
        assert line in ("reload", "old")
