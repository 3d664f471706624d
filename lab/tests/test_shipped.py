"""The experiments that come with the lab, as files."""

from pathlib import Path

import pytest

from stanchion_lab import result, scenario
from stanchion_lab.report import kept
from stanchion_lab.result import PACKED
from stanchion_lab.scenario import SHIPPED, Mistake, Size

KEPT = Path(__file__).parents[2] / "docs/lab/results"
KEPT_BYTES_MAX = 128 << 10
NAMES = [path.stem for path in scenario.shipped()]


def test_all_experiments_are_there() -> None:
    assert set(NAMES) == {
        "unix-backlog",
        "nginx-backlog",
        "ab-burst",
        "unicorn-throughput",
        "accept-order",
        "one-line-or-many",
        "keep-alive-tills",
        "after-the-stall",
        "fleet",
        "fleet-events",
    }


@pytest.mark.parametrize("size", ["quick", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_read_and_has_all_its_files(name: str, size: Size) -> None:
    shown = scenario.read(name, size).scenario
    assert shown.claims and shown.plots and shown.table
    for server in shown.servers.values():
        module = server.app.partition(":")[0]
        files = [server.config, module if module.endswith(".ru") else f"{module}.py" if module else ""]
        for file in filter(None, files):
            assert (SHIPPED / "files" / file).is_file(), file
    for trial in shown.trials:
        told = [claim for claim in shown.claims if f"{trial.name}:" in f"{claim.of} {claim.than}"]
        drawn = [plot for plot in shown.plots if not plot.trials or trial.name in plot.trials]
        assert told or drawn, f"nothing is said of {trial.name}"


FRONTS = {
    "haproxy": {"balance", "retries", "retry", "posts", "server"},
    "nginx": {"balance"},
    "envoy": {"policy", "retry", "retry_get", "retry_post", "checks", "ready_port"},
}


@pytest.mark.parametrize("name", ["fleet", "fleet-events"])
def test_fronts_of_a_fleet_have_each_value_that_their_templates_want(name: str) -> None:
    """A name without a value would stay in the configuration, with its dollar sign."""
    servers = scenario.read(name, "full").scenario.servers
    fronts = {front: server for front, server in servers.items() if server.kind in FRONTS}
    assert fronts
    assert {front: server.values.keys() for front, server in fronts.items()} == {
        front: FRONTS[server.kind] for front, server in fronts.items()
    }


def test_the_documents_have_one_page_one_picture_and_one_small_file_of_each() -> None:
    assert {path.name for path in KEPT.iterdir()} == {
        f"{name}{ending}" for name in NAMES for ending in (".md", ".svg", PACKED)
    }
    assert max(path.stat().st_size for path in KEPT.iterdir()) <= KEPT_BYTES_MAX


@pytest.mark.parametrize("name", NAMES)
def test_a_page_in_the_documents_is_that_of_the_result_beside_it(name: str) -> None:
    kept_result = result.read(KEPT / f"{name}{PACKED}")
    assert kept_result.name == name
    assert (KEPT / f"{name}.md").read_text() == kept.page(kept_result)


def test_it_is_repeated_as_often_as_the_caller_says() -> None:
    assert scenario.read("unix-backlog", "quick").scenario.repeats == 1
    assert scenario.read("unix-backlog", "quick", repeats=3).scenario.repeats == 3
    with pytest.raises(Mistake, match="repeats must be from 1 to 20"):
        scenario.read("unix-backlog", "quick", repeats=0)


def test_a_small_run_says_nothing_of_trials_that_it_leaves_out(tmp_path: Path) -> None:
    text = (SHIPPED / "after-the-stall.toml").read_text()
    (tmp_path / "one.toml").write_text(text.replace('only = ["fifo-silent", ', 'only = ["fifo-silent"]\n#'))
    small = scenario.read(str(tmp_path / "one.toml"), "quick").scenario
    assert [trial.name for trial in small.trials] == ["fifo-silent"]
    assert [plot.trials for plot in small.plots] == [["fifo-silent"], ["fifo-silent"]]
    assert small.claims == []
