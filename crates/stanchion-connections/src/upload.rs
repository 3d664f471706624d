//! A request that does not wait for the end of its body: it joins the line with the start, and the server takes the rest in
//! while the request waits there, runs and is answered.
//!
//! Reading and answering are separate: a connection that waits or sends may have an upload. The acceptor reads no more
//! from the socket than the slot's inflow has room for, and nothing before the request is in a slot; so no bytes wait
//! anywhere else. Without room it asks for a notice, which the worker gives when half of the ring is free. If a body is
//! not as announced the request is given up, as when its client leaves. An answer that comes before the end of the body
//! is the last one of its connection, since it is unknown how much of the rest will be read. uvicorn answers
//! `100-continue` at the first `receive`; here a request has joined the line only with some of its body, so its client
//! has got `100 Continue` before.

use std::borrow::Cow;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_http::{Decoded, Decoder};

use super::connection::{Connection, Phase, Step, Waiting};
use super::pace::Pace;
use super::reading::ReadingBody;
use super::transport::Read;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::slots::Room;
use stanchion_dispatch::ticket::{Answer, Ticket};
use stanchion_requests::Requests;
use stanchion_requests::body::Sink;
use stanchion_settings::Settings;

/// A request joins the line with so many bytes of its body,
const EARLY_BYTES: u64 = 64 << 10;
/// or with those that there are, when the server has waited for the client for this long.
const EARLY_US: u64 = 50_000;

/// Whether a request joins the line before its body is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    Never,
    /// Once enough of the body is there.
    Yes,
    /// At this time, with as much as is there then.
    AtUs(u64),
}

impl Early {
    pub(super) fn of(settings: &Settings) -> Self {
        if settings.streams_uploads() {
            Self::Yes
        } else {
            Self::Never
        }
    }

    /// Whether the request joins now. A body in a file, for which there was no room in memory, is read to its end.
    pub(super) fn is_now(self, sink: &Sink, now_us: u64) -> bool {
        let is_enough = match self {
            Self::Never => false,
            Self::Yes => sink.len() >= EARLY_BYTES,
            Self::AtUs(at_us) => sink.len() >= EARLY_BYTES || now_us >= at_us,
        };
        is_enough && sink.is_in_memory()
    }

    /// Begins to wait for the client: its connection is woken after [`EARLY_US`].
    pub(super) fn wait(&mut self, sink: &Sink, connection: u32, requests: &mut Requests) {
        if *self == Self::Yes && sink.len() > 0 {
            let at_us = requests.now_us + EARLY_US;
            *self = Self::AtUs(at_us);
            requests.wakes.later.add(connection, at_us);
        }
    }

    /// How many bytes may be read at a time, if that is bounded: further ones would have to go to a file.
    pub(super) fn room(self, sink: &Sink) -> Option<usize> {
        let missing = EARLY_BYTES.saturating_sub(sink.len()) as usize;
        (self != Self::Never && missing > 0).then_some(missing)
    }
}

/// The rest of a body.
pub(super) struct Upload {
    pub(super) ticket: Rc<Ticket>,
    decoder: Decoder,
    /// How many bytes of the body have come.
    len: u64,
    /// How fast they come.
    pub(super) pace: Pace,
}

impl Connection {
    /// Has a request join the line with as much of its body as is there.
    pub(super) fn join_early(&mut self, requests: &mut Requests) -> Step {
        let over = Phase::Over;
        let Phase::Body(body) = std::mem::replace(&mut self.phase, over) else {
            return Step::On;
        };
        let ReadingBody {
            head,
            decoder,
            sink,
            pace,
            account,
            started_us,
            ..
        } = *body;
        let (len, start) = (sink.len(), sink.into_start());
        let (ticket, looking) = requests.join(head, start, &self.peer, started_us, self.number);
        self.upload = Some(Box::new(Upload {
            ticket: Rc::clone(&ticket),
            decoder,
            len,
            pace,
        }));
        self.phase = Phase::Waiting(Waiting {
            ticket,
            account,
            looking,
        });
        Step::On
    }

