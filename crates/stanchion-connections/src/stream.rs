//! A stream of HTTP/2, as the connection of its one request sees it: bytes in and bytes out, as over a socket of its own.
//!
//! The body of the request comes in. An answer in the form of HTTP/1.1 goes out: heads, of which this makes frames, and a
//! body that has no framing but ends with its stream.

use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use stanchion_http::{Field, field_lines, fields};

use super::ledger::{AccountedBytes, Ledger, StreamBacklog};
use super::outcome::{Broken, Read, Written};

/// The end of a head.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Fields of HTTP/1.1 that say how it frames an answer, or what becomes of its connection (RFC 9113 section 8.2.2).
const OF_CONNECTION: [&str; 4] = ["connection", "keep-alive", "transfer-encoding", "upgrade"];

/// The acceptor's end of a stream.
pub(super) struct Http2Stream {
    body: RecvStream,
    /// Bytes of the body that have come and were not read yet. They are a copy: the pieces that h2 gives share its buffers,
    /// so that one byte keeps a whole buffer.
    came: BytesMut,
    /// All of the body has come.
    is_whole: bool,
    outward: SendState,
    /// The fields that follow the answer, with its end (RFC 9113 section 8.1).
    trailers: HeaderMap,
    waker: Waker,
    ledger: Rc<Ledger>,
    /// The bytes of the answer that h2 holds.
    sent: Rc<StreamBacklog>,
    /// The client has reset the stream.
    is_reset: bool,
    /// The reason of the reset that the client gets if the answer is not whole.
    reason: Reason,
}

/// How far the answer is.
enum SendState {
    /// Its head is being written; so much of it is here, never more than a head, which its worker's slot bounds.
    Head(Vec<u8>, SendResponse<AccountedBytes>),
    Body(SendStream<AccountedBytes>),
    /// The client has the end of it.
    Over,
}

impl Http2Stream {
    pub(super) fn new(
        body: RecvStream,
        respond: SendResponse<AccountedBytes>,
        waker: Waker,
        ledger: Rc<Ledger>,
    ) -> Self {
        ledger.began();
        Self {
            body,
            came: BytesMut::new(),
            is_whole: false,
            outward: SendState::Head(Vec::new(), respond),
            trailers: HeaderMap::new(),
            waker,
            ledger,
            sent: Rc::default(),
            is_reset: false,
            reason: Reason::INTERNAL_ERROR,
        }
    }

    /// Whether the client has reset the stream, or the connection that carries it is gone. When that changes, h2 calls the
    /// waker.
    pub(super) fn is_reset(&mut self) -> bool {
        let mut context = Context::from_waker(&self.waker);
        self.is_reset |= match &mut self.outward {
            SendState::Head(_, respond) => respond.poll_reset(&mut context).is_ready(),
            SendState::Body(send) => send.poll_reset(&mut context).is_ready(),
            SendState::Over => false,
        };
        self.is_reset
    }

