"""Certificates that clients refuse, or soon will: where the server says so, and when."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from support.doctor import doctor
from support.patience import PATIENCE_S
from support.ports import row_of_ports
from support.server import Serve
from support.tls import NAME, Authority, Pair

pytestmark = pytest.mark.own("other servers do not look at it")

SOON = r"\[WARNING\].* the certificate of CN=shop\.test in \S+ expires in 4 days \(.* GMT\): renew it, then reload"


def test_it_is_said_at_the_start_and_at_each_reload_until_it_is_renewed(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    authority.issue(NAME, days=(-80, 4.5)).copy_to(used)
    server = serve("hello:app", *used.arguments())
    server.log.wait(SOON)
    for generation in (2, 3):
        if generation == 3:
            authority.issue(NAME).copy_to(used)
        server.signal(signal.SIGHUP)
        server.log.wait(rf"reloaded: generation {generation} serves")
        server.log.wait_for(SOON, 2)
    server.stop()
    assert len(server.log.matches("the certificate of")) == 2


def test_status_metrics_and_doctor_know_when(serve: Serve, authority: Authority) -> None:
    good, soon = authority.issue(NAME), authority.issue("soon.test", days=(-80, 2))
    with row_of_ports(1) as port:
        admin = f"127.0.0.1:{port}"
        server = serve("hello:app", *good.arguments(), *soon.arguments(), *soon.arguments(), "--admin", admin)
        known = json.loads(asked(f"http://{admin}/status"))["certificates"]
        assert [(one["certfile"], one["subject"]) for one in known] == [
            (str(good.certfile), f"CN={NAME}"),
            *[(str(soon.certfile), "CN=soon.test")] * 2,
        ]
        begin_s, end_s = known[1]["not_before_s"], known[1]["not_after_s"]
        assert end_s - begin_s == 82 * 86_400
        assert abs(end_s - 2 * 86_400 - time.time()) < 600
        metrics = asked(f"http://{admin}/metrics")
        label = f'{{certfile="{soon.certfile}",subject="CN=soon.test"}}'
        assert metrics.count(f"\nstanchion_tls_certificate_expires_seconds{label} {end_s}\n") == 1
        told = doctor("--this-one", "--json")
        found = [one for one in told.data["findings"] if one["about"] == f"stanchion ({server.pid})"]
    assert [(one["code"], one["severity"]) for one in found if "certificate" in one["code"]] == [
        ("certificate-expires", "warning")
    ]


def asked(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


CHECKED: dict[str, tuple[Callable[[Authority, Pair], tuple[str, ...]], int, str]] = {
    "good": (lambda _, one: one.arguments(), 0, ""),
    "soon": (lambda all, _: all.issue(NAME, days=(-80, 2.5)).arguments(), 0, "warning: .* expires in 2 days"),
    "today": (lambda all, _: all.issue(NAME, days=(-1, -0.5)).arguments(), 0, "warning: .* has expired today"),
    "expired": (lambda all, _: all.issue(NAME, days=(-9, -3.5)).arguments(), 0, "warning: .* has expired 3 days ago"),
    "not yet": (lambda all, _: all.issue(NAME, days=(1, 3)).arguments(), 0, "warning: .* is not valid before .*clock"),
    "other key": (
        lambda all, one: ("--certfile", str(one.certfile), "--keyfile", str(all.own.keyfile)),
        2,
        "setting `keyfile`: .* does not fit: the key is not that of the first certificate",
    ),
    "no file": (
        lambda *_: ("--certfile", "/none.pem"),
        2,
        "setting `certfile`: /none.pem cannot be read: No such file",
    ),
    "no authority": (
        lambda _, one: (*one.arguments(), "--cert-reqs", "2", "--ca-certs", str(one.keyfile)),
        2,
        "setting `ca_certs`: .* has no certificate",
    ),
}


@pytest.mark.parametrize("case", CHECKED)
def test_check_opens_what_it_is_told_of(case: str, authority: Authority, pair: Pair) -> None:
    arguments, code, expected = CHECKED[case]
    done = check(*arguments(authority, pair))
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == (1 if expected else 0)
    assert re.match(rf"stanchion: {expected}" if expected else "$", done.stderr), done.stderr


def test_check_looks_where_the_server_would_be(pair: Pair, tmp_path: Path) -> None:
    pair.copy_to(Pair(tmp_path / "a.pem", tmp_path / "a.key"))
    relative = ("--certfile", "a.pem", "--keyfile", "a.key")
    assert check(*relative, "--chdir", str(tmp_path)).returncode == 0
    assert check(*relative).returncode == 2


def check(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stanchion", "check", "--changed", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
