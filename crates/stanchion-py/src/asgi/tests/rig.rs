//! An event loop that never runs: the test itself does each step of the app.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_exchange::Unwanted;
use stanchion_http::Head;
use stanchion_record::RequestFacts;

use super::super::futures;
use super::super::running::Running;
use super::super::{AsgiCallables, Puller};
use crate::loop_puller::LoopPuller;
use crate::tests::rig::{Answered, Rig, module, value_in};

/// Two seats, and room for two `WebSocket`s besides.
const SETTINGS: &str = r#""interface": "asgi", "worker_concurrency": 2, "worker_sessions": 2"#;

/// How an app gives messages and gets events, where the test is its loop.
const STEPS: &str = r#"
import asyncio

def loop():
    return asyncio.new_event_loop()

def step(awaitable):
    """The result, or "waits" for what waits for a future."""
    try:
        awaitable.__await__().send(None)
    except StopIteration as through:
        return through.value
    awaitable.close()
    return "waits"

def outcome(awaitable):
    """The result of one step, or the exception as text."""
    try:
        return step(awaitable)
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"

def ended(loop, raised):
    """A task of an app that has returned or raised."""
    task = loop.create_future()
    task.set_result(None) if raised is None else task.set_exception(raised)
    return task

def start(status=200, headers=()):
    return {"type": "http.response.start", "status": status, "headers": headers}

def body(piece=b"", more=False):
    return {"type": "http.response.body", "body": piece, "more_body": more}
"#;

/// A worker's loop.
pub(super) struct Turning<'py> {
    pub(super) rig: Rig,
    pub(super) puller: Bound<'py, Puller>,
    /// The functions of [`STEPS`].
    steps: Bound<'py, PyModule>,
    event_loop: Bound<'py, PyAny>,
}

/// A request or a WebSocket of an app that has just been called.
pub(super) struct Called<'py> {
    pub(super) slot: u32,
    pub(super) scope: Bound<'py, PyDict>,
    pub(super) object: Bound<'py, PyAny>,
    running: Running,
}

impl<'py> Turning<'py> {
    /// A loop with these settings, each behind a comma, in addition.
    pub(super) fn new(py: Python<'py>, settings: &str) -> Self {
        let rig = Rig::new(&format!("{{{SETTINGS}{settings}}}"));
        let steps = module(py, STEPS);
        let event_loop = steps.call_method0("loop").expect("an event loop");
        let puller = Puller::new(py, rig.worker).expect("memory");
        let puller = Bound::new(py, puller).expect("memory");
        let none = || py.None();
        puller.get().lock(py).begun = Some(AsgiCallables {
            app: none(),
            event_loop: event_loop.clone().unbind(),
            create_task: none(),
            task_options: None,
            over: none(),
            leaving: None,
            hasten: none(),
            outside: PyDict::new(py).unbind(),
        });
        Self {
            rig,
            puller,
            steps,
            event_loop,
        }
    }

    /// Hands over a request, for which a seat takes it.
    pub(super) fn call(
        &mut self,
        head: &Head,
        facts: &RequestFacts<'_>,
        body: &[u8],
    ) -> Called<'py> {
        let py = self.puller.py();
        let slot = self.rig.submit(head, facts, body);
        let seated = self.puller.get().take(py).expect("it is ready");
        let (scope, running) = Puller::prepare(&self.puller, seated).expect("a scope");
        Called {
            slot,
            scope,
            object: running.object(py),
            running,
        }
    }

    /// A value of Python, made with `start` and `body`.
    pub(super) fn value(&self, expression: &str) -> Bound<'py, PyAny> {
        value_in(&self.steps.dict(), expression)
    }

    /// Has the app send a message, as far as it goes in one step: "None", "waits", or the exception.
    pub(super) fn send(&self, called: &Called<'py>, message: &Bound<'py, PyAny>) -> String {
        self.outcome(called.object.call_method1("send", (message,)))
    }

    /// Has the app send these messages, of which all before the last are taken without complaint. The app raises if the
    /// last is not taken, and else returns. Gives what came of the last message, and of the request.
    pub(super) fn send_all(
        &mut self,
        called: &Called<'py>,
        messages: &Bound<'py, PyAny>,
    ) -> (String, Answered) {
        let mut last = "None".to_owned();
        for message in messages.try_iter().expect("a list") {
            assert_eq!(last, "None", "{messages}");
            last = self.send(called, &message.expect("a message"));
        }
        let raised = (last != "None").then_some("ValueError('of the app')");
        let answered = self.end(called, raised);
        (last, answered)
    }

    /// Has the app ask for an event in the same way.
    pub(super) fn receive(&self, called: &Called<'py>) -> String {
        self.outcome(called.object.call_method0("receive"))
    }

    fn outcome(&self, awaitable: PyResult<Bound<'py, PyAny>>) -> String {
        let awaitable = awaitable.expect("an awaitable");
        let came = self.steps.call_method1("outcome", (awaitable,));
        came.expect("an outcome").str().expect("text").to_string()
    }

    /// The app's task returns, or raises this.
    pub(super) fn end(&mut self, called: &Called<'py>, raised: Option<&str>) -> Answered {
        let py = self.puller.py();
        let raised = raised.map_or(py.None().into_bound(py), |raised| self.value(raised));
        let task = self.steps.call_method1("ended", (&self.event_loop, raised));
        let ended = called
            .object
            .call_method1("ended", (task.expect("a task"),));
        ended.expect("no failure of ours");
        self.rig.answered(called.slot)
    }

    /// The client leaves, and the acceptor brings the news of it.
    pub(super) fn give_up(&mut self, called: &Called<'py>) {
        let acceptor = &mut self.rig.acceptor;
        acceptor.give_up(called.slot, Unwanted::ClientGone);
        self.look(called);
    }

    /// Brings the news of the acceptor.
    pub(super) fn look(&self, called: &Called<'py>) {
        let py = self.puller.py();
        called.running.look(py).expect("no failure of ours");
        futures::wake(py, self.puller.get().compression.renew(py)).expect("futures");
    }
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        // Its sockets would be warned of.
        let _ = self.event_loop.call_method0("close");
    }
}
