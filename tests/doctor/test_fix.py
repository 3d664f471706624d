"""The changes that --fix would make, and makes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stanchion.doctor import fix, limits, queues
from stanchion.doctor.facts import Facts
from stanchion.doctor.finding import Finding
from support.doctor import facts, network, owner, tcp


def found(seen: Facts) -> Sequence[Finding]:
    return [*queues.findings(seen), *limits.findings(seen), *queues.of_idle(seen)]


CUT = network(
    tcp(backlog=128, backlog_asked=511, owners=(owner("nginx"),)),
    tcp(backlog=128, backlog_asked=9000, address="127.0.0.1:81"),
    sysctls={"net.core.somaxconn": "128", "net.ipv4.tcp_syncookies": "0"},
)


def test_the_highest_wish_counts_and_what_must_be_restarted_is_named(tmp_path: Path) -> None:
    seen = facts(CUT)
    plan = fix.plan(seen, found(seen), tmp_path / "x.conf")
    assert plan.sysctls == {"net.core.somaxconn": "9000", "net.ipv4.tcp_syncookies": "1"}
    assert [step.rpartition(": a reload")[0] for step in plan.left] == [
        "127.0.0.1:80 of nginx (7): restart nginx",
        "127.0.0.1:81: restart the server",
    ]
    assert "  sysctl -w net.core.somaxconn=9000\n" in plan.shown()


def test_other_namespaces_are_left_alone(tmp_path: Path) -> None:
    other = network(
        tcp(backlog=128), sysctls={"net.core.somaxconn": "128"}, name="that of x (9)", pid=9, link="net:[2]"
    )
    seen = facts(network(), other)
    plan = fix.plan(seen, found(seen), tmp_path / "x.conf")
    assert not plan.sysctls
    assert plan.left == (
        "another network namespace: The backlog of 127.0.0.1:80 in that of x (9) is probably cut. See there.",
    )


def test_the_file_keeps_what_else_it_says_and_is_written_whole(tmp_path: Path) -> None:
    drop_in = tmp_path / "x.conf"
    drop_in.write_text("# mine\nvm.swappiness = 1\nnet.core.somaxconn=128\n")
    sysctls = tmp_path / "sys"
    (sysctls / "net/core").mkdir(parents=True)
    (sysctls / "net/ipv4").mkdir()
    seen = facts(CUT)
    fix.carry_out(fix.plan(seen, found(seen), drop_in), sysctls)
    assert drop_in.read_text() == (
        "# mine\nvm.swappiness = 1\nnet.core.somaxconn = 9000\nnet.ipv4.tcp_syncookies = 1\n"
    )
    assert (sysctls / "net/core/somaxconn").read_text() == "9000"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sys", "x.conf"]


def test_nothing_is_written_where_the_setting_is_refused(tmp_path: Path) -> None:
    seen = facts(CUT)
    plan = fix.plan(seen, found(seen), tmp_path / "x.conf")
    with pytest.raises(FileNotFoundError):
        fix.carry_out(plan, tmp_path / "sys")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("is_yes", "is_terminal", "answer", "expected"),
    [
        (True, False, "n", True),
        (False, False, "y", False),
        (False, True, "y", True),
        (False, True, " YES ", True),
        (False, True, "", False),
        (False, True, "yeah", False),
    ],
)
def test_a_yes_is_given_by_flag_or_at_a_terminal(is_yes: bool, is_terminal: bool, answer: str, expected: bool) -> None:
    assert fix.agreed(is_yes, is_terminal, lambda _: answer) == expected


def test_the_end_of_input_is_no_yes() -> None:
    def ask(_: str) -> str:
        raise EOFError

    assert not fix.agreed(False, True, ask)
