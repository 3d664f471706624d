//! Messages of a WebSocket's client, assembled from the bytes that come into the slot.

use std::collections::VecDeque;
use std::io::Read as _;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use stanchion_record::{
    BadRecord, Close, Content, MESSAGE_HEAD_BYTES, MessageKind, read_close, read_message_head,
};
use stanchion_server::Taken;

use super::compression::MessageCompression;
use super::input::come;

/// The input that has come and that the app has not got.
#[derive(Default)]
pub(super) struct MessageReader {
    /// Bytes that were taken out of the slot before it was given back.
    kept: VecDeque<u8>,
    /// The head of the next message, as far as it has come.
    head: [u8; MESSAGE_HEAD_BYTES],
    head_len: usize,
    /// The content and the length in that head, once it is complete, and the payload so far.
    begun: Option<(Content, usize)>,
    payload: Vec<u8>,
    is_session: bool,
    is_closed: bool,
}

/// An input from the client.
pub(super) enum Heard<'py> {
    Message(MessageKind, Vec<u8>),
    /// A binary message, which was copied straight into the object that the app gets.
    Bytes(Bound<'py, PyBytes>),
    /// The client or the server has closed the WebSocket. No input follows.
    Close(Close),
    /// A message that cannot be decompressed: the WebSocket has to be closed in this way.
    Fault(Close),
}

impl MessageReader {
    /// Notes that the app has accepted: the client may send messages.
    pub(super) fn begin(&mut self) {
        self.is_session = true;
    }

    pub(super) fn is_session(&self) -> bool {
        self.is_session
    }

    /// Whether a close has come.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The next input, if all of it has come. Takes no more out of the slot than belongs to it.
    ///
    /// # Errors
    /// The bytes are malformed, or there is no memory for the message.
    pub(super) fn next<'py>(
        &mut self,
        py: Python<'py>,
        mut taken: Option<&mut Taken<'static>>,
        compression: &MessageCompression,
    ) -> PyResult<Option<Heard<'py>>> {
        let (content, len) = match self.begun {
            Some(begun) => begun,
            None => {
                self.head_len += read(
                    &mut self.kept,
                    taken.as_deref_mut(),
                    &mut self.head[self.head_len..],
                );
                if self.head_len < MESSAGE_HEAD_BYTES {
                    return Ok(None);
                }
                let begun = read_message_head(self.head).map_err(our_fault)?;
                *self.begun.insert(begun)
            }
        };
        if content == Content::Message(MessageKind::Binary.into())
            && self.payload.is_empty()
            && let Some(taken) = taken.as_deref_mut()
            && taken.inflow().0 >= len
        {
            // All of it has come, as with most messages: it is copied straight into the object that the app gets.
            let bytes = come(py, taken, len)?;
            (self.head_len, self.begun) = (0, None);
            return Ok(Some(Heard::Bytes(bytes)));
        }
        self.payload.reserve_exact(len - self.payload.len());
        while self.payload.len() < len {
            let got = self.payload.len();
            let unread = taken
                .as_ref()
                .map_or(self.kept.len(), |taken| taken.inflow().0);
            // Reads even if nothing has come, because the slot then announces itself when there is more.
            self.payload.resize(got + unread.clamp(1, len - got), 0);
            let came = read(
                &mut self.kept,
                taken.as_deref_mut(),
                &mut self.payload[got..],
            );
            self.payload.truncate(got + came);
            if came == 0 {
                return Ok(None);
            }
        }
        // An idle WebSocket holds no memory.
        let payload = std::mem::take(&mut self.payload);
        (self.head_len, self.begun) = (0, None);
        Ok(Some(match content {
            Content::Message(form) if form.is_deflated => {
                match compression.inflate(py, form.kind, payload) {
                    Ok(payload) => Heard::Message(form.kind, payload),
                    Err(close) => Heard::Fault(close),
                }
            }
            Content::Message(form) => Heard::Message(form.kind, payload),
            Content::Close => {
                self.is_closed = true;
                Heard::Close(read_close(&payload).map_err(our_fault)?)
            }
            Content::Restart | Content::Fault => return Err(our_fault(BadRecord)),
        }))
    }

    /// Takes everything out of the slot before it is given back, which is no more than a slot can hold.
    pub(super) fn take_rest(&mut self, taken: &mut Taken<'static>) {
        let mut rest = vec![0; taken.inflow().0];
        let came = taken.receive(&mut rest);
        self.kept.extend(&rest[..came]);
    }
}

fn our_fault(bad: BadRecord) -> PyErr {
    PyValueError::new_err(format!("our fault: {bad}"))
}

/// Reads out of the slot or, once the slot is given back, out of the bytes that were kept.
fn read(kept: &mut VecDeque<u8>, taken: Option<&mut Taken<'static>>, into: &mut [u8]) -> usize {
    match taken {
        Some(taken) => taken.receive(into),
        // Reading from memory cannot fail.
        None => kept.read(into).unwrap_or(0),
    }
}

/// The event with a message. Its text is UTF-8, which the acceptor or [`MessageCompression`] has checked.
pub(super) fn received<'py>(
    py: Python<'py>,
    kind: MessageKind,
    payload: &[u8],
) -> PyResult<Bound<'py, PyDict>> {
    let event = event(intern!(py, "websocket.receive"))?;
    match kind {
        MessageKind::Text => {
            event.set_item(intern!(py, "text"), PyString::from_bytes(py, payload)?)?;
        }
        MessageKind::Binary => event.set_item(intern!(py, "bytes"), PyBytes::new(py, payload))?,
    }
    Ok(event)
}

/// An event of this type.
pub(super) fn event<'py>(kind: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyDict>> {
    let py = kind.py();
    let event = PyDict::new(py);
    event.set_item(intern!(py, "type"), kind)?;
    Ok(event)
}

/// The last event of a WebSocket.
pub(super) fn disconnect<'py>(py: Python<'py>, close: &Close) -> PyResult<Bound<'py, PyDict>> {
    let event = event(intern!(py, "websocket.disconnect"))?;
    event.set_item(intern!(py, "code"), close.code)?;
    event.set_item(intern!(py, "reason"), &close.reason)?;
    Ok(event)
}