    /// Takes the body out of h2, as far as it has come. Drops trailers, which h2 keeps beside its windows until the stream
    /// ends (RFC 9113 section 6.9: flow control is for DATA only). When more comes, h2 calls the waker.
    pub(super) fn collect(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        while !self.is_whole && !self.is_reset {
            match self.body.poll_data(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(bytes))) => self.came.extend_from_slice(&bytes),
                Poll::Ready(Some(Err(_))) => self.is_reset = true,
                Poll::Ready(None) => {
                    let Poll::Ready(trailers) = self.body.poll_trailers(&mut context) else {
                        return;
                    };
                    self.is_whole = trailers.is_ok();
                    self.is_reset |= trailers.is_err();
                }
            }
        }
    }

    /// Reads the collected body, as far as `buffer` has room. Only a read opens the client's window again (RFC 9113 section
    /// 5.2), so no more waits here than the client was allowed to send.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> Read {
        if self.came.is_empty() {
            return match (self.is_whole, self.is_reset) {
                (true, _) => Read::End,
                (false, true) => Read::Failed,
                (false, false) => Read::Nothing,
            };
        }
        let room = buffer.capacity() - buffer.len();
        let len = room.min(self.came.len());
        buffer.extend_from_slice(&self.came[..len]);
        self.came.advance(len);
        if self.came.is_empty() {
            // The memory is freed, too.
            self.came = BytesMut::new();
        }
        // This fails only where no client is there any more to send.
        let _ = self.body.flow_control().release_capacity(len);
        Read::Bytes(len)
    }

    /// Writes as much as the client has room for, and ends the answer with it, if it `is_last` and is taken whole.
    pub(super) fn write(&mut self, bytes: &[u8], is_last: bool) -> Written {
        let mut rest = bytes;
        while let SendState::Head(head, _) = &mut self.outward {
            if rest.is_empty() {
                return Written::of(bytes.len());
            }
            // The end of the head may have begun in an earlier part.
            let from = head.len().saturating_sub(HEAD_END.len() - 1);
            let before = head.len();
            head.extend_from_slice(rest);
            let mut fours = head[from..].windows(HEAD_END.len());
            let Some(at) = fours.position(|four| four == HEAD_END) else {
                return Written::of(bytes.len());
            };
            let end = from + at + HEAD_END.len();
            head.truncate(end);
            rest = &rest[end - before..];
            if !self.put_head(is_last && rest.is_empty()) {
                return Written::Failed;
            }
        }
        let headed = bytes.len() - rest.len();
        if rest.is_empty() {
            return Written::of(headed);
        }
        match self.put_body(rest, is_last).len() {
            Ok(len) => Written::of(headed + len),
            Err(Broken) => Written::Failed,
        }
    }

    /// Writes all slices in turn, as [`Self::write`] does.
    pub(super) fn write_all_of(&mut self, slices: &[IoSlice<'_>]) -> Written {
        let mut all = 0;
        for slice in slices {
            let Ok(len) = self.write(slice, false).len() else {
                return Written::Failed;
            };
            all += len;
            if len < slice.len() {
                break;
            }
        }
        Written::of(all)
    }

    /// Sends a head that is whole. False if the stream is broken.
    fn put_head(&mut self, is_all: bool) -> bool {
        let SendState::Head(text, respond) = &mut self.outward else {
            return false;
        };
        let Some(mut response) = response(text) else {
            return false;
        };
        text.clear();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // The frames of a WebSocket follow (RFC 8441 section 5.1).
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().remove("sec-websocket-accept");
        }
        if response.status().is_informational() {
            return respond.send_informational(response).is_ok();
        }
        let _charged = self.ledger.charged();
        let Ok(send) = respond.send_response(response, is_all) else {
            return false;
        };
        self.ledger.answered();
        self.outward = if is_all {
            SendState::Over
        } else {
            SendState::Body(send)
        };
        true
    }

    fn put_body(&mut self, bytes: &[u8], is_last: bool) -> Written {
        let SendState::Body(send) = &mut self.outward else {
            return Written::Failed;
        };
        let left = self.ledger.room(&self.sent, &self.waker).min(bytes.len());
        if left == 0 {
            return Written::Full;
        }
        send.reserve_capacity(left);
        let mut room = send.capacity();
        if room == 0 {
            let mut context = Context::from_waker(&self.waker);
            room = match send.poll_capacity(&mut context) {
                Poll::Pending => return Written::Full,
                Poll::Ready(Some(Ok(room))) => room,
                Poll::Ready(None | Some(Err(_))) => {
                    self.is_reset = true;
                    return Written::Failed;
                }
            };
        }
        let part = &bytes[..room.min(left)];
        let _charged = self.ledger.charged();
        let is_all = is_last && part.len() == bytes.len();
        let part = AccountedBytes::new(Bytes::copy_from_slice(part), &self.sent, &self.ledger);
        let len = part.remaining();
        if send.send_data(part, is_all).is_err() {
            self.is_reset = true;
            return Written::Failed;
        }
        if is_all {
            self.outward = SendState::Over;
        }
        Written::of(len)
    }

    /// For how many bytes of a body there is room.
    pub(super) fn room(&mut self, wanted: usize) -> usize {
        match &mut self.outward {
            SendState::Body(send) => {
                let wanted = self.ledger.room(&self.sent, &self.waker).min(wanted);
                send.reserve_capacity(wanted);
                send.capacity().min(wanted)
            }
            SendState::Head(..) | SendState::Over => 0,
        }
    }

    /// Takes fields in wire form, which were checked, to send them behind the answer.
    pub(super) fn put_trailers(&mut self, wire: &[u8]) {
        let put = put_fields(field_lines(wire), &mut self.trailers);
        debug_assert!(put.is_some(), "what was checked are fields");
    }

    /// Ends an answer that is whole.
    pub(super) fn end(&mut self) {
        if let SendState::Body(send) = &mut self.outward {
            let trailers = std::mem::take(&mut self.trailers);
            // If this fails, the stream is broken already.
            let _ = if trailers.is_empty() {
                send.send_data(
                    AccountedBytes::new(Bytes::new(), &self.sent, &self.ledger),
                    true,
                )
            } else {
                send.send_trailers(trailers)
            };
            self.outward = SendState::Over;
        }
    }

    /// Has the reset say that the client itself is the cause, and no fault of the server.
    pub(super) fn give_up(&mut self) {
        self.reason = Reason::CANCEL;
    }
}

impl Drop for Http2Stream {
    /// Breaks an answer off that is not whole: it has no end.
    fn drop(&mut self) {
        // A client that leaves in the middle of an answer has had what it asked for, and may do so as often as it likes.
        let is_in_vain = matches!(self.outward, SendState::Head(..)) && self.is_reset();
        match &mut self.outward {
            SendState::Head(_, respond) => respond.send_reset(self.reason),
            SendState::Body(send) => send.send_reset(self.reason),
            SendState::Over => {}
        }
        self.ledger.ended(is_in_vain, &self.waker);
    }
}

/// Parses a head. `None` if it is no head; such bytes do not go out.
fn response(text: &[u8]) -> Option<Response<()>> {
    let status = text.split(|&byte| byte == b' ').nth(1)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_bytes(status.get(..3)?).ok()?;
    put_fields(fields(text), response.headers_mut())?;
    Some(response)
}

fn put_fields<'a>(fields: impl Iterator<Item = Field<'a>>, map: &mut HeaderMap) -> Option<()> {
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name).ok()?;
        if !OF_CONNECTION.contains(&name.as_str()) {
            let value = HeaderValue::from_bytes(value).ok()?;
            map.try_append(name, value).ok()?;
        }
    }
    Some(())
}
