//! The memory and the processes that the machine leaves for more workers. The acceptor, which decides, asks once a second while requests wait.

use std::time::{Duration, Instant};

use stanchion_generation::messages::HeadroomRead;
use stanchion_master::{Generation, PresentWorker};
use stanchion_sys::control_group::{self, LimitLeft};
use stanchion_sys::{memory, process};

/// The least time between two answers to an acceptor: one that an attacker has keeps the master from nothing.
const EVERY_MS: u64 = 500;
/// So many workers are looked at, if there is a limit: those with the lowest numbers, which have lived longest, as the highest leave first. The kernel walks all pages of
/// each.
const LOOKED_AT_MAX: usize = 8;

/// No further worker is looked at after so long,
const LOOK_MAX: Duration = Duration::from_millis(20);
/// and the next look comes after so many times the time that this one took.
const REST_TIMES: u64 = 20;

/// A worker that has served for so long has taken most of the memory that it will take for itself. Those before it may yet stop to share all that they have.
const OLD_MS: u64 = 10_000;

/// When an acceptor last got an answer.
#[derive(Debug, Default)]
pub(super) struct HeadroomWatch {
    answered_ms: Option<u64>,
    private: PrivateMemory,
}

/// The private memory of workers, when it was last looked for.
#[derive(Debug, Default)]
struct PrivateMemory {
    bytes: u64,
    /// It is looked for again then.
    again_ms: u64,
}

impl HeadroomWatch {
    /// Looks around, unless the last answer is too young for another one.
    pub(super) fn look(&mut self, generation: &Generation, now_ms: u64) -> Option<HeadroomRead> {
        let is_young = |answered_ms| now_ms < answered_ms + EVERY_MS;
        if self.answered_ms.is_some_and(is_young) {
            return None;
        }
        self.answered_ms = Some(now_ms);
        let mut workers: Vec<PresentWorker> = generation.workers.present().collect();
        workers.sort_by_key(|worker| worker.number);
        workers.truncate(LOOKED_AT_MAX);
        let (memory, tasks) = (control_group::memory_left(), control_group::tasks_left());
        // The workers matter only where there is a limit.
        if memory.is_some() && now_ms >= self.private.again_ms {
            let old = generation.workers.ready_by(now_ms.saturating_sub(OLD_MS));
            let pids = workers.iter().map(|worker| worker.pid);
            self.private = PrivateMemory::look(old, pids, now_ms);
        }
        let threads = workers.iter().filter(|_| tasks.is_some());
        let threads = threads.filter_map(|worker| process::threads_of(worker.pid));
        let stalls = control_group::memory_stalls();
        let pair = |LimitLeft { left, max }| (left, max);
        Some(HeadroomRead {
            workers: u16::try_from(generation.workers.staying()).unwrap_or(u16::MAX),
            memory: memory.map(pair),
            private_bytes: self.private.bytes,
            some_percent: stalls.some_percent,
            full_percent: stalls.full_percent,
            tasks: tasks.map(pair),
            tasks_each: threads.max().unwrap_or(0),
            is_boot_failing: generation.workers.are_failing(now_ms),
        })
    }
}

impl PrivateMemory {
    /// Looks at old workers, or at the sizes of those that are there if none is old.
    fn look(old: impl Iterator<Item = i32>, pids: impl Iterator<Item = i32>, now_ms: u64) -> Self {
        let begun = Instant::now();
        // A process that waits in the kernel may hold what a look at its memory takes.
        let old = old.filter(|&pid| process::state(pid) != Some('D'));
        let old = old
            .take(LOOKED_AT_MAX)
            .take_while(|_| begun.elapsed() < LOOK_MAX);
        let mut private: Vec<u64> = old.filter_map(memory::private_bytes).collect();
        if private.is_empty() {
            private.extend(pids.filter_map(memory::resident_bytes));
        }
        let took_ms = begun.elapsed().as_millis() as u64;
        Self {
            bytes: nine_of_ten(private),
            again_ms: now_ms + EVERY_MS.max(REST_TIMES * took_ms),
        }
    }
}

/// Nine of ten numbers are not higher than this one of them; 0 if there is none.
fn nine_of_ten(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    let rank = (numbers.len() * 9).div_ceil(10);
    let found = rank.checked_sub(1).and_then(|index| numbers.get(index));
    found.copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_of_ten_does_not_count_and_of_a_few_it_does() {
        for (numbers, expected) in [
            (vec![], 0),
            (vec![7], 7),
            (vec![9, 1], 9),
            (vec![3, 1, 2, 99, 4, 5, 6, 7, 8, 9], 9),
        ] {
            assert_eq!(nine_of_ten(numbers), expected);
        }
    }
}
