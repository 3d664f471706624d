"""Rules of the house that a reader would have to remember, as functions over a checkout.

Each takes the root folder and gives a list of complaints, empty if all is well.
"""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

from tidy.first_pages import first_pages_are_kept
from tidy.index import index_names_places
from tidy.messages import page_has_every_message
from tidy.packaging import pins_agree, pins_have_hashes, python_is_old_enough
from tidy.pages import links_name_headings, menu_has_every_page, pages_are_short
from tidy.rooms import flat, named, rooms_make_no_circle
from tidy.sentences import sentences_have_subjects
from tidy.shapes import functions_are_short, product_code, structs_are_small, type_names_are_unique, types_keep_together
from tidy.sources import paths, rust_code, rust_sources, without_tests

ARROWS: dict[str, set[str]] = {
    "stanchion-line": set(),
    "stanchion-arrivals": set(),
    "stanchion-plan": {"stanchion-arrivals", "stanchion-line"},
    "stanchion-http": set(),
    "stanchion-websocket": set(),
    "stanchion-tls": set(),
    "stanchion-compression": {"stanchion-http"},
    "stanchion-sys": set(),
    "stanchion-exchange": {"stanchion-sys"},
    "stanchion-settings": {"stanchion-http", "stanchion-sys", "stanchion-tls"},
    "stanchion-log": {"stanchion-arrivals", "stanchion-settings", "stanchion-sys"},
    "stanchion-record": {"stanchion-exchange", "stanchion-http", "stanchion-websocket", "stanchion-log"},
    "stanchion-generation": {
        "stanchion-line",
        "stanchion-settings",
        "stanchion-log",
        "stanchion-tls",
        "stanchion-exchange",
        "stanchion-sys",
    },
    "stanchion-dispatch": {
        "stanchion-generation",
        "stanchion-record",
        "stanchion-settings",
        "stanchion-log",
        "stanchion-line",
        "stanchion-http",
        "stanchion-websocket",
        "stanchion-exchange",
        "stanchion-sys",
    },
    "stanchion-observers": {
        "stanchion-arrivals",
        "stanchion-dispatch",
        "stanchion-generation",
        "stanchion-settings",
        "stanchion-log",
        "stanchion-http",
        "stanchion-sys",
    },
    "stanchion-requests": {
        "stanchion-observers",
        "stanchion-dispatch",
        "stanchion-generation",
        "stanchion-record",
        "stanchion-settings",
        "stanchion-log",
        "stanchion-http",
        "stanchion-websocket",
        "stanchion-tls",
        "stanchion-compression",
        "stanchion-exchange",
        "stanchion-sys",
    },
    "stanchion-connections": {
        "stanchion-requests",
        "stanchion-dispatch",
        "stanchion-generation",
        "stanchion-record",
        "stanchion-settings",
        "stanchion-http",
        "stanchion-websocket",
        "stanchion-tls",
        "stanchion-compression",
        "stanchion-exchange",
        "stanchion-sys",
    },
    "stanchion-acceptor": {
        "stanchion-arrivals",
        "stanchion-connections",
        "stanchion-requests",
        "stanchion-observers",
        "stanchion-dispatch",
        "stanchion-generation",
        "stanchion-record",
        "stanchion-settings",
        "stanchion-log",
        "stanchion-http",
        "stanchion-tls",
        "stanchion-exchange",
        "stanchion-sys",
    },
    "stanchion-master": {
        "stanchion-generation",
        "stanchion-settings",
        "stanchion-log",
        "stanchion-exchange",
        "stanchion-sys",
    },
    "stanchion-server": {
        "stanchion-master",
        "stanchion-acceptor",
        "stanchion-generation",
        "stanchion-record",
        "stanchion-settings",
        "stanchion-log",
        "stanchion-line",
        "stanchion-exchange",
        "stanchion-sys",
    },
    "stanchion-py": {
        "stanchion-server",
        "stanchion-plan",
        "stanchion-arrivals",
        "stanchion-settings",
        "stanchion-log",
        "stanchion-record",
        "stanchion-http",
        "stanchion-exchange",
        "stanchion-sys",
    },
}
"""For each crate, the crates of ours that it may name."""

