"""The log says that the kernel has cut a backlog, and which length is in force then."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stanchion import _stanchion
from support import netns
from support.netns import Namespace
from support.server import Serve

pytestmark = [
    pytest.mark.own("peers let the kernel cut without a word"),
    pytest.mark.skipif(bool(netns.unavailable()), reason=f"a small somaxconn: {netns.unavailable()}"),
]

CUT = r"the backlog of (\S+) is (\d+), not (\d+): net\.core\.somaxconn cuts it"
SOMAXCONN = 16


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    made.sysctl("net.core.somaxconn", SOMAXCONN)
    yield made
    made.remove()


def test_each_cut_backlog_is_told_once_and_only_new_listeners_at_a_reload(
    serve: Serve, namespace: Namespace, tmp_path: Path
) -> None:
    file = tmp_path / "conf.py"
    listeners = [f"unix:{tmp_path}/a", "127.0.0.1:7000", f"unix:{tmp_path}/fits?backlog={SOMAXCONN}"]
    file.write_text(f"bind = {listeners}\n")
    server = serve("hello:app", "-c", str(file), bind=None, prefix=namespace.prefix)
    told = [found.groups() for found in server.log.matches(CUT)]
    assert told == [(f"unix:{tmp_path}/a", "16", "2048"), ("http://127.0.0.1:7000", "16", "2048")]

    mark = server.log.mark()
    file.write_text(f"bind = {[*listeners, f'unix:{tmp_path}/b?backlog=17']}\n")
    server.signal(signal.SIGHUP)
    server.log.wait(r"reloaded: generation", mark)
    assert [found.groups() for found in server.log.matches(CUT, mark)] == [(f"unix:{tmp_path}/b", "16", "17")]


def test_a_listener_of_a_worker_is_told_too(serve: Serve, namespace: Namespace, tmp_path: Path) -> None:
    file = tmp_path / "conf.py"
    file.write_text("def post_fork(server, worker):\n    worker.listen('127.0.0.1:7001')\n")
    arguments = ["-c", str(file), "--backlog", "17"]
    server = serve("hello:app", *arguments, bind="127.0.0.1:7000", prefix=namespace.prefix)
    server.log.wait_for(CUT, 2)
    told = [found.groups() for found in server.log.matches(CUT)]
    assert sorted(told) == [(f"http://127.0.0.1:{port}", "16", "17") for port in (7000, 7001)]


def test_a_reload_takes_a_higher_limit_in(serve: Serve, namespace: Namespace) -> None:
    def in_force() -> list[int]:
        return [one["backlog"] for one in json.loads(namespace.run(lambda: _stanchion.network_view([])))["listening"]]

    server = serve("hello:app", bind="127.0.0.1:7000", prefix=namespace.prefix)
    assert in_force() == [SOMAXCONN]
    namespace.sysctl("net.core.somaxconn", 4096)
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait(r"reloaded: generation", mark)
    assert in_force() == [2048]


def test_nothing_is_said_of_what_fits(serve: Serve, namespace: Namespace) -> None:
    server = serve("hello:app", "--backlog", str(SOMAXCONN), bind="127.0.0.1:7000", prefix=namespace.prefix)
    assert not server.log.matches("backlog")
