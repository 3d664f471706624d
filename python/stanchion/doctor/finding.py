"""A finding of the doctor: one thing that is wrong, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CRITICAL = "critical"
"""Connections or requests are being lost now."""
WARNING = "warning"
"""They have been lost, or will be when it gets busier."""
NOTICE = "notice"
"""Worth knowing; it may well be meant so."""

SEVERITIES = (CRITICAL, WARNING, NOTICE)


@dataclass(frozen=True)
class Finding:
    """Texts are sentences; `now` and `for_good` are steps, those that begin with `$ ` to be typed as they are."""

    code: str
    severity: str
    about: str
    """The socket, process, cgroup or file that it is about."""
    what: str
    known: str
    clients_see: str
    now: tuple[str, ...] = ()
    for_good: tuple[str, ...] = ()
    network: str = ""
    """Link of the network namespace that `sysctls` are of."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """The sysctls that would help, name -> value."""


def by_harm(findings: list[Finding]) -> list[Finding]:
    """The worst first; among equals in the order they were found."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
