"""The page that `make test-apps` writes: applications down, checks across, and below it what was wrong."""

from dataclasses import dataclass, field

CHECKS = {
    "starts": "starts",
    "preloads": "is preloaded",
    "requests": "requests",
    "uploads": "uploads",
    "streams": "SSE",
    "websockets": "WebSocket",
    "page": "page in Chromium",
    "loaded": "bytes of the page",
    "log": "log",
    "memory": "memory",
    "reload": "HUP",
    "killed": "kill -9",
    "leaves": "TERM",
}
"""The last words of each test's name -> the head of its column."""

SIGNS = {"passed": "✓", "failed": "✗", "skipped": "-"}


@dataclass
class Row:
    """One application: what came of each check, the figures, and what was said where one failed."""

    outcomes: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def take(self, check: str, outcome: str, reason: str, figures: dict[str, str]) -> None:
        self.outcomes[check] = outcome
        self.figures |= figures
        if reason:
            self.reasons[check] = reason


def page(rows: dict[str, Row], about: str) -> str:
    """As markdown."""
    lines = ["# Large applications, under their usual server and under stanchion", "", about, ""]
    lines += ["| application | " + " | ".join(CHECKS.values()) + " |", "|---" * (len(CHECKS) + 1) + "|"]
    for name, row in rows.items():
        cells = [SIGNS.get(row.outcomes.get(check, ""), "") for check in CHECKS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    figures = list(dict.fromkeys(figure for row in rows.values() for figure in row.figures))
    if figures:
        lines += ["", "Usual server / stanchion; times are of this machine while it ran, and no check judges them.", ""]
        lines += ["| application | " + " | ".join(figures) + " |", "|---" * (len(figures) + 1) + "|"]
        for name, row in rows.items():
            lines.append(f"| {name} | " + " | ".join(row.figures.get(figure, "") for figure in figures) + " |")
    for name, row in rows.items():
        for check, reason in row.reasons.items():
            what = "left out" if row.outcomes[check] == "skipped" else "failed"
            lines += ["", f"## {name}: {CHECKS.get(check, check)} {what}", ""]
            lines += [f"    {line}" for line in reason.splitlines()]
    return "\n".join([*lines, ""])
