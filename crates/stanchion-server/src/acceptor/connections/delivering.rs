//! A connection whose answer goes out, until the client has all of it.

use bytes::Bytes;
use tracing::warn;

use super::connection::{Connection, Phase, Step};
use super::sending::{Sending, Source};
use super::transport::Written;
use crate::acceptor::poller::Poller;
use crate::acceptor::requests::Requests;
use crate::acceptor::requests::file::Stretch;
use crate::tally::Outcome;

/// How much of an answer is written in one go, before others have their turn.
const TURN_BYTES_MAX: usize = 1 << 20;

impl Connection {
    /// Sends what there is of an answer: mostly all of it, at once.
    pub(super) fn start(
        &mut self,
        out: Vec<u8>,
        rest: Bytes,
        mut sending: Sending,
        requests: &mut Requests,
    ) -> Step {
        if rest.is_empty() && matches!(sending.source, Source::Over) {
            // On a unix socket it would only wake the client once more.
            let ends = !sending.keeps && (self.peer.ip.is_some() || self.transport.is_stream());
            let written = if ends {
                self.transport.write_last(&out)
            } else {
                self.transport.write(&out)
            };
            let written = match written {
                Written::Bytes(len) => len,
                Written::Full => 0,
                Written::Failed => {
                    requests.give_out(out);
                    sending.abandon(requests);
                    return Step::Close;
                }
            };
            self.intake.wrote(written, requests.now_us);
            if written == out.len() {
                requests.give_out(out);
                if ends {
                    self.transport.end();
                }
                return self.sent(sending, requests);
            }
            sending.push(Bytes::copy_from_slice(&out[written..]), requests);
            requests.give_out(out);
        } else {
            sending.push(Bytes::copy_from_slice(&out), requests);
            sending.push(rest, requests);
            requests.give_out(out);
        }
        self.phase = Phase::Sending(Box::new(sending));
        Step::On
    }

    /// Goes on with an answer.
    pub(super) fn send(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        let mut turn_bytes = 0;
        if let Err(refusal) = self.take_in(requests) {
            return self.call_off(refusal, requests);
        }
        loop {
            let Phase::Sending(sending) = &mut self.phase else {
                return Step::On;
            };
            let in_place = self.transport.socket().is_some();
            sending.fill(self.number, in_place, requests);
            if let Some(written) = sending.fetch(&self.transport, requests) {
                match written {
                    // It is the end; or what is there is kept for a client that is behind, or its worker would have to
                    // wait for it.
                    Written::Bytes(0) | Written::Full => {}
                    Written::Bytes(bytes) => {
                        self.intake.wrote(bytes, requests.now_us);
                        turn_bytes += bytes;
                    }
                    Written::Failed => return self.broke(requests),
                }
            } else if sending.pending.is_empty() {
                match self.go_on(requests, poller) {
                    Ok(bytes) => turn_bytes += bytes,
                    Err(step) => return step,
                }
            } else {
                match sending.write(&mut self.transport) {
                    Written::Bytes(bytes) => {
                        self.intake.wrote(bytes, requests.now_us);
                        turn_bytes += bytes;
                    }
                    Written::Full => return self.stall(requests, poller),
                    Written::Failed => return self.broke(requests),
                }
            }
            if turn_bytes >= TURN_BYTES_MAX {
                self.wake_later(requests);
                return Step::Wait;
            }
        }
    }

    /// All is out that was pending. Bytes that the kernel has taken of a file; or what to do now, if that is something else.
    fn go_on(&mut self, requests: &mut Requests, poller: &Poller) -> Result<usize, Step> {
        let Phase::Sending(sending) = &mut self.phase else {
            return Err(Step::On);
        };
        let file = match &mut sending.source {
            Source::Over | Source::Broken => {
                let idle = Phase::Idle {
                    since_us: requests.now_us,
                };
                let Phase::Sending(sending) = std::mem::replace(&mut self.phase, idle) else {
                    return Err(Step::On);
                };
                self.transport.watch_room(false, poller);
                return Err(self.sent(*sending, requests));
            }
            Source::Stream => return Err(self.wait_for_more(requests)),
            Source::Compressed(_) => return Err(self.send_compressed(requests)),
            Source::File(file) => file,
        };
        match file.next(&requests.disk, self.number, requests.now_us) {
            Stretch::Over => sending.source = Source::Over,
            Stretch::Broken => sending.break_off(),
            Stretch::Waits => return Err(self.wait_for_more(requests)),
            Stretch::Text(bytes) => {
                sending.count(bytes.len());
                sending.push(bytes, requests);
            }
            Stretch::Bytes {
                file: bytes,
                offset,
                len,
            } => match self.transport.send_file(bytes, offset, len) {
                Ok(Written::Bytes(len)) if file.sent(len) => {
                    self.intake.wrote(len, requests.now_us);
                    sending.count(len);
                    return Ok(len);
                }
                Ok(Written::Bytes(_)) => sending.break_off(),
                Ok(Written::Full) => return Err(self.stall(requests, poller)),
                Ok(Written::Failed) => return Err(self.broke(requests)),
                Err(error) => {
                    warn!("a file cannot be sent whole: {error}");
                    sending.break_off();
                }
            },
        }
        Ok(0)
    }

    fn broke(&mut self, requests: &mut Requests) -> Step {
        self.abandon(requests);
        Step::Close
    }

    /// A worker or the disk is waited for.
    pub(super) fn wait_for_more(&mut self, requests: &mut Requests) -> Step {
        if self.client_has_left(requests) {
            return self.broke(requests);
        }
        Step::Wait
    }

    /// The client is waited for.
    fn stall(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        if self.client_has_left(requests) {
            return self.broke(requests);
        }
        let untaken = self.transport.untaken();
        self.intake
            .stalled(requests.intake_pace(), untaken, requests.now_us);
        self.transport.watch_room(true, poller);
        Step::Wait
    }

    /// An answer is out.
    fn sent(&mut self, sending: Sending, requests: &mut Requests) -> Step {
        self.upload = None;
        let Sending {
            request,
            source,
            keeps,
            ..
        } = sending;
        let is_whole = !matches!(source, Source::Broken);
        if let Some(mut asked) = request {
            let outcome = asked.account.close(if is_whole {
                asked.outcome
            } else {
                Outcome::BrokenOff
            });
            asked.over(outcome, requests);
            if is_whole && let Some(trailers) = asked.ticket.take_trailers() {
                self.transport.put_trailers(&trailers);
            }
            requests.heads.keep(asked.ticket);
        }
        if keeps && is_whole {
            self.phase = Phase::Idle {
                since_us: requests.now_us,
            };
            return Step::On;
        }
        if !is_whole {
            // Only a connection that just ends shows the client that there should have been more.
            return Step::Close;
        }
        self.leave(requests)
    }
}