PURE = {
    "stanchion-line": set[str](),
    "stanchion-arrivals": {"serde", "serde_json"},
    "stanchion-plan": {"serde", "serde_json", "stanchion-arrivals", "stanchion-line"},
    "stanchion-http": {"memchr"},
    "stanchion-websocket": {"tungstenite", "zlib-rs"},
    "stanchion-tls": {"data-encoding", "libcrux-ml-kem", "ring", "rustls", "rustls-pki-types", "thiserror"},
    "stanchion-compression": {"brotli", "stanchion-http", "zlib-rs", "zstd-safe"},
    "stanchion-master": {
        "serde",
        "stanchion-exchange",
        "stanchion-generation",
        "stanchion-log",
        "stanchion-settings",
        "stanchion-sys",
    },
}
"""Crates that are policy or grammar only -> what they may be linked with."""

OWNERS = {
    "backtrace": {"stanchion-sys"},
    "libcrux-ml-kem": {"stanchion-tls"},
    "pyo3": {"stanchion-py"},
    "tokio": {"stanchion-connections"},
    "h2": {"stanchion-connections"},
    "httparse": {"stanchion-observers"},
    "tungstenite": {"stanchion-websocket"},
    "zlib-rs": {"stanchion-compression", "stanchion-websocket"},
    "brotli": {"stanchion-compression"},
    "zstd-safe": {"stanchion-compression"},
    "rustls": {"stanchion-tls"},
    "rustls-pki-types": {"stanchion-tls"},
}
"""For each foreign crate, the crates of ours that may name it."""

HTTP_PARSERS: dict[str, tuple[str, ...]] = {
    "h2": ("crates/stanchion-connections/src/",),
    "httparse": ("crates/stanchion-observers/src/spans/post.rs",),
    "hyper": (),
    "tokio": ("crates/stanchion-connections/src/wire.rs",),
}
"""Foreign crates that read HTTP or run an event loop -> files that may name them nevertheless."""

ACCEPTOR = "crates/stanchion-acceptor/src/"
DISPATCH = "crates/stanchion-dispatch/src/"
LAYERS: dict[str, list[str]] = {
    ACCEPTOR: ["admin", "doors"],
    DISPATCH: ["storage"],
}
"""The layers within a crate from the highest to the lowest: each may name those below it, nothing else of the crate.
Above all of them are the files beside them."""

UNSAFE_HOMES = (
    "crates/stanchion-sys/",
    "crates/stanchion-exchange/",
    "crates/stanchion-py/src/fork.rs",
    "crates/stanchion-http/tests/allocations.rs",
    "crates/stanchion-server/tests/allocations.rs",
)
UNSAFE_FORBIDDEN = sorted(ARROWS.keys() - {"stanchion-exchange", "stanchion-py", "stanchion-sys"})

WALL_CLOCKS: dict[str, str] = {
    "crates/stanchion-sys/src/clock.rs": "reads it",
    "crates/stanchion-log/src/line.rs": "dates its lines",
    "crates/stanchion-log/src/lib.rs": "dates its lines",
    "crates/stanchion-log/src/trouble.rs": "dates its lines",
    "crates/stanchion-log/src/entry.rs": "tells the scribe when it was",
    "crates/stanchion-log/src/recording.rs": "dates its files",
    "crates/stanchion-observers/src/access_log/record.rs": "tells the scribe when it was",
    "crates/stanchion-observers/src/access_log/mod.rs": "dates its lines",
    "crates/stanchion-observers/src/access_log/time.rs": "writes it in a line",
    "crates/stanchion-server/src/template.rs": "compares files by when they were changed",
    "crates/stanchion-observers/src/spans/exporter.rs": "tells a collector when it was",
    "crates/stanchion-requests/src/head.rs": "dates answers",
    "crates/stanchion-requests/src/lib.rs": "tells apps when requests came",
    "crates/stanchion-requests/src/policy.rs": "reads from a proxy when it was",
    "crates/stanchion-py/src/warm_up.rs": "tells apps when requests came",
    "crates/stanchion-acceptor/src/tls.rs": "compares certificates, which are for a time",
    "crates/stanchion-generation/src/credentials.rs": "compares certificates, which are for a time",
    "crates/stanchion-generation/src/ticket_keys.rs": "dates keys that outlive processes",
    "python/stanchion/doctor/__init__.py": "compares certificates, which are for a time",
}
"""Files that may ask for the time of day -> what for."""

