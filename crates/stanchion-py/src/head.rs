//! The rules on the head of an answer (PEP 3333, RFC 9110).
//!
//! The host writes a head once, with the names of fields as the app wrote them. If the app gives the same string
//! objects for the next answer, the host uses the head that was written for them again.

use std::borrow::Cow;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMapping, PyString, PyTuple};
use stanchion_http::answer::{self, EARLY_HINTS};
use stanchion_http::rules::{
    STATUSES, content_length, is_field_text, is_hop_by_hop, is_plain_text, is_token, lists,
    may_be_trailer, may_tell_length,
};
use stanchion_record::{ANSWER_HEAD_BYTES_MAX, AnswerHead, FilePart};

/// The name of the fields in which ASGI's hints are sent: links (RFC 8288).
const LINK: &[u8] = b"link";
/// A longer head is not remembered.
const REMEMBERED_BYTES_MAX: usize = 4 * 1024;
/// A head with more fields is not remembered.
const REMEMBERED_FIELDS_MAX: usize = 32;

/// The head that the app gave to `start_response`, checked, and in the form in which it goes out. It can be reused, so that a head of usual shape
/// allocates nothing.
#[derive(Default)]
pub(crate) struct AppHead {
    pub(crate) status: u16,
    pub(crate) content_length: Option<u64>,
    wire: AnswerHead,
    given: Given,
}

/// The objects that the app gave for the last head, and the result. Strings never change, so the same objects make the same head. The objects are
/// kept as long as their result in wire form.
#[derive(Default)]
struct Given {
    /// `None` if no head is remembered.
    status: Option<Py<PyAny>>,
    fields: Vec<(Py<PyAny>, Py<PyAny>)>,
    content_length: Option<u64>,
    closes: bool,
    wire_len: usize,
}

impl AppHead {
    /// Takes in a head if it consists of the very objects of the last head; else returns false.
    pub(crate) fn take_in_again(
        &mut self,
        status: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
    ) -> bool {
        let is_same = self.given.is(status, headers);
        if is_same {
            self.content_length = self.given.content_length;
            self.wire.close(self.given.closes);
            self.wire.shorten(self.given.wire_len);
        }
        is_same
    }

    /// Takes in a head in place of the last one, which is lost even if this fails.
    pub(crate) fn take_in(
        &mut self,
        status: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.begin(status)?;
        // A head with objects of subclasses is not remembered: they may hold more than text, and the app decides how long they live.
        let is_plain = |object: &Bound<'_, PyAny>| object.is_exact_instance_of::<PyString>();
        let mut is_usual = is_plain(status);
        let headers = headers.cast::<PyList>().map_err(|_| {
            PyTypeError::new_err("the headers must be a list of (name, value) pairs")
        })?;
        for pair in headers {
            let parts = pair.cast::<PyTuple>().ok().and_then(|pair| {
                let mut parts = pair.iter_borrowed();
                Some((parts.next()?, parts.next()?)).filter(|_| parts.len() == 0)
            });
            let Some((name, value)) = parts else {
                return Err(PyTypeError::new_err(format!(
                    "not a pair of a name and a value: {pair:?}"
                )));
            };
            self.add(&name, &value)?;
            is_usual &= is_plain(&name)
                && is_plain(&value)
                && self.given.fields.len() < REMEMBERED_FIELDS_MAX;
            if is_usual {
                let pair = (name.to_owned().unbind(), value.to_owned().unbind());
                self.given.fields.push(pair);
            }
        }
        let wire_len = self.wire.wire().len();
        if is_usual && wire_len <= REMEMBERED_BYTES_MAX {
            self.given.status = Some(status.clone().unbind());
            self.given.content_length = self.content_length;
            self.given.closes = self.wire.closes();
            self.given.wire_len = wire_len;
        } else {
            self.given.forget(status.py());
        }
        Ok(())
    }

