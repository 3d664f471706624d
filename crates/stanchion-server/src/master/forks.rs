//! Forks of the master: the acceptor, the template and the scribe of a generation.

use std::io;

use stanchion_master::ChildKind;
use stanchion_sys::channel::Channel;
use stanchion_sys::held_signals;
use stanchion_sys::process::{self, Fork, OpenFiles};

use super::SIGNALS;
use crate::host::Host;
use crate::signals::leave_signals_to_master;

/// Forks a child, with a channel between the two; each gets its end. The master must have a single thread.
pub(super) fn fork_child(
    kind: ChildKind,
    host: &mut dyn Host,
    open_files: OpenFiles,
) -> io::Result<(Fork, Channel)> {
    let (ours, theirs) = Channel::pair()?;
    let fork = || match kind {
        // The acceptor runs no Python, so no interpreter needs to know of this fork.
        ChildKind::Acceptor => process::fork_single_threaded(),
        ChildKind::Template { .. } | ChildKind::Scribe => host.fork(),
    };
    let in_child = || {
        open_files
            .restore()
            .and_then(|()| leave_signals_to_master())
    };
    Ok(match held_signals::fork_with(&SIGNALS, fork, in_child)? {
        Fork::Child => (Fork::Child, theirs),
        parent @ Fork::Parent(_) => (parent, ours),
    })
}
