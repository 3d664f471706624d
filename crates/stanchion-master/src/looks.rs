//! When the master looks at its processes, and what the kernel says of one that stands.

/// The master looks once a second, also while there is nothing to do.
const LOOK_MS: u64 = 1_000;
/// A look that is so late says nothing of how long other processes have stood: the master may have been held up together with them (a
/// freezer, a pause of the machine).
const LATE_MS: u64 = LOOK_MS;

/// The looks of one master.
#[derive(Debug)]
pub struct Looks {
    last_ms: u64,
}

/// A look at the processes, which comes late if the master was held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLook {
    /// So much later than it was due.
    pub late_ms: u64,
}

impl Looks {
    /// The first is due a second from now.
    pub fn new(now_ms: u64) -> Self {
        Self { last_ms: now_ms }
    }

    /// When the next look is due.
    pub fn due_ms(&self) -> u64 {
        self.last_ms + LOOK_MS
    }

    /// The next look, if it is due.
    pub fn next(&mut self, now_ms: u64) -> Option<ProcessLook> {
        let late_ms = now_ms.checked_sub(self.due_ms())?;
        self.last_ms = now_ms;
        Some(ProcessLook { late_ms })
    }
}

impl ProcessLook {
    /// Whether the master was held up before.
    pub fn is_late(self) -> bool {
        self.late_ms > LATE_MS
    }
}

/// Why a process stands, by the letter of its state in proc(5), if the letter shows it.
pub fn why_it_stands(state: Option<char>) -> Option<&'static str> {
    match state? {
        'T' => Some("a signal has stopped it"),
        't' => Some("a debugger has stopped it"),
        'R' => Some("it gets no CPU time"),
        _ => None,
    }
}

/// Whether a process is stopped, by the letter of its state in proc(5).
pub fn is_stopped(state: Option<char>) -> bool {
    matches!(state, Some('T' | 't'))
}

/// The command that lets a process go on that a signal has stopped; a debugger is the operator's.
pub fn way_on(state: Option<char>, pid: i32) -> String {
    if state == Some('T') {
        format!(" (kill -CONT {pid})")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_once_a_second_and_knows_whether_the_master_was_held_up() {
        let mut looks = Looks::new(0);
        for (now_ms, late_ms) in [
            (999, None),
            (1_000, Some(0)),
            (1_999, None),
            (2_400, Some(400)),
            (4_400, Some(1_000)),
            (60_000, Some(54_600)),
            (60_500, None),
        ] {
            let look = looks.next(now_ms);
            assert_eq!(look.map(|look| look.late_ms), late_ms, "at {now_ms}");
            let is_late = late_ms.is_some_and(|late_ms| late_ms > 1_000);
            assert_eq!(
                look.is_some_and(ProcessLook::is_late),
                is_late,
                "at {now_ms}"
            );
        }
    }
}
