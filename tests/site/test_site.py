"""The web site needs no other site: it loads nothing from elsewhere, and brings the index of its search."""

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = Path(os.environ["STANCHION_SITE"])
PAGES = sorted(SITE.rglob("*.html"))
ABROAD = re.compile(r"(?:https?:)?//")
NEVER_RUN = {
    "https://unpkg.com/mermaid@11/dist/mermaid.min.js": "for pages with diagrams in Mermaid, which we have none of",
    "https://unpkg.com/resize-observer-polyfill": "for browsers older than ResizeObserver (2020)",
}
"""URLs that Material's script would load -> when."""


class Loads(HTMLParser):
    """The URLs that a browser fetches by itself to show a page, without the links that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("canonical", "next", "prev"):
            return
        names = ("src", "srcset", "poster", "data") + (("href",) if tag in ("link", "image", "use") else ())
        self.urls += [value for name in names if (value := values.get(name))]


def loads(page: Path) -> list[str]:
    parser = Loads()
    parser.feed(page.read_text())
    return parser.urls


def test_pages_load_nothing_from_elsewhere() -> None:
    assert len(PAGES) > 30
    found = {str(page.relative_to(SITE)): [url for url in loads(page) if ABROAD.match(url)] for page in PAGES}
    assert {page: urls for page, urls in found.items() if urls} == {}


def test_what_pages_load_is_there() -> None:
    missing = [
        f"{page.relative_to(SITE)}: {url}"
        for page in PAGES
        if page.name != "404.html"  # its paths begin at the root of a server
        for url in loads(page)
        if not url.startswith(("data:", "#")) and not (page.parent / re.split("[?#]", url)[0]).is_file()
    ]
    assert missing == []


def test_styles_and_scripts_load_nothing_from_elsewhere() -> None:
    for style in SITE.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text()), style
    loaded = {
        url
        for script in SITE.rglob("*.js")
        for url in re.findall(r"https?://(?!github\.com/)[^\s\"'`]*(?:\.js|polyfill)\b", script.read_text())
    }
    assert loaded == NEVER_RUN.keys()


def test_the_search_has_every_page_of_the_menu_and_no_other() -> None:
    index = json.loads((SITE / "search/search_index.json").read_text())
    searched = {entry["location"].partition("#")[0] for entry in index["docs"]} - {""}
    menu = set(re.findall(r": ([\w/.-]+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert searched | {"index.html"} == {f"{page}.html".replace("README", "index") for page in menu}
    assert any("Retry-After" in entry["text"] for entry in index["docs"] if entry["location"].startswith("the-line"))
