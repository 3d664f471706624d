//! Messages on their way from a worker to the client of a WebSocket.
//!
//! The acceptor makes frames of a worker's bytes as they come, so a long message takes no memory in the acceptor. 8 KiB
//! or more of a message go from the ring to the socket (sendmsg(2)), behind a header that the acceptor makes. A message
//! that a worker cannot decompress has the worker close the WebSocket by a record of its own, since the app does not
//! close it; the acceptor believes that record only for clients that compress, and only with the codes for it.

use stanchion_exchange::Corrupt;
use stanchion_websocket::{Close, FrameHead, frame_head};

use stanchion_dispatch::sessions::MessageTotals;
use stanchion_record::{
    Content, MESSAGE_HEAD_BYTES, MessageForm, read_close, read_fault, read_message_head,
};

/// The last record of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// The app closes it.
    Close(Close),
    /// The worker closes it, since the client has sent something that is no message.
    Fault(Close),
    /// The worker is about to exit.
    Restart,
}

/// Makes frames of the records that a worker has written, in whatever pieces they come. A message that comes in several
/// pieces becomes as many frames: so a close may come between them, whether or not the worker lives to write the rest.
#[derive(Default)]
pub(super) struct FrameEncoder {
    /// Whether the client has agreed on compressed messages.
    deflates: bool,
    head: Vec<u8>,
    inside: RecordState,
    /// The messages that have become frames as a whole.
    pub(super) sent: MessageTotals,
}

/// The place of the next byte.
#[derive(Default)]
enum RecordState {
    #[default]
    Head,
    /// A message: its form if no part was sent yet, how many bytes are still to come, and its length.
    Message(Option<MessageForm>, usize, usize),
    /// A close: its length, the bytes so far, and whether it is the client's fault.
    Close(usize, Vec<u8>, bool),
}

impl FrameEncoder {
    /// Begins for a client that takes compressed messages, if it `deflates`.
    pub(super) fn new(deflates: bool) -> Self {
        Self {
            deflates,
            ..Self::default()
        }
    }

    /// Whether the last message has come as a whole.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.inside, RecordState::Head)
    }

    /// How many bytes of the next message's head are missing; `None` within a message.
    pub(super) fn missing_head(&self) -> Option<usize> {
        let missing = MESSAGE_HEAD_BYTES - self.head.len();
        self.is_between().then_some(missing)
    }

    /// The head of the next frame, for as much of the message as is `readable`, and the length of its payload.
    pub(super) fn next_frame(&self, readable: usize) -> Option<(FrameHead, usize)> {
        let RecordState::Message(form, left, _) = self.inside else {
            return None;
        };
        let len = left.min(readable);
        let head = frame_head(form, len == left, len as u64);
        (len > 0).then_some((head, len))
    }

    /// Notes that this frame's payload, of `part` bytes, was sent.
    pub(super) fn sent_in_place(&mut self, part: usize) {
        let RecordState::Message(_, left, len) = self.inside else {
            return;
        };
        self.inside = match left.saturating_sub(part) {
            0 => {
                self.sent.add(len);
                RecordState::Head
            }
            left => RecordState::Message(None, left, len),
        };
    }

    /// Appends frames for the client to `out`. Gives the record that ends the session, if it has come: nothing behind it
    /// counts.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Last>, Corrupt> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut self.inside {
                RecordState::Head => {
                    let missing = MESSAGE_HEAD_BYTES - self.head.len();
                    self.head.extend_from_slice(split(&mut rest, missing));
                    if let Ok(head) = <[u8; MESSAGE_HEAD_BYTES]>::try_from(self.head.as_slice()) {
                        self.head.clear();
                        if self.begin(head, out)? == Content::Restart {
                            return Ok(Some(Last::Restart));
                        }
                    }
                }
                RecordState::Message(form, left, len) => {
                    let part = split(&mut rest, *left);
                    *left -= part.len();
                    out.extend_from_slice(&frame_head(form.take(), *left == 0, part.len() as u64));
                    out.extend_from_slice(part);
                    if *left == 0 {
                        self.sent.add(*len);
                        self.inside = RecordState::Head;
                    }
                }
                RecordState::Close(len, got, is_fault) => {
                    let missing = *len - got.len();
                    got.extend_from_slice(split(&mut rest, missing));
                    if got.len() == *len {
                        let last = if *is_fault {
                            read_fault(got).map(Last::Fault)
                        } else {
                            read_close(got).map(Last::Close)
                        };
                        let last = last.map_err(|_| NONSENSE)?;
                        self.inside = RecordState::Head;
                        return Ok(Some(last));
                    }
                }
            }
        }
        Ok(None)
    }

    fn begin(
        &mut self,
        head: [u8; MESSAGE_HEAD_BYTES],
        out: &mut Vec<u8>,
    ) -> Result<Content, Corrupt> {
        let (content, len) = read_message_head(head).map_err(|_| NONSENSE)?;
        self.inside = match content {
            Content::Close => RecordState::Close(len, Vec::with_capacity(len), false),
            Content::Fault if !self.deflates => return Err(NOT_ITS_TO_BLAME),
            Content::Fault => RecordState::Close(len, Vec::with_capacity(len), true),
            Content::Restart => RecordState::Head,
            Content::Message(form) if form.is_deflated && !self.deflates => return Err(NOT_AGREED),
            Content::Message(form) if len == 0 => {
                out.extend_from_slice(&frame_head(Some(form), true, 0));
                self.sent.add(0);
                RecordState::Head
            }
            Content::Message(form) => RecordState::Message(Some(form), len, len),
        };
        Ok(content)
    }
}

