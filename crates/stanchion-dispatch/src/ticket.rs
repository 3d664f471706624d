//! A request's place in the server, from its joining the line to the last byte of its answer.

mod answer;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
pub use stanchion_exchange::RunTimes;
use stanchion_exchange::{AnswerEnd, Corrupt, Submitted};
use stanchion_http::BodyLength;
use stanchion_line::{LaneId, Measured, Place};
use stanchion_sys::charge::{self, Charged, Payer};

pub use self::answer::{Answer, AppAnswer, BodySection, Start};
use super::causes::measured;
use super::hints::Hints;
use super::outflow::{Limits, Outflow, Outgoing};
use super::refusal::Refusal;
use super::request::Request;
use super::sessions::{SessionFacts, SessionPermit};
use super::stage::RequestStage;
pub use super::stage::SeatRun;
use super::streamed_body::{StreamedBody, left_of};
use super::trace::Trace;
use super::trailers::Trailed;
use crate::storage::clients::Share;
use crate::storage::woken::Woken;

/// The connection, which waits for the answer, and the dispatch, which brings it, share a ticket.
pub struct Ticket {
    /// The request.
    pub request: Request,
    /// Its place in a trace, if it is traced.
    pub trace: Option<Box<Trace>>,
    /// The lane that gives it its turns in the line, and its seats.
    pub lane: Cell<LaneId>,
    /// How many requests were in the line when it came, itself not among them.
    pub waiting: Cell<u16>,
    /// How many seats were taken when it was handed out, its own included; 0 until then.
    pub busy: Cell<u16>,
    /// How far the request has come.
    stage: RefCell<RequestStage>,
    /// A worker has died over it, and it goes to another one.
    is_retried: Cell<bool>,
    asker: Asker,
    /// Hints that go to the client before the answer, if any have come.
    hints: RefCell<Option<Box<Hints>>>,
    /// The head of the answer, and the body as far as it came with the head, until the connection fetches them.
    answer: RefCell<Option<Answer>>,
    /// The body of an answer that comes in pieces, once the head is out.
    body: RefCell<Option<Box<StreamedBody>>>,
    /// How far the client has sent a body that is still coming while the request waits and runs.
    upload: Cell<UploadState>,
    /// The right to a session, if it asks for a WebSocket.
    pub(crate) permit: Cell<Option<SessionPermit>>,
    /// The facts about its session, once that is over.
    pub session: OnceCell<Box<SessionFacts>>,
}

/// The connection that waits for the answer.
struct Asker {
    connection: u32,
    /// The payer of the connection, which pays for all that the worker brings.
    payer: Payer,
    /// The list of connections to wake.
    woken: Rc<Woken>,
    attention: Cell<Attention>,
}

/// Whether news wakes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attention {
    /// It waits, and has looked at all there was: the next news wakes it.
    Waits,
    /// It was woken, and has not looked since.
    Woken,
    /// The dispatch looks for it, while it waits for the result; whether that has found news.
    Looks { has_news: bool },
}

/// A body between its client and the worker.
#[derive(Clone, Copy, Default)]
struct UploadState {
    /// There was no room for what its client has sent: the connection looks again when there is.
    wants_room: bool,
    /// Until when the worker had to wait for the client to send the rest of the body; `u64::MAX` while it has to.
    client_until_us: u64,
}

impl Ticket {
    /// The ticket of a request that joins the line.
    pub fn new(
        request: Request,
        trace: Option<Box<Trace>>,
        connection: u32,
        woken: &Rc<Woken>,
    ) -> Self {
        Self {
            request,
            trace,
            lane: Cell::default(),
            waiting: Cell::new(0),
            busy: Cell::new(0),
            stage: RefCell::new(RequestStage::New),
            is_retried: Cell::new(false),
            asker: Asker {
                connection,
                payer: charge::current(),
                woken: Rc::clone(woken),
                attention: Cell::new(Attention::Waits),
            },
            hints: RefCell::default(),
            answer: RefCell::new(None),
            body: RefCell::default(),
            upload: Cell::default(),
            permit: Cell::new(None),
            session: OnceCell::new(),
        }
    }

    /// Whether it has come to the line: it waits or has waited there, or was refused there.
    pub fn has_joined(&self) -> bool {
        !matches!(*self.stage.borrow(), RequestStage::New)
    }

