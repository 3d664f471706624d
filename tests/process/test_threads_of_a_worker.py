"""Threads of the app that are no daemons, at the end of a worker: they have a moment, are named, and are left behind.

With `graceful_timeout` so long that a worker which waits for them does not end while the test waits.
"""

import signal

import pytest

from support.gate import Gate
from support.server import Serve, Server

pytestmark = pytest.mark.own("gunicorn kills such a worker at the end of graceful_timeout, and does not say why")

NAMED = r"WARNING\] the process leaves without 1 thread of the app, still there 2 s after all else has ended: "


def begun(serve: Serve, gate: Gate, *arguments: str, ends: str = "never") -> Server:
    """A server whose app runs a thread, and nothing else."""
    env = {"ENDS": ends, **gate.environment}
    server = serve(*arguments, "--graceful-timeout", "1000", env=env)
    with server.connect() as wire:
        assert wire.get("/").text == "begun"
    return server


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["imports.leaves:lingering"], "lingers"),
        (["imports.leaves:lingering", "--threads", "2"], "lingers"),
        (["imports.leaves:lingering_daemon"], "marimo_0"),
        (["imports.leaves:lingering_asgi", "--loop", "asyncio"], "asyncio_0"),
        (["imports.leaves:lingering_asgi", "--loop", "uvloop"], "uvloop_0"),
        (["imports.leaves:lingering_asgi", "--no-preload", "--interface", "asgi", "--loop", "asyncio"], "asyncio_0"),
    ],
)
def test_a_thread_that_never_ends_is_named_and_left_behind(
    serve: Serve, gate: Gate, arguments: list[str], name: str
) -> None:
    server = begun(serve, gate, *arguments)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait_end()
    assert len(server.log.matches(NAMED)) == 1
    assert server.log.matches(f"^thread '{name}':")
    assert server.log.matches(r"leaves\.py., line \d+, in wait_for_ever")
    assert not server.log.matches("did not leave in time|pending|Traceback")
    assert gate.announced() == ["at exit"]


def test_one_that_ends_with_the_main_thread_is_waited_for(serve: Serve, gate: Gate) -> None:
    server = begun(serve, gate, "imports.leaves:lingering", ends="with the main thread")
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait_end()
    assert gate.announced() == ["through", "at exit"]
    assert not server.log.matches(NAMED)


def test_functions_at_the_exit_run_once_though_one_of_them_ends_the_thread(serve: Serve, gate: Gate) -> None:
    server = begun(serve, gate, "imports.leaves:lingering", ends="at exit")
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait_end()
    assert len(server.log.matches(NAMED)) == 1
    assert gate.announced() == ["ending", "through", "at exit"]


def test_the_hook_at_the_end_may_be_what_ends_it(serve: Serve, gate: Gate, tmp_path: object) -> None:
    hooks = "def worker_exit(server, worker):\n    from imports import leaves\n    leaves.told.set()\n"
    config = f"{tmp_path}/hooks.conf.py"
    with open(config, "w") as file:
        file.write(hooks)
    server = begun(serve, gate, "imports.leaves:lingering_asgi", "--config", config)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait_end()
    assert gate.announced() == ["through", "at exit"]
    assert not server.log.matches(NAMED)