PROMISES = ["SECURITY.md", "docs/internals/past-wounds.md"]
"""Pages with tables of promises, each of which a test keeps."""

FILE_LINES_MAX = 500
FILE_LINES_EXCEPTIONS: dict[str, str] = {}
"""Path -> why it may be longer."""

CRATE_LINES_MAX = 18_000
"""With its tests."""

DECISIONS = "crates/stanchion-master/src/"
"""The master's decisions, without I/O and clocks."""

# ---- Rust


def arrows_in_manifests(root: Path) -> list[str]:
    complaints = []
    found = set()
    for name, path in paths(root / "crates", "Cargo.toml"):
        manifest = tomllib.loads(path.read_text())
        crate = manifest["package"]["name"]
        found.add(crate)
        if crate not in ARROWS:
            complaints.append(f"crates/{name}: {crate} is not in the table of arrows")
            continue
        tables = [manifest, *manifest.get("target", {}).values()]
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            for dependency in (key for table in tables for key in table.get(kind, {})):
                is_linked = kind != "dev-dependencies"
                if not may_name(crate, dependency) or (is_linked and dependency not in PURE.get(crate, {dependency})):
                    complaints.append(f"crates/{name}: {crate} must not depend on {dependency}")
    return complaints + [
        f"{crate} is in the table of arrows and nowhere else" for crate in sorted(ARROWS.keys() - found)
    ]


def arrows_in_sources(root: Path) -> list[str]:
    named = re.compile(rf"\b(stanchion_\w+|{'|'.join(OWNERS).replace('-', '_')})(?=\s*(?:::|;|\s+as\b))")
    return [
        f"{name}: {crate} must not name {found}"
        for name, crate, text in rust_sources(root)
        for found in sorted(set(named.findall(rust_code(text))))
        if crate in ARROWS and not may_name(crate, found.replace("_", "-"))
    ]


def may_name(crate: str, other: str) -> bool:
    if other in ARROWS:
        return other == crate or other in ARROWS[crate]
    return crate in OWNERS.get(other, {crate})


def decisions_do_no_io(root: Path) -> list[str]:
    """They know how a process ended, and numbers of signals; they ask neither the kernel nor a clock for anything."""
    complaints = []
    for name, _, text in rust_sources(root):
        if not name.startswith(DECISIONS):
            continue
        code = flat(rust_code(text))
        written = re.findall(r"\b(?:std|stanchion_sys)(?:::\w+)+", re.sub(r"\buse [^;]+;", "", code))
        for path in [*named(code), *(path.split("::") for path in written)]:
            full = "::".join(path)
            is_kernel = path[0] == "stanchion_sys" and not re.match(r"stanchion_sys::(process::Exit|signal::SIG)", full)
            if is_kernel or re.match(r"std::(env|fs|io|net|os|process|thread|time::(Instant|SystemTime))\b", full):
                complaints.append(f"{name}: must not name {full}")
    return complaints


def one_parser_of_http(root: Path) -> list[str]:
    """Two that read the same bytes differently are how requests are smuggled."""
    complaints = []
    for name, _, text in rust_sources(root):
        code = rust_code(text)
        complaints += [
            f"{name}: must not name {parser}"
            for parser, homes in HTTP_PARSERS.items()
            if not name.startswith(homes) and re.search(rf"\b{parser}\b", code)
        ]
    return complaints


