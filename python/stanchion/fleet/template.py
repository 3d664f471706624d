"""Files with holes, in the sections and variables of Mustache: `{{name}}`, and lines that are there if a fact is."""

import re
from collections.abc import Mapping
from typing import Any

_SECTION = re.compile(r"^\{\{([#^])(\w+)\}\}\n(.*?)^\{\{/\2\}\}\n", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"\{\{(\w+)\}\}")


def render(text: str, facts: Mapping[str, Any]) -> str:
    """The text with the facts in it. `{{#name}}` begins lines that are there for each item of a list, or if the fact is
    true, `{{^name}}` those that are there if it is not, and `{{/name}}` ends them.
    """

    def section(found: re.Match[str]) -> str:
        sign, name, lines = found.groups()
        fact = facts[name]
        if sign == "^":
            return "" if fact else render(lines, facts)
        items = fact if isinstance(fact, list) else [{}] if fact else []
        return "".join(render(lines, {**facts, **item}) for item in items)

    # A fact may contain what looks like a variable, so each part is filled once.
    filled, done = "", 0
    for found in _SECTION.finditer(text):
        filled += _filled(text[done : found.start()], facts) + section(found)
        done = found.end()
    return filled + _filled(text[done:], facts)


def _filled(text: str, facts: Mapping[str, Any]) -> str:
    return _VARIABLE.sub(lambda found: str(facts[found[1]]), text)