    /// Whether it is over: the app's answer is whole, or there will be none.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.stage.borrow(), RequestStage::Over(_))
    }

    /// Its place in the exchange, while it is there.
    pub(crate) fn submitted(&self) -> Option<Submitted> {
        self.stage.borrow().submitted()
    }

    /// Notes that it waits in the line.
    pub(crate) fn joins(&self, place: Place, share: Option<Share>) {
        self.stage.replace(RequestStage::Waiting {
            place,
            _share: share,
        });
    }

    /// Notes that it is in the exchange.
    pub(crate) fn enters(&self, submitted: Submitted) {
        self.stage.replace(RequestStage::Handed(submitted));
    }

    /// Notes which worker has it, or had it last, and since when.
    pub(crate) fn runs(&self, taken_us: u64, worker: Option<(u16, i32)>) {
        self.stage.borrow_mut().runs(taken_us, worker);
    }

    /// Notes that its worker is done with it, unless it is over already: then it keeps its times until they are in the logs.
    pub(crate) fn finishes(&self, done_us: u64, times: RunTimes) {
        self.stage.borrow_mut().finishes(done_us, times);
    }

    /// Ends it, and gives where it was.
    pub(crate) fn ends(&self) -> RequestStage {
        self.stage.borrow_mut().ends()
    }

    /// Ends it without an answer of an app.
    pub(crate) fn refuse(&self, why: Refusal) {
        self.ends();
        self.answer(Answer::Refused(why));
    }

    /// Whether a worker has begun with it, or may have.
    pub fn has_run(&self) -> bool {
        self.is_retried.get() || self.stage.borrow().run().is_some()
    }

    /// Whether it may go to another worker, after one has died over it.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.is_retried.get() && self.request.is_repeatable()
    }

    /// Notes that it goes to another worker, and waits in the line again.
    pub(crate) fn retries(&self, place: Place) {
        self.joins(place, None);
        self.hints(Hints::begin_anew);
        self.is_retried.set(true);
    }

    fn run(&self) -> Option<SeatRun> {
        self.stage.borrow().run()
    }

    /// When a seat took it; 0 = not yet.
    pub fn taken_us(&self) -> u64 {
        self.run().map_or(0, |run| run.taken_us)
    }

    /// When the seat gave it back; 0 = not yet.
    pub fn done_us(&self) -> u64 {
        self.run().map_or(0, |run| run.done_us)
    }

    /// The number of the worker that has it or had it.
    pub fn worker_number(&self) -> Option<u16> {
        let (number, _) = self.run()?.worker?;
        Some(number)
    }

    /// The process of the worker that has it or had it.
    pub fn worker_pid(&self) -> Option<u64> {
        let (_, pid) = self.run()?.worker?;
        u64::try_from(pid).ok()
    }

    /// Has it look as if a worker had run it.
    #[cfg(debug_assertions)]
    pub fn was_run(&self, run: SeatRun) {
        self.stage.replace(RequestStage::Over(Some(run)));
    }

    /// Such as ` worker=0 pid=4711`, to stand at the end of a line of the log; nothing if no worker took it.
    pub fn shown_worker(&self) -> String {
        let worker = self.run().and_then(|run| run.worker);
        worker.map_or_else(String::new, |(worker, pid)| {
            format!(" worker={worker} pid={pid}")
        })
    }

    /// How long it was in the line; until now, if no seat has taken it.
    pub fn wait_us(&self, now_us: u64) -> u64 {
        let until_us = match self.taken_us() {
            0 => now_us,
            taken_us => taken_us,
        };
        until_us.saturating_sub(self.request.arrived_us)
    }

    /// How long a seat ran it, or has run it until now, if one took it.
    pub fn service_us(&self, now_us: u64) -> Option<u64> {
        let SeatRun {
            taken_us, done_us, ..
        } = self.run()?;
        let until_us = match done_us {
            0 => now_us,
            done_us => done_us,
        };
        (taken_us != 0).then(|| until_us.saturating_sub(taken_us))
    }

    /// The parts of its time at its seat that the seat measured, if it has left.
    pub fn measured(&self) -> Measured {
        let run = self.run().unwrap_or_default();
        let service_us = run.done_us.saturating_sub(run.taken_us);
        measured(run.times).within(service_us)
    }

    /// Notes whether there was no room for what the client has sent.
    pub(crate) fn wants_room(&self, wanted: bool) {
        self.upload.set(UploadState {
            wants_room: wanted,
            ..self.upload.get()
        });
    }

    /// Wakes the connection if it waits for room for what its client has sent.
    pub(crate) fn may_have_room(&self) {
        if self.upload.get().wants_room {
            self.wake();
        }
    }

    /// Notes until when the worker had to wait for the client to send the rest of the body; `u64::MAX` while it has to.
    pub fn set_client_until_us(&self, until_us: u64) {
        self.upload.set(UploadState {
            client_until_us: until_us,
            ..self.upload.get()
        });
    }

    /// Until when the worker had to wait for the client to send the rest of the body; `u64::MAX` while it has to.
    pub fn client_until_us(&self) -> u64 {
        self.upload.get().client_until_us
    }

    /// Its connection pays for all that is allocated until the guard is dropped.
    pub(crate) fn charged(&self) -> Charged {
        charge::to(self.asker.payer)
    }

    /// Leaves the answer for the connection, and wakes the connection.
    pub fn answer(&self, answer: Answer) {
        *self.answer.borrow_mut() = Some(answer);
        self.wake();
    }

    /// Gives the connection the answer, if it is there.
    pub fn take_answer(&self) -> Option<Answer> {
        self.seen();
        self.answer.borrow_mut().take()
    }

    /// Leaves hints for the connection, and wakes the connection.
    pub(crate) fn hint<T>(&self, bring: impl FnOnce(&mut Hints) -> T) -> T {
        let brought = bring(self.hints.borrow_mut().get_or_insert_default());
        self.wake();
        brought
    }

    /// Does something with the hints; `None` if none have come.
    pub fn hints<T>(&self, act: impl FnOnce(&mut Hints) -> T) -> Option<T> {
        self.hints.borrow_mut().as_deref_mut().map(act)
    }

    /// Begins a body that comes in pieces, with the first of them, and with trailers behind the last one if it
    /// `has_trailers`. If the first piece is more than the head promised, it changes nothing and gives an error.
    pub fn start_body(
        &self,
        limits: &Rc<Limits>,
        promised: BodyLength,
        first: Bytes,
        has_trailers: bool,
    ) -> Result<(), Corrupt> {
        let body = StreamedBody::new(limits, promised, first, has_trailers)?;
        *self.body.borrow_mut() = Some(Box::new(body));
        Ok(())
    }

    /// Whether trailers come behind the body.
    pub fn is_trailed(&self) -> bool {
        let body = self.body.borrow();
        body.as_ref().is_some_and(|body| body.trailed.is_some())
    }

    /// Gives the connection the trailers, in wire form, once the body is whole; `None` if there are none.
    pub fn take_trailers(&self) -> Option<Vec<u8>> {
        let trailed = self.body.borrow_mut().as_mut()?.trailed.take();
        trailed.and_then(Trailed::into_trailers)
    }

    /// Appends to the body what its worker has written, and wakes the connection. A piece with which the body would be
    /// longer than its head says is an error: the client would take the rest for another answer.
    pub fn push(&self, written: Bytes) -> Result<(), Corrupt> {
        if let Some(body) = self.body.borrow_mut().as_deref_mut() {
            body.push(written)?;
        }
        self.wake();
        Ok(())
    }

    /// How many bytes the head still promises after so many more, if it promises a number.
    pub(crate) fn owed_after(&self, bytes: usize) -> Result<Option<u64>, Corrupt> {
        let owed = self.body.borrow().as_ref().and_then(|body| body.owed);
        left_of(owed, bytes)
    }

    /// Notes that the connection has fetched and sent so many bytes of the body.
    pub(crate) fn fetched(&self, bytes: usize, owed: Option<u64>) {
        if let Some(body) = self.body.borrow_mut().as_deref_mut() {
            body.owed = owed;
            body.outflow.fetched(bytes);
        }
    }

    /// Whether the connection fetches the body from the exchange.
    pub fn is_fetched(&self) -> bool {
        let body = self.body.borrow();
        body.as_ref().is_some_and(|body| body.outflow.is_fetched())
    }

    /// Ends the body. To end as complete a body with fewer bytes than its head says is an error.
    pub fn end(&self, end: AnswerEnd) -> Result<(), Corrupt> {
        if let Some(body) = self.body.borrow_mut().as_deref_mut() {
            body.end(end)?;
        }
        self.wake();
        Ok(())
    }

    /// Ends the body though it is not whole, because its worker cannot go on.
    pub(crate) fn break_off(&self) {
        self.pour(|outflow| outflow.end(AnswerEnd::Broken));
        self.ends();
    }

    /// Whether the head is out.
    pub(crate) fn is_streaming(&self) -> bool {
        self.body.borrow().is_some()
    }

    /// Lets `act` look at the body or change it, without waking the connection; `None` if the head is not out.
    pub fn outflow<T>(&self, act: impl FnOnce(&mut Outflow) -> T) -> Option<T> {
        let mut body = self.body.borrow_mut();
        body.as_deref_mut().map(|body| act(&mut body.outflow))
    }

    /// Lets `act` change the body, and wakes the connection.
    pub fn pour<T>(&self, act: impl FnOnce(&mut Outflow) -> T) -> Option<T> {
        let done = self.outflow(act);
        self.wake();
        done
    }

    /// Gives the connection a piece of the body, or its end.
    pub fn next_piece(&self) -> Outgoing {
        self.seen();
        self.outflow(Outflow::pop).unwrap_or(Outgoing::Nothing)
    }

    /// Lets `look` look for news on behalf of the connection, which need not be woken for them since it waits for the
    /// result: whether there is news.
    pub(crate) fn has_news_after(&self, look: impl FnOnce()) -> bool {
        let attention = &self.asker.attention;
        attention.set(Attention::Looks { has_news: false });
        look();
        attention.replace(Attention::Waits) == Attention::Looks { has_news: true }
    }

    /// The connection has looked, though it fetched nothing: what comes from now on wakes it.
    pub fn seen(&self) {
        self.asker.attention.set(Attention::Waits);
    }

    /// Wakes the connection for news, once until it looks.
    pub(crate) fn wake(&self) {
        let Asker {
            connection,
            woken,
            attention,
            ..
        } = &self.asker;
        match attention.get() {
            Attention::Waits => {
                attention.set(Attention::Woken);
                woken.add(*connection);
            }
            Attention::Woken => {}
            Attention::Looks { .. } => attention.set(Attention::Looks { has_news: true }),
        }
    }
}

#[cfg(test)]
mod tests;
