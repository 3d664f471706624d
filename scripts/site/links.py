"""A hook of MkDocs: makes links that work in the repository work on the site as well.

The pages of the repository's root become pages of the site, README.md the first one. Any other file to which a page
links becomes a page too, below files/. The search has only pages of the menu.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {"README.md": "index.md"} | {
    name: name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
}
"""In the repository -> on the site."""

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
CODE = re.compile(r"(^ *```.*?^ *```|``.*?``|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"<picture>.*?<img alt=\"(.*?)\" src=\"(.*?)-light(\.\w+)\">\s*</picture>", re.DOTALL)
LANGUAGES = {
    ".py": "python",
    ".sh": "sh",
    ".ini": "ini",
    ".toml": "toml",
    ".json": "json",
    ".rs": "rust",
    ".rb": "ruby",
}
LANGUAGES |= {".yaml": "yaml", ".yml": "yaml", ".conf": "nginx", ".nginx": "nginx", ".service": "ini", ".socket": "ini"}
SHOWN_BYTES_MAX = 200_000


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    shown = set()
    for file in files.documentation_pages():
        for path in targets(file):
            if uri_of(path) is None and (ROOT / path).is_file():
                shown.add(path)
    for path in sorted(shown):
        files.append(File.generated(config, f"files/{path}.md", content=listing(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    home = repository_path(page.file)
    if home is None:
        return markdown
    if page.file.inclusion.is_not_in_nav():
        page.meta["search"] = {"exclude": True}
    both = r"![\1](\2-light\3#only-light) ![\1](\2-dark\3#only-dark)"
    parts = CODE.split(PICTURE.sub(both, markdown))
    # The words of a link may be code, so a link is looked for as what follows them.
    return "".join(part if index % 2 else relinked(part, home, page.file) for index, part in enumerate(parts))


def relinked(text: str, home: str, file: File) -> str:
    def link(found: re.Match[str]) -> str:
        path = resolved(found[1], home)
        uri = uri_of(path) or (f"files/{path}.md" if (ROOT / path).is_file() else None)
        if uri is None:
            return found[0]
        return f"]({posixpath.relpath(uri, posixpath.dirname(file.src_uri) or '.')}{found[2] or ''})"

    return LINK.sub(link, text)


def targets(file: File) -> Iterator[str]:
    """The paths in the repository that a page links to."""
    home = repository_path(file)
    if home is not None:
        for part in CODE.split(file.content_string)[::2]:
            for target, _ in LINK.findall(part):
                yield resolved(target, home)


def resolved(target: str, home: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(home), target))


def repository_path(file: File) -> str | None:
    """Where its text stands in the repository; None of a page that is made here."""
    if file.src_uri.startswith("files/"):
        return None
    names = {uri: name for name, uri in ROOT_PAGES.items()}
    return names.get(file.src_uri, f"docs/{file.src_uri}")


def uri_of(path: str) -> str | None:
    return ROOT_PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)


def listing(path: str) -> str:
    """The file as a page. A file that is too long to be read is only named."""
    source = ROOT / path
    hidden = "---\nsearch:\n  exclude: true\n---\n"
    if source.stat().st_size > SHOWN_BYTES_MAX:
        return f"{hidden}# {path}\n\nThis file is in the repository, and too long to be shown here.\n"
    fence = "~" * 8
    language = LANGUAGES.get(source.suffix, source.suffix.removeprefix(".") or "text")
    return f"{hidden}# {path}\n\n{fence} {language}\n{source.read_text().rstrip()}\n{fence}\n"