    fn begin(&mut self, status: &Bound<'_, PyAny>) -> PyResult<()> {
        self.given.forget(status.py());
        let text = status.cast::<PyString>().map_err(|_| {
            PyTypeError::new_err(format!(
                "the status must be a str, not {}",
                status.get_type()
            ))
        })?;
        let bytes = latin1(text)?;
        let (number, reason) = split_status(&bytes).ok_or_else(|| {
            PyValueError::new_err(format!("not a status such as '200 OK': {status:?}"))
        })?;
        self.status = number;
        self.content_length = None;
        self.wire.begin(number, reason);
        Ok(())
    }

    fn add(&mut self, name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let name_text = str_of(name, || "a header's name".to_owned())?;
        let name = name_text.to_str()?;
        // RFC 9110 section 5.6.2: names are tokens, and so ASCII.
        if !is_token(name.as_bytes()) {
            latin1(name_text)?;
            return Err(PyValueError::new_err(format!(
                "not a header name: {name_text:?}"
            )));
        }
        let value_text = str_of(value, || format!("the value of {name}"))?;
        let mut bytes = Cow::Borrowed(value_text.to_str()?.as_bytes());
        // Field values have no control characters (RFC 9110 section 5.5): with them, one header could
        // become two, or a body.
        if !is_plain_text(&bytes) {
            bytes = latin1(value_text)?;
            if !is_field_text(bytes.trim_ascii()) {
                return Err(PyValueError::new_err(format!(
                    "a control character in the value of {name}: {value:?}"
                )));
            }
        }
        self.put(name.as_bytes(), bytes.trim_ascii())
    }

    /// Takes in the head of an ASGI app: a number, and pairs of bytes.
    pub(crate) fn take_in_bytes(
        &mut self,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if !STATUSES.contains(&status) {
            return Err(PyValueError::new_err(format!(
                "not a status of an answer: {status}"
            )));
        }
        self.status = status;
        self.content_length = None;
        self.wire.begin(status, b"");
        let Some(headers) = headers else {
            return Ok(());
        };
        for_each_pair(headers, |name, value| self.add_bytes(name, value))
    }

    /// Takes in hints that go ahead of an answer: pairs of a name and a value, or a mapping, of str or bytes. Returns false if there are no fields.
    pub(crate) fn take_in_hints(&mut self, fields: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.begin_hints();
        let pairs = match fields.cast::<PyMapping>() {
            Ok(mapping) => mapping.items()?.into_any(),
            Err(_) => fields.clone(),
        };
        for pair in pairs.try_iter()? {
            let (name, value) = pair_of(&pair?)?;
            self.add_bytes(&octets_of(&name)?, &octets_of(&value)?)?;
        }
        Ok(self.fields().next().is_some())
    }

    /// Takes in the hints of an ASGI app in the same way: values of `Link` fields.
    pub(crate) fn take_in_links(&mut self, links: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.begin_hints();
        for link in links.try_iter()? {
            self.add_bytes(LINK, bytes_of(&link?)?)?;
        }
        Ok(self.fields().next().is_some())
    }

    fn begin_hints(&mut self) {
        self.status = EARLY_HINTS;
        self.content_length = None;
        self.wire.begin(self.status, b"");
    }

    /// The hints in the form of the exchange.
    pub(crate) fn whole_hints(&mut self) -> &[u8] {
        self.wire.whole_hints()
    }

    /// Takes in the subprotocol and the fields with which an app accepts a WebSocket, without fields that the acceptor sets.
    pub(crate) fn take_in_switch(
        &mut self,
        subprotocol: Option<&str>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.take_in_bytes(200, headers)?;
        let given = answer::fields(self.wire.wire());
        let given: Vec<_> = given
            .filter(|(name, _)| !answer::is_of_handshake(name))
            .filter(|(name, _)| !name.eq_ignore_ascii_case(b"content-length"))
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect();
        self.status = 101;
        self.content_length = None;
        self.wire.begin(self.status, b"");
        if let Some(subprotocol) = subprotocol {
            if !is_token(subprotocol.as_bytes()) {
                return Err(PyValueError::new_err(format!(
                    "not a subprotocol: {subprotocol:?}"
                )));
            }
            self.wire
                .field(b"Sec-WebSocket-Protocol", subprotocol.as_bytes());
        }
        for (name, value) in given {
            self.wire.field(&name, &value);
        }
        Ok(())
    }

