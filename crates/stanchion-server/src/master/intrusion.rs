//! Repairs what the operator's code may have done to the master while it ran there: a hook, or the config file of a reload.

use std::collections::VecDeque;

use stanchion_master::{Master, MasterEvent, command_of};
use stanchion_sys::child;
use stanchion_sys::process::Exit;
use stanchion_sys::signal::{SIGCHLD, SignalPipe};
use tracing::warn;

use stanchion_settings::SignalStyle;

/// Takes back the master's signals, and looks for children whose end it cannot hear of any more. `whose` names the code that has run.
pub(super) fn recover_from(
    whose: &str,
    signals: &mut SignalPipe,
    master: &Master,
    events: &mut VecDeque<MasterEvent>,
) {
    match signals.reclaim() {
        Ok(taken) if taken.is_empty() => {}
        Ok(taken) => {
            let names: Vec<_> = taken.into_iter().map(name).collect();
            let names = names.join(", ");
            warn!(
                "{whose} has changed what becomes of {names} in the master, which needs these \
                 signals itself and has taken them back"
            );
        }
        Err(error) => warn!("the master cannot see to its signals after {whose}: {error}"),
    }
    // The kernel reaps children by itself while SIGCHLD is ignored, and the code may have reaped them with a wait(2) for any child.
    let is_known = |pid: i32| events.iter().any(|event| event.is_end_of(pid));
    let lost: Vec<_> = master
        .children()
        .filter(|&pid| !child::is_ours(pid) && !is_known(pid))
        .map(|pid| MasterEvent::Reaped(pid, Exit::Unseen))
        .collect();
    events.extend(lost);
}

fn name(signal: i32) -> &'static str {
    match command_of(signal, SignalStyle::Gunicorn) {
        Some((_, name)) => name,
        None if signal == SIGCHLD => "CHLD",
        None => "a signal",
    }
}
