//! A worker in this process whose acceptor is the test, and Python for its app.

use std::ffi::CString;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_exchange::{AcceptorSide, SlotState};
use stanchion_http::{Head, HeadReader, HeadRules, Permits, StreamHead};
use stanchion_record::{
    AnswerPart, BodySource, PREFIX_BYTES, RequestFacts, answer_part, answer_prefix, hints_len,
    write_request,
};
use stanchion_server::{AnswerEnd, Worker};

/// A client of HTTP/1.1 at a listener for IPv4, without a proxy.
pub(crate) const FACTS: RequestFacts<'static> = RequestFacts {
    is_https: false,
    peer_address: b"10.0.0.1",
    peer_port: 4711,
    server_name: b"127.0.0.1",
    server_port: b"8000",
    trusted_peer: false,
    request_id: b"",
    tls: b"",
    proxy_us: None,
    request_start_us: None,
    is_websocket: false,
    takes_hints: false,
    takes_trailers: false,
    deflate_bits: None,
};

/// The same through a proxy that is believed.
pub(crate) const PROXIED: RequestFacts<'static> = RequestFacts {
    trusted_peer: true,
    ..FACTS
};

/// A client that accepts early hints.
pub(crate) const TAKES_HINTS: RequestFacts<'static> = RequestFacts {
    takes_hints: true,
    ..FACTS
};

/// Calls `act` in an interpreter that the tests share, prepared as the template prepares it for workers.
pub(crate) fn with_python<T>(act: impl FnOnce(Python<'_>) -> T) -> T {
    Python::initialize();
    Python::attach(|py| {
        crate::environ::prepare(py).expect("prepared");
        act(py)
    })
}

/// The value of an expression of Python.
pub(crate) fn value<'py>(py: Python<'py>, expression: &str) -> Bound<'py, PyAny> {
    value_in(&PyDict::new(py), expression)
}

/// The value of an expression with these names.
pub(crate) fn value_in<'py>(names: &Bound<'py, PyDict>, expression: &str) -> Bound<'py, PyAny> {
    let code = CString::new(expression).expect("no NUL");
    let value = names.py().eval(&code, Some(names), None);
    value.unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// A module of Python of its own: a test beside this one may have a module of the same name.
pub(crate) fn module<'py>(py: Python<'py>, code: &str) -> Bound<'py, PyModule> {
    let module = PyModule::new(py, "app").expect("memory");
    let text = CString::new(code).expect("no NUL");
    if let Err(error) = py.run(&text, Some(&module.dict()), None) {
        panic!("{code}: {error}");
    }
    module
}

/// The bytes that have the characters' numbers.
pub(crate) fn latin_1(text: &str) -> Vec<u8> {
    text.chars()
        .map(|char| u8::try_from(u32::from(char)).expect("a byte"))
        .collect()
}

/// An entry as Python shows it, or "absent".
pub(crate) fn shown(dict: &Bound<'_, PyDict>, key: &str) -> String {
    let value = dict.get_item(key).expect("a str can be a key");
    value.map_or("absent".to_owned(), |value| {
        value.repr().expect("a repr").to_string()
    })
}

/// Checks that a dict has these entries, as Python shows them, where "absent" is none.
pub(crate) fn assert_has(dict: &Bound<'_, PyDict>, entries: &[(&str, &str)], of: &str) {
    for (key, expected) in entries {
        assert_eq!(shown(dict, key), *expected, "{key} of {of}");
    }
}

/// The app's answer as far as it is in the exchange: the head of each hint and of the answer in wire form, each with the empty line
/// behind it, and the body. A byte is the character of that number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) text: String,
    /// `None` while the app has the request.
    pub(crate) ending: Option<AnswerEnd>,
}

impl Answered {
    pub(crate) fn whole(text: impl Into<String>) -> Self {
        let (text, ending) = (text.into(), Some(AnswerEnd::Complete));
        Self { text, ending }
    }

    pub(crate) fn broken(text: impl Into<String>) -> Self {
        let (text, ending) = (text.into(), Some(AnswerEnd::Broken));
        Self { text, ending }
    }
}

