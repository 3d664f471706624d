//! The acceptor of a generation. There is one at a time. If it ends while the generation is made ready or serves, the master forks another one.

use stanchion_sys::process::Exit;
use stanchion_sys::signal::SIGKILL;

use crate::child::ForkedChild;
use crate::decision::Decision;
use crate::event::{Action, ChildKind, GenerationPlan};
use crate::stage::ChildStage;
use stanchion_generation::messages::ToAcceptor;
use stanchion_log::exit_code;

/// How long the master waits for a retiring acceptor's report that it accepts no more: far longer than a turn of its loop takes. An acceptor that
/// hangs or is stopped does not hold up a reload or an upgrade for longer.
pub(crate) const RETIRED_WITHIN_MS: u64 = 2_000;

#[derive(Debug)]
pub(crate) struct AcceptorState {
    child: ForkedChild,
    /// The clients that it may accept, if any.
    open_to: Option<AcceptsFrom>,
    /// Whether another master has the same listeners.
    shared: bool,
    /// Whether it sends clients elsewhere, as the server is about to leave.
    is_lame_duck: bool,
    /// The number of workers as it knows it, if that is elastic.
    number: Option<ToAcceptor>,
    /// Until when the master waits for its report that it accepts no more, if it is to make one.
    retired_by_ms: Option<u64>,
    /// Whether any was ever ready: before that, its end is the server's.
    has_accepted: bool,
}

/// The clients that an acceptor accepts, each kind besides those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AcceptsFrom {
    /// Operators, at the admin listener.
    Operators,
    /// Clients of the app.
    Clients,
}

impl AcceptsFrom {
    /// The clients that the acceptor of the only generation accepts before that generation has the app. It must serve the clients of the app that it has accepted,
    /// and it cannot if the app is called by the other interface.
    pub(crate) fn first(plan: &GenerationPlan) -> Self {
        if plan.is_guess {
            Self::Operators
        } else {
            Self::Clients
        }
    }

    fn invitation(self) -> ToAcceptor {
        match self {
            Self::Operators => ToAcceptor::AcceptOperators,
            Self::Clients => ToAcceptor::Accept,
        }
    }
}

impl AcceptorState {
    /// To be forked.
    pub(crate) fn new(generation_number: u32) -> Self {
        Self {
            child: ForkedChild::wanted(generation_number),
            open_to: None,
            shared: false,
            is_lame_duck: false,
            number: None,
            retired_by_ms: None,
            has_accepted: false,
        }
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.child.pid()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.child.is_ready()
    }

