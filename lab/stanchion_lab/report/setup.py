"""The set-up, drawn from the scenario: the client, each queue of the kernel, each server.

Trials of the same servers, one behind the other in the same way, share one drawing; what differs between them is
named beside it."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from stanchion_lab.report import colours, samples, words
from stanchion_lab.report.canvas import Sheet, wrapped
from stanchion_lab.result import Result
from stanchion_lab.scenario import Deed, Load, Server, Trial, behind

LINE = 15
TEXT = 11
SLOTS = 8
WORKERS_DRAWN = 8


@dataclass(frozen=True)
class Card:
    """One thing in the path of a request: `client`, `queue` or `server`."""

    what: str
    title: str
    lines: list[str]
    colour: str
    workers: int = 0
    full: float = 0.0
    """A queue's peak, as a part of its room."""


@dataclass
class Shape:
    """Trials with one drawing; `differ` has each property that is not the same in all of them, with its values."""

    trials: list[Trial]
    path: list[str]
    """The kinds on the way."""
    cards: list[Card]
    differ: list[tuple[str, list[str]]]


def shapes(result: Result) -> list[Shape]:
    scenario = result.scenario
    grouped: dict[tuple[object, ...], list[Trial]] = {}
    for trial in scenario.trials:
        path = [scenario.servers[name] for name in chain(result, trial)]
        key = tuple((one.kind, one.listen.startswith("unix:")) for one in path)
        grouped.setdefault(key, []).append(trial)
    return [_shape(result, trials) for trials in grouped.values()]


def chain(result: Result, trial: Trial) -> list[str]:
    """The servers that a request goes through, by name, from the client on."""
    upstreams = behind(result.scenario, trial)
    at = result.scenario.loads[trial.load].to or trial.servers[-1]
    path = []
    while at:
        path.append(at)
        at = next(iter(upstreams[at]), "")
    return path


def _shape(result: Result, trials: list[Trial]) -> Shape:
    facts = [dict(_facts(result, trial)) for trial in trials]
    names = list(dict.fromkeys(name for each in facts for name in each))
    rows = [(name, [each.get(name, words.NOTHING) for each in facts]) for name in names]
    differ = [(name, values) for name, values in rows if len(set(values)) > 1]
    kinds = [result.scenario.servers[name].kind for name in chain(result, trials[0])]
    return Shape(trials, ["client", *kinds], list(_cards(result, trials)), differ)


def _facts(result: Result, trial: Trial) -> Iterator[tuple[str, str]]:
    """Everything that may differ, as name and value."""
    load = result.scenario.loads[trial.load]
    yield from offered(load).items()
    yield "paths", ", ".join(load.paths)
    yield "tool", tool_of(result, trial)
    for key, value in sorted(trial.sysctl.items()):
        yield key, str(value)
    path = chain(result, trial)
    kinds = [result.scenario.servers[name].kind for name in path]
    for place, name in enumerate(path):
        server = result.scenario.servers[name]
        who = server.kind if kinds.count(server.kind) == 1 else f"{server.kind} {place + 1}"
        yield f"{who}: name", name
        yield f"{who}: workers", _workers(server)
        yield f"{who}: backlog asked", asked(server)
        yield f"{who}: application", server.app or server.config or " ".join(server.command)
        yield f"{who}: options", shlex.join(server.options)
        yield f"queue of {who}: in force", words.number(_seen(result, trial, f"backlog.{name}"))
        yield f"queue of {who}: peak seen", words.number(_seen(result, trial, f"waiting_max.{name}"))
        settings = {**server.values, **server.environment}
        yield f"{who}: settings", ", ".join(f"{key}={value}" for key, value in settings.items())
    yield "done to it", "; ".join(deed_text(deed) for deed in trial.deeds)
    others = [name for name in trial.servers if name not in path]
    yield "also running", ", ".join(f"{name} ({result.scenario.servers[name].kind})" for name in others)


