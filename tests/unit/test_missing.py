"""Programs and rights that may be missing where the tests run, and the message and exit code then."""

import os
import subprocess
from pathlib import Path

import pytest

from support import guest, missing, netns

SCRIPTS = Path(__file__).parents[2] / "scripts"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="of others nothing is demanded")

LACKING = [
    ("own-network", ["true"], {"unshare": "exit 1"}, "NO NETWORK NAMESPACE"),
    pytest.param(
        *("make-guest", ["guest"], {"apt-get": "echo http://[::1]:1", "debootstrap": "exit 1"}, "NO DEBIAN GUEST"),
        marks=as_root,
    ),
]


@pytest.mark.parametrize(("script", "arguments", "fakes", "said"), LACKING)
def test_what_is_missing_is_a_failure_where_it_must_not_be(script, arguments, fakes, said, home):
    for name, line in fakes.items():
        (home / name).write_text(f"#!/bin/sh\n{line}\n")
        (home / name).chmod(0o755)
    for demanded, code in (("", 0), ("1", 1)):
        env = os.environ | {"PATH": f"{home}:{os.environ['PATH']}", missing.IS_FAILURE: demanded}
        done = subprocess.run([SCRIPTS / script, *arguments], cwd=home, env=env, capture_output=True, text=True)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr


@as_root
def test_a_test_that_may_not_be_left_out_fails(home, monkeypatch):
    def broken(self: netns.Namespace) -> None:
        raise OSError("no namespaces")

    monkeypatch.setattr(netns.Namespace, "__init__", broken)
    monkeypatch.setattr(guest, "HOME", home)
    monkeypatch.delenv(missing.IS_FAILURE, raising=False)
    assert "no namespaces" in netns.unavailable()
    assert guest.not_here()
    monkeypatch.setenv(missing.IS_FAILURE, "1")
    for look in (netns.unavailable, guest.not_here):
        with pytest.raises(AssertionError, match=f"{missing.IS_FAILURE} is set"):
            look()
