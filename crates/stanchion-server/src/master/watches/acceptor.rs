//! The acceptor, watched by the turns of its loop: the master names one that stands still, and ends one that is blocked.
//!
//! While it stands still it serves no client. An acceptor that a signal or a debugger has stopped goes on when that lets it, and
//! keeps its connections: the master only names it. The master kills one only if it has seen it wait in the kernel, or not at
//! all, at each look for long.

use stanchion_master::{ProcessLook, is_stopped, way_on, why_it_stands};
use stanchion_sys::process;
use tracing::{error, info};

use stanchion_generation::heartbeat::AcceptorTurns;

/// An acceptor that has been seen blocked for so long is not expected to go on.
const BLOCKED_MS_MAX: u64 = 30_000;

/// The acceptor that serves, as the master sees it.
#[derive(Debug)]
pub(in crate::master) struct AcceptorWatch {
    pid: Option<i32>,
    turns: AcceptorTurns,
    /// For how long it has stood still, if that is too long.
    still_ms: Option<u64>,
    /// Since when each look has found it blocked.
    blocked_since_ms: Option<u64>,
}

impl AcceptorWatch {
    pub(in crate::master) fn new(now_ms: u64) -> Self {
        Self {
            pid: None,
            turns: AcceptorTurns::new(now_ms),
            still_ms: None,
            blocked_since_ms: None,
        }
    }

    /// For how long the acceptor has stood still, if that is too long.
    pub(in crate::master) fn still_ms(&self) -> Option<u64> {
        self.still_ms
    }

    /// Looks whether the acceptor makes turns, if there is one. Gives its process if that is to be killed.
    pub(in crate::master) fn look(
        &mut self,
        look: ProcessLook,
        now_ms: u64,
        acceptor: Option<i32>,
        turns: u64,
    ) -> Option<i32> {
        if acceptor != self.pid || acceptor.is_none() {
            *self = Self {
                pid: acceptor,
                ..Self::new(now_ms)
            };
        }
        let pid = acceptor?;
        if look.is_late() {
            self.turns.pause(look.late_ms);
            self.blocked_since_ms = None;
        }
        let still_ms = self.turns.seen(turns, now_ms);
        let state = still_ms.and_then(|_| process::state(pid));
        match (std::mem::replace(&mut self.still_ms, still_ms), still_ms) {
            (None, Some(still_ms)) => name_standing(pid, still_ms, state),
            (Some(before_ms), None) => {
                let before_s = before_ms as f64 / 1e3;
                info!("the acceptor ({pid}) goes on after {before_s:.1} s or more");
            }
            _ => {}
        }
        // An acceptor in state R wants CPU time, and its successor would get none either.
        let is_blocked = matches!(state, Some('S' | 'D'));
        if !is_blocked {
            self.blocked_since_ms = None;
            return None;
        }
        let since_ms = *self.blocked_since_ms.get_or_insert(now_ms);
        if now_ms - since_ms < BLOCKED_MS_MAX {
            return None;
        }
        tell_blocked(pid, now_ms - since_ms);
        // If the kernel does not let it end, the next signal is as far away.
        self.blocked_since_ms = None;
        Some(pid)
    }
}

/// An acceptor that has been blocked for long is killed: another one serves then. It loses the connections, whose clients get nothing
/// from it either way.
fn tell_blocked(pid: i32, blocked_ms: u64) {
    let waits_in = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    error!(
        "our fault, or the kernel's: the acceptor ({pid}) has been blocked for {:.1} s (in {waits_in}), and the master kills \
         it. Please report this line",
        blocked_ms as f64 / 1e3
    );
}

fn name_standing(pid: i32, still_ms: u64, state: Option<char>) {
    let still_s = still_ms as f64 / 1e3;
    let why = why_it_stands(state).unwrap_or("it is blocked");
    let until = if is_stopped(state) {
        format!(" until it goes on{}", way_on(state, pid))
    } else {
        String::new()
    };
    error!(
        "the acceptor ({pid}) has made no turn of its loop for {still_s:.1} s: {why}, and clients wait{until}"
    );
}