/// The answer to a request whose app has failed before anything of its answer was sent.
pub(crate) fn failed() -> Answered {
    Answered::whole(
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 50\r\n\r\n\
         500 Internal Server Error: the application failed\n",
    )
}

/// A worker, and the acceptor's side of its exchange.
pub(crate) struct Rig {
    pub(crate) worker: &'static Worker,
    pub(crate) acceptor: AcceptorSide<'static>,
}

impl Rig {
    pub(crate) fn new(settings: &str) -> Self {
        let (worker, exchange) = stanchion_server::rig::worker(settings);
        Self {
            worker,
            acceptor: AcceptorSide::take_over(exchange),
        }
    }

    /// Hands over a request. Returns its slot.
    pub(crate) fn submit(&mut self, head: &Head, facts: &RequestFacts<'_>, body: &[u8]) -> u32 {
        let pieces = [Bytes::copy_from_slice(body)];
        let submitted = self.acceptor.submit(None, 0, |area| {
            write_request(area, facts, head, &BodySource::Memory(&pieces))
        });
        submitted.expect("room for a request").slot
    }

    /// Takes what has come of the answer. Once the app has given back the slot, it is free for another request.
    pub(crate) fn answered(&mut self, slot: u32) -> Answered {
        let mut came = Vec::new();
        let acceptor = &mut self.acceptor;
        acceptor
            .read(slot, usize::MAX, &mut came)
            .expect("an answer");
        let state = acceptor.state(slot).expect("a state");
        let ending = match state {
            SlotState::Done { ending, .. } => Some(ending.expect("an ending")),
            _ => None,
        };
        if ending.is_some() {
            acceptor.release(slot);
        }
        Answered {
            text: text_of(&came),
            ending,
        }
    }
}

const RULES: HeadRules = HeadRules {
    line_bytes: usize::MAX,
    field_bytes: usize::MAX,
    fields: usize::MAX,
    head_bytes: usize::MAX,
    permits: Permits::NONE,
};

/// A head in the form of HTTP/1.1.
pub(crate) fn head(text: impl AsRef<[u8]>) -> Head {
    let (text, mut head) = (text.as_ref(), Head::default());
    let len = HeadReader::default().read(text, &RULES, &mut head);
    let shown = String::from_utf8_lossy(text);
    assert_eq!(len, Ok(Some(text.len())), "{shown} is no head");
    head
}

/// The head of a GET in HTTP/2.
pub(crate) fn head_of_http2() -> Head {
    let (stream, mut head) = (
        StreamHead {
            method: b"GET",
            path: Some(b"/"),
            authority: Some(b"test"),
            is_all: true,
            is_websocket: false,
        },
        Head::default(),
    );
    let read = stream.read(&[], usize::MAX, &RULES, &mut head);
    read.expect("a head");
    head
}

/// The bytes that a worker has written, without their prefixes.
pub(crate) fn text_of(mut came: &[u8]) -> String {
    let mut text = String::new();
    let mut has_trailers = false;
    while let Some(len) = came.get(..PREFIX_BYTES).and_then(hints_len) {
        came = &came[PREFIX_BYTES..];
        append_head(&mut text, &came[..len], false);
        came = &came[len..];
    }
    if let Some(prefix) = came.get(..PREFIX_BYTES) {
        let prefix = answer_prefix(prefix).expect("a head");
        came = &came[PREFIX_BYTES..];
        append_head(&mut text, &came[..prefix.head_len], prefix.closes);
        came = &came[prefix.head_len..];
        has_trailers = prefix.has_trailers;
    }
    while has_trailers && let Some(prefix) = came.get(..PREFIX_BYTES) {
        came = &came[PREFIX_BYTES..];
        let len = match answer_part(prefix).expect("a part") {
            AnswerPart::Piece(len) => usize::try_from(len).expect("a length"),
            AnswerPart::Trailers(len) => {
                text.push('|');
                len
            }
        };
        text.extend(came[..len].iter().copied().map(char::from));
        came = &came[len..];
    }
    text.extend(came.iter().copied().map(char::from));
    text
}

fn append_head(text: &mut String, head: &[u8], closes: bool) {
    text.extend(head.iter().copied().map(char::from));
    if closes {
        text.push_str("Connection: close\r\n");
    }
    text.push_str("\r\n");
}
