"""The backlog that a server has asked for, as far as its process shows."""

import pytest

from stanchion.doctor import asked
from stanchion.doctor.facts import Owner
from support.doctor import owner, tcp, unix


@pytest.mark.parametrize(
    ("name", "command", "expected"),
    [
        ("nginx", "nginx: master process /usr/sbin/nginx", "nginx"),
        ("gunicorn", "gunicorn: master [shop]", "gunicorn"),
        ("gunicorn", "/v/bin/python /v/bin/gunicorn shop:app", "gunicorn"),
        ("python3", "/v/bin/python3 -m gunicorn shop:app", "gunicorn"),
        ("python3.11", "python3.11 -u -m stanchion serve -c gunicorn.conf.py", "stanchion"),
        ("stanchion", "/v/bin/python /v/bin/stanchion serve -c /etc/nginx/gunicorn", "stanchion"),
        ("python", "python", None),
        ("vim", "vim nginx", None),
        ("nginx-exporter", "nginx-exporter", None),
    ],
)
def test_a_server_is_known_by_what_it_runs(name: str, command: str, expected: str | None) -> None:
    assert asked.server(Owner(7, name, command)) == expected


@pytest.mark.parametrize(
    ("in_force", "somaxconn", "command", "expected"),
    [
        (300, 4096, "gunicorn --backlog 300 a", 300),
        (16, 16, "gunicorn --backlog=300", 300),
        (2048, 4096, "gunicorn a", 2048),
        (1000, 1000, "gunicorn a", 2048),
        (128, 4096, "gunicorn a", 2048),
        # A file of settings has another.
        (64, 4096, "gunicorn a", None),
        (4096, 4096, "gunicorn a", None),
        (511, 4096, "nginx: master process nginx", 511),
        (64, 64, "nginx: master process nginx", 511),
        (4096, 4096, "redis-server *:6379", None),
    ],
)
def test_the_flag_counts_and_else_a_default_that_fits(
    in_force: int, somaxconn: int, command: str, expected: int | None
) -> None:
    listener = tcp(backlog=in_force, owners=(owner("other"), owner(command.split()[0].rstrip(":"), 8, command)))
    assert asked.with_backlog_asked(listener, somaxconn).backlog_asked == expected


def test_gunicorns_control_socket_is_not_taken_for_one_of_clients() -> None:
    owners = (owner("gunicorn", 8, "gunicorn --backlog 300 a"),)
    assert (
        asked.with_backlog_asked(unix(backlog=16, address="/run/gunicorn.ctl", owners=owners), 16).backlog_asked is None
    )
    assert (
        asked.with_backlog_asked(unix(backlog=16, address="/run/gunicorn.sock", owners=owners), 16).backlog_asked == 300
    )
