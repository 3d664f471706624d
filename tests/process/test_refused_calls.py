"""The log names a system call that the server needs and a filter refuses, as in a container, and says what to do.
The server does without calls that it can do without.
"""

import signal
import sys

import pytest

from support import seccomp
from support.server import Serve

pytestmark = [
    pytest.mark.own("gunicorn makes few of these calls"),
    pytest.mark.privileges,
    pytest.mark.skipif(bool(seccomp.unavailable()), reason=seccomp.unavailable()),
]

# Each exits with a code of failure, and has named the call.
ENDING = [
    "accept4",
    "bind",
    "capget",
    "capset",
    "epoll_create1",
    "epoll_ctl",
    "eventfd2",
    "ftruncate",
    "getrandom",
    "getsockname",
    "listen",
    "madvise",
    "memfd_create",
    "mkdir",
    "mkdirat",
    "ppoll",
    "prctl",
    "prlimit64",
    "recvfrom",
    "sendmsg",
    "sendto",
    "setsockopt",
    "socket",
    "socketpair",
    "timer_create",
    "waitid",
]

# The master hears nothing, or starts the acceptor again and again, as it would if the kernel changed its mind.
NAMED = ["epoll_pwait", "recvmsg"]

DISPENSABLE = [
    "close_range",
    "dup3",
    "epoll_pwait2",
    "fallocate",
    "kill",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "openat2",
    "pidfd_open",
    "pidfd_send_signal",
    "poll",
    "pwrite64",
    "sched_setscheduler",
    "seccomp",
    "sendfile",
    "setpriority",
    "timer_settime",
]


def without(call: str) -> list[str]:
    return [sys.executable, seccomp.__file__, call]


@pytest.mark.parametrize("call", ENDING)
def test_a_call_that_is_needed_is_named_and_the_server_leaves(build: Serve, call: str) -> None:
    server = build("hello:app", prefix=without(call)).launch()
    assert server.exit_code() in (1, 3, 5)
    server.log.wait_end()
    cure = "allow it in the seccomp profile of the container, or in SystemCallFilter= of the unit"
    assert server.log.matches(
        rf"ERROR.*\b{call}: Operation not permitted \(os error 1\).*a filter of system calls refuses {call}, .*{cure}"
    )


@pytest.mark.parametrize("call", NAMED)
def test_a_call_whose_refusal_ends_nothing_is_named(build: Serve, call: str) -> None:
    server = build("hello:app", prefix=without(call)).launch()
    server.log.wait(rf"\b{call}: Operation not permitted \(os error 1\)")


@pytest.mark.parametrize("call", DISPENSABLE)
def test_the_server_does_without_what_it_can_do_without(serve: Serve, call: str) -> None:
    server = serve("hello:app", prefix=without(call))
    with server.connect() as wire:
        assert wire.get("/").status == 200
    server.process.send_signal(signal.SIGTERM)
    assert server.exit_code() == 0
