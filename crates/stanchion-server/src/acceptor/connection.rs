//! One client connection, as those see it who watch it for dawdling.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use stanchion_sys::clock::monotonic_us;

use super::Shared;
use super::intake::{CutOff, Intake, Verdict};
use super::pace::Pace;
use super::refusal::Refusal;
use super::request::Peer;

/// A connection, as the acceptor's watch sees it.
pub(super) struct Connection {
    /// Its number in [`Shared::connections`].
    number: u32,
    pub(super) peer: Rc<Peer>,
    phase: Cell<Phase>,
    order: Cell<Option<Order>>,
    waker: Cell<Option<Waker>>,
    /// Its request has been read whole and is not yet answered.
    waiting: Cell<bool>,
    /// The client sends no more.
    half_closed: Cell<bool>,
    /// The client may still be sending what nobody will read.
    unread: Cell<bool>,
    /// The next answer is the last.
    closing: Cell<bool>,
    /// What it spoke first was TLS.
    speaks_tls: Cell<bool>,
    /// Requests so far.
    requests: Cell<u32>,
    /// How fast the body comes that is being read.
    pace: Cell<Option<Pace>>,
    /// Its sender is not waited for any longer.
    called_off: Cell<Option<Refusal>>,
    /// Until then it is not woken for a few bytes of a head that drips.
    dozes_until_us: Cell<Option<u64>>,
    /// It is to read what there is, however little.
    glance: Cell<bool>,
    /// How the client takes what is written to it.
    intake: Intake,
    /// How often hyper had nothing more to write, and who waits for the next time.
    flushes: Cell<u64>,
    flush_waker: Cell<Option<Waker>>,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Connected, and nothing has come yet.
    New { since_us: u64 },
    /// Between requests.
    Idle { since_us: u64 },
    /// A head is being read.
    Reading { since_us: u64 },
    /// A request is being answered.
    Busy,
    /// All is said; what the client still sends is thrown away.
    Leaving { since_us: u64 },
}

/// What the watch asks of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Finish what is being answered, then close.
    Close,
    /// The head took too long: say so and close.
    TimedOut,
    /// The body takes too long: say so and close.
    CallOff(Refusal),
    /// Look whether the client has taken something: its kernel may have, while ours still has no
    /// room.
    LookAgain,
    /// Close without a word: nothing was ever asked.
    Drop,
    /// Close in the middle of an answer.
    CutOff(CutOff),
}

impl Order {
    /// Of two orders the more severe one is obeyed: it asks for all that the other one does, and more.
    fn severity(self) -> u8 {
        match self {
            Self::LookAgain => 0,
            // Only for who is idle, so that no body is read.
            Self::Close => 1,
            // What is left of a body that is refused is not read: the connection is closed.
            Self::CallOff(_) => 2,
            Self::TimedOut => 3,
            Self::Drop => 4,
            Self::CutOff(_) => 5,
        }
    }

    /// What is left to obey of this one, which has not been obeyed yet, and another one.
    fn and(self, other: Self) -> Self {
        if other.severity() > self.severity() {
            other
        } else {
            self
        }
    }
}