def folders_in_layers(root: Path) -> list[str]:
    """Tests may reach up, since they are of no layer."""
    complaints = []
    missing = {(home, layer) for home, layers in LAYERS.items() for layer in layers}
    for name, _, text in rust_sources(root):
        home = next((home for home in LAYERS if name.startswith(home)), "")
        inside = name.removeprefix(home)
        layer = inside.split("/")[0].removesuffix(".rs")
        if not home or layer not in LAYERS[home]:
            continue
        missing.discard((home, layer))
        if inside.endswith("tests.rs") or "/tests/" in inside:
            continue
        below = set(LAYERS[home][LAYERS[home].index(layer) :])
        for other in sorted(named_in_crate(inside, rust_code(without_tests(text))) - below):
            complaints.append(f"{name}: {layer} must not name {other}")
    return complaints + [f"{home}: {layer} is not there" for home, layer in sorted(missing)]


def named_in_crate(inside: str, code: str) -> set[str]:
    """The names at its crate's root that a file uses, by `crate::x` or from above by `super`."""
    depth = inside.count("/") + (not inside.endswith("mod.rs"))
    flat = re.sub(r"\s*(::|[{},;])\s*", r"\1", code)
    group = r"\{(?:[^{}]|\{[^{}]*\})*\}"
    above = rf"(?<![\w:])(?:crate|{'::'.join(['super'] * depth)})::(\w+|{group})"
    named: set[str] = set()
    for path in re.findall(above, flat):
        named.update(re.findall(r"(?:^|[{,])(\w+)", re.sub(r"(?<=.)\{[^{}]*\}", "", path)))
    return named


def unsafe_stays_home(root: Path) -> list[str]:
    complaints = [
        f"{name}: unsafe outside of its homes"
        for name, _, text in rust_sources(root)
        if not name.startswith(UNSAFE_HOMES) and re.search(r"\bunsafe\b", rust_code(text))
    ]
    for crate in UNSAFE_FORBIDDEN:
        library = root / "crates" / crate / "src/lib.rs"
        if not library.exists() or "#![forbid(unsafe_code)]" not in rust_code(library.read_text()):
            complaints.append(f"crates/{crate}/src/lib.rs: does not say #![forbid(unsafe_code)]")
    return complaints


def unsafe_says_why(root: Path) -> list[str]:
    """A `SAFETY:` comment stands on the line of each unsafe block or impl, or directly above its statement."""
    complaints = []
    for name, _, text in rust_sources(root):
        lines = text.splitlines()
        for number, code in enumerate(rust_code(text).splitlines()):
            if re.search(r"\bunsafe\s*(?:\{|impl\b|$)", code) and not explained(lines, number):
                complaints.append(f"{name}:{number + 1}: no SAFETY comment")
    return complaints


def explained(lines: list[str], number: int) -> bool:
    if "SAFETY:" in lines[number]:
        return True
    above = number - 1
    # Up to where the statement begins: the line above it ends a statement, opens a block, or is a comment.
    while above >= 0 and not re.search(r"^\s*//|[;{}]\s*$|^\s*$", lines[above]):
        above -= 1
    while above >= 0 and lines[above].lstrip().startswith(("//", "#[")):
        if "SAFETY:" in lines[above]:
            return True
        above -= 1
    return False


# ---- Python


def lab_and_server_know_of_no_module_of_each_other(root: Path) -> list[str]:
    """The lab is a distribution of its own, and the server is one of the programs that it runs."""
    complaints = []
    for name, path in paths(root, ".py", ".pyi"):
        strange = "stanchion." if name.startswith("lab/stanchion_lab/") else "stanchion_lab."
        if name.startswith("lab/tests/"):
            continue
        text = path.read_text()
        # Few files have the word, and an import has it.
        tree = ast.walk(ast.parse(text, name)) if strange[:-1] in text else ()
        for node in tree:
            found = [module for module in imported(node, name) if f"{module}.".startswith(strange)]
            if found:
                complaints.append(f"{name}:{getattr(node, 'lineno', 0)}: imports {found[0]}")
    return complaints


