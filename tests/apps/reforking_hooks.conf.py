"""Hooks that hold a re-fork where a test says so."""

from typing import Any

from reforking import hold


def worker_exit(_server: Any, _worker: Any) -> None:
    hold("leaving")


def post_fork(_server: Any, _worker: Any) -> None:
    hold("forked")
