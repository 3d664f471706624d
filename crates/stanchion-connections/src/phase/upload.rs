//! A request that has arrived, though its body may still be coming: it joined the line with the start, and the server takes
//! the rest in while the request waits there, runs and is answered.
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

use crate::judgement::{Judgement, WantedResources};
use crate::link::ClientLink;
use crate::outcome::Read;
use crate::pace::Pace;
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::slots::Room;
use stanchion_dispatch::storage::woken::Later;
use stanchion_dispatch::ticket::Ticket;
use stanchion_requests::body::Sink;
use stanchion_requests::{Account, Requests};
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
    pub(super) fn wait(&mut self, sink: &Sink, connection: u32, later: &mut Later, now_us: u64) {
        if *self == Self::Yes && sink.len() > 0 {
            let at_us = now_us + EARLY_US;
            *self = Self::AtUs(at_us);
            later.add(connection, at_us);
        }
    }

    /// How many bytes may be read at a time, if that is bounded: further ones would have to go to a file.
    pub(super) fn room(self, sink: &Sink) -> Option<usize> {
        let missing = EARLY_BYTES.saturating_sub(sink.len()) as usize;
        (self != Self::Never && missing > 0).then_some(missing)
    }
}

/// A request that has arrived.
pub(crate) struct Arrived {
    pub(crate) ticket: Rc<Ticket>,
    pub(super) account: Account,
    /// The rest of its body, if that is still coming.
    pub(crate) upload: Option<Box<Upload>>,
}

/// The rest of a body.
pub(crate) struct Upload {
    decoder: Decoder,
    /// How many bytes of the body have come.
    len: u64,
    /// How fast they come.
    pace: Pace,
}

impl Arrived {
    /// Takes in as much of a body that is still coming as its worker has room for. The error: the rest will not come, by the
    /// client's fault.
    pub(super) fn take_in(
        &mut self,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Result<(), Refusal> {
        let (ticket, now_us) = (&self.ticket, requests.now_us);
        while let Some(upload) = &mut self.upload {
            // Everything that comes from here on is news.
            ticket.seen();
            let room = match requests.dispatch.slots.room_for(ticket) {
                Room::Bytes(room) => room,
                Room::Nothing => {
                    upload.hold(ticket, now_us);
                    return Ok(());
                }
                Room::Over => {
                    self.give_up_rest(link);
                    return Ok(());
                }
            };
            upload.go_on(ticket, now_us);
            if !link.transport.is_readable() {
                return Ok(());
            }
            if link.transport.has_had_its_turn() {
                link.wake_later(&requests.wakes, now_us);
                return Ok(());
            }
            let mut buffer = Vec::with_capacity(room);
            let mut bytes = match link.transport.read(&mut buffer) {
                Read::Bytes(_) => &buffer[..],
                Read::Nothing => continue,
                Read::End if upload.decoder.end() => &[],
                Read::End | Read::Failed => return Err(Refusal::BodyCutShort),
            };
            let body_max = requests.common.settings.limits.limit_request_body;
            let dispatch = &mut requests.dispatch;
            if upload.take(&mut bytes, body_max, ticket, dispatch, now_us)? {
                self.upload = None;
                link.ahead = Bytes::copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Notes that a request has its answer. If the body is still coming, the answer is the connection's last.
    pub(super) fn is_answered(&self, link: &mut ClientLink) {
        if self.upload.is_some() {
            link.closes_unread();
        }
    }

    /// Gives up the rest of the body, which neither worker nor server needs.
    pub(super) fn give_up_rest(&mut self, link: &mut ClientLink) {
        link.closes_unread();
        self.upload = None;
    }

    /// Judges the client by the body that is still coming; without one all is well until then.
    pub(super) fn judge_upload(
        &self,
        until_us: u64,
        wanted: WantedResources,
        dispatch: &Dispatch,
        now_us: u64,
    ) -> Judgement {
        let Some(upload) = &self.upload else {
            return Judgement::Well { until_us };
        };
        let has_seat = || dispatch.slots.has_seat(&self.ticket);
        let others_wait = wanted.place || (wanted.seat && has_seat());
        Judgement::of_body(&upload.pace, others_wait, now_us)
    }

    /// When the body comes too slowly if nothing more comes of it.
    pub(super) fn sends_by_us(&self) -> u64 {
        let upload = self.upload.as_ref();
        upload.map_or(u64::MAX, |upload| upload.pace.waits_until_us())
    }
}

impl Upload {
    /// The rest of a body of which `len` bytes have come.
    pub(super) fn new(decoder: Decoder, len: u64, pace: Pace) -> Self {
        Self { decoder, len, pace }
    }

    /// Takes bytes that have come, no more than the worker has room for. Gives whether the body is over; then `bytes` are
    /// those behind it.
    fn take(
        &mut self,
        bytes: &mut &[u8],
        body_max: u64,
        ticket: &Ticket,
        dispatch: &mut Dispatch,
        now_us: u64,
    ) -> Result<bool, Refusal> {
        let mut body = Cow::Borrowed(&[][..]);
        let is_over = loop {
            match self.decoder.decode(bytes) {
                Ok(Decoded::Data(data)) if body.is_empty() => body = Cow::Borrowed(data),
                Ok(Decoded::Data(data)) => body.to_mut().extend_from_slice(data),
                Ok(Decoded::More) => break false,
                Ok(Decoded::End) => break true,
                Err(fault) => return Err(Refusal::of_body(fault)),
            }
        };
        self.len += body.len() as u64;
        self.pace.came(body.len(), now_us);
        check_len(self.len, &self.decoder, body_max)?;
        if is_over || !body.is_empty() {
            dispatch.slots.hand_over(ticket, &body, is_over);
        }
        if is_over {
            self.hold(ticket, now_us);
        }
        Ok(is_over)
    }

    /// Stops waiting for the client: the server waits for the worker, or for nothing.
    fn hold(&mut self, ticket: &Ticket, now_us: u64) {
        if !self.pace.is_held() || ticket.client_until_us() == u64::MAX {
            ticket.set_client_until_us(now_us);
        }
        self.pace.hold(now_us);
    }

    /// Waits for the client.
    fn go_on(&mut self, ticket: &Ticket, now_us: u64) {
        self.pace.go_on(now_us);
        ticket.set_client_until_us(u64::MAX);
    }
}

/// Checks that a body of which `len` bytes have come is no longer than a body may be. A chunk counts as its head announces
/// it: the connection would wait for the rest of it in vain.
pub(super) fn check_len(len: u64, decoder: &Decoder, body_max: u64) -> Result<(), Refusal> {
    if body_max > 0 && len.saturating_add(decoder.announced()) > body_max {
        return Err(Refusal::BodyTooLarge);
    }
    Ok(())
}
