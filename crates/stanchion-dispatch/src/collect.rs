//! Reading what a seat has written into its slot: heads, bodies, files, and now and then nonsense.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use stanchion_exchange::{AnswerEnd, Corrupt, RunTimes, SlotState, Tenant};
use stanchion_http::{AnswerFacts, BodyLength, check_hints};
use tracing::warn;

use crate::outflow::Limits;
use crate::refusal::Refusal;
use crate::service_times::ServiceTimes;
use crate::slots::{SlotTable, is_whole};
use crate::slow_clients::SlowClients;
use crate::spare_buffers::SpareBuffers;
use crate::storage::disk::OpenFile;
use crate::streamed_body::bytes_of;
use crate::ticket::{Answer, AppAnswer, BodySection, Start, Ticket};
use stanchion_record::{
    ANSWER_HEAD_BYTES_MAX, FilePart, HINT_BYTES_MAX, PREFIX_BYTES, answer_prefix, hints_len,
};

/// The acceptor copies answers up to this size out of the exchange. No head alone is longer, so an answer that names a
/// file is always copied.
const COPIED_BYTES_MAX: usize = PREFIX_BYTES + ANSWER_HEAD_BYTES_MAX;
/// A turn of the acceptor takes less: what a worker says to have done later than so long after its beginning is a lie.
const TURN_US_MAX: u64 = 1_000_000;
/// The status by which the app accepts a WebSocket.
pub const SWITCHING: u16 = 101;

/// One look at the slot of a request that a seat may have written to.
pub(crate) struct SlotReader<'d> {
    pub(crate) slots: &'d mut SlotTable,
    pub(crate) buffers: &'d mut SpareBuffers,
    pub(crate) limits: &'d Rc<Limits>,
    pub(crate) slow: &'d mut SlowClients,
    pub(crate) times: &'d mut ServiceTimes,
    pub(crate) slot: u32,
    pub(crate) ticket: &'d Ticket,
    pub(crate) now_us: u64,
}

/// Whether a request is still in its slot after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterLook {
    /// It is.
    Kept,
    /// Its worker is done with it, and the slot is free.
    Freed,
}

