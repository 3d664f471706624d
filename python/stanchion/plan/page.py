"""The page of a plan: one file without a network, from page.html."""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

_HOLE = "@DATA@"

_SHOWN = ("name", "knobs", "requests", "refused", "timed_out", "shed", "wait", "wait_band", "utilization", "line")
"""The page has these keys of each result."""

_SAME = ("threads", "event_loop", "max_waiting", "queue_order", "lanes", "cores")
"""Knobs that are the same on the curve of workers."""


def made(plan: Mapping[str, Any]) -> str:
    """The page that shows this plan."""
    shown = [{key: one[key] for key in _SHOWN} for one in plan["results"] if one["wait"] is not None]
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # In a script element nothing but its end is markup (HTML, section 4.12.1.3), and JSON may escape what begins it.
    data = json.dumps({**plan, "results": shown}).replace("<", "\\u003c")
    return text.replace(_HOLE, data)


def series(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the settings that differ from the first in a fixed number of workers alone, the fewest first."""
    first = results[0]["knobs"]
    along = [
        one
        for one in results
        if one["wait"] is not None
        and isinstance(one["knobs"]["workers"], int)
        and all(one["knobs"].get(name) == first.get(name) for name in _SAME)
    ]
    return [str(one["name"]) for one in sorted(along, key=lambda one: int(one["knobs"]["workers"]))]
