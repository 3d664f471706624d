"""The shape of types and functions: few fields, short functions, a type in few files, and one type for each name.

`exceptions.toml` names types and functions that have another shape, each with its reason. A row that is not needed any
more is a complaint.
"""

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidy.sources import paths, product_sources, rust_code

EXCEPTIONS = "tests/tidy/exceptions.toml"
FIELDS_MAX = 15
FUNCTION_LINES_MAX = 60
IMPL_FILES_MAX = 3

FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:default |const |async |unsafe |extern )*fn (\w+)", re.MULTILINE)
STRUCT = re.compile(r"\bstruct\s+(\w+)[^;{(]*\{(.*?)\n\s*\}", re.DOTALL)
FIELD = re.compile(r"^\s+(?:pub(?:\([^)]*\))?\s+)?\w+\s*:(?!:)", re.MULTILINE)
INHERENT_IMPL = re.compile(r"^impl(?:<[^{]*?>)?\s+(?:\w+::)*(\w+)(?:<[^{]*>)?\s*(?:where\b[^{]*)?\{", re.MULTILINE)
TYPE = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait|type|union)\s+(\w+)", re.MULTILINE)


def structs_are_small(root: Path) -> list[str]:
    """A struct with many fields is several things, and code that needs one of them gets all."""
    found = {
        f"{crate}::{struct[1]}": fields
        for _, crate, code in product_code(root)
        for struct in STRUCT.finditer(code)
        if (fields := len(FIELD.findall(struct[2]))) > FIELDS_MAX
    }
    return complaints(root, "fields", found, f"fields, more than {FIELDS_MAX}")


def functions_are_short(root: Path) -> list[str]:
    """A function is read as a whole: from its first line to its closing brace, comments included."""
    found = {
        f"{file}::{name}": lines
        for file, _, code in product_code(root)
        for name, lines in rust_functions(code)
        if lines > FUNCTION_LINES_MAX
    }
    for name, path in paths(root / "python", ".py"):
        for node in ast.walk(ast.parse(path.read_text(), name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    found[f"python/{name}::{node.name}"] = lines
    return complaints(root, "functions", found, f"lines, more than {FUNCTION_LINES_MAX}")


def rust_functions(code: str) -> Iterator[tuple[str, int]]:
    """Each function with a body: (its name, its lines)."""
    for function in FUNCTION.finditer(code):
        begin = function.start(1)
        body = re.compile(r"[{;]").search(code, function.end())
        # A `;` in the type of an array is no end of a declaration.
        while body and body[0] == ";" and code.count("[", begin, body.start()) > code.count("]", begin, body.start()):
            body = re.compile(r"[{;]").search(code, body.end())
        if body and body[0] == "{":
            yield function[1], 1 + code.count("\n", begin, end_of_block(code, body.start()))


def end_of_block(code: str, begin: int) -> int:
    depth = 0
    for brace in re.compile(r"[{}]").finditer(code, begin):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return len(code)


def types_keep_together(root: Path) -> list[str]:
    """A reader finds all methods of a type, except those of traits, in few files."""
    files = defaultdict[str, set[str]](set)
    for name, crate, code in product_code(root):
        for found in INHERENT_IMPL.finditer(code):
            files[f"{crate}::{found[1]}"].add(name)
    found = {name: len(where) for name, where in files.items() if len(where) > IMPL_FILES_MAX}
    return complaints(root, "files", found, f"files with its methods, more than {IMPL_FILES_MAX}")


def type_names_are_unique(root: Path) -> list[str]:
    """One name means one type in the whole workspace, also where each is private."""
    named = Counter(found[1] for _, _, code in product_code(root) for found in TYPE.finditer(code))
    return complaints(root, "names", {name: count for name, count in named.items() if count > 1}, "types of that name")


def product_code(root: Path) -> Iterator[tuple[str, str, str]]:
    """Each Rust file of the product: (its path, its crate, its code without tests)."""
    for name, crate, text in product_sources(root):
        yield name, crate, rust_code(text)


def complaints(root: Path, rule: str, found: Mapping[str, int], what: str) -> list[str]:
    """Each name that no exception covers, and each exception that covers nothing."""
    page = root / EXCEPTIONS
    excepted: dict[str, str] = tomllib.loads(page.read_text()).get(rule, {}) if page.exists() else {}
    return [f"{name}: {found[name]} {what}" for name in sorted(found.keys() - excepted.keys())] + [
        f"{EXCEPTIONS}: {rule}: {name} needs no exception" for name in sorted(excepted.keys() - found.keys())
    ]
