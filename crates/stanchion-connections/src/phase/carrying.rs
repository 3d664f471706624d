//! A connection that carries HTTP/2 (RFC 9113): h2 takes its frames apart and puts them together, and each stream becomes a
//! connection of its own for one request.
//!
//! h2 works between two buffers, which the loop fills from the socket and empties into it. When h2 has something for a
//! connection, its `Waker` puts the number into the woken list; the carrier sends the frames of a stream in the turn in
//! which the stream wrote them. When a carrier ends, h2 breaks its streams off, and each finds that its client has
//! left, as a connection does whose socket is closed.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Connection as Frames, Handshake, SendResponse};
use http::Request;
use tracing::debug;

use super::leaving::end_streams;
use super::{ConnectionState, Phase, Step};
use crate::audience::newcomer;
use crate::judgement::Judgement;
use crate::ledger::{AccountedBytes, Ledger};
use crate::link::ClientLink;
use crate::outcome::{Broken, Read, Written};
use crate::overhead::Overhead;
use crate::pace::after;
use crate::poller::Poller;
use crate::transport::Transport;
use crate::turns::Turns;
use crate::wire::{Wire, Wired};
use stanchion_requests::lifecycle::{Lifecycle, Serving};
use stanchion_requests::{Buffers, Requests};
use stanchion_settings::Settings;

/// How many bytes of the input h2 gets at a time: even a few may take it long.
const PIECE_BYTES_MAX: usize = 4 << 10;
/// How many bytes of an answer wait in its stream for those of other streams, or for the socket.
const STREAM_BYTES_MAX: usize = 64 << 10;
/// How many bytes of all bodies together a client may send before the server has read them: the sum of what it may send of
/// each, so that no body waits for room that others have; but with many streams, or wide windows, no more than this.
const BODIES_BYTES_MAX: u32 = 16 << 20;
/// Any client may send that much (RFC 9113 section 6.9.2).
const BODIES_BYTES_MIN: u32 = (64 << 10) - 1;
/// How many streams a client may reset before they are answered, beyond one for each stream that it lets be answered
/// (CVE-2023-44487).
const RESETS_MAX: u32 = 100;
/// h2 accepts a header list of so many times the size that is allowed. It refuses a larger list by itself, and the server
/// does not get to know of it.
const LIST_TIMES: u32 = 4;

/// How long the server waits for the answer to the PING behind its GOAWAY, which shows that the client has read that.
const ECHO: Duration = Duration::from_secs(2);

/// A connection's HTTP/2 state.
pub(crate) struct Carrier {
    wire: Rc<RefCell<Wire>>,
    frames: Speech,
    waker: Waker,
    ledger: Rc<Ledger>,
    /// Requests that have come, and whose streams are not made connections yet.
    brought: Vec<Brought>,
    /// Since when the connection has had no stream, if it has none.
    idle_since_us: Option<u64>,
    ending: GoawayState,
    /// The client has broken a rule, or floods.
    is_faulty: bool,
    /// How many streams a client may open after the GOAWAY: as many as it may have at once, since it reads the GOAWAY before
    /// any answer that makes room for another stream.
    late_max: u32,
}

/// How far such a connection is in its end.
enum GoawayState {
    Open,
    /// The server has sent GOAWAY at this time; since then the client has opened so many more streams.
    Told {
        since_us: u64,
        late: u32,
    },
    /// The server has sent GOAWAY with the reason, and reads no more.
    Cut,
}

/// A request that has come on a stream.
pub(crate) struct Brought {
    pub(crate) request: Request<h2::RecvStream>,
    pub(crate) respond: SendResponse<AccountedBytes>,
}

enum Speech {
    /// Before the client's preface is read.
    Begins(Box<Handshake<Wired, AccountedBytes>>),
    Goes(Box<Frames<Wired, AccountedBytes>>),
    /// h2 has nothing more to read or write.
    Over,
}

impl Carrier {
    /// Begins HTTP/2 on this connection, with the bytes `came`, which the client has sent already.
    pub(super) fn begin(came: Bytes, link: &mut ClientLink, requests: &Requests) -> Step {
        let waker = requests.wakes.clients.waker(link.number);
        let carrier = Self::new(came, waker, requests);
        link.transport.wake_at(1);
        Step::On(Phase::Carrying(Box::new(carrier)))
    }

