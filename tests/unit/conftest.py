"""Isolation for tests that run the command line in this process."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stanchion import _stanchion

FROM_OUTSIDE = ("WEB_CONCURRENCY", "PORT", "FORWARDED_ALLOW_IPS", "STANCHION_CMD_ARGS", "GUNICORN_CMD_ARGS")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, no settings from outside; modules and import path are put back."""
    monkeypatch.chdir(tmp_path)
    for name in FROM_OUTSIDE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


class Served:
    """The values that the command line handed to the server."""

    settings: dict[str, Any]
    host: Any


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """A server that only notes what it was given, and ends with 7."""
    record = Served()

    def serve(settings: str, host: object, launcher: int | None) -> int:
        assert launcher is None, "it is no daemon"
        record.settings = json.loads(settings)
        record.host = host
        return 7

    monkeypatch.setattr(_stanchion, "serve", serve)
    return record
