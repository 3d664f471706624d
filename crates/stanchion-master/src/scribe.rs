//! The scribe of a generation, if its settings ask for one: runs the host's own logging on what the others log.

use stanchion_sys::process::Exit;
use stanchion_sys::signal::SIGKILL;

use crate::child::ForkedChild;
use crate::decision::Decision;
use crate::event::{Action, ChildKind};
use crate::generation_error::GenerationError;
use stanchion_generation::messages::{FromScribe, REASON_CHARS_MAX, ToScribe};
use stanchion_log::exit_code;

/// How long it may take to write the rest, once no other process of the generation is there to log anything.
const FINISH_MS: u64 = 2_000;
/// A scribe that was ready for so long did not end of the same cause as those before it.
const LONG_MS: u64 = 60_000;
/// The log names a scribe that has not set logging up within this time, as the others wait for it.
const SLOW_MS: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct ScribeState {
    child: ForkedChild,
    /// The settings ask for one.
    is_wanted: bool,
    /// A scribe was ready before, so that the settings of logging are good.
    has_been_ready: bool,
    /// Why the one that runs cannot set logging up, if it cannot.
    reason: Option<String>,
    /// When the last one was ready.
    ready_ms: u64,
    /// When the log is to say that the scribe still sets logging up; `None` if it has said so, or need not.
    slow_at_ms: Option<u64>,
}

impl ScribeState {
    /// To be forked, if it is wanted.
    pub(crate) fn new(generation_number: u32, is_wanted: bool) -> Self {
        Self {
            child: ForkedChild::wanted(generation_number),
            is_wanted,
            has_been_ready: false,
            reason: None,
            ready_ms: 0,
            slow_at_ms: None,
        }
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.child.pid()
    }

    /// Whether the one that is wanted, if any, does its work.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_wanted || self.child.is_ready()
    }

    /// Whether there is one that takes what the others log.
    pub(crate) fn takes_lines(&self) -> bool {
        self.child.is_ready()
    }

    /// Whether the settings of logging are good, as far as one has to know.
    pub(crate) fn has_been_ready(&self) -> bool {
        !self.is_wanted || self.has_been_ready
    }

    /// Whether none runs or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.child.is_gone()
    }

    // Actions.

    /// Forks it if it is wanted and not there. Logs a warning on a scribe that takes long.
    pub(crate) fn keep(&mut self, decision: &mut Decision) {
        if self.is_wanted {
            self.child.keep(ChildKind::Scribe, decision);
        }
        if let Some(pid) = self.child.booting()
            && self
                .slow_at_ms
                .take_if(|at_ms| decision.now_ms >= *at_ms)
                .is_some()
        {
            let slow_s = SLOW_MS / 1_000;
            let waits = if self.has_been_ready {
                "log lines wait for it"
            } else {
                "the start waits for it"
            };
            decision.warning(format!(
                "the scribe ({pid}) has been setting logging up for {slow_s} s, and {waits}: see what the handlers of \
                 `logconfig` and the like wait for, or kill it"
            ));
        }
    }

    /// When [`Self::keep`] has something to do, or, if its generation `is_dismissed`, [`Self::finish`].
    pub(crate) fn due_ms(&self, is_dismissed: bool) -> Option<u64> {
        let missing = self.child.due_ms();
        let missing = missing.filter(|_| self.is_wanted && !is_dismissed);
        let slow = self.child.booting().and(self.slow_at_ms);
        missing
            .or(slow.filter(|_| !is_dismissed))
            .or(self.child.stage.deadline_ms())
    }

    /// Has it reopen its files.
    pub(crate) fn reopen(&self) -> Option<Action> {
        self.pid().map(|_| self.tell(ToScribe::Reopen))
    }

    /// Has it write what is left, and leave; kills it if it has not in time.
    pub(crate) fn finish(&mut self, decision: &mut Decision) {
        if self
            .child
            .stage
            .leave_by(decision.now_ms + FINISH_MS)
            .is_some()
        {
            decision.push(self.tell(ToScribe::Finish));
        }
        if let Some(pid) = self.child.stage.kill_if_overstaying(decision.now_ms) {
            decision.warning(format!(
                "the scribe ({pid}) did not write what was left in time and is killed"
            ));
            decision.kill(pid, SIGKILL);
        }
    }

    fn tell(&self, message: ToScribe) -> Action {
        let generation_number = self.child.generation_number;
        Action::TellScribe {
            generation_number,
            message,
        }
    }

    // Events.

    pub(crate) fn on_forked(&mut self, pid: Option<i32>, decision: &mut Decision) {
        self.child.on_forked(pid, decision);
        self.slow_at_ms = Some(decision.now_ms + SLOW_MS);
    }

    pub(crate) fn on_said(&mut self, said: &FromScribe, decision: &mut Decision) {
        match (said, self.child.booting()) {
            (FromScribe::Ready, Some(_)) => {
                self.child.on_ready();
                if self.has_been_ready {
                    // Readers of the scribe's output have not heard that there was no scribe.
                    decision.warning(
                        "another scribe is ready: the error log itself has the reason, and the lines of the master from before",
                    );
                }
                self.has_been_ready = true;
                self.ready_ms = decision.now_ms;
            }
            // It runs the operator's code, and may say anything.
            (FromScribe::CannotSetUp { reason }, Some(_)) => {
                self.reason = Some(reason.chars().take(REASON_CHARS_MAX).collect());
            }
            (FromScribe::Ready | FromScribe::CannotSetUp { .. }, None) => {}
        }
    }

    /// It has ended, when it should have stayed. Gives the log line on what will be done about it, or the reason why the generation is ruined: it is, if
    /// no scribe was ever ready.
    pub(crate) fn on_lost(&mut self, now_ms: u64, exit: Exit) -> Result<Action, GenerationError> {
        let was_ready = self.child.on_gone();
        let reason = self.reason.take();
        if !self.has_been_ready {
            let code = match exit {
                Exit::Code(exit_code::USAGE) => exit_code::USAGE,
                _ => exit_code::INTERNAL,
            };
            let why = reason.unwrap_or_else(|| format!("the scribe {exit} before it was ready"));
            return Err(GenerationError { why, code });
        }
        if was_ready && now_ms >= self.ready_ms + LONG_MS {
            self.child.is_well();
        }
        // Also if it was ready: the lines that it is to write may be the cause of its end.
        let wait_ms = self.child.has_failed(now_ms);
        let when = if was_ready {
            ""
        } else {
            " before it was ready"
        };
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        Ok(Action::error(format!(
            "the scribe {exit}{when}{why}; another one is started in {wait_ms} ms, log lines wait for it"
        )))
    }

    /// It has ended, as it was to.
    pub(crate) fn on_left(&mut self) {
        self.child.on_gone();
        self.reason = None;
    }
}
