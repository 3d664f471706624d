//! The logs that take nothing, for `/status`.

use super::log_kind::Of;
use super::trouble::FailingLog;
use super::{ERROR_LOG, queue};

/// In the acceptor: all logs that take nothing at present.
pub fn failing_logs() -> Vec<FailingLog> {
    let mut failing = queue::failing_logs();
    if let Some(log) = ERROR_LOG.get() {
        let unqueued = log.unqueued().iter();
        failing.extend(unqueued.filter_map(|direct| {
            direct
                .trouble
                .failing(Of::ErrorLog.name(), &direct.outlet, 0)
        }));
    }
    failing
}
