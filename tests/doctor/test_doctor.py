"""`stanchion doctor` on real sockets, in network namespaces of their own."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.doctor import Said, doctor
from support.netns import Namespace
from support.patience import PATIENCE_S, eventually
from support.server import Serve

pytestmark = pytest.mark.own("the doctor is ours")

WELL, FOUND, USAGE, BLIND = 0, 1, 2, 3

PORT = 7000
AT = f"127.0.0.1:{PORT}"


@pytest.fixture
def kept() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as kept:
        yield kept


def listen(namespace: Namespace, kept: contextlib.ExitStack, backlog: int, path: Path | None = None) -> None:
    def make() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        sock.bind(str(path) if path else ("127.0.0.1", PORT))
        sock.listen(backlog)
        return sock

    kept.enter_context(namespace.run(make))


def guests(namespace: Namespace, kept: contextlib.ExitStack, count: int, path: Path | None = None) -> None:
    for _ in range(count):

        def make() -> socket.socket:
            sock = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
            sock.setblocking(False)
            sock.connect_ex(str(path) if path else ("127.0.0.1", PORT))
            return sock

        kept.enter_context(namespace.run(make))


def test_a_healthy_host(namespace: Namespace, kept: contextlib.ExitStack, tmp_path: Path) -> None:
    listen(namespace, kept, 1024)
    listen(namespace, kept, 1024, tmp_path / "s")
    guests(namespace, kept, 2)
    said = doctor("--this-one", "--json", prefix=namespace.prefix)
    assert said.exit_code == WELL, said
    # The machine may be busy.
    assert [code for code in said.codes() if not code.startswith("pressure-")] == []
    assert said.listener(AT)["waiting"] == 2 and said.listener(AT)["backlog"] == 1024
    assert said.listener(AT)["owners"][0]["pid"] == os.getpid()
    assert said.listener(str(tmp_path / "s"))["drops"] is None


def test_a_cut_backlog(namespace: Namespace, serve: Serve) -> None:
    namespace.sysctl("net.core.somaxconn", 16)
    command = [sys.executable, "-m", "gunicorn", "--no-control-socket", "--bind", AT, "--backlog", "300", "hello:app"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "apps")}
    with subprocess.Popen(
        [*namespace.prefix, *command], env=environment, stderr=subprocess.PIPE, text=True
    ) as gunicorn:
        try:
            assert gunicorn.stderr
            assert any("Listening at" in line for line in gunicorn.stderr)
            said = doctor("--this-one", "--json", prefix=namespace.prefix)
        finally:
            gunicorn.terminate()
            gunicorn.communicate()
    assert said.exit_code == FOUND
    finding = said.finding("backlog-cut")
    assert finding["severity"] == "warning"
    assert (
        f"In force 16 (sock_diag, as in `ss -ltn`), asked for 300 (--backlog of process {gunicorn.pid})"
        in finding["known"]
    )
    assert finding["sysctls"] == {"net.core.somaxconn": "4096"}


def test_a_cut_backlog_costs_stanchion_nothing(namespace: Namespace, serve: Serve) -> None:
    namespace.sysctl("net.core.somaxconn", 16)
    server = serve("hello:app", bind=AT, prefix=namespace.prefix)
    said = doctor("--this-one", "--json", prefix=namespace.prefix)
    assert said.exit_code == WELL, said
    finding = said.finding("backlog-cut")
    assert finding["severity"] == "notice"
    assert finding["about"].endswith(f"({server.pid})")


def test_a_full_unix_queue(namespace: Namespace, kept: contextlib.ExitStack, tmp_path: Path) -> None:
    path = tmp_path / "s"
    listen(namespace, kept, 2, path)
    guests(namespace, kept, 3, path)
    said = doctor("--this-one", "--all", prefix=namespace.prefix)
    assert said.exit_code == FOUND
    text = " ".join(said.text.split())
    assert f"CRITICAL: The queue of unix:{path}" in text
    assert "3 waiting, and there is room for 3: the backlog in force, 2, and one more" in text
    assert "failed (11: Resource temporarily unavailable)" in text


def test_a_full_tcp_queue_whose_drops_grow(namespace: Namespace, kept: contextlib.ExitStack) -> None:
    listen(namespace, kept, 4)
    guests(namespace, kept, 5)
    said: list[Said] = []

    def is_watched() -> bool:
        # They try again five times, a second after each other. On a busy machine it may begin later, or one may try
        # between its looks at the socket and at the counter.
        guests(namespace, kept, 4)
        said.append(doctor("--this-one", "--json", "--watch", "2.5", prefix=namespace.prefix))
        grown = said[-1].listener(AT)["drops_grown"]
        (network,) = said[-1].data["facts"]["networks"]
        return grown >= 4 and network["counters_grown"].get("ListenDrops") == grown

    eventually(is_watched, "it sees that drops grow, and all of them", 3 * PATIENCE_S)
    assert said[-1].exit_code == FOUND
    assert said[-1].codes()[0] == "queue-full"
    listener = said[-1].listener(AT)
    assert (listener["waiting"], listener["waiting_peak"], listener["backlog"]) == (5, 5, 4)
    assert listener["drops"] >= listener["drops_grown"] + 4
    assert "tries again 1, 2, 3, 4, 5, 7, 11, 19, 35, 67 s after" in said[-1].finding("queue-full")["clients_see"]


LISTENER = """
import socket, sys
with socket.socket() as sock:
    sock.bind(("127.0.0.1", int(sys.argv[1])))
    sock.listen(3)
    print("listening", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def stranger(namespace: Namespace) -> Iterator[subprocess.Popen[str]]:
    """A process that listens in another network namespace, as one of a container does."""
    command = [*namespace.prefix, sys.executable, "-c", LISTENER, str(PORT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "listening\n"
        yield process
        process.communicate()


def test_root_sees_the_namespaces_of_containers(namespace: Namespace, stranger: subprocess.Popen[str]) -> None:
    link = os.readlink(f"/proc/{stranger.pid}/ns/net")
    namespace.sysctl("net.core.somaxconn", 77)
    networks = doctor("--json").data["facts"]["networks"]
    assert networks[0]["pid"] is None and networks[0]["link"] == os.readlink("/proc/self/ns/net")
    (found,) = [network for network in networks if network["link"] == link]
    assert (found["pid"], found["sysctls"]["net.core.somaxconn"]) == (stranger.pid, "77")
    assert found["name"] == f"{namespace.name} of ip netns"
    (listener,) = found["listeners"]
    assert (listener["address"], listener["backlog"], listener["owners"][0]["pid"]) == (AT, 3, stranger.pid)


def test_who_may_not_enter_says_so(stranger: subprocess.Popen[str]) -> None:
    # In a user namespace of its own root may do nothing to those outside of it (user_namespaces(7)).
    said = doctor("--json", prefix=["unshare", "--user"])
    assert [network["pid"] for network in said.data["facts"]["networks"]] == [None]
    (note,) = said.data["facts"]["not_looked_at"]
    assert note.startswith("processes that are not ours to look into, ")


def test_a_fix_is_shown_and_nothing_done_without_a_yes(namespace: Namespace, kept: contextlib.ExitStack) -> None:
    namespace.sysctl("net.core.somaxconn", 16)
    listen(namespace, kept, 1000)
    said = doctor("--this-one", "--fix", prefix=namespace.prefix, stdin="y\n")
    assert "It would now do, as root:\n  sysctl -w net.core.somaxconn=4096\n" in said.text
    assert "and write /etc/sysctl.d/60-stanchion-doctor.conf:\n" in said.text
    assert "  net.core.somaxconn = 4096\n" in said.text
    assert said.text.endswith("Nothing was changed. Give --yes to run without a terminal.\n")
    assert said.exit_code == FOUND
    assert (
        doctor("--this-one", "--json", prefix=namespace.prefix).data["facts"]["networks"][0]["sysctls"][
            "net.core.somaxconn"
        ]
        == "16"
    )


def test_a_fix_with_a_yes_sets_and_writes(namespace: Namespace, kept: contextlib.ExitStack) -> None:
    namespace.sysctl("net.core.somaxconn", 16)
    listen(namespace, kept, 1000)
    # An /etc/sysctl.d of its own: `ip netns exec` gives a mount namespace (ip-netns(8)).
    script = f"""
        mount -t tmpfs none /etc/sysctl.d &&
        {sys.executable} -m stanchion doctor --this-one --fix --yes
        cat /etc/sysctl.d/* /proc/sys/net/core/somaxconn
        ls /etc/sysctl.d"""
    done = subprocess.run(
        [*namespace.prefix, "sh", "-c", script], capture_output=True, text=True, timeout=3 * PATIENCE_S
    )
    assert done.returncode == 0, done
    assert "Done. A backlog stays what it was at listen(2)" in done.stdout
    assert done.stdout.endswith("\nnet.core.somaxconn = 4096\n4096\n60-stanchion-doctor.conf\n")
    assert not Path("/etc/sysctl.d/60-stanchion-doctor.conf").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--watch", "0"], "expected seconds between"),
        (["--watch", "nan"], "expected seconds between"),
        (["--all", "--json"], "not allowed with argument"),
        (["--yes"], "--yes is the answer to --fix"),
        (["--fix", "--json"], "--fix speaks to people"),
        (["--port", "80"], "unrecognized arguments"),
        (["--nginx", "/nowhere/nginx.conf"], "No such file or directory: '/nowhere/nginx.conf'"),
    ],
)
def test_wrong_usage(arguments: list[str], complaint: str) -> None:
    said = doctor(*arguments)
    assert said.exit_code == USAGE
    assert complaint in said.error and not said.text


def test_without_crossplane_it_says_what_to_install(tmp_path: Path) -> None:
    # A directory in its place that is no such module.
    (tmp_path / "crossplane.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'crossplane'\", name='crossplane')"
    )
    said = doctor("--nginx", "x", prefix=["env", f"PYTHONPATH={tmp_path}"])
    assert said.exit_code == BLIND
    assert (
        said.error == "stanchion: --nginx needs crossplane, which is not installed: pip install 'stanchion[doctor]'\n"
    )


def test_help_names_the_exit_codes() -> None:
    said = doctor("--help")
    assert said.exit_code == WELL
    assert "0 nothing worse than a notice; 1 a warning or worse; 2 wrong usage;\n3 could not look." in said.text
    assert max(map(len, said.text.splitlines())) <= 79
