//! The dispatch collects what seats have written: heads, bodies, files, and now and then nonsense.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use bytes::Bytes;
use stanchion_exchange::{AcceptorSide, Corrupt, Ending, SlotState, Submitted, Tenant};
use stanchion_http::{AnswerFacts, BodyLength};
use stanchion_sys::channel::{Message, Received};
use stanchion_sys::charge;
use tracing::{error, warn};

use super::{Dispatch, refuse};
use crate::outflow::{Fetchable, StreamEnd};
use crate::refusal::Refusal;
use crate::storage::disk::OpenFile;
use crate::ticket::{Answer, AppAnswer, Section, Stage, Start, Ticket, bytes_of};
use crate::trailers::takes_trailers;
use stanchion_record::{ANSWER_HEAD_BYTES_MAX, FilePart, PREFIX_BYTES, answer_prefix};

/// The acceptor copies answers up to this size out of the exchange. No head alone is longer, so an answer that names a
/// file is always copied.
const COPIED_BYTES_MAX: usize = PREFIX_BYTES + ANSWER_HEAD_BYTES_MAX;
/// The status by which the app accepts a WebSocket.
pub const SWITCHING: u16 = 101;
/// One look receives at most so many files. The kernel has buffers for no more on their way.
const FILES_MAX: usize = 1024;

impl Dispatch {
    /// Takes what the seat of a slot has written. There may be room for more of the body, too, so a connection that wants room asks.
    pub(super) fn look(&mut self, slot: u32, now_us: u64) {
        if let Some(ticket) = &self.slots[slot as usize]
            && ticket.wants_room.get()
        {
            ticket.wake();
        }
        self.take_news(slot, now_us);
    }

    /// Takes what the seat of a slot has written.
    pub(super) fn take_news(&mut self, slot: u32, now_us: u64) {
        // No client pays for the tables of slots: this slot may be another client's.
        let _charged = charge::to_nobody();
        if self.side.settle_orphan(slot, false) || self.is_poisoned(slot) {
            return;
        }
        let Some(ticket) = self.slots[slot as usize].clone() else {
            return;
        };
        if let Err(corrupt) = self.advance(slot, &ticket, now_us, true) {
            self.poison(slot, &ticket, corrupt);
        }
    }

    /// Takes what the slot's seat has written since the last look. If it `may_leave` some, it leaves in the exchange
    /// what the connection fetches itself, or has no room for.
    pub(super) fn advance(
        &mut self,
        slot: u32,
        ticket: &Ticket,
        now_us: u64,
        may_leave: bool,
    ) -> Result<(), Corrupt> {
        let _charged = ticket.charged();
        let state = self.side.state(slot)?;
        let (tenant, taken_us) = match state {
            SlotState::Ready => return Ok(()),
            SlotState::Running { tenant, taken_us }
            | SlotState::Done {
                tenant, taken_us, ..
            } => (tenant, taken_us),
        };
        self.seen_with(tenant, taken_us, ticket);
        let wanted = ticket.stage.get() != Stage::Over;
        // A request that is over but not in the logs yet keeps its times.
        if wanted && let SlotState::Done { done_us, .. } = state {
            ticket.done_us.set(done_us);
        }
        let has_head = wanted && (ticket.is_streaming() || self.take_hints(slot, ticket)?);
        if wanted && may_leave && self.is_left(slot, ticket, state)? {
            return Ok(());
        }
        if let SlotState::Done {
            ending, done_us, ..
        } = state
        {
            if !ticket.is_session.get() {
                let in_ring = self.side.reached(slot) as u64;
                self.ahead.served(done_us.saturating_sub(taken_us), in_ring);
                self.waits
                    .add(taken_us.saturating_sub(ticket.request.arrived_us));
                self.services.add(done_us.saturating_sub(taken_us));
            }
            let ending = ending.ok_or(Corrupt("an answer has an unknown ending"))?;
            if wanted {
                self.take_rest(slot, ticket, ending)?;
            } else {
                // No client wants the answer any more: its file is closed, if one came.
                drop(self.fetch_file(slot));
            }
            if let Some(line) = self.line_of(ticket) {
                line.drained(now_us, ticket.lane.get());
            }
            self.free(slot);
        } else if has_head {
            self.take_more(slot, ticket, now_us)?;
            if !may_leave && ticket.is_streaming() {
                self.take_last(slot, ticket)?;
            }
        }
        Ok(())
    }

