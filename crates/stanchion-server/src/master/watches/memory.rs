//! Workers that take much memory.

use stanchion_master::{Master, MasterEvent, Observation, called};
use stanchion_sys::memory;
use tracing::warn;

use crate::master::generations::Generations;
use stanchion_settings::Settings;

/// How often the master looks how much memory workers take.
pub(super) const CHECK_MS: u64 = 1_000;

/// Whether the settings limit it.
pub(super) fn weighs(settings: &Settings) -> bool {
    settings.workers.max_memory > 0 || settings.workers.max_memory_hard > 0
}

/// The looks at memory.
#[derive(Debug, Default)]
pub(in crate::master) struct MemoryWatch {
    weighed_ms: u64,
    /// The memory of a worker could not be read, and the log has said so.
    is_blind: bool,
}

impl MemoryWatch {
    pub(in crate::master) fn look(
        &mut self,
        now_ms: u64,
        master: &Master,
        generations: &Generations,
    ) -> Vec<MasterEvent> {
        let mut events = Vec::new();
        if now_ms - self.weighed_ms < CHECK_MS {
            return events;
        }
        self.weighed_ms = now_ms;
        for generation in generations.iter() {
            let settings = &generation.common.settings;
            if !weighs(settings) {
                continue;
            }
            let limits = [
                settings.workers.max_memory,
                settings.workers.max_memory_hard,
            ];
            let least = limits.into_iter().filter(|&limit| limit > 0).min();
            let generation_number = generation.number();
            for one in master.present_workers(generation_number) {
                let (worker, pid) = (one.worker.index, one.pid);
                // Its share is never more than what it has in all, which is cheaper to ask for.
                if memory::resident_bytes(pid) <= least {
                    continue;
                }
                let bytes = memory::proportional_bytes(pid);
                if bytes.is_none() && !std::mem::replace(&mut self.is_blind, true) {
                    warn!(
                        "the memory that {} takes cannot be read, so max_memory \
                         has no effect: a master that is root and has a --user needs CAP_SYS_PTRACE",
                        called(one.number, Some(pid))
                    );
                }
                if let Some(bytes) = bytes.filter(|&bytes| Some(bytes) > least) {
                    let seen = Observation::Memory {
                        bytes,
                        is_unused: generation.is_unused(worker),
                        others: generation.is_busy(worker, None),
                    };
                    events.push(MasterEvent::seen(generation_number, worker, seen));
                }
            }
        }
        events
    }
}
