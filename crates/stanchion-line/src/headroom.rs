//! How many workers the machine has room for: their memory, and their processes and threads.
//!
//! A new worker shares nearly all of its memory with the template. It takes its own when it writes to it, so what the older ones have taken by now
//! says what the next one will take, and free memory at its fork does not. A part stays free in any case: the requests of the workers that are there
//! need more now and then, and the kernel kills the process that asks for the last page.

use crate::because::Because;

/// Of each limit one part in so many stays free.
const KEPT_SHARE: u64 = 10;
/// A worker leaves if less than one part in so many of the memory is left: the workers that are there have grown.
const SHORT_SHARE: u64 = 20;
/// No worker comes if some thread has waited for memory for more than this percentage of the last ten seconds,
const HOLDING_PERCENT: u16 = 10;
/// and one leaves if all have for more than this.
const SHRINKING_PERCENT: u16 = 5;

/// The memory and the processes that the machine leaves, as the master has read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// So many workers there were then, with those that booted.
    pub workers: u16,
    /// The memory that control groups leave; `None` if they do not limit it.
    pub memory: Option<Left>,
    /// Private memory of a worker in bytes: nine of ten have no more. 0 if that is not known.
    pub private_bytes: u64,
    /// For how much of the last ten seconds some thread has waited for memory, in percent.
    pub some_percent: u16,
    /// The same, of all threads that had work.
    pub full_percent: u16,
    /// The processes and threads that control groups leave; `None` if they do not limit them.
    pub tasks: Option<Left>,
    /// The processes and threads of a worker. 0 if that is not known.
    pub tasks_each: u64,
    /// A worker could not be forked, or did not boot, so the next has to wait.
    pub is_boot_failing: bool,
}

/// The part of a limit that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// So much is not used,
    pub left: u64,
    /// of so much.
    pub max: u64,
}

impl Headroom {
    /// The most workers for which there is memory.
    pub(crate) fn most_by_memory(&self) -> u16 {
        match self.relief() {
            Some((fewer, _)) => fewer,
            None if self.some_percent > HOLDING_PERCENT => self.workers,
            None => self.most_by(self.memory, self.private_bytes),
        }
    }

    /// The most workers for whose processes and threads there is room.
    pub(crate) fn most_by_tasks(&self) -> u16 {
        self.most_by(self.tasks, self.tasks_each)
    }

    /// The most workers while the next has to wait: those that are there.
    pub(crate) fn most_by_failures(&self) -> u16 {
        if self.is_boot_failing {
            self.workers
        } else {
            u16::MAX
        }
    }

    /// The number of workers that leaves memory to the others, if they lack it: one fewer. With the reason.
    pub(crate) fn relief(&self) -> Option<(u16, Because)> {
        let full_percent = self.full_percent;
        let is_short = |left: &Left| left.left < left.max / SHORT_SHARE;
        let because = match self.memory.filter(is_short) {
            _ if full_percent > SHRINKING_PERCENT => Because::Stalls { full_percent },
            Some(Left { left, .. }) => Because::Memory { left_bytes: left },
            None => return None,
        };
        Some((self.workers.saturating_sub(1), because))
    }

    fn most_by(&self, left: Option<Left>, each: u64) -> u16 {
        let Some(Left { left, max }) = left else {
            return u16::MAX;
        };
        let more = match left.saturating_sub(max / KEPT_SHARE) {
            0 => 0,
            // With nothing known of a worker there is room for one, which will show it.
            _ if each == 0 => 1,
            free => free / each,
        };
        let more = u16::try_from(more).unwrap_or(u16::MAX);
        self.workers.saturating_add(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_has_room_for_as_many_as_take_what_the_others_have_taken() {
        // (left and limit in MiB, private MiB of a worker, percent of stalls, the most of 4 workers)
        let table = [
            (None, 20, 0, u16::MAX),
            (Some((512, 512)), 20, 0, 4 + 23),
            (Some((152, 512)), 20, 0, 4 + 5),
            (Some((72, 512)), 20, 0, 4 + 1),
            (Some((71, 512)), 20, 0, 4),
            (Some((60, 512)), 20, 0, 4),
            (Some((51, 512)), 0, 0, 4),
            (Some((52, 512)), 0, 0, 4 + 1),
            (Some((26, 512)), 20, 0, 4),
            (Some((25, 512)), 20, 0, 3),
            (Some((0, 512)), 20, 0, 3),
            (Some((512, 512)), 20, 10, 4 + 23),
            (Some((512, 512)), 20, 11, 4),
            (None, 0, 11, 4),
        ];
        for (memory, private, some_percent, most) in table {
            let headroom = Headroom {
                workers: 4,
                memory: memory.map(|(left, max)| Left {
                    left: left * MIB,
                    max: max * MIB,
                }),
                private_bytes: private * MIB,
                some_percent,
                ..Headroom::default()
            };
            assert_eq!(headroom.most_by_memory(), most, "{memory:?} {private}");
        }
    }

    #[test]
    fn processes_have_room_too() {
        let headroom = |left, tasks_each| Headroom {
            workers: 4,
            tasks: Some(Left { left, max: 100 }),
            tasks_each,
            ..Headroom::default()
        };
        for (left, tasks_each, most) in
            [(50, 5, 12), (14, 5, 4), (15, 5, 5), (11, 0, 5), (10, 0, 4)]
        {
            assert_eq!(headroom(left, tasks_each).most_by_tasks(), most, "{left}");
        }
        assert_eq!(Headroom::default().most_by_tasks(), u16::MAX);
    }

    #[test]
    fn a_server_that_stands_for_lack_of_memory_gives_one_worker_up() {
        for (full_percent, workers, relief) in [(5, 4, None), (6, 4, Some(3)), (6, 0, Some(0))] {
            let headroom = Headroom {
                workers,
                full_percent,
                ..Headroom::default()
            };
            let fewer = headroom.relief().map(|(fewer, _)| fewer);
            assert_eq!(fewer, relief);
            // The worker that has left does not come again.
            let most = relief.unwrap_or(u16::MAX);
            assert_eq!(headroom.most_by_memory(), most);
        }
    }
}
