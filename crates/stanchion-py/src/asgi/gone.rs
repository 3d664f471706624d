//! Exceptions that a client has caused by leaving. The app is not at fault, so they are not logged. An error that the app raises
//! meanwhile, as in a `finally`, is logged.

use pyo3::prelude::*;

use crate::response::ClientGone;

/// How many exceptions are examined: each was made of another one, or is one of a group (PEP 654).
const LOOKED_AT_MAX: usize = 256;
/// How deeply groups of exceptions may be nested to be examined.
const GROUPS_MAX: usize = 4;
/// The exception that frameworks raise on `http.disconnect` from `receive`: Starlette's, and those named after it.
const OF_DISCONNECT: &str = "ClientDisconnect";
/// The names of exceptions that frameworks raise while they handle what `send` has raised have this in them:
/// `WebSocketDisconnect`, `ClientDisconnected`.
const OF_ANY_DISCONNECT: &str = "Disconnect";

/// Whether `send` has raised this because the client has gone, or the framework has, or the app has raised it while it handled such an exception. Of
/// a group, each exception has to be one of these.
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
        raised = of("__cause__");
        // Python notes what was handled also for an error that has nothing to do with it.
        if raised.is_none() && name(&one).contains(OF_ANY_DISCONNECT) {
            raised = of("__context__");
        }
    }
    false
}

fn is_it(one: &Bound<'_, PyAny>) -> bool {
    one.is_instance_of::<ClientGone>() || name(one) == OF_DISCONNECT
}

fn name(one: &Bound<'_, PyAny>) -> String {
    let name = one.get_type().name();
    name.map_or_else(|_| String::new(), |name| name.to_string())
}

/// Task groups raise the exceptions of several tasks as one. Python 3.10 has such groups from a package, so only the shape of their classes is known.
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
