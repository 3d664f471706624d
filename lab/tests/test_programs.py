"""The programs that experiments need, and the messages about missing ones."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from stanchion_lab import cage, doctor, ideal, programs
from stanchion_lab.programs import PROGRAMS, SERVERS, Program
from stanchion_lab.scenario import Load, Ramp, Scenario, Server, ServerKind, Trial, read, shipped
from stanchion_lab.servers import KINDS


def scenario(kind: str, *tools: str) -> Scenario:
    return Scenario(
        title="",
        question="",
        origin="",
        reading="",
        servers={"app": Server(kind=kind, listen="127.0.0.1:8000")},
        loads={"some": Load(tools=list(tools), connections=1, requests=1)},
        trials=[Trial(name="only", title="", servers=["app"], load="some")],
    )


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs that no machine has, among the known ones."""
    for name in ("nginx", "siege"):
        monkeypatch.setitem(PROGRAMS, name, Program(f"no-such-{name}", "", f"install {name}"))
    monkeypatch.setattr(
        programs, "find", lambda name, find=programs.find: find(f"no-such-{name}" if name == "siege" else name)
    )


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize(
    ("kind", "tools", "lack"),
    [
        ("stanchion", ["own"], ""),
        ("ideal", ["own"], ""),
        ("program", ["siege", "own"], ""),
        ("gunicorn", ["own"], ""),
        ("nginx", ["own"], "nginx is not installed: install nginx"),
        ("program", ["siege"], "siege is not installed: install siege"),
        ("nginx", ["siege"], "nginx is not installed: install nginx; siege is not installed: install siege"),
    ],
)
def test_a_trial_lacks_what_is_not_there(kind: str, tools: list[str], lack: str) -> None:
    whole = scenario(kind, *tools)
    assert programs.lacking(whole, whole.trials[0]) == lack


def test_every_kind_of_server_that_a_file_can_name_is_there() -> None:
    assert set(get_args(ServerKind)) == {*KINDS, ideal.KIND}
    assert {*SERVERS, "program"} == KINDS.keys()
    assert set(SERVERS) < PROGRAMS.keys()


def test_versions_are_those_of_who_takes_part() -> None:
    found = programs.versions(scenario("gunicorn", "own"))
    assert found.keys() == {"gunicorn"}
    assert found["gunicorn"][0].isdigit()


def test_the_doctor_says_which_experiments_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = doctor.run(as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["programs"].keys() == PROGRAMS.keys()
    assert found["experiments"].keys() == {path.stem for path in shipped()}
    lacking = found["namespaces"] != "" or any(one["missing"] for one in found["experiments"].values())
    assert code == (doctor.EXIT_LACKING if lacking else doctor.EXIT_OK)


@pytest.mark.usefixtures("without")
def test_the_doctor_names_what_installs_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cage, "unavailable", lambda: "the kernel lets you not")
    assert doctor.run(as_json=False) == doctor.EXIT_LACKING
    said = capsys.readouterr().out
    assert "missing: install nginx" in said
    assert "the kernel lets you not" in said
    for path in shipped():
        whole = read(path.stem, "full").scenario
        for trial in whole.trials:
            wants_nginx = any(whole.servers[name].kind == "nginx" for name in trial.servers)
            told = re.search(rf"not {trial.name}: .*nginx is not installed: install nginx", section(said, path.stem))
            assert bool(told) == wants_nginx


def section(said: str, experiment: str) -> str:
    """The part of the list of experiments that is about this one."""
    found = re.search(rf"^  {experiment} .*\n(?:    .*\n?)*", said, re.MULTILINE)
    assert found
    return found[0]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("kernel/unprivileged_userns_clone", "0", True),
        ("kernel/unprivileged_userns_clone", "1", False),
        ("user/max_user_namespaces", "0", True),
        ("user/max_user_namespaces", "15000", False),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", True),
        ("kernel/apparmor_restrict_unprivileged_userns", "0", False),
    ],
)
def test_settings_that_forbid_user_namespaces_are_named(tmp_path: Path, name: str, value: str, told: bool) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text(f"{value}\n")
    assert list(doctor.forbidding(tmp_path)) == ([f"{name.replace('/', '.')} = {value}"] if told else [])


@pytest.mark.parametrize(
    ("load", "connections"),
    [
        (Load(connections=50, requests=1000), 50),
        (Load(connections=50, requests=1000, copies=4), 200),
        (Load(rate_per_s=100, for_s=1, patience_s=60), 100),
        (Load(rate_per_s=100, for_s=60, patience_s=2), 200),
        (Load(rate_per_s=100, for_s=60, connections=8, keep_alive=True), 8),
        (Load(ramp=Ramp(from_per_s=1, to_per_s=300, step_per_s=1), for_s=2), 600),
    ],
)
def test_a_load_opens_so_many_connections_at_most(load: Load, connections: int) -> None:
    assert doctor.connections_max(load) == connections
