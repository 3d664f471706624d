"""The files of a checkout, and the code in those of Rust."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

NOT_OURS = {
    ".git",
    "target",
    "dist",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".bench",
}


def paths(root: Path, *suffixes: str) -> Iterator[tuple[str, Path]]:
    """Every file of the checkout that ends in one of the suffixes: (its path below the root, itself)."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in NOT_OURS and not name.startswith(".venv"))
        for name in sorted(names):
            if name.endswith(suffixes or ""):
                path = Path(folder, name)
                yield path.relative_to(root).as_posix(), path


NOT_CODE = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | \bb?r(?P<hashes>\#*)".*?"(?P=hashes)
      | "(?:\\.|[^"\\])*"
      | '(?:\\[^\n]+?|[^'\\\n])'
    """,
    re.DOTALL | re.VERBOSE,
)


def rust_code(text: str) -> str:
    """The text without comments and literals, with every line still on its line."""
    return NOT_CODE.sub(lambda found: "\n" * found[0].count("\n"), text)


def rust_sources(root: Path) -> Iterator[tuple[str, str, str]]:
    """Each Rust file of a crate: (its path, its crate, its text)."""
    for name, path in paths(root / "crates", ".rs"):
        yield f"crates/{name}", name.split("/")[0], path.read_text()


TEST_MODULE = r"^#\[cfg\((?:test|all\(test\b.*)\)\]\n(?:#\[.*\]\n)*(?:pub(?:\([^)]*\))? )?mod "


def without_tests(text: str) -> str:
    """The text above `mod tests { ... }`, with which a Rust file ends."""
    return re.split(rf"{TEST_MODULE}\w+ \{{", text, flags=re.MULTILINE)[0]


def product_sources(root: Path) -> Iterator[tuple[str, str, str]]:
    """Each Rust file of the product: (its path, its crate, its text without tests)."""
    for name, crate, text in rust_sources(root):
        if "/src/" in name and "tests" not in name.removesuffix(".rs").split("/"):
            yield name, crate, without_tests(text)


def test_modules(text: str) -> list[str]:
    """The modules of tests that a Rust file declares, and that are in files of their own."""
    return re.findall(rf"{TEST_MODULE}(\w+);", text, flags=re.MULTILINE)
