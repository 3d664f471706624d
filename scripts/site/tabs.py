"""A hook of MkDocs: shows sections as tabs.

In the repository they are sections, which GitHub shows one below the other: headings of the third level between the
comments `<!-- tabs -->` and `<!-- /tabs -->`.
"""

import re
import textwrap
from typing import Any

TABS = re.compile(r"^<!-- tabs -->$(.*?)^<!-- /tabs -->$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^### (.+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return TABS.sub(lambda found: tabbed(found[1]), markdown)


def tabbed(sections: str) -> str:
    """The sections as pymdownx.tabbed reads them."""
    before, *parts = HEADING.split(sections)
    assert not before.strip(), f"text before the first tab: {before.strip()!r}"
    return "".join(
        f'=== "{title}"\n\n{textwrap.indent(text.strip(), "    ")}\n\n'
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    )
