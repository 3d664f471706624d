//! The acceptor, watched by the turns of its loop: the master names one that stands still, and ends one that is blocked.
//!
//! While it stands still it serves no client. An acceptor that a signal or a debugger has stopped goes on when that lets it, and
//! keeps its connections: the master only names it.

use stanchion_sys::process;
use stanchion_sys::signal::SIGKILL;
use tracing::{error, info};

use super::{Loop, now_ms};
use crate::heartbeat::AcceptorTurns;

/// How often the master looks.
const LOOK_MS: u64 = 1_000;
/// An acceptor that is blocked for so long is not expected to go on.
const BLOCKED_MS_MAX: u64 = 30_000;

/// What the master has seen of the acceptor that serves.
#[derive(Debug)]
pub(super) struct AcceptorWatch {
    turns: AcceptorTurns,
    /// When the master last looked.
    looked_ms: u64,
    /// For how long it has stood still, if that is too long.
    still_ms: Option<u64>,
    /// It was blocked, and the master has killed it.
    killed: Option<i32>,
}

impl AcceptorWatch {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            turns: AcceptorTurns::new(now_ms),
            looked_ms: now_ms,
            still_ms: None,
            killed: None,
        }
    }

    /// For how long the acceptor has stood still, if that is too long.
    pub(super) fn still_ms(&self) -> Option<u64> {
        self.still_ms
    }

    /// When the master looks again.
    pub(super) fn due_ms(&self) -> u64 {
        self.looked_ms + LOOK_MS
    }
}

impl Loop<'_> {
    /// Looks whether the acceptor makes turns, if it is time.
    pub(super) fn watch_acceptor(&mut self) {
        let now_ms = now_ms();
        let late_ms = now_ms.checked_sub(self.watch.due_ms());
        let Some(late_ms) = late_ms else { return };
        self.watch.looked_ms = now_ms;
        let pid = self.serving_acceptor();
        if late_ms > LOOK_MS || pid.is_none() {
            // A master that is late itself was held up together with the acceptor (a freezer, a pause of the machine). And
            // where none is ready, one is about to be.
            self.watch.turns = AcceptorTurns::new(now_ms);
        }
        let turns = self.present.tally.turns();
        let still_ms = pid.and_then(|_| self.watch.turns.seen(turns, now_ms));
        let before_ms = std::mem::replace(&mut self.watch.still_ms, still_ms);
        match (before_ms, still_ms, pid) {
            (None, Some(still_ms), Some(pid)) => {
                let still_s = still_ms as f64 / 1e3;
                if process::is_stopped(pid) {
                    error!(
                        "the acceptor ({pid}) has made no turn of its loop for {still_s:.1} s: a signal or a debugger has stopped \
                         it, and clients wait until it goes on (kill -CONT {pid})"
                    );
                } else {
                    error!(
                        "the acceptor ({pid}) has made no turn of its loop for {still_s:.1} s: it is blocked, or gets no CPU \
                         time, and clients wait"
                    );
                }
            }
            (Some(before_ms), None, Some(pid)) if self.watch.killed.is_none() => {
                let before_s = before_ms as f64 / 1e3;
                info!("the acceptor ({pid}) goes on after {before_s:.1} s or more");
            }
            _ => {}
        }
        if still_ms.is_none() {
            self.watch.killed = None;
        }
        self.end_blocked(pid);
    }

    /// Kills an acceptor that has been blocked for long: another one serves then. It loses the connections, whose clients get
    /// nothing from it either way.
    fn end_blocked(&mut self, pid: Option<i32>) {
        let (Some(pid), Some(still_ms)) = (pid, self.watch.still_ms) else {
            return;
        };
        if still_ms < BLOCKED_MS_MAX || self.watch.killed == Some(pid) || process::is_stopped(pid) {
            return;
        }
        error!(
            "our fault, or the kernel's: the acceptor ({pid}) has made no turn of its loop for {:.1} s, and the master kills it. \
             Please report what it waited for (/proc/PID/wchan of the next one that blocks, dmesg)",
            still_ms as f64 / 1e3
        );
        self.watch.killed = Some(pid);
        self.kill(pid, SIGKILL);
    }

    /// The acceptor that lets clients in, once it is ready.
    fn serving_acceptor(&self) -> Option<i32> {
        let generation = self.present.generation;
        let mut houses = self.master.houses();
        let house = houses.find(|house| house.generation == generation)?;
        house.acceptor.is_ready().then(|| house.acceptor.pid())?
    }
}