    /// Whether the answer stays in the exchange, for the connection to fetch it from there: either the connection has
    /// fetched all before it, or the body is whole and too long to be copied for nothing.
    fn is_left(&mut self, slot: u32, ticket: &Ticket, state: SlotState) -> Result<bool, Corrupt> {
        if ticket.is_fetched() {
            let is_news = self.side.readable(slot)? > 0;
            if is_news {
                ticket.wake();
            }
            return Ok(is_news);
        }
        let is_left = is_whole(state)
            && !ticket.is_streaming()
            && self.side.readable(slot)? > COPIED_BYTES_MAX;
        if is_left {
            self.take_head(slot, ticket, true)?;
        }
        Ok(is_left)
    }

    /// Notes which worker has the request, and since when.
    pub(super) fn seen_with(&self, tenant: Tenant, taken_us: u64, ticket: &Ticket) {
        ticket.taken_us.set(taken_us);
        let sitting = self.sitting_at(tenant);
        ticket
            .worker_pid
            .set(sitting.map_or(0, |sitting| sitting.pid));
        ticket.worker.set(sitting.map(|sitting| sitting.number));
    }

    /// Takes the rest of an answer that the worker has ended, whole or not.
    fn take_rest(&mut self, slot: u32, ticket: &Ticket, ending: Ending) -> Result<(), Corrupt> {
        let end = match ending {
            Ending::Complete => StreamEnd::Complete,
            Ending::Broken => StreamEnd::Broken,
        };
        if ticket.is_streaming() {
            self.take_last(slot, ticket)?;
            ticket.end(end)?;
        } else if self.side.readable(slot)? == 0 {
            refuse(ticket, Refusal::NoAnswer);
        } else {
            let head = self.read_head(slot, ticket, true)?;
            let whole = (head.bytes.len() - head.head.end) as u64;
            if head.facts.status == SWITCHING && head.file.is_some() {
                return Err(Corrupt("an answer that accepts a WebSocket names a file"));
            }
            let answer = match (head.file, end) {
                (Some(part), StreamEnd::Complete) if head.facts.length == BodyLength::Nothing => {
                    keep_with(head.facts.length, part.len)?;
                    head.begins(Start::FileUnasked)
                }
                (Some(part), StreamEnd::Complete) => {
                    keep_with(head.facts.length, part.len)?;
                    let Some(file) = self.fetch_file(slot) else {
                        warn!("the file of an answer did not arrive (open files? see ulimit -n)");
                        refuse(ticket, Refusal::NoAnswer);
                        return Ok(());
                    };
                    let file = std::fs::File::from(file);
                    // A read of anything but a regular file could take for ever.
                    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                        return Err(Corrupt("an answer names a file that is no regular file"));
                    }
                    head.begins(Start::File(
                        OpenFile::of_app(file),
                        vec![Section::Part(part)],
                    ))
                }
                (_, StreamEnd::Complete)
                    if head.facts.status != SWITCHING && !head.has_trailers =>
                {
                    keep_with(head.facts.length, whole)?;
                    head.begins(Start::Whole)
                }
                _ => self.streamed(head, ticket, None)?,
            };
            ticket.answer(Answer::App(answer));
            if ticket.is_streaming() {
                // The end comes after the head: if the body is not as long as its head says, the client is to see an
                // answer that breaks off.
                ticket.end(end)?;
            }
        }
        ticket.stage.set(Stage::Over);
        Ok(())
    }

    /// How much of a body the connection may send from the exchange now: what the worker has written, but no more than
    /// the outflow has room for, since that keeps what the client does not take. Only for a connection that fetches:
    /// [`crate::outflow::Outflow::fetches`].
    pub fn fetchable(&mut self, ticket: &Ticket) -> Fetchable {
        let room = ticket.outflow(|outflow| outflow.room()).unwrap_or(0);
        let found = self.fetching(ticket, |side, slot| {
            // The state is read before the length: no seat writes to a slot that is done. A slot that makes no sense
            // has nothing to send.
            let state = side.state(slot)?;
            let readable = side.readable(slot)?;
            Ok(Fetchable {
                len: readable.min(room),
                is_last: is_whole(state) && readable <= room,
            })
        });
        found.unwrap_or_default()
    }

    /// Sends `len` bytes of a body from the exchange over `socket`, with the bytes `before` in front of them and
    /// `after` behind. Gives how many bytes the kernel took of all, and appends to `left` the bytes of the body that it
    /// did not take. `None` if the slot makes no sense any more.
    pub fn send(
        &mut self,
        ticket: &Ticket,
        len: usize,
        socket: BorrowedFd<'_>,
        (before, after): (&[&[u8]], &[u8]),
        left: &mut Vec<u8>,
    ) -> Option<io::Result<usize>> {
        self.fetching(ticket, |side, slot| {
            let owed = ticket.owed_after(len)?;
            let sent = side.send(slot, len, socket, before, after, left)?;
            if sent.is_ok() {
                ticket.fetched(len, owed);
            }
            Ok(sent)
        })
    }

    /// Lets `look` read the slot of a request. If the slot makes no sense, it is poisoned, and the result is `None`.
    pub(super) fn fetching<T>(
        &mut self,
        ticket: &Ticket,
        look: impl FnOnce(&mut AcceptorSide<'_>, u32) -> Result<T, Corrupt>,
    ) -> Option<T> {
        let Stage::Submitted(Submitted { slot, .. }) = ticket.stage.get() else {
            return None;
        };
        if self.is_poisoned(slot) {
            return None;
        }
        let seen = look(&mut self.side, slot);
        seen.map_err(|corrupt| self.poison(slot, ticket, corrupt))
            .ok()
    }

    /// Takes the rest of a body, whether or not its client has room for it, because the slot is to be freed.
    fn take_last(&mut self, slot: u32, ticket: &Ticket) -> Result<(), Corrupt> {
        let left = self.side.readable(slot)?;
        ticket.outflow(|outflow| outflow.make_room(left));
        let mut bytes = Vec::new();
        self.side.read(slot, usize::MAX, &mut bytes)?;
        ticket.push(Bytes::from(bytes))
    }

    /// Takes what there is of an answer that the worker has not ended yet.
    fn take_more(&mut self, slot: u32, ticket: &Ticket, now_us: u64) -> Result<(), Corrupt> {
        let readable = self.side.readable(slot)?;
        if readable == 0 {
            return Ok(());
        }
        if let Some(room) = ticket.outflow(|outflow| outflow.room()) {
            let unread = readable.saturating_sub(room);
            let is_held = room == 0 || self.side.is_held_by(unread);
            self.hold(slot, ticket, is_held, now_us);
            if room > 0 {
                let mut bytes = Vec::new();
                self.side.read(slot, room, &mut bytes)?;
                ticket.push(Bytes::from(bytes))?;
            }
        } else {
            self.take_head(slot, ticket, false)?;
        }
        Ok(())
    }

    /// Takes the head alone, and leaves the body in the exchange for the connection to fetch. If it `is_whole`, all of
    /// the body is there.
    fn take_head(&mut self, slot: u32, ticket: &Ticket, is_whole: bool) -> Result<(), Corrupt> {
        let head = self.read_head(slot, ticket, false)?;
        let mut whole = None;
        if is_whole && !head.has_trailers {
            let bytes = self.side.readable(slot)? as u64;
            keep_with(head.facts.length, bytes)?;
            whole = Some(bytes);
        }
        let answer = self.streamed(head, ticket, whole)?;
        ticket.answer(Answer::App(answer));
        Ok(())
    }

    /// Begins an answer whose body comes in pieces, the first of them behind the head. The body is `whole` bytes long,
    /// if its length is known without the head.
    fn streamed(
        &mut self,
        head: Headed,
        ticket: &Ticket,
        whole: Option<u64>,
    ) -> Result<AppAnswer, Corrupt> {
        let Headed {
            bytes,
            head,
            facts,
            has_trailers,
            closes,
            ..
        } = head;
        let bytes = Bytes::from(bytes);
        let mut first = bytes.slice(head.end..);
        if has_trailers {
            first = ticket.begin_trailed(&first)?;
        }
        let mut promised = whole.map_or(facts.length, BodyLength::Bytes);
        if facts.status == SWITCHING {
            // Messages come behind this head, and no body.
            promised = BodyLength::Unknown;
            self.session_begins(ticket);
        }
        ticket.start_streaming(&self.answers, promised, first)?;
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
    fn read_head(&mut self, slot: u32, ticket: &Ticket, is_there: bool) -> Result<Headed, Corrupt> {
        let mut bytes = self.spare();
        let first = if is_there { usize::MAX } else { PREFIX_BYTES };
        self.side.read(slot, first, &mut bytes)?;
        let cut = Corrupt("the head of an answer is cut");
        let prefix = answer_prefix(&bytes).map_err(|_| cut)?;
        let head = PREFIX_BYTES..PREFIX_BYTES + prefix.head_len;
        if !is_there {
            self.side.read(slot, prefix.head_len, &mut bytes)?;
        }
        let wire = bytes.get(head.clone()).ok_or(cut)?;
        let is_head_request = ticket.request.head.method() == "HEAD";
        let switch = match ticket.request.websocket {
            Some(_) => stanchion_http::check_switch(wire).map_err(Corrupt)?,
            None => None,
        };
        let facts = match switch {
            Some(facts) => facts,
            None => stanchion_http::check(wire, is_head_request).map_err(Corrupt)?,
        };
        let has_trailers = prefix.has_trailers;
        if has_trailers && (!takes_trailers(&ticket.request) || facts.length == BodyLength::Nothing)
        {
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

    /// Takes the file that the slot's seat sent before its answer. `None` if none has arrived: the kernel drops a
    /// descriptor for which the acceptor has none left.
    fn fetch_file(&mut self, slot: u32) -> Option<OwnedFd> {
        self.take_files();
        let (turn, fd) = self.files.remove(&slot)?;
        (turn == self.side.submitted(slot).turn).then_some(fd)
    }

    /// Receives the files that have come. [`Dispatch::mend`] calls this too: else a worker that sends files which no
    /// answer names would leave no room in the channel for those of others.
    pub(super) fn take_files(&mut self) {
        // The look ends, even if workers send files without a pause.
        for _ in 0..FILES_MAX {
            let received = match &self.files_channel {
                Some(channel) => channel.receive(),
                None => return,
            };
            match received {
                Ok(Received::Message(message)) => self.keep_file(message),
                Ok(Received::Nothing | Received::Closed) => return,
                // A message that is too long must not hold up the messages of other workers behind it.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => self.files_cut += 1,
                Err(error) => {
                    error!("the acceptor cannot receive the descriptor of a file: {error}");
                    return;
                }
            }
        }
    }

    /// Logs how many messages were too long. Called now and then only: a worker that sends such messages could else
    /// fill the log.
    pub(super) fn log_cut_files(&mut self) {
        let cut = std::mem::take(&mut self.files_cut);
        if cut > 0 {
            error!(
                "the acceptor dropped {cut} messages of workers, which were too long to name a file"
            );
        }
    }

    /// Keeps a file for the answer that it names: one for each slot, and only from the worker that has the slot, so
    /// that no worker can answer for another one, or make the acceptor keep more files. Other files are closed.
    fn keep_file(&mut self, message: Message) {
        let name = <[u8; 8]>::try_from(message.bytes.as_slice()).ok();
        let named = message.fd.zip(name);
        if let Some((fd, [s0, s1, s2, s3, t0, t1, t2, t3])) = named {
            let slot = u32::from_le_bytes([s0, s1, s2, s3]);
            let turn = u32::from_le_bytes([t0, t1, t2, t3]);
            let taken = self.slots.get(slot as usize).is_some_and(Option::is_some);
            if taken
                && turn == self.side.submitted(slot).turn
                && self.has_in_hand(message.sender, slot)
            {
                self.files.insert(slot, (turn, fd));
            }
        }
    }

    /// Whether the process with this id has the slot.
    fn has_in_hand(&self, pid: i32, slot: u32) -> bool {
        let tenant = match self.side.state(slot) {
            Ok(SlotState::Running { tenant, .. } | SlotState::Done { tenant, .. }) => tenant,
            Ok(SlotState::Ready) | Err(_) => return false,
        };
        match self.sitting_at(tenant) {
            // The worker took its first request before the master's message about the worker arrived.
            None => self.exchange.pid_at(tenant.seat) == Some(pid.cast_unsigned()),
            Some(sitting) => sitting.pid == pid,
        }
    }
}

fn is_whole(state: SlotState) -> bool {
    matches!(
        state,
        SlotState::Done {
            ending: Some(Ending::Complete),
            ..
        }
    )
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
