//! How far a WebSocket of an ASGI app is: what the app may send, and what it gets next.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_server::Taken;
use stanchion_server::record::{
    Close, Content, close_record, code, fault_record, message_head, restart,
};
use tracing::error;

use super::Puller;
use super::messages::{Heard, Messages, disconnect, event};
use super::progress::{Progress, client_gone};

/// How far it is.
pub(super) struct State {
    pub(super) progress: Progress,
    pub(super) messages: Messages,
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
        let (_, failed) = self.progress.flush(py);
        failed
    }

    /// Nobody hears what the app sends, and that is not of its own making.
    pub(super) fn is_lost(&self) -> bool {
        self.progress.is_client_gone || self.messages.is_closed() || self.is_closed_by_us
    }

    /// Ends it by a close frame, as the app wants it.
    pub(super) fn close(
        &mut self,
        py: Python<'_>,
        close: &Close,
        event_loop: &Py<PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.end(py, close, &close_record(close), event_loop)
    }

    /// Ends it, since the worker leaves.
    pub(super) fn restart(&mut self, py: Python<'_>, event_loop: &Py<PyAny>) {
        let record = message_head(Content::Restart, 0);
        // A client that has gone needs no close.
        let _ = self.end(py, &restart(), &record, event_loop);
        self.is_closed_by_us = true;
    }

    fn end(
        &mut self,
        py: Python<'_>,
        close: &Close,
        record: &[u8],
        event_loop: &Py<PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.phase = Standing::Closed;
        self.closed.get_or_insert_with(|| close.clone());
        self.notice_end();
        if self.progress.is_client_gone {
            return Err(client_gone());
        }
        self.progress.is_answered = true;
        self.progress.write(py, record, true, event_loop)
    }

    /// What the app gets next, if it is there.
    pub(super) fn next_event<'py>(
        &mut self,
        py: Python<'py>,
        puller: &Puller,
        event_loop: &Py<PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        if !std::mem::replace(&mut self.is_connect_told, true) {
            return event(intern!(py, "websocket.connect")).map(Some);
        }
        if let Some(close) = &self.closed {
            return disconnect(py, close).map(Some);
        }
        let taken = self.progress.answer.taken.as_mut();
        let heard = self.messages.next(py, taken, &puller.compression);
        let told = match heard {
            Ok(Some(Heard::Text(text))) => {
                let received = event(intern!(py, "websocket.receive"))?;
                received.set_item(intern!(py, "text"), text)?;
                puller.worker.served_message();
                return Ok(Some(received));
            }
            Ok(Some(Heard::Binary(bytes))) => {
                let received = event(intern!(py, "websocket.receive"))?;
                received.set_item(intern!(py, "bytes"), bytes)?;
                puller.worker.served_message();
                return Ok(Some(received));
            }
            Ok(Some(Heard::Close(close))) => close,
            Ok(Some(Heard::Fault(close))) => {
                self.is_closed_by_us = true;
                // A client that has gone needs no close.
                let _ = self.end(py, &close, &fault_record(&close), event_loop);
                close
            }
            Ok(None) if !self.progress.is_over() => return Ok(None),
            // Also once the app has refused.
            Ok(None) => Close::new(code::ABNORMAL, ""),
            Err(failure) => {
                error!("a message of a WebSocket cannot be given to the app: {failure}");
                Close::new(code::ABNORMAL, "")
            }
        };
        let event = disconnect(py, &told);
        self.closed = Some(told);
        if self.phase == Standing::Open {
            self.phase = Standing::Closed;
            // Nothing more is said: the slot goes back.
            self.progress.finish_gone();
        }
        event.map(Some)
    }
}