def imported(node: ast.AST, name: str) -> list[str]:
    """The modules that an import statement in the file of this path may import, in full."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = name.removeprefix("python/").removeprefix("lab/").split("/")[: -node.level]
        base = ".".join([*package, *([base] if base else [])])
    return [base, *(f"{base}.{alias.name}" for alias in node.names)]


# ---- Everything


def crates_are_small(root: Path) -> list[str]:
    lines = Counter[str]()
    for _, crate, text in rust_sources(root):
        lines[crate] += text.count("\n")
    return [
        f"crates/{crate}: {lines[crate]} lines, more than {CRATE_LINES_MAX}"
        for crate in sorted(lines)
        if lines[crate] > CRATE_LINES_MAX
    ]


def files_are_short(root: Path) -> list[str]:
    """Tests do not count: neither test files, nor what stands below `mod tests` in a Rust file."""
    complaints = []
    too_long = set()
    for name, path in paths(root, ".rs", ".py"):
        if "tests" in name.split("/")[:-1]:
            continue
        lines = without_tests(path.read_text()).count("\n")
        if lines > FILE_LINES_MAX:
            too_long.add(name)
            if name not in FILE_LINES_EXCEPTIONS:
                complaints.append(f"{name}: {lines} lines, more than {FILE_LINES_MAX}")
    return complaints + [f"{name}: needs no exception" for name in FILE_LINES_EXCEPTIONS if name not in too_long]


def waits_know_no_calendar(root: Path) -> list[str]:
    """No deadline, age or pause hangs on a clock that an operator may set, or that repeats a second."""
    wall = re.compile(r"\b(?:wall_us|wall_s|LocalTime::now|SystemTime|ClockId::Realtime\w*|time\.time|datetime\.now)\b")
    sources = [(name, rust_code(text)) for name, _, text in rust_sources(root)]
    sources += [(f"python/{name}", path.read_text()) for name, path in paths(root / "python", ".py")]
    used = {name for name, text in sources if wall.search(text)}
    complaints = [f"{name}: asks for the time of day" for name in sorted(used - WALL_CLOCKS.keys())]
    return complaints + [f"{name}: needs no exception" for name in sorted(WALL_CLOCKS.keys() - used)]


def promises_have_tests(root: Path) -> list[str]:
    """Each row of these pages' tables names a test that there is, by its file and function."""
    complaints = []
    for page in PROMISES:
        text = (root / page).read_text() if (root / page).exists() else ""
        rows = re.findall(r"^\| (.*?) \|(.*)$", re.sub(r"^\|.*\n(?=\|-)", "", text, flags=re.MULTILINE), re.MULTILINE)
        if not rows:
            complaints.append(f"{page}: has no table")
        for what, rest in rows:
            names = re.findall(r"`((?:tests|crates)/[\w./-]+)(?:::(\w+))?`", rest)
            if not any(function for _, function in names):
                complaints.append(f"{page}: '{what}' names no test")
            for name, function in names:
                path = root / name
                if not path.exists():
                    complaints.append(f"{page}: {name} does not exist")
                elif function and not re.search(rf"\b(?:def|fn) {function}\(", path.read_text()):
                    complaints.append(f"{page}: {name} has no {function}")
    return complaints


def words_are_in_the_code(root: Path) -> list[str]:
    """Each row of ARCHITECTURE.md's glossary names, in its last cell, types of which there is one, or functions.

    A word that no code has is none, and a type that is there twice means two things.
    """
    page = root / "ARCHITECTURE.md"
    text = page.read_text() if page.exists() else ""
    _, _, glossary = text.partition("\n## Words\n")
    rows = re.findall(r"^\|(.*?)\|.*\|(.*?)\|$", glossary.partition("\n## ")[0], re.MULTILINE)[2:]
    if not rows:
        return ["ARCHITECTURE.md: has no glossary"]
    types: Counter[str] = Counter()
    functions: set[str] = set()
    for _, _, code in product_code(root):
        types.update(re.findall(r"\b(?:struct|enum|trait|type)\s+(\w+)", code))
        # The macro makes an enum of it.
        types.update(re.findall(r"\bcounted!\s*\{\s*(\w+)", code))
        functions.update(re.findall(r"\bfn\s+(\w+)", code))
    complaints = []
    for word, cell in rows:
        names = re.findall(r"`(\w+)`", cell)
        if not names:
            complaints.append(f"ARCHITECTURE.md:{word}is nowhere in the code")
        for name in names:
            if name[0].islower() and name not in functions:
                complaints.append(f"ARCHITECTURE.md:{word}is a function {name} that is not there")
            if name[0].isupper() and types[name] != 1:
                complaints.append(f"ARCHITECTURE.md:{word}is a type {name} of which there are {types[name]}")
    return complaints