def deed_text(deed: Deed) -> str:
    whose = {"master": "", "worker": "a worker of ", "all": "all processes of "}[deed.whom]
    what = f"{deed.signal} to {whose}{deed.server}"
    if deed.link:
        what = f"the link of {deed.server} {deed.link}"
    elif deed.start:
        what = f"start {deed.server}"
    elif not deed.signal:
        what = f"touch {deed.touch}" if deed.touch else f"remove {deed.remove}"
    return f"{what} at {words.number(deed.at_s)} s"


def offered(load: Load) -> dict[str, str]:
    """The client's load, in short lines."""
    number = words.number
    length = f"for {number(load.for_s)} s"
    if load.ramp is not None:
        ramp = load.ramp
        rate = f"{number(ramp.from_per_s)} to {number(ramp.to_per_s)} requests/s, by {number(ramp.step_per_s)}"
        length = f"{length} each"
    elif load.rate_per_s > 0:
        arrivals = ", at random" if load.arrivals == "poisson" else ""
        rate = f"{number(load.rate_per_s)} requests/s{arrivals}"
    else:
        rate = f"{number(load.connections)} clients at once"
        length = f"{number(load.requests)} requests" if load.requests else length
    connections = "a connection per request"
    if load.keep_alive:
        kept = f"{number(load.connections)} " if load.rate_per_s > 0 and load.connections else ""
        connections = f"{kept}connections kept alive"
    stays = "" if load.hang_up else ", stays connected"
    return {
        "load": rate,
        "how long": length,
        "connections": connections,
        "patience": f"patience {number(load.patience_s)} s{stays}",
    }


def tool_of(result: Result, trial: Trial) -> str:
    used = [one.tool for one in result.of(trial.name) if one.tool]
    tool = used[0] if used else result.scenario.loads[trial.load].tools[0]
    return "the lab's own client" if tool == "own" else tool


def asked(server: Server) -> str:
    return "default" if server.backlog is None else words.number(server.backlog)


def _workers(server: Server) -> str:
    threads = f" of {server.threads} threads" if server.threads > 1 else ""
    hosts = f" on each of {server.hosts} hosts" if server.hosts > 1 else ""
    return f"{words.number(server.workers)} worker{'s' if server.workers > 1 else ''}{threads}{hosts}"


def _cards(result: Result, trials: list[Trial]) -> Iterator[Card]:
    loads = [result.scenario.loads[trial.load] for trial in trials]
    tools = _either(tool_of(result, trial) for trial in trials)
    yield Card("client", "client", [tools, *_lines([offered(load) for load in loads])], colours.MUTED)
    paths = [chain(result, trial) for trial in trials]
    for place in range(len(paths[0])):
        names = [path[place] for path in paths]
        servers = [result.scenario.servers[name] for name in names]
        pairs = list(zip(trials, names, strict=True))
        force = [_seen(result, trial, f"backlog.{name}") for trial, name in pairs]
        peak = [_seen(result, trial, f"waiting_max.{name}") for trial, name in pairs]
        parts = [most / room for most, room in zip(peak, force, strict=True) if room > 0 and most == most]
        listen = _either("unix socket" if one.listen.startswith("unix:") else f"TCP {one.listen}" for one in servers)
        lines = [
            listen,
            f"asked: {_either(map(asked, servers))}",
            f"in force: {_either(map(_number, force))}",
            f"peak: {_either(map(_number, peak))}",
        ]
        colour = colours.OUTCOMES["refused"]
        yield Card("queue", "kernel queue", lines, colour, full=min(1.0, max(parts, default=0.0)))
        title = _either(names)
        kind = servers[0].kind
        lines = [*([kind] if kind not in title else []), _either(map(_workers, servers))]
        lines += [text] if (text := _either(one.app or one.config or " ".join(one.command) for one in servers)) else []
        most = max(one.workers for one in servers)
        yield Card("server", title, lines, colours.of_kind(kind), workers=most)


def _seen(result: Result, trial: Trial, figure: str) -> float:
    return samples.figure_spread(result, trial.name, figure).middle


def _number(value: float) -> str:
    return words.number(value) if value == value else "not seen"


def _either(values: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(values))
    if len(distinct) > 1 and "not seen" in distinct:
        distinct.remove("not seen")
    return " / ".join(distinct) if len(distinct) <= 4 else f"{distinct[0]} … ({len(distinct)} kinds)"