    fn add_bytes(&mut self, name: &[u8], value: &[u8]) -> PyResult<()> {
        self.put(name, checked_value(name, value)?)
    }

    /// Adds a field that was checked, if an app may set it.
    fn put(&mut self, name: &[u8], value: &[u8]) -> PyResult<()> {
        if is_hop_by_hop(name) {
            // Dropped, because the acceptor manages the connection. It closes the connection if the app asks for that.
            if name.eq_ignore_ascii_case(b"connection") && lists(value, b"close") {
                self.wire.close(true);
            }
            return Ok(());
        }
        if name.eq_ignore_ascii_case(b"content-length") && !self.tells(value)? {
            return Ok(());
        }
        self.wire.field(name, value);
        Ok(())
    }

    /// Whether to send a `Content-Length` of the app: not if answers of this status have none, and only once if several fields agree.
    fn tells(&mut self, value: &[u8]) -> PyResult<bool> {
        if !may_tell_length(self.status) {
            return Ok(false);
        }
        let len = content_length(value).ok_or_else(|| {
            let shown = String::from_utf8_lossy(value);
            PyValueError::new_err(format!("not a Content-Length: {shown:?}"))
        })?;
        match self.content_length.replace(len) {
            None => Ok(true),
            Some(earlier) if earlier == len => Ok(false),
            Some(_) => Err(PyValueError::new_err(
                "two Content-Length fields contradict each other",
            )),
        }
    }

    /// Replaces the head by that of a 500, which is not the app's answer.
    pub(crate) fn become_failure(&mut self, py: Python<'_>) {
        self.given.forget(py);
        self.status = 500;
        self.content_length = None;
        self.wire.begin(self.status, b"");
        self.wire
            .field(b"Content-Type", b"text/plain; charset=utf-8");
    }

    /// Adds the Content-Length that the app omitted.
    pub(crate) fn tell_length(&mut self, len: u64) {
        self.content_length = Some(len);
        self.wire
            .field(b"Content-Length", len.to_string().as_bytes());
    }

    /// The whole head, in the form of the exchange.
    pub(crate) fn whole(&mut self, file: Option<FilePart>) -> PyResult<&[u8]> {
        let len = self.wire.wire().len();
        if len > ANSWER_HEAD_BYTES_MAX {
            return Err(PyValueError::new_err(format!(
                "the response's fields take {len} bytes, over the limit of {ANSWER_HEAD_BYTES_MAX}"
            )));
        }
        Ok(self.wire.whole(file))
    }

    /// The whole head of an answer that has trailers behind its body.
    pub(crate) fn whole_before_pieces(&mut self) -> PyResult<&[u8]> {
        self.whole(None)?;
        Ok(self.wire.whole_before_pieces())
    }

    /// The reason in the status line.
    pub(crate) fn reason(&self) -> &[u8] {
        let line = self.wire.wire().split(|&byte| byte == b'\r').next();
        line.and_then(|line| line.get(b"HTTP/1.1 200 ".len()..))
            .unwrap_or_default()
    }

    /// The names and values of the fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        answer::fields(self.wire.wire())
    }
}

impl Given {
    fn forget(&mut self, py: Python<'_>) {
        if let Some(status) = self.status.take() {
            status.drop_ref(py);
        }
        for (name, value) in self.fields.drain(..) {
            name.drop_ref(py);
            value.drop_ref(py);
        }
    }

    /// Whether the app gives the very same objects.
    fn is(&self, status: &Bound<'_, PyAny>, headers: &Bound<'_, PyAny>) -> bool {
        let Ok(headers) = headers.cast::<PyList>() else {
            return false;
        };
        self.status.as_ref().is_some_and(|known| known.is(status))
            && self.fields.len() == headers.len()
            && self
                .fields
                .iter()
                .zip(headers)
                .all(|((name, value), pair)| {
                    pair.cast::<PyTuple>().is_ok_and(|pair| {
                        let mut parts = pair.iter_borrowed();
                        parts.len() == 2
                            && parts.next().is_some_and(|part| part.is(name))
                            && parts.next().is_some_and(|part| part.is(value))
                    })
                })
    }
}