def named_paths_exist(root: Path) -> list[str]:
    """Paths in backticks in ARCHITECTURE.md, from the root; a bare file name may be anywhere."""
    page = root / "ARCHITECTURE.md"
    if not page.exists():
        return ["ARCHITECTURE.md: missing"]
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    names = {path.name for _, path in paths(root)}
    complaints = []
    for name in sorted(set(re.findall(r"`(\w[\w./-]*|\.\w[\w./-]*)`", text))):
        if "/" in name:
            exists = (root / name).exists()
        elif name.endswith((".rs", ".py", ".md", ".toml")):
            exists = name in names
        else:
            continue
        if not exists:
            complaints.append(f"ARCHITECTURE.md: `{name}` does not exist")
    return complaints


def links_lead_somewhere(root: Path) -> list[str]:
    complaints = []
    for name, path in paths(root, ".md"):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                complaints.append(f"{name}: the link to {target} leads nowhere")
    return complaints


def changelog_is_open(root: Path) -> list[str]:
    page = root / "CHANGELOG.md"
    if not page.exists() or not re.search(r"^## Unreleased$", page.read_text(), re.MULTILINE):
        return ["CHANGELOG.md: has no section '## Unreleased'"]
    return []


# Written so that they do not find themselves.
TRACES = {
    "names a registry": re.compile(
        r"(?:index[.]|static[.])?crates[.]io|pypi[.]org|pythonhosted[.]org|proxy[.]golang[.]org|npmjs[.](?:org|com)"
        r"|(?:extra-)?index-[u]rl|find-[l]inks"
    ),
    "names a path of one machine": re.compile(
        r"(?<![\w.*])/(?:root|home/\w+|work/(?:main|shared)|tmp/(?:plan|target))(?!\w)"
    ),
}
CRATES_SOURCE = "registry+https://github.com/rust-lang/" + "crates" + ".io-index"
"""How Cargo.lock spells the public registry, wherever a crate was really fetched from."""


def no_traces_of_a_machine(root: Path) -> list[str]:
    complaints = []
    for name, path in paths(root):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # no text
        if path.name == "Cargo.lock":
            text = text.replace(CRATES_SOURCE, "")
        for what, trace in TRACES.items():
            lines = [text[: found.start()].count("\n") + 1 for found in trace.finditer(text)]
            complaints += [f"{name}:{line}: {what}" for line in lines]
    return complaints


CHECKS = [
    crates_are_small,
    arrows_in_manifests,
    arrows_in_sources,
    decisions_do_no_io,
    one_parser_of_http,
    folders_in_layers,
    rooms_make_no_circle,
    first_pages_are_kept,
    unsafe_stays_home,
    unsafe_says_why,
    lab_and_server_know_of_no_module_of_each_other,
    files_are_short,
    structs_are_small,
    functions_are_short,
    types_keep_together,
    type_names_are_unique,
    sentences_have_subjects,
    waits_know_no_calendar,
    promises_have_tests,
    words_are_in_the_code,
    named_paths_exist,
    index_names_places,
    pages_are_short,
    links_lead_somewhere,
    links_name_headings,
    menu_has_every_page,
    page_has_every_message,
    changelog_is_open,
    pins_agree,
    pins_have_hashes,
    python_is_old_enough,
    no_traces_of_a_machine,
]
