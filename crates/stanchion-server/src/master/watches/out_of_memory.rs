//! Finds which of the children that died of SIGKILL the kernel has killed for lack of memory: the kernel counts its kills, and says no more.

use stanchion_sys::control_group::{OutOfMemoryKills, memory_limit_bytes};
use stanchion_sys::process::Exit;
use stanchion_sys::signal::SIGKILL;

use stanchion_master::Master;

/// So long after the kernel has counted a kill, the end of a child is taken for it: to free much memory takes a while.
const DYING_MS_MAX: u64 = 10_000;

/// The kernel's count, and how many of it no child has accounted for.
#[derive(Debug)]
pub(in crate::master) struct OutOfMemory {
    kills: OutOfMemoryKills,
    seen: KillCount,
}

#[derive(Debug, Default)]
struct KillCount {
    count: u64,
    unclaimed: u64,
    grown_ms: u64,
}

impl OutOfMemory {
    /// The server has no part in earlier kills.
    pub(in crate::master) fn new() -> Self {
        let kills = OutOfMemoryKills::find();
        let seen = KillCount {
            count: kills.count(),
            ..KillCount::default()
        };
        Self { kills, seen }
    }

    /// Marks the ends of children that the kernel killed for lack of memory. It also looks while no child ends, if a look `is_due`: a process of the
    /// app's that the kernel killed long ago is no reason for what an operator kills now.
    pub(in crate::master) fn look(
        &mut self,
        now_ms: u64,
        is_due: bool,
        master: &Master,
        dead: &mut [(i32, Exit)],
    ) {
        let is_killed = |exit: Exit| exit == Exit::Signal(SIGKILL);
        let has_killed = dead.iter().any(|&(_, exit)| is_killed(exit));
        if has_killed || is_due {
            self.seen.look(now_ms, self.kills.count());
        }
        for (pid, exit) in dead {
            let is_ours = master
                .generations()
                .any(|table| table.workers.has_killed(*pid));
            if is_killed(*exit) && !is_ours && self.seen.claim() {
                *exit = Exit::OutOfMemory(memory_limit_bytes());
            }
        }
    }
}

impl KillCount {
    fn look(&mut self, now_ms: u64, count: u64) {
        if now_ms >= self.grown_ms + DYING_MS_MAX {
            self.unclaimed = 0;
        }
        if count > self.count {
            self.unclaimed += count - self.count;
            self.grown_ms = now_ms;
        }
        self.count = count;
    }

    /// Whether the kernel has counted a process that no call has claimed before: this call claims it.
    fn claim(&mut self) -> bool {
        let is_one = self.unclaimed > 0;
        self.unclaimed -= u64::from(is_one);
        is_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_the_kernel_has_counted_is_one_childs_end() {
        let mut seen = KillCount {
            count: 7,
            ..KillCount::default()
        };
        seen.look(1_000, 7);
        assert!(!seen.claim());
        seen.look(2_000, 9);
        assert_eq!([(); 3].map(|()| seen.claim()), [true, true, false]);
    }

    #[test]
    fn one_that_was_no_child_of_ours_is_forgotten() {
        let mut seen = KillCount::default();
        seen.look(1_000, 1);
        seen.look(1_000 + DYING_MS_MAX - 1, 1);
        assert_eq!(seen.unclaimed, 1);
        seen.look(1_000 + DYING_MS_MAX, 1);
        assert!(!seen.claim());
    }
}
