"""The report for people."""

from dataclasses import replace

from stanchion.doctor import asked, finding, limits, queues, words
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
FINDINGS = finding.by_harm([*queues.findings(SEEN), *limits.findings(SEEN)])


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
    assert text.endswith("\n  nobody listens")


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
    # What is not the same is told again.
    assert "restart gunicorn: HUP keeps the socket" in text and "let stanchion reload" in text
