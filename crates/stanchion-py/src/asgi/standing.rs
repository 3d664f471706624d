//! The state of an ASGI app's WebSocket: what the app may send, and what it gets next.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use stanchion_record::{
    Claim, Close, Content, MessageKind, close_record, code, fault_record, message_head, restart,
};
use stanchion_server::Taken;

use super::Puller;
use super::messages::{Heard, MessageReader, disconnect, event, received};
use super::progress::{Progress, client_gone};
use super::waiters::Put;

/// The state of a WebSocket.
pub(super) struct SocketState {
    pub(super) progress: Progress,
    pub(super) messages: MessageReader,
    /// The claim of a WebSocket that waits to have a message decompressed.
    pub(super) claim: Claim,
    pub(super) phase: Standing,
    is_connect_told: bool,
    /// The worker has closed it, and not the app.
    pub(super) is_closed_by_us: bool,
    /// The app's task has ended, and its last messages wait for room.
    pub(super) is_ending: bool,
    /// The close, once the WebSocket is closed.
    closed: Option<Close>,
}

/// The messages that the app may send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The app has neither accepted nor refused.
    Connecting,
    /// The app refuses with an answer of its own.
    Denying,
    Open,
    /// The app may send nothing.
    Closed,
}

impl SocketState {
    /// A WebSocket of which the app has got no event yet.
    pub(super) fn new(progress: Progress) -> Self {
        Self {
            progress,
            messages: MessageReader::default(),
            claim: Claim::default(),
            phase: Standing::Connecting,
            is_connect_told: false,
            is_closed_by_us: false,
            is_ending: false,
            closed: None,
        }
    }

    /// Whether it has run past its deadline before the app has accepted.
    pub(super) fn is_overdue(&self) -> bool {
        let taken = self.progress.answer.taken.as_ref();
        taken.is_some_and(Taken::is_overdue)
    }

    /// If the client has gone: takes in what the client sent before, and gives back the slot. Not while a message waits for room, because
    /// [`Progress::flush`] has to wake the task that waits first.
    pub(super) fn notice_end(&mut self) {
        if self.progress.has_pending() {
            return;
        }
        let taken = self.progress.answer.taken.as_mut();
        if let Some(taken) = taken.filter(|taken| taken.client_gone()) {
            self.messages.take_rest(taken);
            self.progress.finish_gone();
        }
    }

    /// The futures of the tasks that wait for room, if there will be none.
    pub(super) fn lose_pending(&mut self, py: Python<'_>) -> Vec<Py<PyAny>> {
        if !self.progress.is_client_gone {
            return Vec::new();
        }
        let (mut lost, failed) = self.progress.flush(py);
        lost.extend(failed);
        lost
    }

    /// Whether no client gets the app's messages any more, and the app has not caused that itself.
    pub(super) fn is_lost(&self) -> bool {
        self.progress.is_client_gone || self.messages.is_closed() || self.is_closed_by_us
    }

    /// Closes it with a close frame of the app.
    pub(super) fn close(&mut self, py: Python<'_>, close: &Close) -> PyResult<Put> {
        self.end(py, close, &close_record(close))
    }

    /// Closes it because the worker leaves.
    pub(super) fn restart(&mut self, py: Python<'_>) {
        let record = message_head(Content::Restart, 0);
        // A client that has gone needs no close.
        let _ = self.end(py, &restart(), &record);
        self.is_closed_by_us = true;
    }

    fn end(&mut self, py: Python<'_>, close: &Close, record: &[u8]) -> PyResult<Put> {
        self.phase = Standing::Closed;
        self.closed.get_or_insert_with(|| close.clone());
        self.notice_end();
        if self.progress.is_client_gone {
            return Err(client_gone());
        }
        self.progress.is_answered = true;
        self.progress.write(py, record, true)
    }

    /// The next input for the app, if there is one.
    pub(super) fn next<'py>(&mut self, py: Python<'py>, puller: &Puller) -> Option<AppInput<'py>> {
        if !std::mem::replace(&mut self.is_connect_told, true) {
            return Some(AppInput::Connect);
        }
        if let Some(close) = &self.closed {
            return Some(AppInput::Disconnect(close.clone()));
        }
        let taken = self.progress.answer.taken.as_mut();
        let heard = self.messages.next(py, taken, &puller.compression);
        let close = match heard {
            Ok(Some(Heard::Message(kind, payload))) => {
                puller.worker.served_message();
                return Some(AppInput::Message(kind, payload));
            }
            Ok(Some(Heard::Bytes(bytes))) => {
                puller.worker.served_message();
                return Some(AppInput::Bytes(bytes));
            }
            Ok(Some(Heard::Close(close))) => close,
            Ok(Some(Heard::Fault(close))) => {
                self.is_closed_by_us = true;
                // A client that has gone needs no close.
                let _ = self.end(py, &close, &fault_record(&close));
                close
            }
            Ok(None) if !self.progress.is_over() => return None,
            // Ends the input also once the app has refused.
            Ok(None) => Close::new(code::ABNORMAL, ""),
            Err(failure) => return Some(AppInput::Unreadable(failure)),
        };
        Some(AppInput::Disconnect(self.closed_by(close)))
    }

    /// Closes it because the next input cannot be given to the app.
    pub(super) fn lose(&mut self) -> Close {
        self.closed_by(Close::new(code::ABNORMAL, ""))
    }

    fn closed_by(&mut self, close: Close) -> Close {
        self.closed = Some(close.clone());
        if self.phase == Standing::Open {
            self.phase = Standing::Closed;
            // Nothing more is sent: gives back the slot.
            self.progress.finish_gone();
        }
        close
    }
}

/// An input for the app.
pub(super) enum AppInput<'py> {
    Connect,
    Message(MessageKind, Vec<u8>),
    Bytes(Bound<'py, PyBytes>),
    Disconnect(Close),
    /// The input is malformed.
    Unreadable(PyErr),
}

impl<'py> AppInput<'py> {
    /// Makes the event for the app. It must not be called under the lock.
    ///
    /// # Errors
    /// The input cannot be given to the app.
    pub(super) fn event(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self {
            Self::Connect => event(intern!(py, "websocket.connect")),
            Self::Message(kind, payload) => received(py, kind, &payload),
            Self::Bytes(bytes) => {
                let received = event(intern!(py, "websocket.receive"))?;
                received.set_item(intern!(py, "bytes"), bytes)?;
                Ok(received)
            }
            Self::Disconnect(close) => disconnect(py, &close),
            Self::Unreadable(failure) => Err(failure),
        }
    }
}
