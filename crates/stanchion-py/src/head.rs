//! The rules on the head of an answer (PEP 3333, RFC 9110).

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use stanchion_http::rules::{
    STATUSES, content_length, is_field_text, is_hop_by_hop, is_token, may_tell_length,
};

/// What the app gave to `start_response`, checked.
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) reason: Vec<u8>,
    /// Names in lower case, and values.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) content_length: Option<u64>,
}

impl Head {
    pub(crate) fn check(status: &Bound<'_, PyAny>, headers: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (status, reason) = check_status(status)?;
        let headers = headers.cast::<PyList>().map_err(|_| {
            PyTypeError::new_err("the headers must be a list of (name, value) pairs")
        })?;
        let mut fields = Vec::with_capacity(headers.len() + 1);
        let mut content_length = None;
        for pair in headers {
            let Ok((name, value)) = pair
                .cast::<PyTuple>()
                .map_err(PyErr::from)
                .and_then(|pair| pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>())
            else {
                return Err(PyTypeError::new_err(format!(
                    "not a pair of a name and a value: {pair:?}"
                )));
            };
            let name = check_name(&name)?;
            let value = check_value(&name, &value)?;
            if is_hop_by_hop(&name) {
                // Dropped, as gunicorn does.
                continue;
            }
            if name == b"content-length" {
                if !may_tell_length(status) {
                    continue;
                }
                let len = parse_length(&value)?;
                if content_length
                    .replace(len)
                    .is_some_and(|earlier| earlier != len)
                {
                    return Err(PyValueError::new_err(
                        "two Content-Length fields contradict each other",
                    ));
                }
            }
            fields.push((name, value));
        }
        Ok(Self {
            status,
            reason,
            fields,
            content_length,
        })
    }
}

fn check_status(status: &Bound<'_, PyAny>) -> PyResult<(u16, Vec<u8>)> {
    let text = status.cast::<PyString>().map_err(|_| {
        PyTypeError::new_err(format!(
            "the status must be a str, not {}",
            status.get_type()
        ))
    })?;
    let bytes = latin1(text)?;
    let (code, reason) = bytes.split_at(bytes.len().min(3));
    let number = std::str::from_utf8(code)
        .ok()
        .and_then(|code| code.parse::<u16>().ok());
    let reason = match reason {
        [] => Some(reason),
        [b' ', reason @ ..] => Some(reason),
        _ => None,
    };
    match (number, reason) {
        (Some(number), Some(reason))
            if STATUSES.contains(&number) && code.len() == 3 && is_field_text(reason) =>
        {
            Ok((number, reason.to_vec()))
        }
        _ => Err(PyValueError::new_err(format!(
            "not a status such as '200 OK': {status:?}"
        ))),
    }
}

/// Field names are tokens (RFC 9110 section 5.6.2); kept in lower case, in which hyper has them.
fn check_name(name: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let text = name.cast::<PyString>().map_err(|_| {
        PyTypeError::new_err(format!(
            "a header's name must be a str, not {}",
            name.get_type()
        ))
    })?;
    let mut bytes = latin1(text)?;
    if !is_token(&bytes) {
        return Err(PyValueError::new_err(format!(
            "not a header name: {name:?}"
        )));
    }
    bytes.make_ascii_lowercase();
    Ok(bytes)
}

/// Field values have no control characters (RFC 9110 section 5.5): with them, one header could
/// become two, or a body.
fn check_value(name: &[u8], value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let shown = String::from_utf8_lossy(name);
    let text = value.cast::<PyString>().map_err(|_| {
        PyTypeError::new_err(format!(
            "the value of {shown} must be a str, not {}",
            value.get_type()
        ))
    })?;
    let bytes = latin1(text)?;
    let trimmed = bytes.trim_ascii();
    if !is_field_text(trimmed) {
        return Err(PyValueError::new_err(format!(
            "a control character in the value of {shown}: {value:?}"
        )));
    }
    Ok(trimmed.to_vec())
}

fn parse_length(value: &[u8]) -> PyResult<u64> {
    content_length(value).ok_or_else(|| {
        PyValueError::new_err(format!(
            "not a Content-Length: {:?}",
            String::from_utf8_lossy(value)
        ))
    })
}

/// PEP 3333's strings stand for bytes.
fn latin1(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    let text = text.to_str()?;
    if text.is_ascii() {
        return Ok(text.as_bytes().to_vec());
    }
    text.chars()
        .map(|char| u8::try_from(u32::from(char)))
        .collect::<Result<_, _>>()
        .map_err(|_| PyValueError::new_err(format!("a character that is not in latin-1: {text:?}")))
}
