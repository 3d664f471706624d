"""The report for people."""

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stanchion.doctor import asked, finding, limits, queues, words
from stanchion.doctor.facts import Facts
from stanchion.doctor.finding import Finding
from support.doctor import facts, network, owner, tcp, unix

SEEN = facts(
    network(
        tcp(waiting=9, backlog=8, drops=4, half_open=2, owners=(owner("nginx", 12),)),
        tcp(backlog=128, address="[::]:443"),
        unix(waiting=1, backlog=100, address="@name"),
        sysctls={"net.core.somaxconn": "128", "net.ipv4.tcp_syncookies": "0"},
        counters={"ListenDrops": 4},
    ),
    not_looked_at=("something",),
)
FINDINGS = finding.by_harm([*queues.findings(SEEN), *limits.findings(SEEN), *queues.of_idle(SEEN)])


def test_the_worst_is_told_first_and_every_socket_has_a_line() -> None:
    text = words.report(SEEN, FINDINGS, coloured=False)
    assert text.startswith(
        "Linux 6.18: 3 listening sockets in 1 network namespace.\n1 critical, 1 warning, 1 notice.\n\n"
        "CRITICAL: The queue of 127.0.0.1:80 of nginx (12) is full now. [queue-full]\n  How we know  9 waiting"
    )
    assert text.index("CRITICAL:") < text.index("WARNING:") < text.index("NOTICE:")
    assert (
        "  waiting  backlog  asked  drops  half-open  owner       address\n"
        "        9        8      -      4          2  nginx (12)  127.0.0.1:80\n"
        "        0      128      -      0          0  -           [::]:443\n"
        "        1      100      -      -          -  -           unix:@name\n"
    ) in text
    assert text.endswith("Not looked at:\n  - something")


SCREEN = os.terminal_size((80, 24))


def brief(seen: Facts, findings: Sequence[Finding], screen: os.terminal_size = SCREEN) -> list[str]:
    return words.brief(seen, findings, False, screen).splitlines()


def test_what_a_client_has_written_is_obeyed_by_no_terminal() -> None:
    known = "they run GET /\x9b31m\u202e<b>\x85\x1b[2J (2)"
    found = Finding("one-dependency", finding.CRITICAL, "stanchion (7)", known, known, known, (known,))
    for text in (words.report(SEEN, [found], coloured=True), "\n".join(brief(SEEN, [found]))):
        assert "GET/\\x9b31m\\u202e<b>\\x85\\x1b[2J" in "".join(text.split())
        assert not any(obeyed in text for obeyed in ("\x9b", "\u202e", "\x85", "\x1b[2J"))


@pytest.mark.parametrize("lines", [12, 15, 20, 24, 30, 50])
def test_one_screen_has_the_worst_finding_with_its_steps_and_says_what_is_left_out(lines: int) -> None:
    sockets = [tcp(waiting=9, backlog=8, address=f"127.0.0.1:{port}") for port in range(30)]
    seen = facts(network(*sockets), not_looked_at=("something",))
    shown = brief(seen, list(queues.findings(seen)), os.terminal_size((80, lines)))
    # The last line is the prompt's; of a tiny screen the worst finding takes more.
    assert len(shown) <= max(lines - 1, 16)
    text = "\n".join(shown)
    assert shown[:4] == [
        "Linux 6.18: 30 listening sockets in 1 network namespace.",
        "30 critical.",
        "",
        "CRITICAL: The queue of 127.0.0.1:0 is full now. [queue-full]",
    ]
    assert shown[4].startswith("  How we know  9 waiting, and there is room for 9")
    assert "  Now          The server accepts too late: give it more workers" in text
    titles = text.count("CRITICAL: ")
    said = " ".join(text.rpartition("\n\n")[2].split())
    more = f"{30 - titles} more findings, " if titles < 30 else ""
    assert said.startswith(f"`stanchion doctor --all` shows {more}more about ")
    assert said.endswith("a line for each of 30 sockets and 1 thing that it could not look at.")


def test_titles_of_all_come_before_more_about_the_worst() -> None:
    shown = brief(SEEN, FINDINGS)
    assert len(shown) <= 23
    assert [line.partition(":")[0] for line in shown if ": " in line and line[0].isupper()] == [
        "Linux 6.18",
        "CRITICAL",
        "WARNING",
        "NOTICE",
    ]
    assert "  Clients see" not in "\n".join(shown)
    whole = brief(SEEN, FINDINGS, os.terminal_size((80, 200)))
    assert "\n".join(whole[:-2]) in words.report(SEEN, FINDINGS, coloured=False)
    assert " ".join(whole[-2:]).endswith(
        "`stanchion doctor --all` shows a line for each of 3 sockets and 1 thing that it   could not look at."
    )


def test_a_screen_is_counted_in_its_own_lines() -> None:
    """A command that is longer than the screen is wide takes more of them."""
    wide = replace(FINDINGS[0], now=("$ " + "x" * 300,))
    assert len(brief(SEEN, [wide, *FINDINGS[1:]])) <= 23 - 3


def test_prose_fits_eighty_columns_and_what_is_to_be_typed_stays_on_a_line() -> None:
    for line in words.report(SEEN, FINDINGS, coloured=False).splitlines():
        typed = "$ " in line or ":  " in line or "--allowed-unsafe-sysctls" in line
        assert typed or len(line) < 80, line


def test_colours_only_where_they_are_asked_for() -> None:
    assert "\033" not in words.report(SEEN, FINDINGS, coloured=False)
    assert "\033[1;31mCRITICAL: " in words.report(SEEN, FINDINGS, coloured=True)


def test_nothing_found_is_said() -> None:
    text = words.report(facts(network()), [], coloured=False)
    assert text.startswith("Linux 6.18: 0 listening sockets in 1 network namespace.\nNothing found.\n")
    assert text.endswith("\n  no listening sockets")


def test_a_cure_is_told_once() -> None:
    twice = facts(
        network(
            *(
                unix(backlog=16, address=name, owners=(owner(name, 7, f"{name} --backlog 100"),))
                for name in ("gunicorn", "stanchion")
            ),
            sysctls={"net.core.somaxconn": "16"},
        )
    )
    twice = replace(
        twice,
        networks=tuple(
            replace(one, listeners=tuple(asked.with_backlog_asked(listener, 16) for listener in one.listeners))
            for one in twice.networks
        ),
    )
    text = words.report(twice, list(queues.findings(twice)), coloured=False)
    assert text.count("[backlog-cut]") == 2
    assert text.count("docker run --sysctl net.core.somaxconn=") == 1
    assert text.count("  Now          As above.") == 1
    # A remedy that differs is printed again.
    assert "restart gunicorn: HUP keeps the socket" in text and "let stanchion reload" in text
