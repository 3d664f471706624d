//! How far a child process is in its life; the same for acceptor, template and worker.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildStage {
    /// To be forked as soon as the back-off allows.
    Wanted,
    /// The template was asked for it, or the loop was.
    Asked,
    /// It runs and has not reported.
    Booting { pid: i32 },
    /// It has reported, and does its work.
    Ready { pid: i32 },
    /// A worker that was asked to leave its seats, and to be the template then.
    Becoming { pid: i32 },
    /// It was asked to leave; past the deadline it is killed.
    Leaving { pid: i32, deadline_ms: u64 },
    /// It was killed, and only has to be reaped.
    Killed { pid: i32 },
}

/// How far a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerStage {
    /// It will be forked.
    Wanted,
    /// It is being forked, or gets ready.
    Booting,
    /// It takes requests.
    Ready,
    /// It finishes what it holds.
    Leaving,
    /// It was killed, and its end has not been seen yet.
    Killed,
}

impl From<ChildStage> for WorkerStage {
    fn from(stage: ChildStage) -> Self {
        match stage {
            ChildStage::Wanted => Self::Wanted,
            ChildStage::Asked | ChildStage::Booting { .. } => Self::Booting,
            ChildStage::Ready { .. } => Self::Ready,
            ChildStage::Becoming { .. } | ChildStage::Leaving { .. } => Self::Leaving,
            ChildStage::Killed { .. } => Self::Killed,
        }
    }
}

impl ChildStage {
    /// The stage of a child that was asked for, by the result of fork(2).
    pub(crate) fn forked(pid: Option<i32>) -> Self {
        pid.map_or(Self::Wanted, |pid| Self::Booting { pid })
    }

    pub(crate) fn pid(self) -> Option<i32> {
        match self {
            Self::Wanted | Self::Asked => None,
            Self::Booting { pid }
            | Self::Ready { pid }
            | Self::Becoming { pid }
            | Self::Leaving { pid, .. }
            | Self::Killed { pid } => Some(pid),
        }
    }

    pub(crate) fn is_ready(self) -> bool {
        matches!(self, Self::Ready { .. })
    }

    /// When it is to be killed, if it is leaving.
    pub(crate) fn deadline_ms(self) -> Option<u64> {
        match self {
            Self::Leaving { deadline_ms, .. } => Some(deadline_ms),
            _ => None,
        }
    }

    /// It is to leave by `deadline_ms`, or earlier if it has an earlier deadline. Gives the process to notify, if it was not asked to leave before.
    pub(crate) fn leave_by(&mut self, deadline_ms: u64) -> Option<i32> {
        match self {
            Self::Booting { pid } | Self::Ready { pid } => {
                let pid = *pid;
                *self = Self::Leaving { pid, deadline_ms };
                Some(pid)
            }
            Self::Becoming { pid } => {
                *self = Self::Leaving {
                    pid: *pid,
                    deadline_ms,
                };
                None
            }
            Self::Leaving {
                deadline_ms: earlier_ms,
                ..
            } => {
                *earlier_ms = deadline_ms.min(*earlier_ms);
                None
            }
            Self::Wanted | Self::Asked | Self::Killed { .. } => None,
        }
    }

    /// It is to die. Gives the process to kill, if that has not been done yet.
    pub(crate) fn kill(&mut self) -> Option<i32> {
        match *self {
            Self::Booting { pid }
            | Self::Ready { pid }
            | Self::Becoming { pid }
            | Self::Leaving { pid, .. } => {
                *self = Self::Killed { pid };
                Some(pid)
            }
            Self::Wanted | Self::Asked | Self::Killed { .. } => None,
        }
    }

    /// As [`Self::kill`], if it should have left by now.
    pub(crate) fn kill_if_overstaying(&mut self, now_ms: u64) -> Option<i32> {
        self.deadline_ms()
            .filter(|&deadline_ms| now_ms >= deadline_ms)
            .and_then(|_| self.kill())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIVE: [ChildStage; 4] = [
        ChildStage::Booting { pid: 7 },
        ChildStage::Ready { pid: 7 },
        ChildStage::Becoming { pid: 7 },
        ChildStage::Leaving {
            pid: 7,
            deadline_ms: 50,
        },
    ];

    #[test]
    fn it_is_told_to_leave_once_and_the_earlier_deadline_counts() {
        for mut stage in [ALIVE[0], ALIVE[1]] {
            assert_eq!(stage.leave_by(50), Some(7));
            assert_eq!(stage.leave_by(60), None);
            assert_eq!(stage.deadline_ms(), Some(50));
            assert_eq!(stage.leave_by(40), None);
            assert_eq!(stage.deadline_ms(), Some(40));
        }
    }

    #[test]
    fn one_that_becomes_a_template_was_asked_to_leave_before() {
        let mut stage = ALIVE[2];
        assert_eq!(stage.leave_by(50), None);
        assert_eq!(stage.deadline_ms(), Some(50));
    }

    #[test]
    fn it_is_killed_once_and_stays_so() {
        for mut stage in ALIVE {
            assert_eq!(stage.kill(), Some(7));
            assert_eq!((stage.kill(), stage.leave_by(10)), (None, None));
            assert_eq!(stage, ChildStage::Killed { pid: 7 });
        }
    }

    #[test]
    fn it_overstays_from_its_deadline_on() {
        let [booting, ready, becoming, mut leaving] = ALIVE;
        for mut stage in [
            booting,
            ready,
            becoming,
            ChildStage::Wanted,
            ChildStage::Asked,
        ] {
            assert_eq!(stage.kill_if_overstaying(u64::MAX), None);
        }
        assert_eq!(leaving.kill_if_overstaying(49), None);
        assert_eq!(leaving.kill_if_overstaying(50), Some(7));
        assert_eq!(leaving.kill_if_overstaying(51), None);
    }

    #[test]
    fn who_is_not_there_can_be_neither_told_nor_killed() {
        for stage in [ChildStage::Wanted, ChildStage::Asked] {
            let mut same = stage;
            assert_eq!(
                (same.leave_by(1), same.kill(), same.pid()),
                (None, None, None)
            );
            assert_eq!(same, stage);
        }
    }
}
