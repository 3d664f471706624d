//! The acceptor, watched by the turns of its loop: the master names one that stands still, and ends one that is blocked.
//!
//! While it stands still it serves no client. An acceptor that a signal or a debugger has stopped goes on when that lets it, and
//! keeps its connections: the master only names it. The master kills one only if it has seen it wait in the kernel, or not at
//! all, at each look for long.

use stanchion_master::{Look, is_stopped, way_on, why_it_stands};
use stanchion_sys::process;
use stanchion_sys::signal::SIGKILL;
use tracing::{error, info};

use super::{Loop, now_ms};
use stanchion_generation::heartbeat::AcceptorTurns;

/// An acceptor that has been seen blocked for so long is not expected to go on.
const BLOCKED_MS_MAX: u64 = 30_000;

/// The acceptor that serves, as the master sees it.
#[derive(Debug)]
pub(super) struct AcceptorWatch {
    pid: Option<i32>,
    turns: AcceptorTurns,
    /// For how long it has stood still, if that is too long.
    still_ms: Option<u64>,
    /// Since when each look has found it blocked.
    blocked_since_ms: Option<u64>,
}

impl AcceptorWatch {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            pid: None,
            turns: AcceptorTurns::new(now_ms),
            still_ms: None,
            blocked_since_ms: None,
        }
    }

    /// For how long the acceptor has stood still, if that is too long.
    pub(super) fn still_ms(&self) -> Option<u64> {
        self.still_ms
    }
}

impl Loop<'_> {
    /// Looks whether the acceptor makes turns.
    pub(super) fn watch_acceptor(&mut self, look: Look) {
        let now_ms = now_ms();
        let pid = self.serving_acceptor();
        if pid != self.watch.pid || pid.is_none() {
            self.watch = AcceptorWatch {
                pid,
                ..AcceptorWatch::new(now_ms)
            };
        }
        let Some(pid) = pid else { return };
        if look.is_late() {
            self.watch.turns.pause(look.late_ms);
            self.watch.blocked_since_ms = None;
        }
        let turns = self.present.tally.turns();
        let still_ms = self.watch.turns.seen(turns, now_ms);
        let state = still_ms.and_then(|_| process::state(pid));
        match (
            std::mem::replace(&mut self.watch.still_ms, still_ms),
            still_ms,
        ) {
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
            self.watch.blocked_since_ms = None;
            return;
        }
        let since_ms = *self.watch.blocked_since_ms.get_or_insert(now_ms);
        if now_ms - since_ms >= BLOCKED_MS_MAX {
            self.end_blocked(pid, now_ms - since_ms);
        }
    }

    /// Kills an acceptor that has been blocked for long: another one serves then. It loses the connections, whose clients get
    /// nothing from it either way.
    fn end_blocked(&mut self, pid: i32, blocked_ms: u64) {
        let waits_in = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        error!(
            "our fault, or the kernel's: the acceptor ({pid}) has been blocked for {:.1} s (in {waits_in}), and the master kills \
             it. Please report this line",
            blocked_ms as f64 / 1e3
        );
        // If the kernel does not let it end, the next signal is as far away.
        self.watch.blocked_since_ms = None;
        self.kill(pid, SIGKILL);
    }

    /// The acceptor that lets clients in, once it is ready.
    fn serving_acceptor(&self) -> Option<i32> {
        let generation = self.present.generation;
        self.master.house(generation)?.ready_acceptor()
    }
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
