//! A connection that sends an answer, until the client has all of it.

use bytes::Bytes;
use tracing::warn;

use super::connection::{Connection, Phase, Step};
use super::pace::intake_pace;
use super::sending::{Fetched, Sending, Source};
use super::transport::Written;
use crate::poller::Poller;
use stanchion_generation::tally::Outcome;
use stanchion_requests::Requests;
use stanchion_requests::file::Stretch;

impl Connection {
    /// Sends as much of an answer as there is: mostly all of it, at once.
    pub(super) fn start(
        &mut self,
        out: Vec<u8>,
        rest: Bytes,
        mut sending: Sending,
        requests: &mut Requests,
    ) -> Step {
        if rest.is_empty() && matches!(sending.source, Source::Over) {
            // On a unix socket the end would only wake the client once more.
            let ends = !sending.keeps && (self.peer.ip.is_some() || self.transport.is_stream());
            let written = if ends {
                self.transport.write_last(&out)
            } else {
                self.transport.write(&out)
            };
            let Ok(written) = written.len() else {
                requests.answer_heads.give_out(out);
                sending.abandon(requests);
                return Step::Close;
            };
            self.intake.wrote(written, requests.now_us);
            if written == out.len() {
                requests.answer_heads.give_out(out);
                if ends {
                    self.transport.end();
                }
                return self.sent(sending, requests);
            }
            sending.push(Bytes::copy_from_slice(&out[written..]), requests);
            requests.answer_heads.give_out(out);
        } else {
            sending.push(Bytes::copy_from_slice(&out), requests);
            sending.push(rest, requests);
            requests.answer_heads.give_out(out);
        }
        self.phase = Phase::Sending(Box::new(sending));
        Step::On
    }

    /// Goes on with an answer.
    pub(super) fn send(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        if let Err(refusal) = self.take_in(requests) {
            return self.call_off(refusal, requests);
        }
        loop {
            let Phase::Sending(sending) = &mut self.phase else {
                return Step::On;
            };
            let in_place = self.transport.socket().is_some();
            sending.fill(self.number, in_place, requests);
            match sending.fetch(&mut self.transport, requests) {
                // Either the stream has news, such as its end; or the client is behind, and the server keeps the bytes,
                // since the worker would have to wait for the client otherwise.
                Fetched::News | Fetched::Sent(Written::Full) => {}
                Fetched::Sent(Written::Bytes(len)) => {
                    self.intake.wrote(len.get(), requests.now_us);
                }
                Fetched::Sent(Written::Failed) => return self.broke(requests),
                Fetched::Nothing if sending.pending.is_empty() => {
                    if let Err(step) = self.go_on(requests, poller) {
                        return step;
                    }
                }
                Fetched::Nothing => match sending.write(&mut self.transport) {
                    Written::Bytes(len) => self.intake.wrote(len.get(), requests.now_us),
                    Written::Full => return self.stall(requests, poller),
                    Written::Failed => return self.broke(requests),
                },
            }
            if self.transport.has_had_its_turn() {
                self.wake_later(requests);
                return Step::Wait;
            }
        }
    }

    /// Goes on once all pending bytes are out. The error is the next step, if that is not to send.
    fn go_on(&mut self, requests: &mut Requests, poller: &Poller) -> Result<(), Step> {
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
        match file.next(&requests.storage.disk, self.number, requests.now_us) {
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
                Ok(Written::Bytes(len)) => {
                    file.sent(len.get());
                    self.intake.wrote(len.get(), requests.now_us);
                    sending.count(len.get());
                }
                Ok(Written::Full) => return Err(self.stall(requests, poller)),
                Ok(Written::Failed) => return Err(self.broke(requests)),
                Err(error) => {
                    warn!("a file cannot be sent whole: {error}");
                    sending.break_off();
                }
            },
        }
        Ok(())
    }

    fn broke(&mut self, requests: &mut Requests) -> Step {
        self.abandon(requests);
        Step::Close
    }

    /// Waits for a worker or the disk, unless the client has left.
    pub(super) fn wait_for_more(&mut self, requests: &mut Requests) -> Step {
        if self.client_has_left(requests) {
            return self.broke(requests);
        }
        Step::Wait
    }

    /// Waits for the client to read, unless it has left.
    fn stall(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        if self.client_has_left(requests) {
            return self.broke(requests);
        }
        let untaken = self.transport.untaken();
        self.intake.stalled(
            intake_pace(&requests.common.settings),
            untaken,
            requests.now_us,
        );
        self.transport.watch_room(true, poller);
        Step::Wait
    }

    /// Ends an answer: settles its account, and decides how the connection goes on.
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
            requests.buffers.heads.keep(asked.ticket);
        }
        if keeps && is_whole {
            self.phase = Phase::Idle {
                since_us: requests.now_us,
            };
            return Step::On;
        }
        if !is_whole {
            // The client sees only by the end of the connection that the answer is not whole.
            return Step::Close;
        }
        self.leave(requests)
    }
}
