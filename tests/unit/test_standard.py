"""The server imports the standard library's modules, whatever files lie in the app's directory."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stanchion
from stanchion import standard
from support import interpreters
from support.interpreters import Interpreter
from support.patience import PATIENCE_S

PACKAGE = Path(stanchion.__file__).parent
EARLY = "stanchion.cli"
# These are no part of a server: they import with the app's directory nowhere on the path. Nor are PasteDeploy and
# gevent, which import as the app does.
COMMANDS = {"check", "ctl", "doctor", "fleet", "gevent", "guide", "paste", "plan", "top", "usage"}
# Modules that the Rust module imports (grep import crates/stanchion-py/src), and Python itself when it shows an error.
NATIVE = {"atexit", "io", "signal", "threading", "traceback"}

# The probe imports the modules that load before the app's directory is on the path, then the rest, and shows an error,
# which imports more. It prints the modules that all that has brought.
PROBE = """
import sys
early, late = sys.argv[1].split(), sys.argv[2].split()
for name in early:
    __import__(name)
before = set(sys.modules)
for name in late:
    __import__(name)
import json, logging, traceback
for mistake in ("json.loads('[')", "traceback.format_t", "prinnt", "f("):
    try:
        eval(mistake)
    except Exception as error:
        list(traceback.TracebackException.from_exception(error).format())
        logging.getLogger("shown").exception("shown")
found = {name.partition(".")[0] for name in sys.modules.keys() - before} - {name.partition(".")[0] for name in before}
print(*sorted(found - set(sys.builtin_module_names)))
"""


@pytest.mark.parametrize("interpreter", interpreters.found(), ids=str)
def test_all_that_is_imported_late_is_found_where_it_was_at_the_start(interpreter: Interpreter) -> None:
    early, late = imported()
    # -S: without a site, as whatever that imports need not be there for a server.
    command = [str(interpreter.path), "-I", "-S", "-c", PROBE, " ".join(sorted(early)), " ".join(sorted(late))]
    brought = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3 * PATIENCE_S).stdout.split()
    assert "traceback" in brought, "or nothing was looked at"
    assert sorted(set(brought) - standard.NAMES) == [], f"on {interpreter}: add them to stanchion/standard.py"


def imported() -> tuple[set[str], set[str]]:
    """The standard modules that a server imports at its start, and those that it imports later if ever."""
    early: set[str] = set()
    late = set(NATIVE)
    seen: set[str] = set()
    ahead = [(EARLY, True)]
    while ahead:  # early ones are taken first, as they are put last
        module, at_start = ahead.pop()
        path = file_of(module)
        if module in seen or path is None or COMMANDS.intersection(module.split(".")):
            continue
        seen.add(module)
        for name, deferred in imports(ast.parse(path.read_text())):
            is_early = at_start and not deferred
            if name.partition(".")[0] in sys.stdlib_module_names:
                (early if is_early else late).add(name)
            elif is_early:
                ahead.append((name, True))
            else:
                ahead.insert(0, (name, False))
    return early, late - early


def file_of(module: str) -> Path | None:
    place = PACKAGE.parent.joinpath(*module.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in candidates if path.exists()), None)


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """(module, whether it waits for something) of each import. A name may be a module or what is in one."""
    for statement in tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node is not statement) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield node.module, node is not statement
                if node.module.partition(".")[0] == "stanchion":
                    yield from ((f"{node.module}.{alias.name}", node is not statement) for alias in node.names)
