use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::super::Puller;
use super::rig::Turning;
use crate::tests::rig::{FACTS, head, with_python};

/// The event in a scope.
fn leaving_of<'py>(scope: &Bound<'py, PyDict>) -> Bound<'py, PyAny> {
    let extensions = scope.get_item("extensions").expect("a dict");
    let own = extensions.and_then(|extensions| extensions.get_item("stanchion").ok());
    let leaving = own.and_then(|own| own.get_item("leaving").ok());
    leaving.expect("the extension has an event")
}

#[test]
fn an_app_learns_in_the_next_turn_that_the_acceptor_drains() {
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        let leaving = turning.value("asyncio.Event()");
        let mut state = turning.puller.get().lock(py);
        let begun = state.begun.as_mut().expect("the app is ready");
        begun.leaving = Some(leaving.clone().unbind());
        let reader = state.reader.as_mut().expect("nothing is read now");
        reader.share(None, leaving.clone().unbind());
        drop(state);
        let called = turning.call(&head("GET / HTTP/1.1\r\nHost: test\r\n\r\n"), &FACTS, b"");
        assert!(leaving_of(&called.scope).is(&leaving));
        let is_set_after_a_turn = |turning: &Turning<'_>| {
            Puller::turn(&turning.puller).expect("a turn");
            let is_set = leaving.call_method0("is_set").expect("an event");
            is_set.is_truthy().expect("a bool")
        };
        assert!(!is_set_after_a_turn(&turning));
        turning.rig.acceptor.drain();
        assert!(is_set_after_a_turn(&turning));
        // It is set once, and is the app's own from then on.
        leaving.call_method0("clear").expect("an event");
        assert!(!is_set_after_a_turn(&turning));
        turning.end(&called, None);
    });
}
