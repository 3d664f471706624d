//! A worker whose app does what a script says. The acceptor is at the other end of a real exchange.

use stanchion_exchange::{AnswerEnd, SeatSide, Taken, Tenant};
use stanchion_websocket::{MessageForm, MessageKind};

use super::script::{AppAct, Promise};
use stanchion_generation::common::Common;
use stanchion_generation::messages::WorkerRef;
use stanchion_record::{AnswerHead, Close, Content, close_record, message_head, piece_prefix};
use stanchion_requests::Requests;

const PID: i32 = 1;
/// The bodies of this app consist of this byte, and no answer's head begins with it.
const FILLING: u8 = b'.';
/// How many bytes the app writes at most.
const WRITTEN_BYTES_MAX: usize = 8 << 20;

/// The worker.
pub(super) struct ScriptedApp {
    common: &'static Common,
    worker: WorkerRef,
    seats: Vec<SeatSide<'static>>,
    calls: Vec<AppCall>,
    written: usize,
}

/// A call of the app.
struct AppCall {
    taken: Taken<'static>,
    /// `None` for a session.
    seat: Option<usize>,
    has_begun: bool,
    is_trailed: bool,
    /// Bytes for which the ring had no room.
    unwritten: Vec<u8>,
    ending: Option<AnswerEnd>,
}

impl ScriptedApp {
    /// A worker that has just sat down at all seats.
    pub(super) fn new(requests: &mut Requests) -> Self {
        let mut app = Self {
            common: requests.common,
            worker: WorkerRef { index: 0, epoch: 0 },
            seats: Vec::new(),
            calls: Vec::new(),
            written: 0,
        };
        app.sit_down(requests);
        app
    }

    fn sit_down(&mut self, requests: &mut Requests) {
        self.worker.epoch += 1;
        let exchange = &self.common.exchange;
        let seats = exchange.geometry().seats_of(0).map(|seat| {
            let epoch = self.worker.epoch;
            SeatSide::new(exchange, Tenant { seat, epoch }, PID.cast_unsigned(), None)
        });
        self.seats = seats.collect();
        let now_us = requests.now_us;
        requests
            .dispatch
            .worker_ready(self.worker, (0, 1, PID), now_us);
    }

    /// The worker is gone, and the master reports it to the acceptor.
    pub(super) fn die(&mut self, requests: &mut Requests) {
        for call in self.calls.drain(..) {
            // A process that is killed does not report the requests that it has.
            std::mem::forget(call.taken);
        }
        self.seats.clear();
        let now_us = requests.now_us;
        requests.dispatch.worker_gone(self.worker, now_us);
    }

    pub(super) fn act(&mut self, which: usize, act: AppAct<'_>, requests: &mut Requests) {
        if matches!(act, AppAct::Dies) {
            self.die(requests);
            return self.sit_down(requests);
        }
        if matches!(act, AppAct::Takes) || self.calls.is_empty() {
            self.take();
        }
        if self.calls.is_empty() {
            return;
        }
        let which = which % self.calls.len();
        match act {
            AppAct::Takes | AppAct::Dies => {}
            AppAct::Answers(status, len, promise) => {
                self.begin(which, status, len, promise, false);
                self.calls[which].ending = Some(AnswerEnd::Complete);
            }
            AppAct::Begins(status, len, promise) => self.begin(which, status, len, promise, false),
            AppAct::BeginsTrailed(len) => self.begin(which, 200, len, Promise::Nothing, true),
            AppAct::Goes(len) => self.fill(which, len),
            AppAct::Ends => self.end(which),
            AppAct::Breaks => self.calls[which].ending = Some(AnswerEnd::Broken),
            AppAct::Hints => self.hint(which),
            AppAct::Accepts => self.accept(which),
            AppAct::Sends(kind, len) => self.send(which, kind, len),
            AppAct::Closes(code) => {
                let record = close_record(&Close::new(code, "why"));
                self.write(which, &record);
                self.calls[which].ending = Some(AnswerEnd::Complete);
            }
            AppAct::Receives => {
                let mut bytes = vec![0; 64 << 10];
                self.calls[which].taken.receive(&mut bytes);
            }
            AppAct::Writes(bytes) => self.write(which, bytes),
        }
    }

    /// Has an idle seat take a request, if there is one.
    fn take(&mut self) -> bool {
        let is_idle = |seat: &usize| self.calls.iter().all(|call| call.seat != Some(*seat));
        let Some(seat) = (0..self.seats.len()).find(is_idle) else {
            return false;
        };
        let Some(taken) = self.seats[seat].take() else {
            return false;
        };
        self.calls.push(AppCall {
            taken,
            seat: Some(seat),
            has_begun: false,
            is_trailed: false,
            unwritten: Vec::new(),
            ending: None,
        });
        true
    }

