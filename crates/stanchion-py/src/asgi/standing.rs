//! How far a WebSocket of an ASGI app is: what the app may send, and what it gets next.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use stanchion_server::Taken;
use stanchion_server::record::{
    Claim, Close, Content, Kind, close_record, code, fault_record, message_head, restart,
};

use super::Puller;
use super::messages::{Heard, Messages, disconnect, event, received};
use super::progress::{Progress, client_gone};
use super::waits::Put;

/// How far it is.
pub(super) struct State {
    pub(super) progress: Progress,
    pub(super) messages: Messages,
    /// If it waits to have a message decompressed.
    pub(super) claim: Claim,
    pub(super) phase: Standing,
    is_connect_told: bool,
    /// The worker has closed it, and not the app.
    pub(super) is_closed_by_us: bool,
    /// The app's call has ended, and what it said last waits for room.
    pub(super) is_ending: bool,
    /// How it was closed, once it is.
    closed: Option<Close>,
}

/// What the app may send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has neither accepted nor refused.
    Connecting,
    /// It refuses by an answer of its own.
    Denying,
    Open,
    /// Nothing.
    Closed,
}

impl State {
    /// One that the app has not heard of.
    pub(super) fn new(progress: Progress) -> Self {
        Self {
            progress,
            messages: Messages::default(),
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

    /// Whether the client has gone: then what it sent before is taken in, and the slot goes back. Not while something
    /// waits for room: who waits is told first, by [`Progress::flush`].
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

    /// The futures of those who wait for room, if there will be none.
    pub(super) fn lose_pending(&mut self, py: Python<'_>) -> Vec<Py<PyAny>> {
        if !self.progress.is_client_gone {
            return Vec::new();
        }
        let (mut lost, failed) = self.progress.flush(py);
        lost.extend(failed);
        lost
    }

    /// Nobody hears what the app sends, and that is not of its own making.
    pub(super) fn is_lost(&self) -> bool {
        self.progress.is_client_gone || self.messages.is_closed() || self.is_closed_by_us
    }

    /// Ends it by a close frame, as the app wants it.
    pub(super) fn close(&mut self, py: Python<'_>, close: &Close) -> PyResult<Put> {
        self.end(py, close, &close_record(close))
    }

    /// Ends it, since the worker leaves.
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

    /// What the app gets next, if it is there.
    pub(super) fn next<'py>(&mut self, py: Python<'py>, puller: &Puller) -> Option<Told<'py>> {
        if !std::mem::replace(&mut self.is_connect_told, true) {
            return Some(Told::Connect);
        }
        if let Some(close) = &self.closed {
            return Some(Told::Disconnect(close.clone()));
        }
        let taken = self.progress.answer.taken.as_mut();
        let heard = self.messages.next(py, taken, &puller.compression);
        let close = match heard {
            Ok(Some(Heard::Message(kind, payload))) => {
                puller.worker.served_message();
                return Some(Told::Message(kind, payload));
            }
            Ok(Some(Heard::Bytes(bytes))) => {
                puller.worker.served_message();
                return Some(Told::Bytes(bytes));
            }
            Ok(Some(Heard::Close(close))) => close,
            Ok(Some(Heard::Fault(close))) => {
                self.is_closed_by_us = true;
                // A client that has gone needs no close.
                let _ = self.end(py, &close, &fault_record(&close));
                close
            }
            Ok(None) if !self.progress.is_over() => return None,
            // Also once the app has refused.
            Ok(None) => Close::new(code::ABNORMAL, ""),
            Err(failure) => return Some(Told::Unreadable(failure)),
        };
        Some(Told::Disconnect(self.closed_by(close)))
    }

    /// Ends it, since what comes next cannot be given to the app.
    pub(super) fn lose(&mut self) -> Close {
        self.closed_by(Close::new(code::ABNORMAL, ""))
    }

    fn closed_by(&mut self, close: Close) -> Close {
        self.closed = Some(close.clone());
        if self.phase == Standing::Open {
            self.phase = Standing::Closed;
            // Nothing more is said: the slot goes back.
            self.progress.finish_gone();
        }
        close
    }
}

/// What the app gets.
pub(super) enum Told<'py> {
    Connect,
    Message(Kind, Vec<u8>),
    Bytes(Bound<'py, PyBytes>),
    Disconnect(Close),
    /// What comes makes no sense.
    Unreadable(PyErr),
}

impl<'py> Told<'py> {
    /// As the app gets it. Not to be made under the lock.
    ///
    /// # Errors
    /// It cannot be given to the app.
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
