//! A number of workers that the acceptor chooses, within a range that the settings say: it has the line, and knows how many are needed.
//!
//! The master obeys within the range, as long as no operator has fixed the number. The template forks workers that are added, and a worker that
//! is taken away leaves as with TTOU. Workers that cannot be forked are tried again with longer and longer pauses, like any others.

use crate::decision::Decision;
use crate::event::{Action, GenerationPlan, News};
use stanchion_generation::messages::{REASON_CHARS_MAX, ToAcceptor};

/// The range of the number, and whether it changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElasticNumber {
    least: u16,
    most: u16,
    /// An operator has fixed the number, which may lie outside of the range.
    pub(crate) is_pinned: bool,
}

impl ElasticNumber {
    /// `None`: the settings say one number.
    pub(crate) fn new(plan: &GenerationPlan, is_pinned: bool) -> Option<Self> {
        let (least, most) = (plan.workers, plan.elastic_max?);
        Some(Self {
            least,
            most,
            is_pinned,
        })
    }

    /// The nearest number of the range.
    pub(crate) fn within(self, target: u16) -> u16 {
        target.clamp(self.least, self.most)
    }

    /// The number with which a generation begins, if another one, or another master, had this.
    pub(crate) fn begins_with(self, target: u16) -> u16 {
        if self.is_fixed(target) {
            target
        } else {
            self.within(target)
        }
    }

    /// Such as `2 to 8`.
    pub(crate) fn range(self) -> String {
        format!("{} to {}", self.least, self.most)
    }

    /// The acceptor wants another number. It may not have heard of a command yet, or it may be an attacker's.
    pub(crate) fn on_want(
        self,
        target: &mut u16,
        (workers, why): (u16, &str),
        decision: &mut Decision,
    ) {
        if self.is_fixed(*target) || self.within(workers) != workers || workers == *target {
            return;
        }
        let old = std::mem::replace(target, workers);
        let why: String = why.chars().take(REASON_CHARS_MAX).collect();
        decision.info(format!("workers {old} → {workers}: {why}"));
        decision.push(Action::Announce(News::Target { new: workers, old }));
    }

    /// The message by which the acceptor knows the number.
    pub(crate) fn message(self, target: u16) -> ToAcceptor {
        ToAcceptor::Workers {
            wanted: target,
            is_pinned: self.is_fixed(target),
        }
    }

    /// Whether the number changes only by command. A pause does not end by itself either.
    fn is_fixed(self, target: u16) -> bool {
        self.is_pinned || target == 0
    }
}
