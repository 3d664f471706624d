"""The harness of `make test-apps` reads descriptions and compares answers, here without any application."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bigapps.application import FOLDERS, Mistake, read
from bigapps.client import Answer, multipart
from bigapps.compare import Masks, Own, added, differences
from bigapps.memory import memory_bytes
from bigapps.report import CHECKS, Row, page

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.parent.name for path in FOLDERS.glob("*/app.toml"))
NOTHING = Masks([])


@pytest.mark.parametrize("name", NAMES)
def test_each_application_has_a_description_and_pins(name: str) -> None:
    application = read(name)
    for pattern in (*application.mask, *(one for ask in application.ask for one in (*ask.mask, *ask.take.values()))):
        re.compile(pattern)
    pins = {line.partition(" ;")[0] for line in (ROOT / f"requirements/apps/{name}.txt").read_text().splitlines()}
    wanted = [line for line in (ROOT / f"requirements/apps/{name}.in").read_text().splitlines() if line]
    unpinned = [line for line in wanted if re.sub(r"\[.*?\]", "", line) not in pins and not line.startswith("#")]
    assert unpinned == [], "make requirements-apps"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('app = "a:b"', "usual"),
        ('usual = ["uvicorn"]\napp = "a:b"\npath = "/"', r"\['path'\] means nothing here"),
        (
            'usual = ["uvicorn"]\napp = "a:b"\n[[ask]]\nwhat = "x"\npath = "/"\nkind = "y"',
            "x: no kind is called 'y'",
        ),
        (
            'usual = ["uvicorn"]\napp = "a:b"\n' + '[[ask]]\nwhat = "x"\npath = "/"\n' * 2,
            r"asks share a name: \['x'\]",
        ),
    ],
)
def test_a_mistake_in_a_description_is_named(text: str, complaint: str) -> None:
    with pytest.raises(Mistake, match=complaint):
        read("strange", text)


def answer(*fields: tuple[str, str], status: int = 200, body: bytes = b"") -> Answer:
    return Answer(status, list(fields), body)


@pytest.mark.parametrize(
    ("usual", "ours", "found"),
    [
        (answer(("Date", "now"), ("Content-Length", "2")), answer(("Transfer-Encoding", "chunked")), []),
        (answer(), answer(status=500), ["status"]),
        (answer(("ETag", "a")), answer(("etag", "b")), ["etag"]),
        (answer(("Expires", "Sat, 28 Nov")), answer(("Expires", "Sun, 29 Nov")), []),
        (answer(("Vary", "Cookie, Accept")), answer(("vary", "accept, cookie")), []),
        (answer(("Set-Cookie", "a=1; Path=/")), answer(("set-cookie", "a=2; Path=/")), []),
        (answer(("Set-Cookie", "a=1; Path=/")), answer(("set-cookie", "a=1")), ["set-cookie"]),
        (answer(body=b"at http://127.0.0.1:1000/"), answer(body=b"at http://127.0.0.1:2000/"), []),
        (answer(body=b"in /there/shop"), answer(body=b"in /here/shop"), []),
        (answer(body=b"one\ntwo"), answer(body=b"one\nthree"), ["body"]),
        (answer(body=b"a" * 5_000_000), answer(body=b"a" * 5_000_001), ["body"]),
        (answer(), Answer(trouble="reset"), ["no answer"]),
    ],
)
def test_what_differs_is_found_and_what_a_server_may_choose_is_not(
    usual: Answer, ours: Answer, found: list[str]
) -> None:
    said = differences((usual, Own(1000, "/there")), (ours, Own(2000, "/here")), NOTHING, [])
    assert [one.partition(":")[0] for one in said] == found


def test_the_folder_of_a_server_is_hidden_also_as_a_part_of_an_address() -> None:
    assert NOTHING.hide('"/run/a b/x" and "%2Frun%2Fa%20b%2Fx"', Own(80, "/run/a b")) == '"HOME/x" and "HOME%2Fx"'


def test_a_mask_hides_its_group_or_all_of_it() -> None:
    masks = Masks(['token="([^"]*)"', r"\d+ ms"])
    assert masks.hide('<a token="abc"> in 12 ms at localhost%3A80', Own(80, "/x")) == '<a token="…"> in … at HOST'


def test_of_repeated_lines_only_those_beyond_the_usual_ones_are_added() -> None:
    assert added(["a", "b"], ["a", "a", "b", "c"]) == ["a", "c"]


def test_a_file_is_sent_beside_the_fields_of_its_form() -> None:
    body = multipart("x", {"a": "1"}, {"field": "f", "name": "n", "type": "text/plain"}, b"content")
    assert body == (
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
        b'--x\r\nContent-Disposition: form-data; name="f"; filename="n"\r\nContent-Type: text/plain\r\n\r\ncontent\r\n'
        b"--x--\r\n"
    )


def test_the_report_has_a_cell_for_each_check_and_a_reason_for_each_failure() -> None:
    row = Row()
    row.take("starts", "passed", "", {"ready after s": "1 / 2"})
    row.take("page", "failed", "the page stays blank", {})
    lines = page({"shop": row}, "").splitlines()
    [cells, figures] = [line for line in lines if line.startswith("| shop |")]
    assert cells.count("|") == len(CHECKS) + 2 and cells.count("✓") == cells.count("✗") == 1
    assert figures == "| shop | 1 / 2 |"
    assert lines[lines.index("## shop: page in Chromium failed") + 2] == "    the page stays blank"


def test_each_check_of_the_report_is_a_test() -> None:
    source = (FOLDERS.parent / "test_applications.py").read_text()
    found = {name.rpartition("_")[2] for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    assert found == set(CHECKS)


MAPPED_BYTES = 16_000_000
MAPS = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for at in range(0, len(mapped), mmap.PAGESIZE):
    mapped[at]
print("mapped", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def mapping(file: Path) -> Iterator[psutil.Process]:
    """A process that maps a file and has read it all."""
    command = [sys.executable, "-c", MAPS, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"mapped\n"
        yield psutil.Process(process.pid)


def test_the_memory_of_a_server_is_the_same_whatever_else_maps_its_files(tmp_path: Path) -> None:
    """PSS takes half of a file away when a second process maps it, and so judges one server by what the other does."""
    file = tmp_path / "library"
    file.write_bytes(bytes(MAPPED_BYTES))
    with mapping(file) as first:
        alone = memory_bytes([first])
        assert alone > MAPPED_BYTES
        with mapping(file) as second:
            assert memory_bytes([first]) == pytest.approx(alone, rel=0.05)
            assert memory_bytes([first, second]) < alone + MAPPED_BYTES, "each page counts once"
