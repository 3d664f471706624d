"""Names and numbers as a reader wants them."""

import errno
import math
import re
import shlex
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from stanchion_lab import result as results
from stanchion_lab.report.samples import Spread
from stanchion_lab.result import Result, Verdict
from stanchion_lab.scenario import Trial, shipped

OUTCOMES = {
    results.SERVED: ("served", "an answer of 200 to 399, while the client was still waiting"),
    results.TOLD: ("turned away", "503 or 429: no service now, but an answer"),
    results.GATEWAY: ("502 or 504", "the server in front got no answer from the one behind it"),
    results.ERROR: ("other error", "an answer with any other status"),
    results.REFUSED: ("refused", "no connection: the kernel's queue was full, or no process listened"),
    results.BROKEN: ("broken off", "reset, or closed before the whole answer was there"),
    results.LATE: ("no answer", "nothing came for as long as the client's patience lasted"),
}
NOTHING = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
RELATIONS = {"<": "<", "<=": "≤", "==": "=", ">=": "≥", ">": ">"}
MARKS = {True: "✓", False: "✗", None: "?"}
VERDICTS = {True: "holds", False: "does not hold", None: "not measured"}
_LATENCIES = {
    "min": "shortest latency",
    "mean": "mean latency",
    "p50": "median latency",
    "max": "longest latency",
    "stddev": "deviation of latency",
}
_PLAIN = {
    "requests": "requests",
    "failed": "failed",
    "per_s": "served per second",
    "best_per_s": "highest rate without a failure",
    "cpu_s": "CPU time of all servers",
    "over_1s": "served after more than a second",
    "lost": "lost",
    "ran": "executions",
    "ran.twice": "ran twice",
    "ran.lost": "ran, and lost",
    "ran.never": "served, but never ran",
    "unsent": "what the client could not begin",
    "share.max": "largest share of a worker",
    "share.min": "smallest share of a worker",
    "after.requests": "requests due after the last deed",
    "after.served": "of those due after the last deed, served",
    "after.share": "of those due after the last deed, the share served",
    "after.recovered_s": "from the last deed until all were served",
    **{name: words for name, (words, _) in OUTCOMES.items()},
}
_FAMILIES = {
    "status": "answers {}",
    "kernel": "kernel: {}",
    "backlog": "queue of {}, in force",
    "waiting_max": "queue of {}, peak",
    "queues": "number of queues of {}",
    "behind_ms": "how late the client was, {}",
    "cpu_s": "CPU time of {}",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def figure(name: str) -> str:
    """`latency_ms.p99/slow` → `latency of 99 % (p99), /slow`."""
    if name in _PLAIN:
        return _PLAIN[name]
    family, _, rest = name.partition(".")
    if family == "latency_ms":
        which, slash, path = rest.partition("/")
        quantile = f"latency of {which[1:]} % ({which})" if re.fullmatch(r"p[\d.]+", which) else which
        return _LATENCIES.get(which, quantile) + (f", {slash}{path}" if slash else "")
    if family in _FAMILIES:
        return _FAMILIES[family].format(rest)
    if family == "log":
        server, _, what = rest.partition(".")
        kind, _, number = what.partition(".")
        if kind == "errno":
            symbol = errno.errorcode.get(int(number), "") if number.isdecimal() else ""
            return f"errno {number}{f' ({symbol})' if symbol else ''} in the log of {server}"
        return f"{number if kind == 'status' else what} in the log of {server}"
    return name


def unit(name: str) -> str:
    if name.startswith(("latency_ms.", "behind_ms.")):
        return "ms"
    if name.startswith("cpu_s") or name == "after.recovered_s":
        return "s"
    return "/s" if name.endswith("per_s") else ""


def number(value: float) -> str:
    """Whole where it is, else three digits that say something."""
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.0001 else f"{value:.1g}"


def amount(value: float, name: str) -> str:
    """With its unit."""
    return f"{number(value)} {unit(name)}".rstrip() if not math.isnan(value) else number(value)


def extent(spread: Spread) -> str:
    """`33 to 36`; nothing, where all repeats agree."""
    return f"{number(spread.least)} to {number(spread.most)}" if spread.varies else ""


def trial_titles(trials: Sequence[Trial]) -> dict[str, str]:
    """By their names. Where several have one title, the name is added."""
    known = [trial.title for trial in trials]
    return {
        trial.name: plain(trial.title if known.count(trial.title) == 1 else f"{trial.title} ({trial.name})")
        for trial in trials
    }


def reference(name: str, titles: dict[str, str]) -> str:
    """`small:gateway`, for a person."""
    trial, _, what = name.partition(":")
    return f"{figure(what)} · {titles.get(trial, trial)}"


def multiple(times: float) -> str:
    """The words before a reference to what is meant so many times; none before what is meant once."""
    return "" if times == 1 else f"{number(times)} {TIMES} "


def again(result: Result) -> str:
    """The command; whose experiment is one's own knows where the file is."""
    own = result.name not in {path.stem for path in shipped()}
    name = shlex.quote(f"{result.name}.toml") if own else result.name
    return f"stanchion-lab run {name} --{result.size} --repeats {result.scenario.repeats}"


def in_short(verdicts: list[Verdict]) -> str:
    """`3 of 4 claims hold, 1 does not.`"""
    if not verdicts:
        return "This experiment makes no claim: it only shows."
    hold, fail, unknown = (sum(one.holds is value for one in verdicts) for value in (True, False, None))
    if len(verdicts) == 1:
        return f"The one claim {VERDICTS[verdicts[0].holds] if unknown == 0 else 'was not measured'}."
    if hold == len(verdicts):
        return f"All {hold} claims hold."
    parts = [f"{hold} of {len(verdicts)} claims {'holds' if hold == 1 else 'hold'}"]
    parts += [f"{fail} {'does' if fail == 1 else 'do'} not"] if fail else []
    parts += [f"{unknown} {'was' if unknown == 1 else 'were'} not measured"] if unknown else []
    return ", ".join(parts) + "."


def plain(text: str) -> str:
    """Without what XML 1.0 (section 2.2) cannot hold, such as the escapes of a coloured log."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n"))


def paragraphs(text: str) -> Markup:
    """Blank lines part paragraphs; lines that begin with `- ` are a list; backticks are code."""
    blocks = []
    for block in re.split(r"\n\s*\n", plain(text).strip()):
        lines = [line.strip() for line in block.splitlines()]
        if lines and all(line.startswith("- ") for line in lines):
            blocks.append("<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>")
        elif lines:
            blocks.append(f"<p>{_inline(' '.join(lines))}</p>")
    return Markup("\n".join(blocks))  # every part of it has gone through escape()


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
