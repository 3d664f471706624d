use pyo3::prelude::*;
use pyo3::types::PyType;

use super::rig::{module, value, with_python};
use crate::file_wrapper::FileWrapper;
use crate::input::{EmptyInput, register};
use crate::kept::is_one_weakly_held;
use crate::strings::{Strings, text};

#[test]
fn bytes_are_the_characters_of_their_numbers() {
    with_python(|py| {
        let mut strings = Strings::new();
        let long = [b'a'; 300];
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [b"" as &[u8], b"/a", b"caf\xc3\xa9", &all, &long] {
            let expected: String = bytes.iter().copied().map(char::from).collect();
            assert_eq!(text(py, bytes).to_str().expect("text"), expected);
            for _ in 0..2 {
                assert_eq!(strings.text(py, bytes).to_str().expect("text"), expected);
            }
        }
        for port in [0, 1, 8000, 8000, 8512, 8513, 65535] {
            assert_eq!(
                strings.port(py, port).to_str().expect("text"),
                port.to_string()
            );
        }
        let (first, again) = (strings.text(py, b"/a"), strings.text(py, b"/a"));
        assert!(first.is(&again), "a short string is kept");
        let (first, again) = (strings.text(py, &long), strings.text(py, &long));
        assert!(!first.is(&again), "and a long one is not");
    });
}

#[test]
fn an_input_without_a_body_is_as_good_as_an_empty_file() {
    with_python(|py| {
        register(py).expect("io has the class");
        let app = module(
            py,
            r#"
import copy, io, pickle

def text(input):
    wrapper = io.TextIOWrapper(input)
    assert wrapper.read() == ""
    wrapper.detach()

def close(input):
    input.close()
    assert input.closed
    try:
        input.read()
    except ValueError:
        return
    raise AssertionError("it can be read though it is closed")

def unknown(input):
    try:
        input.nonsense
    except AttributeError:
        return
    raise AssertionError("it has an attribute of this name")

def with_(input):
    with input as entered:
        assert entered.read() == b""

def set_(input):
    input.mark = 5
    assert input.mark == 5
    del input.mark
    unknown(input)

ways = {
    "read": lambda input: (input.read(), input.read(-1), input.read(5), input.read(None)) == (b"",) * 4,
    "readline": lambda input: (input.readline(), input.readline(9)) == (b"", b""),
    "readlines": lambda input: (input.readlines(), input.readlines(9)) == ([], []),
    "iter": lambda input: list(input) == [],
    "next": lambda input: next(input, "none") == "none",
    "seek": lambda input: (input.seek(0), input.tell(), input.seekable()) == (0, 0, True),
    "write": lambda input: (input.write(b"x"), input.seek(0), input.read()) == (1, 0, b"x"),
    "kind": lambda input: isinstance(input, io.BufferedIOBase) and isinstance(input, io.IOBase),
    "copy": lambda input: copy.copy(input).read() == pickle.loads(pickle.dumps(input)).read() == b"",
    "text": lambda input: text(input) is None,
    "close": lambda input: close(input) is None,
    "with": lambda input: with_(input) is None,
    "set": lambda input: set_(input) is None,
    "unknown": lambda input: unknown(input) is None,
}
"#,
        );
        let ways = app.getattr("ways").expect("ways");
        for item in ways
            .call_method0("items")
            .expect("a dict")
            .try_iter()
            .expect("items")
        {
            let (name, way): (String, Bound<'_, PyAny>) =
                item.and_then(|item| item.extract()).expect("a pair");
            let input = Py::new(py, EmptyInput::new()).expect("an input");
            assert!(EmptyInput::is_untouched(&input, py, 1), "{name}");
            let came = way
                .call1((&input,))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(came.is_truthy().expect("a bool"), "{name}");
            let is_used = name != "kind";
            assert_eq!(EmptyInput::is_untouched(&input, py, 1), !is_used, "{name}");
        }
    });
}

fn wrapped<'py>(file: &Bound<'py, PyAny>) -> Bound<'py, FileWrapper> {
    let kind = PyType::new::<FileWrapper>(file.py());
    let wrapper = kind.call1((file, 3)).expect("a wrapper");
    wrapper.cast_into().expect("its class")
}

