//! Exceptions that come of a client that has gone. They are not the app's fault, and so nothing for the log.

use pyo3::prelude::*;

use crate::response::ClientGone;

/// How many exceptions are looked at, of which each was raised while the one before it was handled.
const CHAIN_MAX: usize = 16;
/// How deep groups of exceptions may lie in each other (PEP 654), and how many exceptions one may hold, to be looked at.
const GROUPS_MAX: usize = 4;
const GROUP_MAX: usize = 64;

/// Whether it is what `send` has raised, or what the app has made of that: of a group, each exception in it.
pub(super) fn comes_of_gone_client(py: Python<'_>, failure: &PyErr) -> bool {
    comes_of_it(failure.value(py).clone().into_any(), GROUPS_MAX)
}

fn comes_of_it(failure: Bound<'_, PyAny>, groups_max: usize) -> bool {
    let mut raised = Some(failure);
    for _ in 0..CHAIN_MAX {
        let Some(one) = raised else {
            return false;
        };
        if one.is_instance_of::<ClientGone>() || is_group_of_it(&one, groups_max) {
            return true;
        }
        let of = |name| one.getattr(name).ok().filter(|of| !of.is_none());
        raised = of("__cause__").or_else(|| of("__context__"));
    }
    false
}

/// Task groups raise what several tasks have raised as one. Python 3.10 has such groups from a package, so only their shape
/// is known.
fn is_group_of_it(one: &Bound<'_, PyAny>, groups_max: usize) -> bool {
    let Some(deeper) = groups_max.checked_sub(1) else {
        return false;
    };
    let Ok(exceptions) = one.getattr("exceptions") else {
        return false;
    };
    let Ok(exceptions) = exceptions.extract::<Vec<Bound<'_, PyAny>>>() else {
        return false;
    };
    (1..=GROUP_MAX).contains(&exceptions.len())
        && exceptions
            .into_iter()
            .all(|exception| comes_of_it(exception, deeper))
}