impl Connection {
    pub(super) fn new(number: u32, peer: Peer) -> Self {
        Self {
            number,
            peer: Rc::new(peer),
            phase: Cell::new(Phase::New {
                since_us: monotonic_us(),
            }),
            order: Cell::new(None),
            waker: Cell::new(None),
            waiting: Cell::new(false),
            half_closed: Cell::new(false),
            unread: Cell::new(false),
            closing: Cell::new(false),
            speaks_tls: Cell::new(false),
            requests: Cell::new(0),
            pace: Cell::new(None),
            called_off: Cell::new(None),
            dozes_until_us: Cell::new(None),
            glance: Cell::new(false),
            intake: Intake::default(),
            flushes: Cell::new(0),
            flush_waker: Cell::new(None),
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// What is to become of its client, if bytes wait for that; `others_wait` for its place.
    pub(super) fn judge_intake(&self, others_wait: bool, now_us: u64) -> Option<Verdict> {
        self.intake.judge(others_wait, now_us)
    }

    pub(super) fn pace(&self) -> Option<Pace> {
        self.pace.get()
    }

    /// The body that is being read, as far as it has come.
    pub(super) fn set_pace(&self, pace: Option<Pace>) {
        self.pace.set(pace);
    }

    /// The sender of the body is not waited for any longer.
    pub(super) fn call_off(&self, refusal: Refusal) {
        self.called_off.set(Some(refusal));
    }

    /// Why the sender of the body is not waited for any longer, if so.
    pub(super) fn called_off(&self) -> Option<Refusal> {
        self.called_off.get()
    }

    /// Since when nobody would miss it, if so: nothing is being asked and nothing being told.
    pub(super) fn spare_since_us(&self) -> Option<u64> {
        match self.phase.get() {
            Phase::New { since_us } | Phase::Idle { since_us } | Phase::Leaving { since_us } => {
                (!self.intake.is_stalled()).then_some(since_us)
            }
            Phase::Reading { .. } | Phase::Busy => None,
        }
    }

    fn enter(&self, shared: &Shared, phase: Phase) {
        self.phase.set(phase);
        self.enroll(shared);
    }

    fn enroll(&self, shared: &Shared) {
        let is_spare = self.spare_since_us().is_some();
        let mut connections = shared.connections.borrow_mut();
        connections.set_spare(self.number, is_spare);
    }

    /// Nothing could be written, and so much of what was has not been sent.
    pub(super) fn stalled(&self, shared: &Shared, unsent: u64) {
        let limits = shared.intake_pace();
        if self.intake.stalled(limits, unsent, monotonic_us()) {
            self.enroll(shared);
        }
    }

    /// So much was written.
    pub(super) fn wrote(&self, shared: &Shared, bytes: usize) {
        if !self.intake.wrote(bytes) {
            return;
        }
        // hyper has had the whole answer for a while, but only now the client has it.
        if let Phase::Idle { .. } = self.phase.get() {
            let since_us = monotonic_us();
            self.phase.set(Phase::Idle { since_us });
        }
        self.enroll(shared);
    }

    /// It is not woken for a few bytes until then.
    pub(super) fn doze(&self, shared: &Shared, until_us: u64) {
        self.dozes_until_us.set(Some(until_us));
        let mut connections = shared.connections.borrow_mut();
        connections.look_by(self.number, until_us);
    }

    /// It is woken for every byte.
    pub(super) fn wake_up(&self) {
        self.dozes_until_us.set(None);
    }

    pub(super) fn dozes_until_us(&self) -> Option<u64> {
        self.dozes_until_us.get()
    }

    /// It has dozed for long enough; comes with an order to look again.
    pub(super) fn glance(&self) {
        self.dozes_until_us.set(None);
        self.glance.set(true);
    }

    /// Whether what little there is is to be read, once.
    pub(super) fn take_glance(&self) -> bool {
        self.glance.take()
    }

    /// Gives an order; the connection's task acts on it, and loses none that it has not acted on yet.
    pub(super) fn order(&self, order: Order) {
        let before = self.order.get();
        self.order
            .set(Some(before.map_or(order, |before| before.and(order))));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// A request has come.
    pub(super) fn busy(&self, shared: &Shared) {
        self.requests.set(self.requests.get().wrapping_add(1));
        self.called_off.set(None);
        self.enter(shared, Phase::Busy);
    }

    /// Whether the next answer is to say that it is the last, where so many requests may come
    /// (0 = any).
    pub(super) fn is_closing(&self, requests_max: u32) -> bool {
        self.closing.get() || (requests_max > 0 && self.requests.get() >= requests_max)
    }

    /// The next answer is the last.
    pub(super) fn close_after_next(&self) {
        self.closing.set(true);
    }

    /// The first byte was of TLS.
    pub(super) fn spoke_tls(&self) {
        self.speaks_tls.set(true);
    }

    pub(super) fn speaks_tls(&self) -> bool {
        self.speaks_tls.get()
    }

    /// Whether the client may still be sending what nobody will read.
    pub(super) fn is_unread(&self) -> bool {
        self.unread.get()
    }

    /// What was asked for is known; if what the client is still sending will not be `unread`, the
    /// client has no more to do than to wait.
    pub(super) fn leave_unread(&self, unread: bool) {
        self.unread.set(unread);
        self.waiting.set(!unread);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get()
    }

    /// The client sends no more, and nobody is woken when it leaves.
    pub(super) fn half_close(&self) {
        self.half_closed.set(true);
    }

    pub(super) fn is_half_closed(&self) -> bool {
        self.half_closed.get()
    }

    /// An answer has been given to hyper whole, or was given up.
    pub(super) fn answered(&self, shared: &Shared) {
        self.waiting.set(false);
        let since_us = monotonic_us();
        self.enter(shared, Phase::Idle { since_us });
    }

    /// Nothing more will be read as a request.
    pub(super) fn leaving(&self, shared: &Shared) {
        let since_us = monotonic_us();
        self.enter(shared, Phase::Leaving { since_us });
    }

    /// How often everything given to hyper so far has been written.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.get()
    }

    /// Ready once all has been written after the moment when [`Connection::flushes`] gave `since`.
    pub(super) fn poll_flushed(&self, since: u64, context: &Context<'_>) -> Poll<()> {
        if self.flushes.get() > since {
            return Poll::Ready(());
        }
        self.flush_waker.set(Some(context.waker().clone()));
        Poll::Pending
    }

    pub(super) fn flushed(&self) {
        self.flushes.set(self.flushes.get() + 1);
        if let Some(waker) = self.flush_waker.take() {
            waker.wake();
        }
    }

    pub(super) fn received(&self, shared: &Shared) {
        if let Phase::New { .. } | Phase::Idle { .. } = self.phase.get() {
            let since_us = monotonic_us();
            self.enter(shared, Phase::Reading { since_us });
        }
    }

    pub(super) fn listen(&self, context: &Context<'_>) -> Option<Order> {
        // Tasks keep their waker, so this clones once for most polls.
        let waker = self
            .waker
            .take()
            .filter(|waker| waker.will_wake(context.waker()));
        self.waker
            .set(Some(waker.unwrap_or_else(|| context.waker().clone())));
        self.order.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection::new(
            0,
            Peer {
                ip: None,
                trusted: false,
                address: String::new(),
                port: 0,
                server_name: String::new(),
                server_port: String::new(),
                only_worker: None,
            },
        )
    }

    #[test]
    fn no_order_is_lost_to_another_one() {
        let by_severity = [
            Order::LookAgain,
            Order::Close,
            Order::CallOff(Refusal::BodyTimeout),
            Order::TimedOut,
            Order::Drop,
            Order::CutOff(CutOff::TookNothing),
        ];
        let context = Context::from_waker(Waker::noop());
        for (rank, &one) in by_severity.iter().enumerate() {
            for (other_rank, &other) in by_severity.iter().enumerate() {
                let connection = connection();
                connection.order(one);
                connection.order(other);
                let obeyed = by_severity[rank.max(other_rank)];
                assert_eq!(
                    connection.listen(&context),
                    Some(obeyed),
                    "{one:?}, {other:?}"
                );
                assert_eq!(connection.listen(&context), None, "once is enough");
            }
        }
    }
}
