"""`stanchion fleet`: the file of a front, such as HAProxy or Kubernetes, for the settings in force.

facts.py has what a front has to know, misfits.py which settings it cannot work with, and fronts/ the files, in which
template.py writes the facts.
"""

import argparse
import re
from collections.abc import Callable, Sequence
from importlib import resources

from stanchion.arguments import Parser, ask_for_help
from stanchion.commands import FRONTS
from stanchion.effective import Effective, UsageError
from stanchion.fleet import facts, misfits, template
from stanchion.fleet.facts import Asked, Host
from stanchion.output import put, show
from stanchion.serving import warn

EXIT_OK = 0

# RFC 1123 section 2.1, as Kubernetes takes it.
_NAMESPACE = re.compile("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")

FILES = dict(
    zip(
        FRONTS,
        ("haproxy.cfg", "nginx.conf", "envoy.yaml", "traefik.yaml", "Caddyfile", "kubernetes.yaml", "keda.yaml"),
        strict=True,
    )
)
"""The file of fronts/ for each front."""

USAGE = """\
Usage: stanchion fleet FRONT [--hosts HOST:PORT,...] [FLAGS] [APP]

Prints a front's whole file for the settings that `stanchion serve` would have
with these FLAGS: seats, timeouts, health checks, retries. A setting that does
not fit the front is a warning on standard error; the file comes even so.

Balancers, in front of the servers at --hosts (version tried):
  haproxy    HAProxy (2.6), which has a queue
  nginx      nginx (1.22)
  envoy      Envoy (1.40)
  traefik    Traefik (3.7), its dynamic file
  caddy      Caddy (2.6)

Kubernetes:
  k8s        A Deployment and its Services
  keda       A ScaledObject on the seats wanted, for KEDA 2.20 or newer

  --hosts HOST:PORT,...  The servers (default: the one of --bind)
  --namespace NAME       On Kubernetes (default: default). Names are --name of
                         `stanchion serve`, else the app's package

Exit codes: 0 printed; 2 wrong usage or settings."""


def run(arguments: Sequence[str], settings: Callable[[Sequence[str]], Effective]) -> int:
    """Run the command and return its exit code. `settings` reads a command line of `serve`."""
    if ask_for_help(arguments) or not arguments:
        show(USAGE)
        return EXIT_OK
    asked, flags = _parse(arguments)
    effective = settings(flags)
    text = (resources.files(__package__) / "fronts" / FILES[asked.front]).read_text()
    known = facts.gather(asked, effective)
    warn([*effective.warnings, *(f"{asked.front}: {one}" for one in misfits.of(asked, effective))])
    put(template.render(text, known).rstrip("\n"))
    return EXIT_OK


def _parse(arguments: Sequence[str]) -> tuple[Asked, list[str]]:
    """The arguments of this command, and the rest."""
    front, *rest = arguments
    if front not in FILES:
        raise UsageError(f"fleet: name a front first: one of {', '.join(FILES)}")
    parser = Parser("fleet", hint="; see `stanchion fleet --help`")
    parser.add_argument("--hosts", type=_hosts, default=[])
    parser.add_argument("--namespace", type=_namespace, default="default")
    options, flags = parser.parse_known_args(rest)
    return Asked(arguments, front, options.hosts, options.namespace), flags


def _hosts(text: str) -> list[Host]:
    hosts = [facts.host_of(one.strip()) for one in text.split(",")]
    if not all(host is not None and host.is_plain for host in hosts):
        raise argparse.ArgumentTypeError(f"expected HOST:PORT with commas between, got {text!r}")
    return [host for host in hosts if host]


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected a name of lower-case letters, digits and hyphens, got {text!r}")
    return text
