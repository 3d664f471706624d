//! An acceptor that has ended since a turn of its loop did not.

use stanchion_generation::heartbeat::TURN_CPU;
use stanchion_master::Master;
use stanchion_sys::signal::spin;
use tracing::error;

use crate::master::generations::Generations;

/// Such an acceptor, and where it was.
#[derive(Debug, Default)]
pub(in crate::master) struct SpunAcceptor(Option<(i32, Vec<u64>)>);

impl SpunAcceptor {
    /// The process has ended of that.
    pub(in crate::master) fn note(&mut self, pid: i32, master: &Master, generations: &Generations) {
        let generation = master
            .generations()
            .find(|generation| generation.has_acceptor(pid));
        let resources = generation.and_then(|generation| generations.get(generation.number));
        if let Some(resources) = resources {
            self.0 = Some((pid, resources.common.tally.stack()));
        }
    }

    /// Logs where it was, once another one is on its way: to find the names takes a moment.
    pub(in crate::master) fn tell(&mut self) {
        let Some((pid, stack)) = self.0.take() else {
            return;
        };
        let functions = spin::names(&stack).join(" < ");
        let least_s = TURN_CPU.as_secs();
        error!(
            "our fault: a turn in the acceptor's loop ({pid}) has taken more than {least_s} s of CPU time, so that it has \
             ended. Please report where it was: {functions}"
        );
    }
}