/// Takes in the trailers of an ASGI app: pairs of bytes, under the rules for the fields of a head. Fields that may not follow a body are left out.
pub(crate) fn take_in_trailers(
    trailers: &mut AnswerHead,
    headers: &Bound<'_, PyAny>,
) -> PyResult<()> {
    for_each_pair(headers, |name, value| {
        let value = checked_value(name, value)?;
        if may_be_trailer(name) {
            trailers.field(name, value);
        }
        Ok(())
    })
}

fn for_each_pair(
    headers: &Bound<'_, PyAny>,
    mut act: impl FnMut(&[u8], &[u8]) -> PyResult<()>,
) -> PyResult<()> {
    for pair in headers.try_iter()? {
        let pair = pair?;
        let (name, value) = match pair.cast::<PyTuple>() {
            Ok(pair) if pair.len() == 2 => (pair.get_item(0)?, pair.get_item(1)?),
            _ => pair_of(&pair)?,
        };
        act(bytes_of(&name)?, bytes_of(&value)?)?;
    }
    Ok(())
}

/// Checks a field as [`AppHead::add`] does. Returns its value without the whitespace around it.
fn checked_value<'v>(name: &[u8], value: &'v [u8]) -> PyResult<&'v [u8]> {
    if !is_token(name) {
        let shown = String::from_utf8_lossy(name);
        return Err(PyValueError::new_err(format!(
            "not a header name: {shown:?}"
        )));
    }
    let trimmed = value.trim_ascii();
    if !is_field_text(trimmed) {
        let (name, value) = (
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        );
        return Err(PyValueError::new_err(format!(
            "a control character in the value of {name}: {value:?}"
        )));
    }
    Ok(trimmed)
}

/// Number and reason of a status, if an app may give this status.
fn split_status(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (code, reason) = bytes.split_first_chunk::<3>()?;
    let reason = match reason {
        [] => reason,
        [b' ', reason @ ..] => reason,
        _ => return None,
    };
    let digits = code.iter().all(u8::is_ascii_digit);
    let number = code
        .iter()
        .fold(0, |number, digit| number * 10 + u16::from(digit & 0xf));
    (digits && STATUSES.contains(&number) && is_field_text(reason)).then_some((number, reason))
}

fn str_of<'a, 'py>(
    object: &'a Bound<'py, PyAny>,
    what: impl FnOnce() -> String,
) -> PyResult<&'a Bound<'py, PyString>> {
    object.cast::<PyString>().map_err(|_| {
        let (what, kind) = (what(), object.get_type());
        PyTypeError::new_err(format!("{what} must be a str, not {kind}"))
    })
}

/// The two items of any iterable, such as a list.
fn pair_of<'py>(pair: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let mut items = pair.try_iter()?;
    let (first, second) = (items.next().transpose()?, items.next().transpose()?);
    match (first, second, items.next()) {
        (Some(first), Some(second), None) => Ok((first, second)),
        _ => Err(PyValueError::new_err(format!(
            "not a pair of a name and a value: {pair:?}"
        ))),
    }
}

fn bytes_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    let bytes = object.cast::<PyBytes>().map_err(|_| {
        let kind = object.get_type();
        PyTypeError::new_err(format!(
            "names and values of headers must be bytes, not {kind}"
        ))
    })?;
    Ok(bytes.as_bytes())
}

/// The bytes of a str or bytes, both of which gunicorn accepts for hints.
fn octets_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().into());
    }
    latin1(str_of(object, || "a name or a value of a hint".to_owned())?)
}

/// The bytes that a str stands for in PEP 3333.
fn latin1<'a>(text: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, [u8]>> {
    let text = text.to_str()?;
    if text.is_ascii() {
        return Ok(text.as_bytes().into());
    }
    let bytes = text.chars().map(|char| u8::try_from(u32::from(char)));
    let bytes = bytes.collect::<Result<Vec<_>, _>>().map_err(|_| {
        PyValueError::new_err(format!("a character that is not in latin-1: {text:?}"))
    })?;
    Ok(bytes.into())
}
