//! The watches over the master's processes: each looks at the scoreboard, or at what the kernel shows.

mod acceptor;
mod idlers;
mod loops;
mod memory;
mod out_of_memory;
mod overdue;
mod spun;
mod stopped;

use stanchion_master::{Looks, ProcessLook};

use acceptor::AcceptorWatch;
use idlers::Idlers;
use loops::LoopWatch;
use memory::MemoryWatch;
use out_of_memory::OutOfMemory;
use overdue::OverdueWatch;
use spun::SpunAcceptor;
use stopped::StoppedWatch;

use super::generations::Generations;

/// All watches.
pub(super) struct Watches {
    looks: Looks,
    pub(super) acceptor: AcceptorWatch,
    pub(super) stopped: StoppedWatch,
    pub(super) idlers: Idlers,
    pub(super) loops: LoopWatch,
    pub(super) overdue: OverdueWatch,
    pub(super) memory: MemoryWatch,
    pub(super) out_of_memory: OutOfMemory,
    pub(super) spun: SpunAcceptor,
}

impl Watches {
    pub(super) fn begin(now_ms: u64) -> Self {
        Self {
            looks: Looks::new(now_ms),
            acceptor: AcceptorWatch::new(now_ms),
            stopped: StoppedWatch::default(),
            idlers: Idlers::default(),
            loops: LoopWatch::default(),
            overdue: OverdueWatch::default(),
            memory: MemoryWatch::default(),
            out_of_memory: OutOfMemory::new(),
            spun: SpunAcceptor::default(),
        }
    }

    /// The next look at all processes, if it is due.
    pub(super) fn look(&mut self, now_ms: u64) -> Option<ProcessLook> {
        self.looks.next(now_ms)
    }

    /// When that is due.
    pub(super) fn look_due_ms(&self) -> u64 {
        self.looks.due_ms()
    }

    /// The process that stands still, if the server cannot do without it.
    pub(super) fn standing(&self) -> Option<&str> {
        let acceptor = self.acceptor.still_ms().map(|_| "acceptor");
        acceptor.or_else(|| self.stopped.vital())
    }

    /// How often the master looks at the scoreboard and at memory, if these generations ask for that.
    pub(super) fn every_ms(generations: &Generations) -> Option<u64> {
        let settings = || {
            let generations = generations.iter();
            generations.map(|generation| &generation.common.settings)
        };
        if settings().any(overdue::has_deadlines) {
            Some(overdue::CHECK_MS)
        } else if let Some(check_ms) = loops::check_ms(generations) {
            Some(check_ms)
        } else {
            settings().any(memory::weighs).then_some(memory::CHECK_MS)
        }
    }
}
