//! Messages of a WebSocket's client, put together from what comes into the slot.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_server::Taken;
use stanchion_server::record::{
    BadRecord, Close, Content, Kind, MESSAGE_HEAD_BYTES, read_close, read_message_head,
};

/// How much is taken out of the slot at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// What has come and the app has not got.
#[derive(Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    /// Bytes of these that were made messages of.
    at: usize,
    is_session: bool,
    is_closed: bool,
}

/// What the client says.
pub(super) enum Heard {
    Message(Kind, Vec<u8>),
    /// It is closed, by the client or by the server. The last that comes.
    Close(Close),
}

impl Messages {
    /// The app has accepted: the client may send messages.
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

    /// The next one, if all of it is there. Takes no more out of the slot than it needs for one.
    pub(super) fn next(
        &mut self,
        mut taken: Option<&mut Taken<'static>>,
    ) -> Result<Option<Heard>, BadRecord> {
        loop {
            if let Some(heard) = self.whole()? {
                return Ok(Some(heard));
            }
            let came = taken.as_mut().map_or(0, |taken| self.take(taken));
            if came == 0 {
                return Ok(None);
            }
        }
    }

    /// The slot goes back: takes all that is in it.
    pub(super) fn take_rest(&mut self, taken: &mut Taken<'static>) {
        while self.take(taken) > 0 {}
    }

    fn take(&mut self, taken: &mut Taken<'static>) -> usize {
        let len = self.bytes.len();
        let (unread, _) = taken.inflow();
        self.bytes.resize(len + unread.clamp(1, PIECE_BYTES), 0);
        let came = taken.receive(&mut self.bytes[len..]);
        self.bytes.truncate(len + came);
        came
    }

    fn whole(&mut self) -> Result<Option<Heard>, BadRecord> {
        let rest = &self.bytes[self.at..];
        let Some((head, rest)) = rest.split_first_chunk::<MESSAGE_HEAD_BYTES>() else {
            return Ok(None);
        };
        let (content, len) = read_message_head(*head)?;
        let Some(payload) = rest.get(..len) else {
            return Ok(None);
        };
        let heard = match content {
            Content::Message(kind) => Heard::Message(kind, payload.to_vec()),
            Content::Close => Heard::Close(read_close(payload)?),
        };
        self.is_closed |= content == Content::Close;
        self.at += MESSAGE_HEAD_BYTES + len;
        if self.at == self.bytes.len() {
            // One that idles holds no memory.
            self.bytes = Vec::new();
            self.at = 0;
        } else if self.at >= PIECE_BYTES {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        Ok(Some(heard))
    }
}

/// An event of that type, as an app gets it.
pub(super) fn event<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyDict>> {
    let event = PyDict::new(py);
    event.set_item(intern!(py, "type"), kind)?;
    Ok(event)
}

/// The last event of a WebSocket.
pub(super) fn disconnect<'py>(py: Python<'py>, close: &Close) -> PyResult<Bound<'py, PyDict>> {
    let event = event(py, "websocket.disconnect")?;
    event.set_item(intern!(py, "code"), close.code)?;
    event.set_item(intern!(py, "reason"), &close.reason)?;
    Ok(event)
}
