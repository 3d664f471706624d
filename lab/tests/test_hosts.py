"""The hosts that a file may ask for, and the servers that are started for it."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from stanchion_lab.scenario import Deed, Mistake, Scenario, Server, behind, copies, read

APP = Server(kind="stanchion", app="fleet:app", hosts=3, listen="10.99.0.1:8000", options=["--admin", "{host}:9001"])
BIG = Server(kind="stanchion", app="fleet:app", hosts=1, listen="10.99.0.4:8000", workers=4)
FRONT = Server(kind="haproxy", hosts=2, listen="10.99.0.101:8080")
LOCAL = Server(kind="stanchion", app="fleet:app", listen="127.0.0.1:8000")

FILE = """
title = "Hosts"
question = "?"
origin = "a test"
reading = "Nothing."

[servers.app]
kind = "stanchion"
app = "fleet:app"
hosts = 3
listen = "10.99.0.1:8000"

[servers.local]
kind = "stanchion"
app = "fleet:app"
listen = "127.0.0.1:8000"

[loads.some]
rate_per_s = 5
for_s = 1

[[trials]]
name = "one"
title = "one"
servers = ["app", "local"]
load = "some"
deeds = [{ at_s = 0.5, server = "app-3", link = "down" }]
"""


def scenario(servers: dict[str, Server], names: Iterable[str]) -> Scenario:
    table = {"title": "", "question": "", "origin": "", "reading": "", "loads": {}, "servers": servers}
    trial = {"name": "one", "title": "", "servers": list(names), "load": "some"}

    return msgspec.convert({**table, "trials": [trial]}, Scenario)


def test_there_is_a_copy_for_each_host_with_an_address_of_its_own() -> None:
    found = copies("app", APP)
    assert {name: one.listen for name, one in found.items()} == {
        "app-1": "10.99.0.1:8000",
        "app-2": "10.99.0.2:8000",
        "app-3": "10.99.0.3:8000",
    }
    assert found["app-3"].options == ["--admin", "10.99.0.3:9001"]
    assert copies("local", LOCAL) == {"local": LOCAL}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["app", "front"], {"app": [], "front": ["app"]}),
        (["app", "big", "front"], {"app": [], "big": [], "front": ["app", "big"]}),
        (["local", "near"], {"local": [], "near": ["local"]}),
        (["local", "near", "far"], {"local": [], "near": ["local"], "far": ["near"]}),
        (["app", "local", "named"], {"app": [], "local": [], "named": ["local"]}),
    ],
)
def test_a_front_passes_on_to_all_that_have_hosts_or_to_the_one_before_it(
    names: list[str], expected: dict[str, list[str]]
) -> None:
    near = Server(kind="nginx", listen="127.0.0.1:8080")
    named = Server(kind="nginx", listen="127.0.0.1:8080", upstream="local")
    servers = {"app": APP, "big": BIG, "front": FRONT, "local": LOCAL, "near": near, "far": near, "named": named}
    whole = scenario(servers, names)
    assert behind(whole, whole.trials[0]) == expected


def test_a_file_with_hosts_is_read(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(FILE)
    whole = read(str(tmp_path / "hosts.toml"), "quick").scenario
    assert whole.trials[0].deeds == [Deed(at_s=0.5, server="app-3", link="down")]


@pytest.mark.parametrize(
    ("was", "says", "complaint"),
    [
        ("10.99.0.1:8000", "127.0.0.1:8000", "app has hosts: its first must listen at 10.99.0.1 to 10.99.0.253"),
        ("10.99.0.1:8000", "10.99.0.252:8000", "app has hosts: its first must listen"),
        ("10.99.0.1:8000", "10.99.0.1", "app has hosts: its first must listen"),
        ("10.99.0.1:8000", "unix:app.sock", "app has hosts: its first must listen"),
        ("app-3", "app-4", "a deed cuts the link of app-4, which has no host of its own"),
        ("app-3", "local", "a deed cuts the link of local, which has no host of its own"),
        ('link = "down"', "start = true, touch = 'x'", "each deed is one of signal, start, link, touch and remove"),
        ('"app-3", link = "down"', '"app-0", start = true', "a deed is about app-0, which is not among its servers"),
    ],
)
def test_a_mistake_about_hosts_is_named(tmp_path: Path, was: str, says: str, complaint: str) -> None:
    (tmp_path / "hosts.toml").write_text(FILE.replace(was, says))
    with pytest.raises(Mistake, match=complaint):
        read(str(tmp_path / "hosts.toml"), "quick")
