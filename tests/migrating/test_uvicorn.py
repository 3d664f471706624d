"""docs/migrating/from-uvicorn.md: the same command lines, the same for the app."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.address import Address
from support.ports import row_of_ports
from support.server import STANCHION
from support.site import Site
from support.wire import Wire

pytestmark = pytest.mark.own("the example is for stanchion")

FIELDS = ("Cookie: a=b", "X-Forwarded-Proto: https", "X-Forwarded-For: 6.6.6.6, 10.1.2.3")


def seen(address: Address) -> list[dict[str, Any]]:
    """The app's scopes of two requests, the second with a body."""
    found = []
    for ask in (
        lambda wire: wire.get("/a%20b/c?d=%2F&e", *FIELDS),
        lambda wire: wire.post("/p", b"x" * 100_000, "Content-Type: application/x-test", *FIELDS),
    ):
        with Wire.connect(address) as wire:
            response = ask(wire)
        assert response.status == 200, response.body
        found.append(response.json())
    return found


def test_the_app_sees_the_same(site: Site) -> None:
    with row_of_ports(1) as port:
        address = Address("127.0.0.1", port)
        found = []
        for name in ("uvicorn/before.sh", "uvicorn/after.sh"):
            script = site.bring(name, {"8000": str(port)})
            with site.serving(["sh", str(script)], address) as process:
                found.append(seen(address))
                if name == "uvicorn/after.sh":
                    site.stopped_by(signal.SIGTERM, process, address)
    before, after = found
    assert before[0]["client"] == repr(("10.1.2.3", 0))
    assert before[0]["path"] == "'/api/a b/c'"
    assert before == after


def test_the_config_of_gunicorn_with_uvicorns_workers(site: Site) -> None:
    with row_of_ports(1) as port:
        address = Address("127.0.0.1", port)
        config = site.bring("uvicorn/gunicorn.conf.py", {"8000": str(port)})
        with site.serving(site.stanchion(config), address) as process:
            assert seen(address)[1]["state"] == "{'started': True}"
            site.stopped_by(signal.SIGTERM, process, address)


PAGE = Path(__file__).parents[2] / "docs" / "migrating" / "from-uvicorn.md"
FLAG = re.compile(r"(?<![\w-])--[a-z0-9-]+(?<!-)")
# A list of words, in quotes, behind `the same`.
WORD = re.compile(r"`(\w+)`")


def table() -> list[tuple[str, str]]:
    """The page's row of each flag: the columns of command lines."""
    part = PAGE.read_text().partition("## What has each flag become?")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return [(left, right) for left, right, _ in rows[1:]]


def flags_of_uvicorn() -> dict[str, str]:
    """Each flag, and what its help says behind it."""
    told = subprocess.run(
        [sys.executable, "-m", "uvicorn", "--help"], capture_output=True, text=True, check=True
    ).stdout
    lines = [line for line in told.splitlines() if line.startswith("  --")]
    return {flag: line for line in lines for flag in FLAG.findall(line.partition("  ")[2].split("   ")[0])}


def check(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STANCHION.command[:-1], "check", "--json", *words],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_page_has_each_flag_of_uvicorn_and_no_other() -> None:
    known = set(flags_of_uvicorn())
    assert len(known) > 50
    told = [flag for left, _ in table() for flag in FLAG.findall(left)]
    assert sorted(told) == sorted(known)


def test_each_flag_that_takes_its_place_is_there() -> None:
    told = subprocess.run(
        [*STANCHION.command[:-1], "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    known = set(FLAG.findall(told))
    for left, right in table():
        taking = FLAG.findall(right)
        if right.startswith("the same"):
            taking += FLAG.findall(left)
        assert set(taking) <= known, left


def same() -> Iterator[tuple[str, str, bool]]:
    """Each flag that is the same and takes one of some words: each word of uvicorn's, and whether it is taken here."""
    helps = flags_of_uvicorn()
    for left, right in table():
        for flag in FLAG.findall(left) if right.startswith("the same") else ():
            choices = re.search(r"\[([a-z0-9|]+)\]", helps[flag])
            if choices:
                taken, _, _ = right.partition(";")
                without = WORD.findall(right.partition("without")[2])
                for word in choices[1].split("|"):
                    yield flag, word, word not in without if without else word in WORD.findall(taken)


def test_the_same_words_are_taken_as_the_page_says() -> None:
    tried = list(same())
    assert {flag for flag, _, _ in tried} == {"--loop", "--lifespan", "--interface", "--log-level"}
    for flag, word, is_taken in tried:
        assert (check(flag, word).returncode == 0) == is_taken, f"{flag} {word}"


def test_the_rest_that_is_the_same_is_taken() -> None:
    words = {"--workers": "3", "--backlog": "7", "--root-path": "/a", "--ws-max-size": "9", "--ws-ping-interval": "1.5"}
    words |= {"--ws-ping-timeout": "2.5", "--forwarded-allow-ips": "10.0.0.1"}
    same = {flag for left, right in table() if right.startswith("the same") for flag in FLAG.findall(left)}
    with_words = {"--loop", "--lifespan", "--interface", "--log-level"}
    assert same == {*words, *with_words, "--reload", "--log-config", "--version", "--help"}
    done = check("--reload", *(word for pair in words.items() for word in pair))
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert (values["workers"]["value"], values["root_path"]["value"], values["ws_ping_timeout"]["value"]) == (
        3,
        "/a",
        2.5,
    )
    ours = {name: one["value"] for name, one in json.loads(check().stdout).items()}
    assert (ours["keepalive"], ours["graceful_timeout"], ours["max_waiting"], ours["queue_timeout"]) == (
        2,
        30,
        2048,
        60,
    )
    assert (ours["worker_concurrency"], ours["worker_sessions"], ours["max_connections"]) == (1000, 1000, 16384)
    assert (ours["ws_max_size"], ours["ws_ping_interval"], ours["ws_ping_timeout"]) == (16 << 20, 20, 20)