#[test]
fn a_wrapper_gives_a_file_in_blocks_and_closes_it() {
    with_python(|py| {
        let app = module(
            py,
            r#"
class File:
    """A file-like object has read() at least (PEP 3333)."""

    def __init__(self):
        self.blocks, self.sizes = [b"abc", b"de"], []

    def read(self, size):
        self.sizes.append(size)
        return self.blocks.pop(0) if self.blocks else b""

class Closed(File):
    closed = 0

    def close(self):
        self.closed += 1
"#,
        );
        let plain = app.call_method0("File").expect("a file");
        let wrapper = wrapped(&plain);
        let blocks = wrapper.try_iter().expect("an iterator");
        let blocks: Vec<Vec<u8>> = blocks
            .map(|block| block.and_then(|block| block.extract()).expect("bytes"))
            .collect();
        assert_eq!(blocks, [b"abc".to_vec(), b"de".to_vec()]);
        let sizes: Vec<u32> = plain
            .getattr("sizes")
            .and_then(|sizes| sizes.extract())
            .expect("sizes");
        assert_eq!(sizes, [3, 3, 3]);
        wrapper.call_method0("close").expect("nothing to close");
        let closed = app.call_method0("Closed").expect("a file");
        wrapped(&closed).call_method0("close").expect("closed");
        let times: u32 = closed
            .getattr("closed")
            .and_then(|times| times.extract())
            .expect("a count");
        assert_eq!(times, 1);
    });
}

#[test]
fn only_a_regular_file_whose_bytes_are_those_on_the_disk_is_sent_as_a_file() {
    with_python(|py| {
        let app = module(
            py,
            r#"
import gzip, io, os, tempfile

def regular():
    file = tempfile.TemporaryFile()
    file.write(b"0123456789")
    file.seek(0)
    return file

def read_ahead():
    """Its buffer has moved the descriptor further than the app has read."""
    file = regular()
    file.read(4)
    return file

def at_its_end():
    file = regular()
    file.seek(20)
    return file

def of_text():
    return io.TextIOWrapper(regular())

def unpacking():
    file = tempfile.TemporaryFile()
    file.write(gzip.compress(b"0123456789"))
    file.seek(0)
    return gzip.GzipFile(fileobj=file)

class Own(gzip.GzipFile):
    """A class of the app."""

def unpacking_by_own_class():
    return Own(fileobj=regular())

def in_memory():
    return io.BytesIO(b"0123456789")

def pipe():
    reads, writes = os.pipe()
    os.close(writes)
    return os.fdopen(reads, "rb", 0)

def closed():
    file = regular()
    file.close()
    return file
"#,
        );
        for (name, expected) in [
            ("regular", Some((0, 10))),
            ("read_ahead", Some((4, 6))),
            ("at_its_end", Some((20, 0))),
            ("of_text", None),
            ("unpacking", None),
            ("unpacking_by_own_class", None),
            ("in_memory", None),
            ("pipe", None),
            ("closed", None),
        ] {
            let file = app.call_method0(name).expect("a file");
            let found = wrapped(&file).get().regular_file(py);
            let found = found.map(|(_, part)| (part.offset, part.len));
            assert_eq!(found, expected, "{name}");
        }
        assert!(
            wrapped(&value(py, "object()"))
                .get()
                .regular_file(py)
                .is_none()
        );
    });
}

/// Seats find out about weak references without setting anything up, since the app may fork meanwhile.
#[test]
fn weak_references_are_found_by_what_the_template_has_prepared() {
    with_python(|py| {
        let objects = [value(py, "{1}"), value(py, "{2}")].map(Bound::unbind);
        let [first, second] = &objects;
        assert!(!is_one_weakly_held(py, [first, second]).expect("prepared"));
        let weakly = py
            .import("weakref")
            .and_then(|weakref| weakref.call_method1("ref", (second,)))
            .expect("a weak reference");
        assert!(is_one_weakly_held(py, [first, second]).expect("prepared"));
        drop(weakly);
        assert!(!is_one_weakly_held(py, [first, second]).expect("prepared"));
    });
}
