//! What probes are told: whether the server lives, and whether it is ready for more.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use stanchion_sys::clock::monotonic_us;

use crate::acceptor::Shared;

/// The answer to a probe.
pub(in crate::acceptor) struct Verdict(Result<(), String>);

impl Verdict {
    /// Whoever gets an answer knows: the acceptor's loop goes round.
    pub(super) fn live() -> Self {
        Self(Ok(()))
    }

    /// 200, or 503 with the reason.
    pub(in crate::acceptor) fn response(self) -> Response<Bytes> {
        let (status, words) = match self.0 {
            Ok(()) => (StatusCode::OK, Bytes::from_static(b"yes\n")),
            Err(reason) => (
                StatusCode::SERVICE_UNAVAILABLE,
                Bytes::from(format!("no: {reason}\n")),
            ),
        };
        super::text(status, words)
    }

    pub(super) fn reason(self) -> Option<String> {
        self.0.err()
    }
}

impl Shared {
    /// The answer to a probe on a listener of `bind`, if this is one.
    pub(in crate::acceptor) fn probed(&self, head: &Parts) -> Option<Verdict> {
        let prefix = self.common.settings.health_path.as_deref()?;
        if ![Method::GET, Method::HEAD].contains(&head.method) {
            return None;
        }
        match head.uri.path().strip_prefix(prefix)? {
            "/live" => Some(Verdict::live()),
            "/ready" => Some(self.verdict_ready()),
            _ => None,
        }
    }

    /// Whether new clients are better sent elsewhere.
    pub(in crate::acceptor) fn verdict_ready(&self) -> Verdict {
        let settings = &self.common.settings;
        let dispatch = self.dispatch.borrow();
        let waiting = dispatch.waiting();
        let wait_us = dispatch.oldest_wait_us(monotonic_us());
        let wait_max = settings.ready_wait_max.as_duration();
        Verdict(if self.retiring.get() {
            // A connection from before a reload: newcomers are served, by another acceptor.
            Ok(())
        } else if self.draining.get() || self.refusing.get() {
            Err("the server is shutting down".to_owned())
        } else if !self.open.get() {
            Err("the server is starting".to_owned())
        } else if !dispatch.has_workers() {
            Err("no worker is there".to_owned())
        } else if settings.ready_waiting_max > 0 && waiting > settings.ready_waiting_max {
            let most = settings.ready_waiting_max;
            Err(format!(
                "{waiting} wait, more than {most} (ready_waiting_max)"
            ))
        } else if wait_max.is_some_and(|most| u128::from(wait_us) > most.as_micros()) {
            let wait_s = wait_us / 1_000_000;
            Err(format!("one has waited for {wait_s} s (ready_wait_max)"))
        } else {
            Ok(())
        })
    }
}