    /// Takes in as much of a body that is still coming as its worker has room for. The error: the rest will not come, by the
    /// client's fault.
    pub(super) fn take_in(&mut self, requests: &mut Requests) -> Result<(), Refusal> {
        loop {
            let Some(upload) = &mut self.upload else {
                return Ok(());
            };
            // Everything that comes from here on is news.
            upload.ticket.seen();
            let room = match requests.dispatch.slots.room_for(&upload.ticket) {
                Room::Bytes(room) => room,
                Room::Nothing => {
                    upload.hold(requests.now_us);
                    return Ok(());
                }
                Room::Over => {
                    self.give_up_rest();
                    return Ok(());
                }
            };
            upload.go_on(requests.now_us);
            if !self.transport.is_readable() {
                return Ok(());
            }
            if self.transport.has_had_its_turn() {
                self.wake_later(requests);
                return Ok(());
            }
            let mut buffer = Vec::with_capacity(room);
            match self.transport.read(&mut buffer) {
                Read::Bytes(_) => self.more_came(&buffer, requests)?,
                Read::Nothing => {}
                Read::End if upload.decoder.end() => self.more_came(&[], requests)?,
                Read::End | Read::Failed => return Err(Refusal::BodyCutShort),
            }
        }
    }

    /// Takes bytes that have come, no more than the worker has room for.
    fn more_came(&mut self, mut bytes: &[u8], requests: &mut Requests) -> Result<(), Refusal> {
        let Some(upload) = &mut self.upload else {
            return Ok(());
        };
        let mut body = Cow::Borrowed(&[][..]);
        let is_over = loop {
            match upload.decoder.decode(&mut bytes) {
                Ok(Decoded::Data(data)) if body.is_empty() => body = Cow::Borrowed(data),
                Ok(Decoded::Data(data)) => body.to_mut().extend_from_slice(data),
                Ok(Decoded::More) => break false,
                Ok(Decoded::End) => break true,
                Err(fault) => return Err(Refusal::of_body(fault)),
            }
        };
        upload.len += body.len() as u64;
        upload.pace.came(body.len(), requests.now_us);
        let body_max = requests.common.settings.limit_request_body;
        // A chunk counts as its head announces it.
        let announced = upload.decoder.announced();
        if body_max > 0 && upload.len.saturating_add(announced) > body_max {
            return Err(Refusal::BodyTooLarge);
        }
        if is_over || !body.is_empty() {
            let slots = &mut requests.dispatch.slots;
            slots.hand_over(&upload.ticket, &body, is_over);
        }
        if is_over {
            upload.hold(requests.now_us);
            self.upload = None;
            self.ahead = Bytes::copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Refuses a request whose body came too slowly, or is not as announced. The rest is not read.
    pub(super) fn call_off(&mut self, refusal: Refusal, requests: &mut Requests) -> Step {
        match &self.phase {
            Phase::Waiting(Waiting { ticket, .. }) => {
                let ticket = Rc::clone(ticket);
                requests.dispatch.abandon(&ticket, requests.now_us);
                ticket.answer(Answer::Refused(refusal));
                self.give_up_rest();
                Step::On
            }
            Phase::Sending(sending) => {
                // The answer has begun, and cannot become another one.
                if let Some(asked) = &sending.request {
                    requests.log_refusal(&asked.ticket, refusal);
                }
                self.abandon(requests);
                Step::Close
            }
            _ => self.refuse_body(refusal, requests),
        }
    }

    /// Notes that a request has its answer. If the body is still coming, the answer is the connection's last.
    pub(super) fn answers_early(&mut self) {
        if self.upload.is_some() {
            self.closes_unread();
        }
    }

    /// Gives up the rest of the body, which neither worker nor server needs.
    fn give_up_rest(&mut self) {
        self.closes_unread();
        self.upload = None;
    }

    /// The client's further bytes need not be a request.
    fn closes_unread(&mut self) {
        self.closing = true;
        self.unread = true;
    }
}

impl Upload {
    /// Stops waiting for the client: the server waits for the worker, or for nothing.
    fn hold(&mut self, now_us: u64) {
        if !self.pace.is_held() || self.ticket.client_until_us() == u64::MAX {
            self.ticket.set_client_until_us(now_us);
        }
        self.pace.hold(now_us);
    }

    /// Waits for the client.
    fn go_on(&mut self, now_us: u64) {
        self.pace.go_on(now_us);
        self.ticket.set_client_until_us(u64::MAX);
    }
}
