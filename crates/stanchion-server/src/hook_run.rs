//! A run of a hook of the operator's, and what it leaves behind.

use tracing::{error, warn};

use crate::hook::Hook;
use crate::host::Host;
use crate::load_error::LoadError;
use crate::threads;

/// Runs a hook. When this returns, the log has what the hook raised, and the threads that it has left in the master.
pub(crate) fn run_hook(host: &mut dyn Host, hook: Hook) -> Result<(), LoadError> {
    let before = hook.is_in_master().then(threads::present);
    let done = hook.watched(|| host.run_hook(hook));
    let left = before.map(|before| threads::staying(host, &before?));
    match left.transpose() {
        // Threads that are left before the start end it, with an error of its own.
        Ok(Some(Some(threads))) if hook != Hook::Starting => error!(
            "the hook {} has left {threads} in the master, which cannot fork any more: a reload \
             will fail, a template that ends cannot be replaced, and if the acceptor ends, so does \
             the server. Start threads in post_fork or post_worker_init, and restart the server",
            hook.name()
        ),
        Ok(_) => {}
        Err(error) => warn!("the master cannot count its threads: {error}"),
    }
    done
}
