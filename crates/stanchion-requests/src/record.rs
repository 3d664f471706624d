//! The record of requests and clients: what the tally counts of them, what the log says, and what observers get.

use std::fmt::Display;
use std::io;
use std::rc::Rc;

use stanchion_log::LogChannels;
use tracing::debug;

use super::account::Account;
use super::spare_heads::SpareHeads;
use stanchion_dispatch::over::Over;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::common::Common;
use stanchion_generation::tally::{Event, Outcome, Tally};
use stanchion_observers::{Observers, Repeats};

/// Where requests, and clients whose requests were not read, are counted and logged.
pub struct Record {
    /// The observers that the settings ask for.
    pub observers: Observers,
    /// Refusals that the log need not show one by one.
    pub(crate) repeats: Repeats,
    tally: &'static Tally,
}

impl Record {
    /// Starts the threads of observers.
    pub(crate) fn open(common: &'static Common) -> io::Result<Self> {
        let scribe = common.log_channels.as_ref();
        let scribe = scribe.map(LogChannels::writer_of_accesses);
        let observers = Observers::open(&common.settings, &common.tally, scribe.transpose()?)?;
        Ok(Self {
            observers,
            repeats: Repeats::default(),
            tally: &common.tally,
        })
    }

    /// Counts a request that has begun to arrive.
    pub fn arrives(&self) -> Account {
        Account::open(self.tally)
    }

    /// Keeps a request that is over for the observers, if any want it.
    pub fn over(
        &mut self,
        ticket: &Rc<Ticket>,
        status: u16,
        outcome: Outcome,
        head: Vec<u8>,
        bytes: u64,
        now_us: u64,
    ) {
        if self.observers.wants() || ticket.trace.is_some() {
            self.observers.over(Over {
                ticket: Rc::clone(ticket),
                status,
                outcome,
                head,
                bytes,
                // A seat may have taken or done it since this turn began, which is no later than its end.
                now_us: now_us.max(ticket.taken_us()).max(ticket.done_us()),
            });
        }
    }

    /// A copy of the head of an answer, if an observer wants heads; else nothing.
    pub fn observed(&self, head: &[u8]) -> Vec<u8> {
        if self.observers.wants_answer_head() {
            head.to_vec()
        } else {
            Vec::new()
        }
    }

    /// Hands the requests that are over to the observers, which give their heads back.
    pub(crate) fn tell_observers(&mut self, heads: &mut SpareHeads) {
        self.observers.tell(|ticket| heads.keep(ticket));
    }

    /// Logs and counts the refusal of a request whose head was not read.
    pub fn refused_unread(&self, refusal: Refusal, address: &str, now_us: u64) {
        self.repeats.refused_unread(refusal, address, now_us);
        self.count_unreadable(refusal.outcome());
    }

    /// Logs and counts a connection that is closed without an answer, since its client has too many. Other connections give the client the reason: to
    /// give it on all of them would take as many places as the client likes.
    pub fn turn_out(&self, address: &str, now_us: u64) {
        self.repeats.turned_out(address, now_us);
        self.count_unreadable(Outcome::TooManyConnections);
    }

    /// Counts a request that was refused because its head could not be read.
    fn count_unreadable(&self, outcome: Outcome) {
        self.tally.arrived();
        self.tally.ended(outcome);
    }

    /// Logs and counts a client that is cut off.
    pub fn cut_off(&self, event: Event, reason: &str, address: &str, now_us: u64) {
        self.tally.happened(event);
        self.repeats.cut_off(event, reason, address, now_us);
    }

    /// Logs and counts a client that did not do its part of a handshake.
    pub fn handshake_failed(&self, why: &dyn Display, address: &str) {
        self.tally.happened(Event::HandshakeFailed);
        debug!("a client's fault: no TLS with {address:?}: {why}");
    }
}