impl SlotReader<'_> {
    /// Takes what the slot's seat has written since the last look. If it `may_leave` some, it leaves in the exchange
    /// what the connection fetches itself, or has no room for.
    pub(crate) fn advance(&mut self, may_leave: bool) -> Result<AfterLook, Corrupt> {
        let (slot, ticket) = (self.slot, self.ticket);
        let _charged = ticket.charged();
        let state = self.slots.side.state(slot)?;
        let (tenant, taken_us) = match state {
            SlotState::Ready => return Ok(AfterLook::Kept),
            SlotState::Running { tenant, taken_us }
            | SlotState::Done {
                tenant, taken_us, ..
            } => (tenant, taken_us),
        };
        self.slots.seen_with(tenant, taken_us, ticket);
        let wanted = !ticket.is_over();
        if let SlotState::Done { done_us, times, .. } = state {
            ticket.finishes(done_us, times);
        }
        let has_head = wanted && (ticket.is_streaming() || self.take_hints()?);
        if wanted && may_leave && self.is_left(state)? {
            return Ok(AfterLook::Kept);
        }
        if let SlotState::Done {
            ending,
            done_us,
            times,
            ..
        } = state
        {
            let ending = ending.ok_or(Corrupt("an answer has an unknown ending"))?;
            if !self.slots.is_session(slot) {
                self.note_times(tenant, (taken_us, done_us), times);
            }
            if wanted {
                self.take_rest(ending)?;
            } else {
                // No client wants the answer any more: its file is closed, if one came.
                drop(self.slots.take_file(slot));
            }
            self.slots.free(slot);
            return Ok(AfterLook::Freed);
        }
        if has_head {
            self.take_more()?;
            if !may_leave && ticket.is_streaming() {
                self.take_last()?;
            }
        }
        Ok(AfterLook::Kept)
    }

    /// Notes how long a request has waited and had its seat, which is over. The worker has written both times.
    fn note_times(&mut self, tenant: Tenant, (taken_us, done_us): (u64, u64), times: RunTimes) {
        let arrived_us = self.ticket.request.arrived_us;
        // The acceptor's time is that of the beginning of its turn.
        let latest_us = self.now_us.max(arrived_us).saturating_add(TURN_US_MAX);
        let done_us = done_us.clamp(arrived_us, latest_us);
        let taken_us = taken_us.clamp(arrived_us, done_us);
        let (wait_us, service_us) = (taken_us - arrived_us, done_us - taken_us);
        let in_ring = self.slots.side.reached(self.slot);
        self.times.served(wait_us, service_us, in_ring);
        let lane = self.ticket.lane.get();
        self.times.causes.served(lane, (wait_us, service_us), times);
        let busy = usize::from(self.ticket.busy.get());
        // The worker has written which seat it was, and may have lied.
        let seats = self.slots.exchange.seats();
        let seat = seats.get(usize::from(tenant.seat));
        let nth = seat.map_or(0, |seat| seat.served.load(Ordering::Relaxed));
        self.times.curve.served(self.now_us, busy, service_us, nth);
        self.times.staffing.served(service_us, self.now_us);
    }

    /// How many bytes the seat has written that were not taken.
    fn readable(&self) -> Result<usize, Corrupt> {
        self.slots.side.readable(self.slot)
    }

    /// Notes whether the worker has to wait for room for its answer. The worker of an event loop does not count: its loop
    /// runs other requests meanwhile, so a file would free nothing, and have the app go on for a client that is far behind.
    fn hold(&mut self, is_held: bool) {
        let is_held = is_held && !self.slots.exchange.geometry().event_loops;
        let submitted = self.slots.side.submitted(self.slot);
        self.slow.hold(submitted, self.ticket, is_held, self.now_us);
    }

    /// Whether the answer stays in the exchange, for the connection to fetch it from there: either the connection has
    /// fetched all before it, or the body is whole and too long to be copied for nothing.
    fn is_left(&mut self, state: SlotState) -> Result<bool, Corrupt> {
        let ticket = self.ticket;
        if ticket.is_fetched() {
            let is_news = self.readable()? > 0;
            if is_news {
                ticket.wake();
            }
            return Ok(is_news);
        }
        let is_left =
            is_whole(state) && !ticket.is_streaming() && self.readable()? > COPIED_BYTES_MAX;
        if is_left {
            self.take_head(true)?;
        }
        Ok(is_left)
    }

    /// Takes the rest of an answer that the worker has ended, whole or not.
    fn take_rest(&mut self, ending: AnswerEnd) -> Result<(), Corrupt> {
        let ticket = self.ticket;
        if ticket.is_streaming() {
            self.take_last()?;
            ticket.end(ending)?;
        } else if self.readable()? == 0 {
            ticket.refuse(Refusal::NoAnswer);
        } else {
            let head = self.read_head(true)?;
            let whole = (head.bytes.len() - head.head.end) as u64;
            if head.facts.status == SWITCHING && head.file.is_some() {
                return Err(Corrupt("an answer that accepts a WebSocket names a file"));
            }
            let answer = match (head.file, ending) {
                (Some(part), AnswerEnd::Complete) if head.facts.length == BodyLength::Nothing => {
                    keep_with(head.facts.length, part.len)?;
                    head.begins(Start::FileUnasked)
                }
                (Some(part), AnswerEnd::Complete) => {
                    keep_with(head.facts.length, part.len)?;
                    let Some(file) = self.slots.take_file(self.slot) else {
                        warn!(
                            "{}: the file of the answer did not reach the acceptor, and the client gets 502 (open files? see ulimit -n)",
                            ticket.request.describe()
                        );
                        ticket.refuse(Refusal::NoAnswer);
                        return Ok(());
                    };
                    let file = std::fs::File::from(file);
                    // A read of anything but a regular file could take for ever.
                    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                        return Err(Corrupt("an answer names a file that is no regular file"));
                    }
                    head.begins(Start::File(
                        OpenFile::of_app(file),
                        vec![BodySection::Part(part)],
                    ))
                }
                (_, AnswerEnd::Complete)
                    if head.facts.status != SWITCHING && !head.has_trailers =>
                {
                    keep_with(head.facts.length, whole)?;
                    head.begins(Start::Whole)
                }
                _ => self.streamed(head, None)?,
            };
            ticket.answer(Answer::App(answer));
            if ticket.is_streaming() {
                // The end comes after the head: if the body is not as long as its head says, the client is to see an
                // answer that breaks off.
                ticket.end(ending)?;
            }
        }
        ticket.ends();
        Ok(())
    }

    /// Takes the rest of a body, whether or not its client has room for it, because the slot is to be freed.
    fn take_last(&mut self) -> Result<(), Corrupt> {
        let ticket = self.ticket;
        let left = self.readable()?;
        ticket.outflow(|outflow| outflow.make_room(left));
        let mut bytes = Vec::new();
        self.slots.side.read(self.slot, usize::MAX, &mut bytes)?;
        ticket.push(Bytes::from(bytes))
    }

    /// Takes what there is of an answer that the worker has not ended yet.
    fn take_more(&mut self) -> Result<(), Corrupt> {
        let ticket = self.ticket;
        let readable = self.readable()?;
        if readable == 0 {
            return Ok(());
        }
        if let Some(room) = ticket.outflow(|outflow| outflow.room()) {
            let unread = readable.saturating_sub(room);
            let is_held = room == 0 || self.slots.side.is_held_by(unread);
            self.hold(is_held);
            if room > 0 {
                let mut bytes = Vec::new();
                self.slots.side.read(self.slot, room, &mut bytes)?;
                ticket.push(Bytes::from(bytes))?;
            }
        } else {
            self.take_head(false)?;
        }
        Ok(())
    }

    /// Takes the head alone, and leaves the body in the exchange for the connection to fetch. If it `is_whole`, all of
    /// the body is there.
    fn take_head(&mut self, is_whole: bool) -> Result<(), Corrupt> {
        let head = self.read_head(false)?;
        let mut whole = None;
        if is_whole && !head.has_trailers {
            let bytes = self.readable()? as u64;
            keep_with(head.facts.length, bytes)?;
            whole = Some(bytes);
        }
        let answer = self.streamed(head, whole)?;
        self.ticket.answer(Answer::App(answer));
        Ok(())
    }

    /// Begins an answer whose body comes in pieces, the first of them behind the head. The body is `whole` bytes long,
    /// if its length is known without the head.
    fn streamed(&mut self, head: Headed, whole: Option<u64>) -> Result<AppAnswer, Corrupt> {
        let ticket = self.ticket;
        let Headed {
            bytes,
            head,
            facts,
            has_trailers,
            closes,
            ..
        } = head;
        let bytes = Bytes::from(bytes);
        let first = bytes.slice(head.end..);
        let mut promised = whole.map_or(facts.length, BodyLength::Bytes);
        if facts.status == SWITCHING {
            // Messages come behind this head, and no body.
            promised = BodyLength::Unknown;
            self.slots.give_seat_back(self.slot);
        }
        ticket.start_body(self.limits, promised, first, has_trailers)?;
        Ok(AppAnswer {
            head: 0..head.len(),
            bytes: bytes[head].to_vec(),
            facts,
            closes,
            body: Start::Streamed(whole),
        })
    }

    /// Reads a head and checks it. A seat publishes the head in one piece, with the start of the body behind it. If all
    /// of the answer `is_there`, the body is read too.
    fn read_head(&mut self, is_there: bool) -> Result<Headed, Corrupt> {
        let request = &self.ticket.request;
        let mut bytes = self.buffers.take();
        let first = if is_there { usize::MAX } else { PREFIX_BYTES };
        self.slots.side.read(self.slot, first, &mut bytes)?;
        let cut = Corrupt("the head of an answer is cut");
        let prefix = answer_prefix(&bytes).map_err(|_| cut)?;
        let head = PREFIX_BYTES..PREFIX_BYTES + prefix.head_len;
        if !is_there {
            self.slots
                .side
                .read(self.slot, prefix.head_len, &mut bytes)?;
        }
        let wire = bytes.get(head.clone()).ok_or(cut)?;
        let is_head_request = request.head.method() == "HEAD";
        let switch = match request.websocket {
            Some(_) => stanchion_http::check_switch(wire).map_err(Corrupt)?,
            None => None,
        };
        let facts = match switch {
            Some(facts) => facts,
            None => stanchion_http::check(wire, is_head_request).map_err(Corrupt)?,
        };
        let has_trailers = prefix.has_trailers;
        if has_trailers && (!request.takes_trailers() || facts.length == BodyLength::Nothing) {
            return Err(Corrupt("an answer has trailers, and its client takes none"));
        }
        Ok(Headed {
            bytes,
            head,
            facts,
            file: prefix.file,
            has_trailers,
            closes: prefix.closes,
        })
    }

    /// Takes the hints that a seat has written, up to the head of its answer. Gives whether the head is there; if it is
    /// not, one more hint may come.
    fn take_hints(&mut self) -> Result<bool, Corrupt> {
        let mut prefix = [0; PREFIX_BYTES];
        while self.readable()? > 0 {
            // A seat publishes a hint in one piece, and a head too.
            if !self.slots.side.peek(self.slot, &mut prefix)? {
                return Err(Corrupt("the prefix of a hint or of a head is cut"));
            }
            let Some(len) = hints_len(&prefix) else {
                return Ok(true);
            };
            if !self.ticket.request.takes_hints {
                return Err(Corrupt("a worker sends hints to a client that takes none"));
            }
            if len > HINT_BYTES_MAX {
                return Err(Corrupt("a hint is longer than it may be"));
            }
            let mut bytes = self.buffers.take();
            self.slots
                .side
                .read(self.slot, PREFIX_BYTES + len, &mut bytes)?;
            let wire = bytes.get(PREFIX_BYTES..PREFIX_BYTES + len);
            let wire = wire.ok_or(Corrupt("hints are cut"))?;
            check_hints(wire).map_err(Corrupt)?;
            self.ticket.hint(|hints| hints.add(wire))?;
            self.buffers.keep(bytes);
        }
        Ok(false)
    }
}

/// A head that a seat has published, checked, and the bytes that came behind it.
struct Headed {
    bytes: Vec<u8>,
    head: Range<usize>,
    facts: AnswerFacts,
    file: Option<FilePart>,
    has_trailers: bool,
    closes: bool,
}

impl Headed {
    fn begins(self, body: Start) -> AppAnswer {
        let Self {
            bytes,
            head,
            facts,
            closes,
            ..
        } = self;
        AppAnswer {
            bytes,
            head,
            facts,
            closes,
            body,
        }
    }
}

/// Checks that a body of `whole` bytes is as long as its head says. If it were longer, the client would take the rest
/// for another answer; if it were shorter, the client would wait for the rest.
fn keep_with(length: BodyLength, whole: u64) -> Result<(), Corrupt> {
    match bytes_of(length) {
        Some(bytes) if bytes != whole => Err(Corrupt("an answer is not as long as it says")),
        Some(_) | None => Ok(()),
    }
}