    fn write(&mut self, which: usize, bytes: &[u8]) {
        self.written += bytes.len();
        let call = &mut self.calls[which];
        if self.written <= WRITTEN_BYTES_MAX && call.ending.is_none() {
            call.unwritten.extend_from_slice(bytes);
        }
    }

    fn fill(&mut self, which: usize, len: usize) {
        if self.calls[which].is_trailed {
            self.write(which, &piece_prefix(len as u64));
        }
        self.write(which, &vec![FILLING; len]);
    }

    fn begin(&mut self, which: usize, status: u16, len: usize, promise: Promise, trailed: bool) {
        if self.calls[which].has_begun {
            return;
        }
        self.calls[which].has_begun = true;
        self.calls[which].is_trailed = trailed;
        let mut head = AnswerHead::default();
        head.begin(status, b"Why");
        let told = match promise {
            Promise::Nothing => None,
            Promise::Length => Some(len),
            Promise::Lie => Some(len + 1),
        };
        // A worker lets no other status have a body.
        let has_body = !matches!(status, 101 | 204 | 205 | 304);
        if let Some(told) = told.filter(|_| has_body) {
            head.field(b"Content-Length", told.to_string().as_bytes());
        }
        if trailed {
            self.write(which, head.whole_before_pieces());
        } else {
            self.write(which, head.whole(None));
        }
        if has_body {
            self.fill(which, len);
        }
    }

    fn end(&mut self, which: usize) {
        if self.calls[which].is_trailed {
            let mut trailers = AnswerHead::trailers();
            trailers.field(b"X-Sum", b"1");
            self.write(which, trailers.whole_trailers());
        }
        self.calls[which].ending = Some(AnswerEnd::Complete);
    }

    fn hint(&mut self, which: usize) {
        if self.calls[which].has_begun {
            return;
        }
        let mut head = AnswerHead::default();
        head.begin(103, b"Early Hints");
        head.field(b"Link", b"</a>");
        self.write(which, head.whole_hints());
    }

    fn accept(&mut self, which: usize) {
        let call = &mut self.calls[which];
        if call.has_begun {
            return;
        }
        call.has_begun = true;
        if let Some(seat) = call.seat.take() {
            self.seats[seat].rest();
        }
        let mut head = AnswerHead::default();
        head.begin(101, b"Switching Protocols");
        self.write(which, head.whole(None));
    }

    fn send(&mut self, which: usize, kind: u8, len: usize) {
        let form = MessageForm {
            kind: if kind & 1 == 0 {
                MessageKind::Text
            } else {
                MessageKind::Binary
            },
            is_deflated: kind & 2 != 0,
        };
        self.write(which, &message_head(Content::Message(form), len as u32));
        self.write(which, &vec![FILLING; len]);
    }

    /// Publishes the written bytes to the acceptor, as far as the rings have room. True if any moved.
    pub(super) fn go_on(&mut self) -> bool {
        let mut has_moved = false;
        let seats = &self.seats;
        let calls = std::mem::take(&mut self.calls);
        for mut call in calls {
            let written = if call.unwritten.is_empty() {
                Ok(0)
            } else {
                call.taken.write_some(&call.unwritten)
            };
            match written {
                Ok(len) => {
                    call.unwritten.drain(..len);
                    call.taken.publish();
                    has_moved |= len > 0;
                }
                Err(_) => call.ending = Some(AnswerEnd::Broken),
            }
            let is_over = written.is_err() || call.unwritten.is_empty();
            match call.ending.filter(|_| is_over) {
                Some(ending) => {
                    call.taken.finish(ending);
                    if let Some(seat) = call.seat {
                        seats[seat].rest();
                    }
                    has_moved = true;
                }
                None => self.calls.push(call),
            }
        }
        has_moved
    }

    /// Answers all requests that it has, and all that wait.
    pub(super) fn answer_all(&mut self) {
        while self.take() {}
        for which in 0..self.calls.len() {
            if self.calls[which].ending.is_some() {
                continue;
            }
            if self.calls[which].seat.is_none() {
                self.write(which, &close_record(&Close::new(1000, "")));
            } else if !self.calls[which].has_begun {
                self.begin(which, 200, 10, Promise::Length, false);
            }
            self.end(which);
        }
    }
}