    fn new(came: Bytes, waker: Waker, requests: &Requests) -> Self {
        let settings = &requests.common.settings;
        let wire = Rc::new(RefCell::new(Wire {
            inward: came,
            piece_left: 0,
            overhead: Overhead::new(
                settings.http.http2_max_header_list_size.into(),
                requests.now_us,
            ),
            outward: Vec::new(),
            ended: false,
        }));
        let mut builder = h2::server::Builder::new();
        if settings.is_asgi() {
            // For WebSockets (RFC 8441 section 3).
            builder.enable_connect_protocol();
        }
        let handshake = builder
            .initial_window_size(settings.http.http2_initial_window_size)
            .initial_connection_window_size(bodies_bytes(settings))
            .max_frame_size(settings.http.http2_max_frame_size)
            .max_header_list_size(settings.http.http2_max_header_list_size * LIST_TIMES)
            .max_concurrent_streams(settings.http.http2_max_concurrent_streams)
            // Streams that come together with their reset: they count like other resets.
            .max_pending_accept_reset_streams(RESETS_MAX as usize)
            .max_send_buffer_size(STREAM_BYTES_MAX)
            .handshake::<_, AccountedBytes>(Wired(Rc::clone(&wire)));
        Self {
            wire,
            frames: Speech::Begins(Box::new(handshake)),
            waker,
            ledger: Ledger::new(&requests.storage.answers.memory),
            brought: Vec::new(),
            idle_since_us: Some(requests.now_us),
            ending: GoawayState::Open,
            is_faulty: false,
            late_max: settings.http.http2_max_concurrent_streams,
        }
    }

    /// Whether any stream is open.
    fn has_streams(&self) -> bool {
        self.has_requests() || self.has_rest()
    }

    fn has_requests(&self) -> bool {
        self.ledger.has_open() || !self.brought.is_empty()
    }

    /// Whether only h2 has streams: the rest of answers for which the client has no room.
    fn has_rest(&self) -> bool {
        !self.has_requests() && matches!(&self.frames, Speech::Goes(frames) if frames.has_streams())
    }

    /// Whether the client has not sent its preface yet, since it has agreed on HTTP/2 in its TLS handshake.
    fn begins(&self) -> bool {
        matches!(self.frames, Speech::Begins(_))
    }

    /// Since when the connection can be spared, if it can.
    pub(super) fn spare_since_us(&self) -> Option<u64> {
        match self.ending {
            GoawayState::Told { since_us, .. } => self.idle_since_us.map(|idle| idle.max(since_us)),
            GoawayState::Open | GoawayState::Cut => self.idle_since_us,
        }
    }

    /// Until when the server waits for the client to read the GOAWAY, if it waits for nothing else.
    fn goaway_read_by_us(&self) -> Option<u64> {
        let since_us = self.spare_since_us().filter(|_| self.has_sent_goaway())?;
        Some(after(since_us, ECHO))
    }

    pub(super) fn take_brought(&mut self) -> Vec<Brought> {
        std::mem::take(&mut self.brought)
    }

    pub(super) fn ledger(&self) -> Rc<Ledger> {
        Rc::clone(&self.ledger)
    }

    /// Notes that there is nothing to do until something comes.
    fn rest(&mut self, now_us: u64) {
        if self.has_streams() {
            self.idle_since_us = None;
        } else {
            self.idle_since_us.get_or_insert(now_us);
        }
    }

    /// Whether the server has sent GOAWAY.
    fn has_sent_goaway(&self) -> bool {
        !matches!(self.ending, GoawayState::Open)
    }

    /// Sends GOAWAY, if it is not sent yet. The server still answers streams that the client opens before it reads the
    /// GOAWAY: a PING shows when it has, and only then a second GOAWAY names the last stream (RFC 9113 section 6.8). True if
    /// there is something to be written.
    fn end(&mut self, now_us: u64) -> bool {
        let Speech::Goes(frames) = &mut self.frames else {
            return false;
        };
        match self.ending {
            GoawayState::Open => {
                frames.graceful_shutdown();
                let since_us = now_us;
                self.ending = GoawayState::Told { since_us, late: 0 };
                true
            }
            GoawayState::Told { .. } => {
                let is_due = self
                    .goaway_read_by_us()
                    .is_some_and(|by_us| by_us <= now_us);
                is_due && !self.has_streams() && self.cut(Reason::NO_ERROR)
            }
            GoawayState::Cut => false,
        }
    }

