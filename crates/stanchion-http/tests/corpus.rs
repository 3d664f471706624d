//! The requests of `tests/http/corpus`, as far as they concern how one connection's bytes are read: the paths, queries, bodies and statuses in them
//! hold for the reader alone. `README.md` beside them describes their notation.

mod connection;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use connection::{Request, read_all};
use stanchion_http::{Fault, HeadRules, percent_decoded};

/// The expectation of the corpus for a request: its method, path, query and body.
type Expected = (String, Vec<u8>, Vec<u8>, Vec<u8>);

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/http/corpus")
        .join(name)
}

/// Each case of a folder: its name, its bytes, and the text of its expectation.
fn cases(name: &str) -> BTreeMap<String, (Vec<u8>, String)> {
    let files = std::fs::read_dir(folder(name)).expect("the corpus");
    let paths = files.map(|file| file.expect("a file").path());
    let requests = paths.filter(|path| path.extension().is_some_and(|ext| ext == "http"));
    requests
        .map(|path| {
            let read = |path: &Path| std::fs::read_to_string(path).expect("text");
            let stem = path.file_stem().expect("a name").to_string_lossy();
            let bytes = request_bytes(&read(&path));
            (
                stem.into_owned(),
                (bytes, read(&path.with_extension("toml"))),
            )
        })
        .collect()
}

/// The bytes in the corpus's notation: line breaks are ignored, `\*N(TEXT)` is TEXT repeated N times, and escapes come last.
fn request_bytes(text: &str) -> Vec<u8> {
    let mut text = text.replace('\n', "");
    while let Some(start) = text.find("\\*") {
        let open = start + text[start..].find('(').expect("what is repeated");
        let close = open + text[open..].find(')').expect("its end");
        let count = text[start + 2..open].parse().expect("a number");
        let repeated = text[open + 1..close].repeat(count);
        text.replace_range(start..=close, &repeated);
    }
    unescaped(&text)
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            bytes.push(char as u8);
            continue;
        }
        bytes.push(match chars.next().expect("what is escaped") {
            'r' => b'\r',
            'n' => b'\n',
            't' => b'\t',
            'x' => hex(&mut chars, 2) as u8,
            other => other as u8,
        });
    }
    bytes
}

fn hex(chars: &mut std::str::Chars<'_>, len: usize) -> u32 {
    let digits: String = chars.take(len).collect();
    u32::from_str_radix(&digits, 16).expect("hexadecimal digits")
}

/// The value of `key = "..."`, in TOML's notation, whose characters are the bytes.
fn string(table: &str, key: &str) -> Option<Vec<u8>> {
    let mut lines = table.lines();
    let text = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
    let mut value = Vec::new();
    let mut chars = text.strip_suffix('"').expect("a string").chars();
    while let Some(char) = chars.next() {
        let char = match char {
            '\\' => match chars.next().expect("what is escaped") {
                'u' => char::from_u32(hex(&mut chars, 4)).expect("a character"),
                other => other,
            },
            char => char,
        };
        value.push(u8::try_from(char).expect("latin-1"));
    }
    Some(value)
}

fn expected_requests(table: &str) -> Vec<Expected> {
    let tables = table.split("[[request]]").skip(1);
    tables
        .map(|table| {
            let method = string(table, "method").expect("a method");
            (
                String::from_utf8(method).expect("ASCII"),
                string(table, "path").expect("a path"),
                string(table, "query").unwrap_or_default(),
                string(table, "body").unwrap_or_default(),
            )
        })
        .collect()
}

fn expected_statuses(table: &str) -> Vec<u16> {
    let mut lines = table.lines();
    let list = lines.find_map(|line| line.strip_prefix("status = [")?.strip_suffix(']'));
    let numbers = list.expect("statuses").split(", ");
    numbers
        .map(|number| number.parse().expect("a number"))
        .collect()
}

fn told(Request { head, body }: Request) -> Expected {
    let path = percent_decoded(head.path()).into_owned();
    (head.method().to_owned(), path, head.query().to_vec(), body)
}

#[test]
fn a_valid_request_is_understood() {
    let cases = cases("valid");
    assert!(cases.len() > 30, "{} cases", cases.len());
    for (name, (bytes, expected)) in cases {
        for piece in [bytes.len(), 1, 7] {
            let (requests, fault) = read_all(&bytes, &HeadRules::DEFAULT, piece);
            assert_eq!(fault, None, "{name} in pieces of {piece}");
            let requests: Vec<_> = requests.into_iter().map(told).collect();
            assert_eq!(
                requests,
                expected_requests(&expected),
                "{name} in pieces of {piece}"
            );
        }
    }
}

#[test]
fn an_invalid_request_is_refused_with_one_of_its_statuses() {
    let cases = cases("invalid");
    assert!(cases.len() > 50, "{} cases", cases.len());
    for (name, (bytes, expected)) in cases {
        for piece in [bytes.len(), 1, 7] {
            let (requests, fault) = read_all(&bytes, &HeadRules::DEFAULT, piece);
            let status = fault.map(Fault::status);
            let fits = status.is_some_and(|status| expected_statuses(&expected).contains(&status));
            assert!(fits, "{name} in pieces of {piece}: {status:?} {fault:?}");
            assert_eq!(requests, [], "{name}");
        }
    }
}