def _lines(loads: Sequence[dict[str, str]]) -> list[str]:
    """Line by line, if at most one of them differs."""
    if sum(len({load[name] for load in loads}) > 1 for name in loads[0]) > 1:
        return ["several loads: see the table below"]
    return [_either(load[name] for load in loads) for name in loads[0]]


# ---- Drawn


def draw(shape: Shape, width: int, title: str = "") -> Sheet:
    sheet = Sheet(width, title)
    across = not sheet.narrow and len(shape.cards) <= 5
    gap = 26
    each = (width - 16 - gap * (len(shape.cards) - 1)) / len(shape.cards) if across else width - 16
    # Where it is drawn from the top down, the drawing stands on a sheet as wide as a phone.
    each = min(each, 200 if across else 330)
    heights = [_height(card, each) for card in shape.cards]
    total = max(heights) if across else sum(heights) + gap * (len(heights) - 1)
    left, top = 8.0, sheet.top
    for number, (card, height) in enumerate(zip(shape.cards, heights, strict=True)):
        here = sheet.top + (total - height) / 2 if across else top
        _card(sheet, card, left, here, each, height)
        if number + 1 < len(shape.cards):
            middle = sheet.top + total / 2
            start = (left + each + 3, middle) if across else (left + 30, here + height + 3)
            end = (left + each + gap - 3, middle) if across else (left + 30, here + height + gap - 3)
            arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, shrinkA=0, shrinkB=0)
            arrow.set(color=colours.MUTED, linewidth=1.6)
            sheet.add(arrow)
        left, top = (left + each + gap, top) if across else (left, top + height + gap)
    sheet.top += total + 6
    return sheet


def _texts(card: Card, width: float) -> list[str]:
    room = width - (8 if card.what == "queue" else 22)
    return [piece for line in card.lines for piece in wrapped(line, room, TEXT)]


def _height(card: Card, width: float) -> float:
    glyph = 0 if card.what == "client" else 24
    return 12 + 18 + glyph + LINE * len(_texts(card, width)) + 8


def _card(sheet: Sheet, card: Card, left: float, top: float, width: float, height: float) -> None:
    if card.what != "queue":
        box = FancyBboxPatch((left + 1, top + 1), width - 2, height - 2, boxstyle="round,pad=0,rounding_size=6")
        box.set(facecolor=colours.SHADE, edgecolor=card.colour, linewidth=2 if card.what == "server" else 1.2)
        sheet.add(box)
    left, top = left + (4 if card.what == "queue" else 11), top + 10
    sheet.text(left, top, wrapped(card.title, width - 22, 12)[0], weight="bold")
    top += 20
    if card.what == "queue":
        _slots(sheet, card, left, top, width - 22)
        top += 24
    if card.what == "server":
        _heads(sheet, card, left, top, width - 22)
        top += 24
    for number, line in enumerate(_texts(card, width)):
        sheet.text(left, top + number * LINE, line, fontsize=TEXT)


def _slots(sheet: Sheet, card: Card, left: float, top: float, width: float) -> None:
    """Places in the queue, filled from the server's end."""
    size = min(15.0, width / SLOTS)
    filled = max(round(card.full * SLOTS), 1) if card.full > 0 else 0
    colour = colours.OUTCOMES["gateway"] if card.full >= 1 else card.colour
    for number in range(SLOTS):
        face = colour if number >= SLOTS - filled else "none"
        sheet.box(left + number * size, top, size - 2, 16, face, edge=colours.MUTED)


def _heads(sheet: Sheet, card: Card, left: float, top: float, width: float) -> None:
    """Each worker, as far as there is room."""
    shown = min(card.workers, WORKERS_DRAWN, int((width - 30) / 15))
    for number in range(shown):
        sheet.add(Circle((left + 6 + number * 15, top + 8), 5.5, facecolor=card.colour, edgecolor="none"))
    if card.workers > shown:
        sheet.text(left + shown * 15 + 4, top + 1, f"… {card.workers}", fontsize=TEXT, color=colours.MUTED)