const NONSENSE: Corrupt = Corrupt("a message of a WebSocket makes no sense");
const NOT_AGREED: Corrupt =
    Corrupt("a message is compressed for a client that has not agreed on permessage-deflate");
const NOT_ITS_TO_BLAME: Corrupt = Corrupt(
    "a compression fault is reported for a client that has not agreed on permessage-deflate",
);

/// Takes up to `len` bytes off the front.
fn split<'b>(bytes: &mut &'b [u8], len: usize) -> &'b [u8] {
    let (part, rest) = bytes.split_at(len.min(bytes.len()));
    *bytes = rest;
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanchion_record::{MessageKind, close_record, fault_record, message_head, restart};

    fn written() -> Vec<u8> {
        let text = Content::Message(MessageKind::Text.into());
        let binary = Content::Message(MessageKind::Binary.into());
        [
            &message_head(text, 5)[..],
            b"hello",
            &message_head(binary, 0),
            &message_head(binary, 3),
            b"abc",
            &close_record(&Close::new(4000, "over")),
            b"nothing counts",
        ]
        .concat()
    }

    /// The messages in these frames, put together from their fragments, and the number of frames.
    fn read(mut frames: &[u8]) -> (Vec<(u8, Vec<u8>)>, usize) {
        let (mut messages, mut count) = (Vec::new(), 0);
        let mut open = None;
        while let [first, len, rest @ ..] = frames {
            let (payload, behind) = rest.split_at(usize::from(*len));
            let (opcode, is_last) = (first & 0x0f, first & 0x80 != 0);
            let (kind, mut bytes) = match (open.take(), opcode) {
                (None, 1 | 2) => (opcode, Vec::new()),
                (Some(begun), 0) => begun,
                (open, _) => panic!("{opcode} in {open:?}"),
            };
            bytes.extend_from_slice(payload);
            if is_last {
                messages.push((kind, bytes));
            } else {
                open = Some((kind, bytes));
            }
            (frames, count) = (behind, count + 1);
        }
        assert_eq!(open, None);
        (messages, count)
    }

    #[test]
    fn messages_become_frames_in_whatever_pieces_they_come() {
        let written = written();
        for step in 1..=written.len() {
            let (mut outward, mut out, mut close) = (FrameEncoder::default(), Vec::new(), None);
            for piece in written.chunks(step) {
                close = outward.take(piece, &mut out).expect("it makes sense");
                if close.is_some() {
                    break;
                }
            }
            let (messages, frames) = read(&out);
            let said = [(1, b"hello".to_vec()), (2, vec![]), (2, b"abc".to_vec())];
            assert_eq!(messages, said, "{step}");
            let last = Last::Close(Close::new(4000, "over"));
            assert_eq!(close, Some(last), "{step}");
            assert_eq!(outward.sent, MessageTotals { count: 3, bytes: 8 }, "{step}");
            if step == written.len() {
                assert_eq!(frames, 3, "what is there as a whole is one frame");
            }
        }
    }

    #[test]
    fn a_worker_that_closes_is_told_from_an_app_that_says_the_same() {
        let leaves = message_head(Content::Restart, 0);
        let says = close_record(&restart());
        let too_big = Close::new(1009, "a message is too long");
        let [says_it, blames] = [close_record(&too_big), fault_record(&too_big)];
        for (bytes, last) in [
            (&leaves[..], Last::Restart),
            (&says, Last::Close(restart())),
            (&says_it, Last::Close(too_big.clone())),
            (&blames, Last::Fault(too_big)),
        ] {
            let taken = FrameEncoder::new(true).take(bytes, &mut Vec::new());
            assert_eq!(taken, Ok(Some(last)));
        }
    }

    #[test]
    fn a_worker_blames_only_clients_that_compress_and_by_the_codes_for_it() {
        for (deflates, code, outcome) in [
            (false, 1007, NOT_ITS_TO_BLAME),
            (false, 1009, NOT_ITS_TO_BLAME),
            (true, 1000, NONSENSE),
            (true, 1002, NONSENSE),
            (true, 1012, NONSENSE),
            (true, 4000, NONSENSE),
        ] {
            let blames = fault_record(&Close::new(code, ""));
            let taken = FrameEncoder::new(deflates).take(&blames, &mut Vec::new());
            assert_eq!(taken, Err(outcome), "{code}");
        }
    }

    #[test]
    fn what_has_come_of_a_message_is_a_frame() {
        let mut outward = FrameEncoder::default();
        let head = message_head(Content::Message(MessageKind::Text.into()), 3);
        for (bytes, frames, is_between) in [
            (&head[..4], &b""[..], true),
            (&head[4..], b"", false),
            (b"ab", b"\x01\x02ab", false),
            (b"c", b"\x80\x01c", true),
        ] {
            let mut out = Vec::new();
            assert_eq!(outward.take(bytes, &mut out), Ok(None));
            assert_eq!(out, frames, "{bytes:?}");
            assert_eq!(outward.is_between(), is_between, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_sent_in_place_is_framed_as_what_is_taken() {
        for there in 1..=3 {
            let mut outward = FrameEncoder::default();
            assert_eq!(outward.missing_head(), Some(MESSAGE_HEAD_BYTES));
            let head = message_head(Content::Message(MessageKind::Text.into()), 3);
            let mut out = Vec::new();
            assert_eq!(outward.take(&head[..4], &mut out), Ok(None));
            assert_eq!(
                (outward.missing_head(), outward.next_frame(9).is_none()),
                (Some(1), true)
            );
            assert_eq!(outward.take(&head[4..], &mut out), Ok(None));
            assert_eq!(
                (outward.missing_head(), outward.next_frame(0).is_none()),
                (None, true)
            );
            let mut left = &b"abc"[..];
            while !left.is_empty() {
                let (head, len) = outward.next_frame(there.min(left.len())).expect("a frame");
                out.extend_from_slice(&head);
                out.extend_from_slice(split(&mut left, len));
                outward.sent_in_place(len);
            }
            assert!(outward.is_between());
            assert_eq!(outward.sent, MessageTotals { count: 1, bytes: 3 });
            assert_eq!(
                read(&out),
                (vec![(1, b"abc".to_vec())], 3_usize.div_ceil(there))
            );
        }
    }

    #[test]
    fn the_first_frame_says_that_a_message_is_compressed() {
        let (kind, is_deflated) = (MessageKind::Text, true);
        let head = message_head(Content::Message(MessageForm { kind, is_deflated }), 3);
        let mut outward = FrameEncoder::new(true);
        for (bytes, frames) in [
            (&[&head[..], b"ab"].concat()[..], &b"\x41\x02ab"[..]),
            (b"c", b"\x80\x01c"),
            (&[&head[..], b"abc"].concat(), b"\xc1\x03abc"),
        ] {
            let mut out = Vec::new();
            assert_eq!(outward.take(bytes, &mut out), Ok(None));
            assert_eq!(out, frames, "{bytes:?}");
        }
        assert_eq!(outward.take(&head, &mut Vec::new()), Ok(None));
        let mut out = Vec::new();
        for _ in 0..3 {
            let (head, len) = outward.next_frame(1).expect("a frame");
            out.extend_from_slice(&head);
            outward.sent_in_place(len);
        }
        assert_eq!(out, b"\x41\x01\x00\x01\x80\x01");
        // A client that has not agreed on compression gets no compressed message.
        let empty = message_head(Content::Message(MessageForm { kind, is_deflated }), 0);
        for head in [head, empty] {
            let mut out = Vec::new();
            let outcome = FrameEncoder::new(false).take(&head, &mut out);
            assert_eq!((outcome, out), (Err(NOT_AGREED), vec![]));
        }
    }

    #[test]
    fn what_no_host_writes_is_refused() {
        for bytes in [
            &[0; MESSAGE_HEAD_BYTES][..],
            &[9, 1, 0, 0, 0],
            &[3, 1, 0, 0, 0],
            &[3, 255, 0, 0, 0],
            &[4, 1, 0, 0, 0],
            &[3, 3, 0, 0, 0, 0xe8, 0x03, 0xff],
        ] {
            let outcome = FrameEncoder::default().take(bytes, &mut Vec::new());
            assert_eq!(outcome, Err(NONSENSE), "{bytes:?}");
        }
    }
}