    /// Ends the connection at once, with its streams. False if that was done before.
    fn cut(&mut self, reason: Reason) -> bool {
        let Speech::Goes(frames) = &mut self.frames else {
            return false;
        };
        if matches!(self.ending, GoawayState::Cut) {
            return false;
        }
        debug!("a connection of HTTP/2 is ended: {reason}");
        frames.abrupt_shutdown(reason);
        self.ending = GoawayState::Cut;
        self.is_faulty = reason != Reason::NO_ERROR;
        true
    }

    /// Whether the client is to open no more streams, because it has had this many `requests`.
    fn is_served(&self, requests: u32, settings: &Settings) -> bool {
        let requests_max = settings.limits.keepalive_requests;
        let is_kept = settings.http.keepalive.as_duration().is_some();
        (requests_max > 0 && requests >= requests_max)
            || (!is_kept && requests > 0 && !self.has_streams())
    }

    /// Has h2 read frames, as far as they have come, and write frames, as far as there is room.
    fn turn(&mut self, now_us: u64) {
        let is_flood = {
            let mut wire = self.wire.borrow_mut();
            wire.piece_left = PIECE_BYTES_MAX;
            let (framed_bytes, waits) = (self.ledger.framed_bytes(), self.ledger.has_open());
            wire.overhead.is_flood(framed_bytes, waits, now_us)
        };
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        if let Speech::Begins(handshake) = &mut self.frames {
            match Pin::new(handshake).poll(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Ok(frames)) => self.frames = Speech::Goes(Box::new(frames)),
                Poll::Ready(Err(error)) => return self.fails(&error),
            }
        }
        if is_flood || self.ledger.resets() > RESETS_MAX {
            self.cut(Reason::ENHANCE_YOUR_CALM);
        }
        while let Speech::Goes(frames) = &mut self.frames {
            match frames.poll_accept(&mut context) {
                Poll::Pending => return,
                Poll::Ready(None) => self.frames = Speech::Over,
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.wire.borrow_mut().overhead.asked(&request);
                    self.brought.push(Brought { request, respond });
                    self.count_late_stream();
                }
                Poll::Ready(Some(Err(error))) => self.fails(&error),
            }
        }
    }

    /// Counts what a turn has read, with the requests that it has brought.
    fn count(&self, turns: &mut Turns, now_us: u64) {
        let overhead = &mut self.wire.borrow_mut().overhead;
        overhead.count(turns, self.ledger.framed_bytes(), now_us);
    }

    /// Counts a stream that the client has opened after the GOAWAY. A client that goes on opening streams is cut off.
    fn count_late_stream(&mut self) {
        if let GoawayState::Told { late, .. } = &mut self.ending {
            *late += 1;
            if *late > self.late_max {
                self.cut(Reason::ENHANCE_YOUR_CALM);
            }
        }
    }

    fn fails(&mut self, error: &h2::Error) {
        debug!("a connection of HTTP/2 ends: {error}");
        // h2 has sent the client the reason.
        self.is_faulty |= error.is_go_away() && error.is_library();
        self.frames = Speech::Over;
    }

    fn is_over(&self) -> bool {
        matches!(self.frames, Speech::Over)
    }

    /// Sends GOAWAY if the connection must end, has had all its requests, or the server is about to leave. True if there is
    /// something to be written.
    fn end_if_last(
        &mut self,
        link: &ClientLink,
        settings: &Settings,
        serving: Serving,
        now_us: u64,
    ) -> bool {
        let must_end = link.closing || link.transport.is_worn();
        let asked = link.requests.saturating_add(self.brought.len() as u32);
        let is_last = must_end
            || self.is_served(asked, settings)
            || (asked > 0 && serving.ends_connections());
        (is_last || self.has_sent_goaway()) && self.end(now_us)
    }

    /// Writes the bytes that wait for the socket; `None` if there are none.
    fn write(&self, transport: &mut Transport) -> Option<Written> {
        let mut wire = self.wire.borrow_mut();
        if wire.outward.is_empty() {
            return None;
        }
        let written = transport.write(&wire.outward);
        if let Written::Bytes(len) = written {
            wire.outward.drain(..len.get());
        }
        Some(written)
    }

    /// Goes on with HTTP/2.
    pub(super) fn go_on(
        mut self: Box<Self>,
        link: &mut ClientLink,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Step {
        let (settings, now_us) = (&requests.common.settings, requests.now_us);
        // The input that the last turn has left counts for this turn.
        let left = self.wire.borrow().inward.len();
        link.transport.add_to_turn(left);
        let waits = loop {
            self.turn(now_us);
            self.count(&mut link.turns, now_us);
            let has_room = match self.write(&mut link.transport) {
                Some(Written::Bytes(len)) => {
                    link.intake.wrote(len.get(), now_us);
                    if link.transport.has_had_its_turn() {
                        // A flood of frames ends each turn here, so the server looks here, too, whether the connection is to
                        // end.
                        self.end_if_last(link, settings, requests.serving, now_us);
                        break false;
                    }
                    // With EPOLLET the kernel reports room only after it has reported that there is none (epoll(7)).
                    continue;
                }
                Some(Written::Full) => false,
                Some(Written::Failed) => return Step::Close,
                None => true,
            };
            link.transport.watch_room(!has_room, poller);
            if has_room && self.is_over() {
                return end_streams(link, self.is_faulty, now_us);
            }
            self.note_pace(has_room, link, settings, now_us);
            // The connection reads on only when there is room for the output that the input causes.
            let (is_unread, has_next_piece) = self.input();
            if has_next_piece && !link.transport.has_had_its_turn() {
                continue;
            }
            let has_more = has_next_piece || link.transport.is_readable();
            let waits = is_unread || self.is_over() || !has_more;
            if waits || link.transport.has_had_its_turn() {
                // The end is decided only here: a request may have woken the connection, and it is read before.
                if self.end_if_last(link, settings, requests.serving, now_us) {
                    continue;
                }
                break waits;
            }
            if self.read(&mut link.transport, &mut requests.buffers) == Err(Broken) {
                return Step::Close;
            }
        };
        self.rest(now_us);
        if !waits {
            link.wake_later(&requests.wakes, now_us);
        } else if link.transport.is_hung_up() {
            return Step::Close;
        }
        Step::Wait(Phase::Carrying(self))
    }

    /// Notes whether the client takes what is written. Without room, or with the rest of answers in h2, the server waits for it.
    fn note_pace(&self, has_room: bool, link: &mut ClientLink, settings: &Settings, now_us: u64) {
        if !has_room || self.has_rest() {
            link.stalls(settings, now_us);
        } else if link.intake.is_stalled() {
            // The client has given up the rest of its answers.
            link.intake.wrote(0, now_us);
        }
    }

    /// Reads the next input for h2.
    fn read(&self, transport: &mut Transport, buffers: &mut Buffers) -> Result<(), Broken> {
        let mut wire = self.wire.borrow_mut();
        buffers.with_scratch(|scratch| match transport.read(scratch) {
            Read::Bytes(_) => {
                wire.inward = Bytes::copy_from_slice(scratch);
                Ok(())
            }
            Read::Nothing => Ok(()),
            Read::End => {
                wire.ended = true;
                Ok(())
            }
            Read::Failed => Err(Broken),
        })
    }

    /// Whether h2 has left input although it may take it, and whether it may take the next piece of the input.
    fn input(&self) -> (bool, bool) {
        let wire = self.wire.borrow();
        let has_next_piece = wire.has_next_piece() && !self.is_over();
        (wire.is_unread(), has_next_piece)
    }

    pub(super) fn doing(&self) -> ConnectionState {
        if self.has_streams() {
            ConnectionState::Busy
        } else if self.has_sent_goaway() {
            ConnectionState::Leaving
        } else {
            ConnectionState::Idle
        }
    }

    /// Judges the client, whose streams have deadlines of their own: without any stream the connection is idle. It has had
    /// so many `requests`.
    pub(super) fn judge(
        &self,
        requests: u32,
        settings: &Settings,
        lifecycle: Lifecycle,
        now_us: u64,
    ) -> Judgement {
        let Some(since_us) = self.idle_since_us else {
            return if self.has_streams() {
                Judgement::WELL
            } else {
                Judgement::Doubt
            };
        };
        if let Some(until_us) = self.goaway_read_by_us() {
            return Judgement::WELL.doubted_at(until_us, now_us);
        }
        if self.begins() {
            let limit = newcomer(settings, lifecycle);
            return Judgement::within(since_us, limit, Judgement::Drop, now_us);
        }
        if lifecycle.is_closing() {
            return Judgement::Close;
        }
        let limit = if requests == 0 {
            settings.limits.header_timeout
        } else {
            settings.http.keepalive
        };
        Judgement::within(since_us, limit.as_duration(), Judgement::Close, now_us)
    }
}

fn bodies_bytes(settings: &Settings) -> u32 {
    let each = settings.http.http2_initial_window_size;
    let all = each.saturating_mul(settings.http.http2_max_concurrent_streams);
    all.clamp(BODIES_BYTES_MIN, BODIES_BYTES_MAX).max(each)
}
