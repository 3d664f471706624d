//! What a worker has for a client ahead of an answer: early hints (RFC 8297). They are no answer yet. Until its head is
//! there the request may still be answered otherwise, or run by another worker.

use stanchion_exchange::Corrupt;
use stanchion_http::{Head, check_hints};

use super::Dispatch;
use crate::acceptor::dispatch::ticket::Ticket;
use crate::record::{HINT_BYTES_MAX, HINTS_BYTES_MAX, HINTS_MAX, PREFIX_BYTES, hints_len};

/// Whether hints may go ahead of the answer to a request with this head. To HTTP/1.0 nothing does (RFC 9110 section 15.2).
/// To HEAD something may, but an nginx before 1.29 takes it for the answer, which a HEAD ends with, and gives the answer
/// that comes then to whoever is next on that connection.
pub(crate) fn takes_hints(head: &Head) -> bool {
    head.minor_version() > 0 && head.method() != "HEAD"
}

/// The hints of one request.
#[derive(Default)]
pub(crate) struct Hints {
    /// So many have come of the worker that runs it, with so many bytes.
    count: usize,
    bytes: usize,
    /// As they go to the client, and what the kernel has not taken.
    unsent: Vec<u8>,
    /// Where in that each of them ends.
    ends: Vec<usize>,
    /// The kernel has taken a part of the first one: the client must get the rest before anything else.
    is_begun: bool,
}

impl Hints {
    fn add(&mut self, wire: &[u8]) -> Result<(), Corrupt> {
        self.count += 1;
        self.bytes += wire.len();
        if self.count > HINTS_MAX || self.bytes > HINTS_BYTES_MAX {
            return Err(Corrupt("more hints than may go ahead of an answer"));
        }
        self.unsent.extend_from_slice(wire);
        self.unsent.extend_from_slice(b"\r\n");
        self.ends.push(self.unsent.len());
        Ok(())
    }

    /// What is to be sent now.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// The kernel has taken so much of it. What it has no room for is dropped, but for the rest of one that has begun: hints
    /// are not kept for a client that is slow, since they would come too late.
    pub(crate) fn sent(&mut self, len: usize) {
        let whole = self.ends.partition_point(|&end| end <= len);
        self.is_begun = match whole.checked_sub(1) {
            Some(last) => len > self.ends[last],
            None => len > 0 || self.is_begun,
        };
        let end = self.ends.get(whole).filter(|_| self.is_begun).copied();
        let rest = self.unsent[len..end.unwrap_or(len)].to_vec();
        self.ends.clear();
        self.ends.extend(end.map(|_| rest.len()));
        self.unsent = rest;
    }

    /// Moves what is unsent to where the answer comes behind it.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.unsent);
        self.ends.clear();
        self.is_begun = false;
    }

    /// Another worker begins with the request anew.
    pub(crate) fn begin_anew(&mut self) {
        (self.count, self.bytes) = (0, 0);
    }
}

impl Dispatch {
    /// Takes the hints that a seat has written, up to the head of its answer. Gives whether that was seen: what comes
    /// later may be one more hint.
    pub(super) fn take_hints(&mut self, slot: u32, ticket: &Ticket) -> Result<bool, Corrupt> {
        let mut prefix = [0; PREFIX_BYTES];
        while self.side.readable(slot)? > 0 {
            // A seat publishes either in one piece.
            if !self.side.peek(slot, &mut prefix)? {
                return Err(Corrupt("what is before the head of an answer is cut"));
            }
            let Some(len) = hints_len(&prefix) else {
                return Ok(true);
            };
            if !ticket.request.takes_hints {
                return Err(Corrupt("hints for a client that takes none"));
            }
            if len > HINT_BYTES_MAX {
                return Err(Corrupt("a hint is longer than may go ahead of an answer"));
            }
            let mut bytes = self.spare();
            self.side.read(slot, PREFIX_BYTES + len, &mut bytes)?;
            let wire = bytes.get(PREFIX_BYTES..PREFIX_BYTES + len);
            let wire = wire.ok_or(Corrupt("hints are cut"))?;
            check_hints(wire).map_err(Corrupt)?;
            ticket.hint(|hints| hints.add(wire))?;
            self.recycle(bytes);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n";

    #[test]
    fn hints_are_bounded_by_their_number_and_by_their_bytes() {
        for (wire, fitting) in [
            (WIRE, HINTS_MAX),
            (&b"x".repeat(HINTS_BYTES_MAX / 4), 4),
            (&b"x".repeat(HINTS_BYTES_MAX + 1), 0),
        ] {
            let mut hints = Hints::default();
            for _ in 0..2 {
                for _ in 0..fitting {
                    assert_eq!(hints.add(wire), Ok(()));
                }
                assert!(hints.add(wire).is_err());
                hints.begin_anew();
            }
        }
    }

    #[test]
    fn what_has_begun_is_kept_and_what_has_not_is_dropped() {
        let mut hints = Hints::default();
        hints.add(WIRE).expect("few");
        hints.sent(0);
        assert_eq!(hints.unsent(), b"");
        hints.add(WIRE).expect("few");
        hints.sent(10);
        assert_eq!(hints.unsent(), &[&WIRE[10..], b"\r\n"].concat());
        hints.sent(0);
        let mut out = Vec::new();
        hints.put(&mut out);
        assert_eq!(out, [&WIRE[10..], b"\r\n"].concat());
        assert_eq!(hints.unsent(), b"");
        hints.add(WIRE).expect("few");
        hints.sent(0);
        assert_eq!(hints.unsent(), b"");
        hints.add(WIRE).expect("few");
        hints.sent(WIRE.len() + 2);
        hints.add(WIRE).expect("few");
        hints.sent(0);
        assert_eq!(hints.unsent(), b"", "all of the one before was sent");
    }

    #[test]
    fn those_behind_one_that_has_begun_are_dropped() {
        let whole = [WIRE, b"\r\n"].concat();
        for sent in 0..3 * whole.len() {
            let mut hints = Hints::default();
            for _ in 0..3 {
                hints.add(WIRE).expect("few");
            }
            hints.sent(sent);
            let begun = sent % whole.len();
            let rest = if begun == 0 { &[][..] } else { &whole[begun..] };
            assert_eq!(hints.unsent(), rest, "{sent}");
            hints.add(WIRE).expect("few");
            hints.sent(0);
            assert_eq!(hints.unsent(), rest, "{sent}");
            hints.add(WIRE).expect("few");
            hints.sent(rest.len());
            assert_eq!(hints.unsent(), b"", "{sent}");
        }
    }
}