    /// Whether none runs or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.child.is_gone()
    }

    // Actions.

    /// Forks one if none is there; true if so.
    pub(crate) fn keep(&mut self, decision: &mut Decision) -> bool {
        self.child.keep(ChildKind::Acceptor, decision)
    }

    /// When [`Self::keep`] has something to do.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.child.due_ms()
    }

    /// Has it accept these clients, now or as soon as it is ready.
    pub(crate) fn open(&mut self, to: AcceptsFrom, decision: &mut Decision) {
        if self.open_to < Some(to) {
            self.open_to = Some(to);
            if self.is_ready() {
                decision.push(self.tell(to.invitation()));
            }
        }
    }

    /// Has it accept the clients that wait, so that it answers them 503 when it leaves.
    pub(crate) fn turn_away(&self, decision: &mut Decision) {
        if !self.is_gone() {
            decision.push(self.tell(ToAcceptor::TurnAway));
        }
    }

    /// Tells it whether another master has the same listeners, now or as soon as it is ready.
    pub(crate) fn share(&mut self, shared: bool, decision: &mut Decision) {
        if std::mem::replace(&mut self.shared, shared) != shared && self.is_ready() {
            decision.push(self.tell(ToAcceptor::Shared(shared)));
        }
    }

    /// Has it send clients elsewhere while it serves on, now or as soon as it is ready.
    pub(crate) fn be_a_lame_duck(&mut self, decision: &mut Decision) {
        self.is_lame_duck = true;
        if self.is_ready() {
            decision.push(self.tell(ToAcceptor::LameDuck));
        }
    }

    /// Sends it the number of workers, now or as soon as it is ready, unless it knows the number.
    pub(crate) fn know(&mut self, number: Option<ToAcceptor>, decision: &mut Decision) {
        if self.is_ready() && self.number != number {
            decision.extend(number.clone().map(|number| self.tell(number)));
            self.number = number;
        }
    }

    /// It wants another number of workers, and takes that for granted until it gets an answer.
    pub(crate) fn awaits_number(&mut self) {
        self.number = None;
    }

    /// Has it serve its present clients and then leave; `close_door`: no other acceptor has its listeners.
    pub(crate) fn retire(&mut self, timeout_ms: u64, close_door: bool, decision: &mut Decision) {
        // An acceptor that boots has accepted no client yet.
        if self.is_ready() && !close_door {
            self.retired_by_ms = Some(decision.now_ms + RETIRED_WITHIN_MS);
        }
        // An acceptor that still boots gets this order now, and no invitation once it is ready.
        self.open_to = None;
        self.is_lame_duck = false;
        if !self.is_gone() {
            decision.push(self.tell(if close_door {
                ToAcceptor::Drain { timeout_ms }
            } else {
                ToAcceptor::Retire { timeout_ms }
            }));
        }
    }

    /// Whether it may still accept clients, though it has the order to retire.
    pub(crate) fn may_let_in(&self) -> bool {
        self.retired_by_ms.is_some()
    }

    /// Stops waiting for its report, if that is late.
    pub(crate) fn end_silence(&mut self, heard_ms: u64, decision: &mut Decision) {
        if let Some(pid) = self.pid()
            && self
                .retired_by_ms
                .take_if(|by_ms| heard_ms >= *by_ms)
                .is_some()
        {
            let (generation_number, waited_s) =
                (self.child.generation_number, RETIRED_WITHIN_MS / 1_000);
            decision.warning(format!(
                "the acceptor ({pid}) of generation {generation_number} has not reported within {waited_s} s that it accepts \
                 no more clients: it may be stopped, and generation {generation_number} may still answer new ones"
            ));
        }
    }

    /// When [`Self::end_silence`] has something to do.
    pub(crate) fn silence_due_ms(&self) -> Option<u64> {
        self.retired_by_ms
    }

    /// Tells it to leave at once.
    pub(crate) fn quit_by(&mut self, deadline_ms: u64, decision: &mut Decision) {
        if self.child.stage.leave_by(deadline_ms).is_some() {
            decision.push(self.tell(ToAcceptor::Quit));
        }
    }

    pub(crate) fn tell(&self, message: ToAcceptor) -> Action {
        Action::tell_acceptor(self.child.generation_number, message)
    }

    pub(crate) fn kill_if_overstaying(&mut self, decision: &mut Decision) {
        if let Some(pid) = self.child.stage.kill_if_overstaying(decision.now_ms) {
            decision.warning(format!(
                "the acceptor ({pid}) did not leave in time and is killed"
            ));
            decision.kill(pid, SIGKILL);
        }
    }

    /// When [`Self::kill_if_overstaying`] has something to do.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.child.stage.deadline_ms()
    }

    // Events.

    pub(crate) fn on_forked(&mut self, pid: Option<i32>, decision: &mut Decision) {
        self.child.on_forked(pid, decision);
    }

    pub(crate) fn on_ready(&mut self, decision: &mut Decision) {
        if self.child.on_ready() {
            self.child.is_well();
            self.has_accepted = true;
            self.number = None;
            if self.shared {
                decision.push(self.tell(ToAcceptor::Shared(true)));
            }
            if let Some(to) = self.open_to {
                decision.push(self.tell(to.invitation()));
            }
            if self.is_lame_duck {
                decision.push(self.tell(ToAcceptor::LameDuck));
            }
        }
    }

    /// It accepts no more clients.
    pub(crate) fn on_retired(&mut self) {
        self.retired_by_ms = None;
    }

    /// It has ended, when it should have stayed. Gives the server's exit code if the server is to end too: an acceptor that was never ready lacks
    /// something that it needs.
    pub(crate) fn on_lost(&mut self, exit: Exit, decision: &mut Decision) -> Option<i32> {
        if self.child.on_gone() {
            decision.error(format!(
                "the acceptor {exit}; its connections are lost, another one is started"
            ));
        } else if self.has_accepted {
            let wait_ms = self.child.has_failed(decision.now_ms);
            decision.error(format!(
                "the acceptor {exit} before it was ready; next try in {wait_ms} ms"
            ));
        } else {
            return Some(exit_code::INTERNAL);
        }
        None
    }

    /// It has ended, as it was to.
    pub(crate) fn on_left(&mut self, exit: Exit, decision: &mut Decision) {
        let was_killed = matches!(self.child.stage, ChildStage::Killed { .. });
        self.child.on_gone();
        self.retired_by_ms = None;
        if exit != Exit::Code(exit_code::FINE) && !was_killed {
            decision.error(format!(
                "the acceptor {exit} while leaving; its connections are lost"
            ));
        }
    }
}
