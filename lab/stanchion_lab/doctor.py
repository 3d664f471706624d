"""`stanchion-lab doctor`: what experiments need, whether it is here, and what installs it."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stanchion_lab import cage, programs, scenario
from stanchion_lab.output import show
from stanchion_lab.scenario import Load

EXIT_OK = 0
EXIT_LACKING = 1

FILES_BESIDE = 200
"""Files that a load tool or server has open beside its connections."""

USER_NAMESPACES = {
    "kernel/unprivileged_userns_clone": ("0", "Debian's kernels can forbid user namespaces"),
    "user/max_user_namespaces": ("0", "no user namespaces are allowed at all (namespaces(7))"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "AppArmor allows them to few programs, as on Ubuntu"),
}
"""sysctl, the value that forbids, and in words."""


class Installed(msgspec.Struct, kw_only=True):
    what: str
    version: str | None
    install: str
    """The command."""


class Readiness(msgspec.Struct, kw_only=True):
    """Whether this machine can run one experiment."""

    trials: int
    missing: dict[str, str]
    """Trials that cannot run, and what they lack."""
    connections_max: int
    """At once, in its full size; at most."""


class Findings(msgspec.Struct, kw_only=True):
    programs: dict[str, Installed]
    namespaces: str
    """Why a trial can have none of its own, or empty."""
    forbidding: dict[str, str]
    """Kernel settings that would explain it."""
    open_files: tuple[int, int]
    """Soft and hard limit."""
    experiments: dict[str, Readiness]

    def lacking(self) -> bool:
        return bool(self.namespaces) or any(one.missing for one in self.experiments.values())


def run(as_json: bool) -> int:
    """1 where some trial of a shipped experiment cannot run here."""
    found = look()
    show(msgspec.json.encode(found).decode() if as_json else text(found))
    return EXIT_LACKING if found.lacking() else EXIT_OK


def look() -> Findings:
    why = cage.unavailable()
    return Findings(
        programs={
            name: Installed(what=one.what, version=one.version(), install=one.installed_by)
            for name, one in programs.PROGRAMS.items()
        },
        namespaces=why,
        forbidding=forbidding() if why and os.geteuid() != 0 else {},
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        experiments={path.stem: _readiness(path) for path in scenario.shipped()},
    )


def forbidding(proc: Path = Path("/proc/sys")) -> dict[str, str]:
    found = {}
    for name, (value, words) in USER_NAMESPACES.items():
        path = proc / name
        if path.exists() and path.read_text().strip() == value:
            found[f"{name.replace('/', '.')} = {value}"] = words
    return found


def _readiness(path: Path) -> Readiness:
    whole = scenario.read(path.stem, "full").scenario
    missing = {trial.name: lack for trial in whole.trials if (lack := programs.lacking(whole, trial))}
    loads = (whole.loads[trial.load] for trial in whole.trials)
    return Readiness(
        trials=len(whole.trials), missing=missing, connections_max=max(map(connections_max, loads), default=0)
    )


def connections_max(load: Load) -> int:
    """How many may be open at once: those of a closed loop, or all that come while the first is still waited for."""
    rate_per_s = load.ramp.to_per_s if load.ramp is not None else load.rate_per_s
    if rate_per_s and not load.keep_alive:
        return round(load.copies * rate_per_s * min(load.for_s, load.patience_s))
    return load.copies * load.connections


def text(found: Findings) -> str:
    return "\n".join([*_of_programs(found), "", *_of_the_host(found), "", *_of_experiments(found)])


def _of_programs(found: Findings) -> Iterator[str]:
    width = max(map(len, found.programs))
    yield "Programs"
    for name, one in found.programs.items():
        yield (
            f"  {name:{width}}  "
            + (one.version or f"missing: {one.install}")
            + ("" if one.version else f"   ({one.what})")
        )


def _of_the_host(found: Findings) -> Iterator[str]:
    yield "This machine"
    how = "as root" if os.geteuid() == 0 else "in user namespaces"
    yield f"  namespaces of a trial's own: {found.namespaces or f'yes, {how}'}"
    yield from (f"    {setting}: {words}" for setting, words in found.forbidding.items())
    soft, hard = found.open_files
    yield f"  open files of a process: {soft}, which it may raise to {hard}"
    for name, one in found.experiments.items():
        if one.connections_max + FILES_BESIDE > hard:
            yield f"    too few for {name} --full, with up to {one.connections_max} connections: ulimit -Hn, as root"


def _of_experiments(found: Findings) -> Iterator[str]:
    width = max(map(len, found.experiments), default=0)
    yield "Experiments"
    for name, one in found.experiments.items():
        able = one.trials - len(one.missing)
        yield f"  {name:{width}}  " + (
            "all trials can run" if not one.missing else f"{able} of {one.trials} trials can run"
        )
        yield from (f"    not {trial}: {lack}" for trial, lack in one.missing.items())
