"""`stanchion doctor --fix`: settings of this network namespace, in force and in a drop-in, after a yes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stanchion.doctor import remedies
from stanchion.doctor.facts import Facts
from stanchion.doctor.finding import Finding


@dataclass(frozen=True)
class Plan:
    """Everything that would be done."""

    sysctls: Mapping[str, str] = field(default_factory=dict)
    drop_in: Path = Path(remedies.DROP_IN)
    drop_in_text: str = ""
    left: tuple[str, ...] = ()
    """The steps that are left for people to do."""

    def shown(self) -> str:
        lines = []
        if self.sysctls:
            lines += [
                "It would now do, as root:",
                *(f"  sysctl -w {remedies.assigned(name, self.sysctls[name])}" for name in self.sysctls),
            ]
            lines += [f"and write {self.drop_in}:", *(f"  {line}" for line in self.drop_in_text.splitlines())]
        if self.left:
            lines += ["Left for you:", *(f"  - {what}" for what in self.left)]
        return "\n".join(lines)


def plan(facts: Facts, findings: Sequence[Finding], drop_in: Path = Path(remedies.DROP_IN)) -> Plan:
    """The changes that findings want in our own network namespace. Of two values for a setting the higher counts."""
    here = facts.networks[0].link
    wanted: dict[str, str] = {}
    left = []
    for finding in findings:
        if finding.network not in ("", here) and finding.sysctls:
            left.append(f"another network namespace: {finding.what} See there.")
            continue
        for name, value in finding.sysctls.items():
            if name not in wanted or int(value.split()[0]) > int(wanted[name].split()[0]):
                wanted[name] = value
        # A backlog that was asked for before the limit rose stays as it is.
        left += [f"{finding.about}: {step[5:]}" for step in finding.now if step.startswith("Then ")]
    text = _merged(drop_in, wanted) if wanted else ""
    return Plan(wanted, drop_in, text, tuple(dict.fromkeys(left)))


def _merged(drop_in: Path, wanted: Mapping[str, str]) -> str:
    """The file with our settings in it; what else it says stays."""
    try:
        before = drop_in.read_text().splitlines()
    except FileNotFoundError:
        before = ["# Written by `stanchion doctor --fix`; see sysctl.d(5)."]
    kept = [line for line in before if line.partition("=")[0].strip() not in wanted]
    return "\n".join([*kept, *(f"{name} = {value}" for name, value in wanted.items())]) + "\n"


def carry_out(what: Plan, sysctls: Path = Path("/proc/sys")) -> None:
    """First what is in force, which fails without a trace where it is forbidden; then the file, whole or not at all."""
    for name, value in what.sysctls.items():
        (sysctls / name.replace(".", "/")).write_text(value)
    unfinished = what.drop_in.with_suffix(".unfinished")
    unfinished.write_text(what.drop_in_text)
    os.replace(unfinished, what.drop_in)


def agreed(is_yes: bool, is_terminal: bool, ask: Callable[[str], str]) -> bool:
    """Whether the user has said yes."""
    if is_yes:
        return True
    if not is_terminal:
        return False
    try:
        return ask("Do that? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
