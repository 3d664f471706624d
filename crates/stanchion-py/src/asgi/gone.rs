//! Exceptions that come of a client that has gone. They are not the app's fault, and so nothing for the log.

use pyo3::prelude::*;

use crate::response::ClientGone;

/// How many exceptions are looked at: each was raised while another was handled, or is one of a group (PEP 654).
const LOOKED_AT_MAX: usize = 256;
/// How deep groups of exceptions may lie in each other to be looked at.
const GROUPS_MAX: usize = 4;
/// The frameworks' exception of `receive`'s `http.disconnect`: Starlette's, and those that are named after it.
const OF_DISCONNECT: &str = "ClientDisconnect";

/// Whether it is what `send` has raised, or the framework for a client that has gone, or what the app has made of that: of a
/// group, each exception in it.
pub(super) fn comes_of_gone_client(py: Python<'_>, failure: &PyErr) -> bool {
    let mut left = LOOKED_AT_MAX;
    comes_of_it(failure.value(py).clone().into_any(), GROUPS_MAX, &mut left)
}

fn comes_of_it(failure: Bound<'_, PyAny>, groups_max: usize, left: &mut usize) -> bool {
    let mut raised = Some(failure);
    while let Some(one) = raised {
        let Some(fewer) = left.checked_sub(1) else {
            return false;
        };
        *left = fewer;
        if is_it(&one) || is_group_of_it(&one, groups_max, left) {
            return true;
        }
        let of = |name| one.getattr(name).ok().filter(|of| !of.is_none());
        raised = of("__cause__").or_else(|| of("__context__"));
    }
    false
}

fn is_it(one: &Bound<'_, PyAny>) -> bool {
    let name = || one.get_type().name();
    one.is_instance_of::<ClientGone>() || name().is_ok_and(|name| name == OF_DISCONNECT)
}

/// Task groups raise what several tasks have raised as one. Python 3.10 has such groups from a package, so only their shape
/// is known.
fn is_group_of_it(one: &Bound<'_, PyAny>, groups_max: usize, left: &mut usize) -> bool {
    let Some(deeper) = groups_max.checked_sub(1) else {
        return false;
    };
    let Ok(exceptions) = one.getattr("exceptions") else {
        return false;
    };
    let Ok(exceptions) = exceptions.extract::<Vec<Bound<'_, PyAny>>>() else {
        return false;
    };
    (1..=LOOKED_AT_MAX).contains(&exceptions.len())
        && exceptions
            .into_iter()
            .all(|exception| comes_of_it(exception, deeper, left))
}
