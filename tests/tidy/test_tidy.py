"""The checkout keeps the rules of the house, and each rule notices when it is broken."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tidy import checks, rooms, shapes
from tidy.checks import CHECKS
from tidy.first_pages import MAY_NOT

ROOT = Path(__file__).resolve().parents[2]

Check = Callable[[Path], list[str]]
Tree = dict[str, str]

MANIFEST = '[package]\nname = "{}"\n'
FORBID = "#![forbid(unsafe_code)]\n"
GLOSSARY = "\n## Words\n\n| word | it is | in the code |\n|---|---|---|\n| line | the queue | `Line`, by `join` |\n"
FIELDS = "".join(f"    field_{number}: u8,\n" for number in range(15))
INDEX = "# Contributing\n\n## Where to go\n\n"
HASH = f" \\\n    --hash=sha256:{'0a' * 32}"

MENU = "nav:\n  - Start: index.md\n  - Wounds: internals/past-wounds.md\n"

CLOCKS: Tree = {path: "time.time()\n" if path.endswith(".py") else "SystemTime;\n" for path in checks.WALL_CLOCKS}

FIRST_PAGES: Tree = {
    f"crates/{crate}/src/lib.rs": f"//! A room.\n//!\n//! It may not have\n//! {', '.join(words)}.\n"
    + (FORBID if crate in checks.UNSAFE_FORBIDDEN else "")
    for crate, words in MAY_NOT.items()
}

TIDY: Tree = {
    **CLOCKS,
    **{f"crates/{crate}/Cargo.toml": MANIFEST.format(crate) for crate in checks.ARROWS},
    **{lib: FIRST_PAGES[lib] + CLOCKS.get(lib, "") for lib in FIRST_PAGES},
    "crates/stanchion-dispatch/src/lines.rs": "use stanchion_line::Line;\n",
    **{f"{home}{layer}/layer.rs": "" for home, layers in checks.LAYERS.items() for layer in layers},
    "crates/stanchion-sys/src/lib.rs": FIRST_PAGES["crates/stanchion-sys/src/lib.rs"]
    + "fn f() {\n    // SAFETY: shown above.\n    unsafe { g() }\n}\n",
    "python/stanchion/__init__.py": "",
    **{f"{folder}/{room}.rs": f"use super::{other}::A;\n" for folder in rooms.CIRCLES for room, other in ("ab", "ba")},
    "ARCHITECTURE.md": f"See `crates/stanchion-line/`, `lib.rs` and `a::b`.\n```\n`gone/gone.rs`\n```\n{GLOSSARY}",
    "crates/stanchion-line/src/line.rs": "// struct Line\npub struct Line;\nfn join() {}\n"
    "#[cfg(test)]\nmod tests { struct Line; }",
    "crates/stanchion-line/tests/model.rs": "struct Line;\n",
    **dict.fromkeys(checks.PROMISES, "| Promise | Test |\n|---|---|\n| a | `crates/stanchion-sys/src/lib.rs::f` |\n"),
    "CONTRIBUTING.md": f"{INDEX}- **Wait.** `crates/stanchion-line/src/line.rs` (its `Line` and\n  `join`).\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n",
    "mkdocs.yml": MENU,
    "README.md": "[inside](ARCHITECTURE.md#words) [elsewhere](https://example.com/x)\n",
    "pyproject.toml": (
        '[build-system]\nrequires = ["maturin==1.16.0"]\n[project]\nrequires-python = ">=3.10"\n'
        '[tool.mypy]\npython_version = "3.10"\n[tool.ruff]\ntarget-version = "py310"\n'
    ),
    "lab/pyproject.toml": (
        '[build-system]\nrequires = ["flit-core==4.2.0"]\n[project]\nrequires-python = ">=3.11"\n'
        '[tool.mypy]\npython_version = "3.11"\n[tool.ruff]\ntarget-version = "py311"\n'
    ),
    "requirements/dev.in": "maturin==1.16.0\nruamel.yaml==1.0  # why\n",
    "requirements/dev.txt": f"maturin==1.16.0{HASH}{HASH}\nruamel-yaml==1.0 ; os_name == 'posix'{HASH}\n    # via x\n",
    "bench/peers.in": "maturin==1.0\n",
    "bench/peers.txt": f"maturin==1.0{HASH}\n",
}
"""The smallest checkout that no rule complains about."""

SYS = "crates/stanchion-sys/src/lib.rs"
EXCHANGE = "crates/stanchion-exchange/src/lib.rs"
LINE = "crates/stanchion-line/src/lib.rs"
HTTP = "crates/stanchion-http/src/"
MESSAGES = "docs/reference/messages.md"
REASONS = "crates/stanchion-tls/src/"
PROMISE = "SECURITY.md"
APART = checks.lab_and_server_know_of_no_module_of_each_other
PY = "crates/stanchion-py/src/lib.rs"
ACCEPTOR = checks.ACCEPTOR
DISPATCH = checks.DISPATCH

FORBIDDEN = {
    "I/O": "fn f() { std::fs::read(a); }",
    "clock": "fn f() -> u64 { monotonic_us() }",
    "threads": "fn f() { std::thread::spawn(g); }",
    "unsafe": "fn f() { unsafe { g() } }",
    "log": "fn f() { warn!(a); }",
    "HTTP": "use stanchion_http::Head;",
    "Python": "struct PythonApp;",
    "fork": "fn f() { process::fork_child(); }",
    "listeners": "fn f(a: &Listener) {}",
    "sockets of clients": "use std::net::TcpStream;",
    "sockets": "use stanchion_sys::incoming::read;",
    "the line": "fn f(a: &mut Dispatch) {}",
    "the exchange": "use stanchion_exchange::Seat;",
    "frames": "use h2::server;",
    "epoll": "fn f(a: &Poller) {}",
    "heads of clients": "fn f(a: HeadReader) {}",
}
"""Words of first pages -> code that does what they forbid."""

BROKEN: list[tuple[Check, Tree]] = [
    *(
        (checks.first_pages_are_kept, {f"crates/{crate}/src/a.rs": FORBIDDEN[word]})
        for crate, words in MAY_NOT.items()
        for word in words
    ),
    *(
        (checks.first_pages_are_kept, {f"{HTTP}a.rs": code})
        for code in (
            "fn f() { println!(a); }",
            "fn f() { libc::getpid(); }",
            "fn f(a: UdpSocket) {}",
            "fn f(a: Instant) {}",
        )
    ),
    (checks.first_pages_are_kept, {LINE: FIRST_PAGES[LINE].replace("clock", "calendar")}),
    (checks.first_pages_are_kept, {LINE: FIRST_PAGES[LINE].replace("A room.", "It may not run.")}),
    (
        checks.arrows_in_manifests,
        {"crates/stanchion-exchange/Cargo.toml": f"{MANIFEST.format('stanchion-exchange')}[dependencies]\ntokio = '1'"},
    ),
    (
        checks.arrows_in_manifests,
        {
            "crates/stanchion-sys/Cargo.toml": f"{MANIFEST.format('stanchion-sys')}"
            "[target.'cfg(loom)'.dev-dependencies]\nstanchion-line.workspace = true"
        },
    ),
    (
        checks.arrows_in_manifests,
        {"crates/stanchion-http/Cargo.toml": f"{MANIFEST.format('stanchion-http')}[dependencies]\nhttparse = '1'"},
    ),
    (checks.arrows_in_manifests, {"crates/stanchion-new/Cargo.toml": MANIFEST.format("stanchion-new")}),
    (checks.arrows_in_sources, {EXCHANGE: "use stanchion_server::settings;"}),
    (checks.arrows_in_sources, {PY: "fn f() -> stanchion_line::Place { todo!() }"}),
    (checks.arrows_in_sources, {SYS: "fn f() { tokio::spawn(g()) }"}),
    (checks.arrows_in_sources, {"crates/stanchion-server/src/a.rs": "use tungstenite::Message;"}),
    (checks.arrows_in_sources, {"crates/stanchion-server/src/a.rs": "use rustls::ServerConfig;"}),
    (checks.arrows_in_sources, {PY: "use zlib_rs::Inflate;"}),
    (checks.arrows_in_sources, {PY: "use zstd_safe::CCtx;"}),
    (checks.arrows_in_sources, {"crates/stanchion-server/src/a.rs": "use pyo3 as p;"}),
    (checks.decisions_do_no_io, {f"{checks.DECISIONS}a.rs": "use std::{fmt, fs::File};"}),
    (checks.decisions_do_no_io, {f"{checks.DECISIONS}a.rs": "fn f() { std::time::Instant::now(); }"}),
    (checks.decisions_do_no_io, {f"{checks.DECISIONS}a.rs": "use stanchion_sys::signal::{SIGTERM, spin};"}),
    (checks.one_parser_of_http, {LINE: "fn f() { httparse::parse_headers(g) }"}),
    (checks.one_parser_of_http, {"crates/stanchion-requests/src/a.rs": "use hyper::server::conn::http1;"}),
    (checks.one_parser_of_http, {"crates/stanchion-server/src/master/a.rs": "use tokio::net;"}),
    (checks.folders_in_layers, {f"{DISPATCH}storage/disk.rs": "use crate::ticket::Ticket;"}),
    (checks.folders_in_layers, {f"{DISPATCH}storage/disk.rs": "use super::super::Dispatch;"}),
    (checks.folders_in_layers, {f"{DISPATCH}storage/mod.rs": "fn f(a: &super::ticket::Ticket) {}"}),
    (checks.folders_in_layers, {f"{ACCEPTOR}doors/a/b.rs": "use crate::{\n  doors::Doors, admin};"}),
    (checks.folders_in_layers, {f"{ACCEPTOR}doors/a.rs": "use crate::\n    admin::{Admin, State};"}),
    (checks.folders_in_layers, {f"{ACCEPTOR}admin/a.rs": "use crate::Acceptor;"}),
    (checks.rooms_make_no_circle, {f"{HTTP}a.rs": "use crate::b::B;", f"{HTTP}b.rs": "fn f() { crate::a::g() }"}),
    (
        checks.rooms_make_no_circle,
        {f"{HTTP}a.rs": "use super::b::B;", f"{HTTP}b/mod.rs": "", f"{HTTP}b/c.rs": "use crate::{d, a::{A, E}};"},
    ),
    (
        checks.rooms_make_no_circle,
        {
            f"{HTTP}a/mod.rs": "",
            f"{HTTP}a/b.rs": "use super::c::C;",
            f"{HTTP}a/c.rs": "use super::d;",
            f"{HTTP}a/d.rs": "use crate::a::b::B;",
        },
    ),
    (
        checks.rooms_make_no_circle,
        {
            f"{HTTP}lib.rs": f"{FORBID}pub use a::A;",
            f"{HTTP}a.rs": "use crate::b;",
            f"{HTTP}b.rs": "use crate::A;",
        },
    ),
    (
        checks.rooms_make_no_circle,
        {f"{HTTP}a.rs": "#[cfg(test)]\nmod tests;\nuse crate::b::B;", f"{HTTP}b.rs": "use crate::a::A;"},
    ),
    (checks.unsafe_stays_home, {PY: "// SAFETY: none.\nfn f() { unsafe { g() } }"}),
    (checks.unsafe_stays_home, {LINE: "// #![forbid(unsafe_code)]"}),
    (checks.unsafe_says_why, {SYS: "fn f() {\n    unsafe { g() }\n}\n"}),
    (checks.unsafe_says_why, {SYS: "fn f() {\n    // SAFETY: of g.\n    unsafe { g() };\n    unsafe { h() }\n}\n"}),
    (checks.unsafe_says_why, {SYS: 'fn f() {\n    let a = "// SAFETY: no comment";\n    unsafe { g(a) }\n}\n'}),
    (checks.unsafe_says_why, {SYS: "unsafe impl Send for A {}\n"}),
    (APART, {"python/stanchion/cli.py": "def f():\n    from stanchion_lab import report\n"}),
    (APART, {"bench/a.py": "import stanchion_lab.report\n"}),
    (APART, {"lab/stanchion_lab/load/own.py": "from stanchion.output import show\n"}),
    (APART, {"lab/stanchion_lab/a.py": "from stanchion import _stanchion\n"}),
    (checks.files_are_short, {"python/stanchion/a.py": "x = 1\n" * 501}),
    (checks.files_are_short, {LINE: "//\n" * 501 + "#[cfg(test)]\nmod tests {}\n"}),
    (checks.crates_are_small, {"crates/stanchion-line/tests/a.rs": "//\n" * 18_001}),
    (checks.structs_are_small, {SYS: f"pub struct A<'a> {{\n{FIELDS}    pub(crate) last: &'a [u8],\n}}\n"}),
    (checks.structs_are_small, {shapes.EXCEPTIONS: '[fields]\n"stanchion-line::Line" = "it was large"\n'}),
    (
        checks.functions_are_short,
        {SYS: "impl A {\n    fn f(\n        a: [u8; 2],\n    ) {\n" + "        g();\n" * 57 + "    }\n}\n"},
    ),
    (
        checks.functions_are_short,
        {"python/stanchion/a.py": "class A:\n    async def f(self):\n" + "        g()\n" * 60},
    ),
    (
        checks.functions_are_short,
        {shapes.EXCEPTIONS: '[functions]\n"crates/stanchion-line/src/line.rs::join" = "it was long"\n'},
    ),
    (checks.types_keep_together, {f"{HTTP}{file}.rs": "impl<'a, T: B<C>> A<'a, T> {\n}\n" for file in "abcd"}),
    (checks.types_keep_together, {shapes.EXCEPTIONS: '[files]\n"stanchion-line::Line" = "it was spread"\n'}),
    (checks.type_names_are_unique, {SYS: "pub(crate) enum Line {}\n"}),
    (checks.type_names_are_unique, {f"{HTTP}a.rs": "struct A;\n", f"{HTTP}b.rs": "type A = u8;\n"}),
    (checks.type_names_are_unique, {shapes.EXCEPTIONS: '[names]\nLine = "there were two"\n'}),
    (checks.sentences_have_subjects, {LINE: f"{FORBID}/// Who waits.\n"}),
    (checks.sentences_have_subjects, {LINE: f'{FORBID}fn f() {{\n    warn!("the master was told");\n}}\n'}),
    (checks.sentences_have_subjects, {"python/stanchion/a.py": '"""A page.\n\nLikewise for others.\n"""\n'}),
    (checks.sentences_have_subjects, {"docs/b.md": "# Pages\n\nThe page is for whoever waits.\n"}),
    (checks.sentences_have_subjects, {"docs/b.md": "- Those that wait have one.\n"}),
    (checks.waits_know_no_calendar, {LINE: f"{FORBID}fn f() {{ SystemTime::now(); }}"}),
    (checks.waits_know_no_calendar, {"python/stanchion/a.py": "import time\n\ntime.time()\n"}),
    (checks.waits_know_no_calendar, {"crates/stanchion-sys/src/clock.rs": "// SystemTime\n"}),
    (checks.promises_have_tests, {PROMISE: "| Promise | Test |\n|---|---|\n"}),
    (checks.promises_have_tests, {PROMISE: "| slow heads | 2009 | soon |\n"}),
    (checks.promises_have_tests, {PROMISE: f"| slow heads | `{SYS}` |\n"}),
    (checks.promises_have_tests, {PROMISE: f"| slow heads | `{SYS}::f`, `{SYS}::gone` |\n"}),
    (checks.promises_have_tests, {PROMISE: f"| slow heads | `{SYS}::f`, `tests/http/test_gone.py::test_x` |\n"}),
    (checks.words_are_in_the_code, {"ARCHITECTURE.md": "# Architecture\n\n| line | the queue | `Line` |\n"}),
    (checks.words_are_in_the_code, {"ARCHITECTURE.md": f"{GLOSSARY}| hall | a room | a list |\n"}),
    (checks.words_are_in_the_code, {"ARCHITECTURE.md": f"{GLOSSARY}| hall | a room | `Hall` |\n"}),
    (checks.words_are_in_the_code, {"ARCHITECTURE.md": f"{GLOSSARY}| to leave | to stop waiting | `leave` |\n"}),
    (checks.words_are_in_the_code, {SYS: "pub(crate) enum Line {}\n"}),
    (checks.named_paths_exist, {"ARCHITECTURE.md": "`crates/gone/`"}),
    (checks.named_paths_exist, {"ARCHITECTURE.md": "`gone.rs`"}),
    (checks.index_names_places, {"CONTRIBUTING.md": "# Contributing\n\n## House style\n\n## Where to go\n"}),
    (checks.index_names_places, {"CONTRIBUTING.md": f"{INDEX}- **Wait.** In the line.\n"}),
    (checks.index_names_places, {"CONTRIBUTING.md": f"{INDEX}- **Wait.** `crates/gone.rs` (`Line`).\n"}),
    (
        checks.index_names_places,
        {"CONTRIBUTING.md": f"{INDEX}- **Wait.** `crates/stanchion-line/src/line.rs` (`Line`, `leave`).\n"},
    ),
    (checks.index_names_places, {"crates/stanchion-line/src/line.rs": "// struct Line\nfn join(line: Line) {}\n"}),
    (
        checks.index_names_places,
        {
            "CONTRIBUTING.md": f"{INDEX}- **Read.** `python/stanchion/a.py` (`read`).\n",
            "python/stanchion/a.py": "def f():\n    read()\n",
        },
    ),
    (checks.pages_are_short, {"ARCHITECTURE.md": "word " * 4_001}),
    (checks.pages_are_short, {"CHANGELOG.md": "word\n" * 1_001}),
    (checks.links_lead_somewhere, {"docs/a.md": "[up](../GONE.md)"}),
    (checks.links_name_headings, {"docs/a.md": "# Who, where?\n[a](#who-where) [b](#who)\n```\n[c](#c)\n```"}),
    (checks.links_name_headings, {"docs/a.md": "[up](../ARCHITECTURE.md#tour)"}),
    (checks.menu_has_every_page, {"docs/b/c.md": ""}),
    (checks.menu_has_every_page, {"mkdocs.yml": f"{MENU}  - Gone: b/gone.md\n"}),
    (checks.page_has_every_message, {LINE: f'{FORBID}fn f() {{ warn!("{{name}} is full: {{error}}"); }}\n'}),
    (checks.page_has_every_message, {MESSAGES: "| `the line of <name> is full` | warning | Wait. |\n"}),
    (
        checks.page_has_every_message,
        {
            LINE: f'{FORBID}fn f() {{ warn!("the line of {{name}} is full"); }}\n',
            MESSAGES: "| `the line of <name> is full` | error | Wait. |\n",
        },
    ),
    (
        checks.page_has_every_message,
        {
            "python/stanchion/a.py": 'raise UsageError(f"there is no file {name!r}")\n',
            MESSAGES: "| `there is no file <name>`<br>`there is no file <path>` | usage | Look. |\n",
        },
    ),
    *(
        (
            checks.page_has_every_message,
            {
                LINE: f'{FORBID}fn f() {{ warn!("the lane of {{name}} is full: {{error}}"); }}\n',
                MESSAGES: "".join(f"| `{text}` | {level} | Wait. |\n" for text in texts),
            },
        )
        for texts, level in (
            (["the lane of <name> is …"], "error"),
            (["the lane of <name> is …", "the lane of <name> is full: <error>"], "warning"),
            (["the lane of <name> is full: <error>", "the lane of <name> is full: <error> …"], "warning"),
            (["the lane of <name> is full: <error>", "the lane …"], "warning"),
        )
    ),
    (checks.changelog_is_open, {"CHANGELOG.md": "## 0.1.0\nUnreleased\n"}),
    (checks.pins_agree, {"requirements/demo.in": "flask>=3\n"}),
    (checks.pins_agree, {"requirements/demo.txt": f"Maturin.x==1.1{HASH}\nMaturin_X==1.2{HASH}\n"}),
    (checks.pins_agree, {"requirements/dev.in": "maturin==1.15.0\n"}),
    (checks.pins_agree, {"bench/peers.txt": f"maturin>=1.0{HASH}\n"}),
    (checks.pins_have_hashes, {"requirements/dev.txt": f"maturin==1.16.0\nruamel.yaml==1.0{HASH}\n"}),
    (checks.pins_have_hashes, {"requirements/dev.txt": f"maturin==1.16.0{HASH}\nruamel.yaml==1.0{HASH[:-1]}\n"}),
    (checks.pins_have_hashes, {"requirements/dev.txt": f"ruamel.yaml==1.0{HASH}\n"}),
    (checks.pins_have_hashes, {"requirements/demo.in": "flask==3.1.3\n"}),
    (checks.pins_have_hashes, {"bench/requirements.txt": f"flask==3.1.3{HASH}\n"}),
    (checks.pins_have_hashes, {"bench/peers.txt": "maturin==1.0\n"}),
    (checks.python_is_old_enough, {"python/stanchion/top/a.py": "try:\n    f()\nexcept* OSError:\n    pass\n"}),
    (
        checks.python_is_old_enough,
        {"pyproject.toml": TIDY["pyproject.toml"].replace('version = "3.10"', 'version = "3.11"')},
    ),
    (checks.python_is_old_enough, {"pyproject.toml": TIDY["pyproject.toml"].replace("py310", "py311")}),
    (checks.python_is_old_enough, {"lab/stanchion_lab/a.py": "type A = int\n"}),
    (checks.pins_agree, {"requirements/build.in": "flit-core==4.1.0\n"}),
    (checks.no_traces_of_a_machine, {"docs/a.md": "cd /" + "root/stanchion"}),
    (checks.no_traces_of_a_machine, {"docs/a.md": "in /" + "home/ada/stanchion"}),
    (checks.no_traces_of_a_machine, {"a.toml": "https://" + "pypi" + ".org/simple"}),
    (checks.no_traces_of_a_machine, {"Cargo.lock": 'source = "registry+https://mirror.' + "crates" + '.io-index"'}),
]

FINE: list[tuple[Check, Tree]] = [
    (checks.arrows_in_sources, {SYS: '/* tokio::spawn\n pyo3:: */ const A: &str = r#"hyper::x "#; // pyo3::y'}),
    (checks.one_parser_of_http, {"crates/stanchion-observers/src/spans/post.rs": "use httparse::Response;"}),
    (checks.folders_in_layers, {f"{ACCEPTOR}admin/a.rs": "use crate::{doors::{Doors, Room}};"}),
    (checks.folders_in_layers, {f"{ACCEPTOR}orders.rs": "use crate::admin::Admin;\nuse super::admin;"}),
    (checks.folders_in_layers, {f"{DISPATCH}storage/mod.rs": "use super::storage::disk;\nuse std::requests;"}),
    (checks.folders_in_layers, {f"{DISPATCH}storage/tests.rs": "use crate::ticket::Ticket;"}),
    (
        checks.folders_in_layers,
        {f"{DISPATCH}storage/a.rs": "#[cfg(test)]\nmod tests {\n    use crate::ticket::Ticket;\n}\n"},
    ),
    (checks.rooms_make_no_circle, {f"{HTTP}a.rs": "use crate::b::B;", f"{HTTP}b.rs": "use crate::c;\nuse super::D;"}),
    (checks.rooms_make_no_circle, {f"{HTTP}a/mod.rs": "pub use b::B;", f"{HTTP}a/b.rs": "use super::A;"}),
    (
        checks.rooms_make_no_circle,
        {f"{HTTP}a.rs": "use crate::b::B;", f"{HTTP}b.rs": "/// Of [`crate::a`].\nfn f() {}"},
    ),
    (
        checks.rooms_make_no_circle,
        {f"{HTTP}a.rs": "use crate::b::B;", f"{HTTP}b.rs": "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"},
    ),
    (
        checks.rooms_make_no_circle,
        {
            f"{HTTP}a.rs": "#[cfg(test)]\npub(crate) mod rig;\nuse crate::b::B;",
            f"{HTTP}a/rig.rs": "use crate::c::C;",
            f"{HTTP}b.rs": "",
            f"{HTTP}c.rs": "use crate::a::A;",
        },
    ),
    (
        checks.first_pages_are_kept,
        {f"{HTTP}a.rs": "// a clock\nuse std::net::IpAddr;\n#[cfg(test)]\nmod tests { use std::fs; }\n"},
    ),
    (
        checks.first_pages_are_kept,
        {f"{HTTP}tests/a.rs": "use std::fs;", "crates/stanchion-http/tests/a.rs": "use std::fs;"},
    ),
    (checks.unsafe_stays_home, {PY: '// unsafe\nconst A: char = \'"\'; const B: &str = "unsafe";'}),
    (checks.unsafe_stays_home, {"crates/stanchion-py/src/fork.rs": "unsafe { g() }"}),
    (checks.unsafe_says_why, {SYS: "// SAFETY: long,\n// in two lines.\nlet a =\n    unsafe { g() };\n"}),
    (checks.unsafe_says_why, {SYS: "// SAFETY: plain data.\n#[allow(x)]\nunsafe impl Send for A {}\n"}),
    (checks.files_are_short, {LINE: FORBID + "#[cfg(test)]\nmod tests {\n" + "//\n" * 600 + "}\n"}),
    (checks.files_are_short, {"crates/stanchion-line/tests/model.rs": "//\n" * 600}),
    (checks.structs_are_small, {SYS: f"struct A {{\n{FIELDS}    // a::b, c: d\n}}\n"}),
    (checks.structs_are_small, {f"{HTTP}tests/a.rs": f"struct A {{\n{FIELDS}    last: u8,\n}}\n"}),
    (checks.functions_are_short, {SYS: "trait A {\n    fn f();\n" + "    fn g() { '{' }\n" * 60 + "}\n"}),
    (checks.functions_are_short, {"python/stanchion/a.py": "def f():\n" + "    g()\n" * 59}),
    (
        checks.types_keep_together,
        {f"{HTTP}{file}.rs": "impl B for A {\n}\nimpl A {\n}\n" for file in "abc"}
        | {f"{HTTP}d.rs": "impl B for A {\n}\n"},
    ),
    (
        checks.type_names_are_unique,
        {f"{HTTP}a.rs": "struct A;\nimpl A {\n    type B = u8;\n}\ntrait C {\n    type B;\n}\n"},
    ),
    (checks.sentences_have_subjects, {LINE: f"{FORBID}// `Who` waits? What is this?\nfn f() {{ g(whom); }}\n"}),
    (
        checks.sentences_have_subjects,
        {"docs/b.md": "```\nnobody\n```\n", "CHANGELOG.md": "## Unreleased\n- Somebody waits.\n"},
    ),
    (checks.waits_know_no_calendar, {LINE: f"{FORBID}// SystemTime\nuse std::time::Instant;\n"}),
    (checks.waits_know_no_calendar, {"lab/stanchion_lab/a.py": "time.time()\n"}),
    (APART, {"lab/stanchion_lab/a.py": "from stanchion_lab import b\n", "lab/tests/a.py": "import stanchion_lab\n"}),
    (
        checks.index_names_places,
        {
            "CONTRIBUTING.md": f"{INDEX}- **Count.** `docs/a.md`, `python/stanchion/a.py` (`read`, `NAMES`),\n"
            f"  `{HTTP}a.rs` (`Event`, `Kind`, `field`).\n",
            "docs/a.md": "",
            "python/stanchion/a.py": "async def read(): ...\nNAMES: dict[str, str] = {}\n",
            f"{HTTP}a.rs": "counted! {\n    Event {\n        Kind,\n    }\n}\nstruct A {\n    pub field: u8,\n}\n",
        },
    ),
    (checks.links_name_headings, {"docs/a.md": "## A `b_c` / d\n[a](#a-b_c--d)\n```\n[c](#c)\n```"}),
    (checks.menu_has_every_page, {"docs/b/c.md": "", "mkdocs.yml": f"{MENU}  - C: b/c.md\n  - In: ARCHITECTURE.md\n"}),
    (checks.menu_has_every_page, {"docs/b/c.md": "", "mkdocs.yml": f"not_in_nav: |\n  /files/\n  /b/\n\n{MENU}"}),
    (
        checks.page_has_every_message,
        {
            LINE: FORBID
            + 'fn f() {\n    error!(target: APP, "`a` is {}{} \\\n        low\\n{}", g("x y z"));\n'
            + '    info!("it is well");\n}\n'
            + '#[cfg(test)]\nmod tests {\n    fn f() { warn!("the line is full"); }\n}\n',
            f"{REASONS}a.rs": FORBID + 'fn f() { g("no message"); }\n',
            f"{REASONS}suites.rs": FORBID + 'fn f() { g("there are no | suites"); debug!("it is well"); }\n',
            MESSAGES: "| `` `a` is <how> low `` | error | Raise it. |\n"
            "| `there are no \\| suites` | reason | Name one. |\n",
        },
    ),
    (
        checks.page_has_every_message,
        {
            LINE: f'{FORBID}fn f() {{ warn!("the lane of {{name}} is full: {{error}}"); error!("is full: {{a}}"); }}\n',
            MESSAGES: "| `the lane of <lane> is …` | warning | Wait. |\n| `is full: <a>` | error | Wait. |\n",
        },
    ),
    (checks.no_traces_of_a_machine, {"docs/a.md": "serve / work, /work, /rooted, examples/root/x"}),
    (checks.no_traces_of_a_machine, {"Cargo.lock": f'source = "{checks.CRATES_SOURCE}"'}),
    (checks.no_traces_of_a_machine, {"fuzz/Cargo.lock": f'source = "{checks.CRATES_SOURCE}"'}),
    (checks.no_traces_of_a_machine, {"target/a.md": "cd /" + "root/stanchion", "image.png": "\udcff"}),
]


def planted(root: Path, tree: Tree) -> Path:
    for name, text in {**TIDY, **tree}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, errors="surrogateescape")
    return root


def named(cases: list[tuple[Check, Tree]]) -> list[object]:
    return [pytest.param(check, tree, id=f"{check.__name__}-{n}") for n, (check, tree) in enumerate(cases)]


@pytest.mark.parametrize("check", CHECKS)
def test_checkout(check: Check) -> None:
    assert check(ROOT) == []


@pytest.mark.parametrize("check", CHECKS)
def test_smallest_tidy_tree(check: Check, tmp_path: Path) -> None:
    assert check(planted(tmp_path, {})) == []


@pytest.mark.parametrize(("check", "tree"), named(BROKEN))
def test_notices(check: Check, tree: Tree, tmp_path: Path) -> None:
    assert len(check(planted(tmp_path, tree))) == 1


@pytest.mark.parametrize(("check", "tree"), named(FINE))
def test_does_not_cry_wolf(check: Check, tree: Tree, tmp_path: Path) -> None:
    assert check(planted(tmp_path, tree)) == []


def test_each_check_was_seen_to_fail() -> None:
    assert {check.__name__ for check, _ in BROKEN} == {check.__name__ for check in CHECKS}


def test_stale_exception_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checks.FILE_LINES_EXCEPTIONS, "python/stanchion/__init__.py", "it was long once")
    assert checks.files_are_short(planted(tmp_path, {})) == ["python/stanchion/__init__.py: needs no exception"]


def test_circle_that_is_cut_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rooms.CIRCLES, "crates/stanchion-http/src", "there was one")
    assert checks.rooms_make_no_circle(planted(tmp_path, {})) == ["crates/stanchion-http/src: needs no exception"]
