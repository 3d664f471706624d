//! A worker may send early hints (RFC 8297) before its answer. They are no answer yet: until the head is there, the
//! server may still refuse the request, or another worker may run it.
//!
//! There is room for all hints that are allowed beside a head of any length, so no seat waits for room. An answer
//! without any costs only a look at the prefix.

use stanchion_exchange::Corrupt;
use stanchion_http::Head;
use stanchion_record::{HINTS_BYTES_MAX, HINTS_MAX};

/// Whether the server may send hints before the answer to a request with this head. Not to HTTP/1.0, to which no 1xx
/// may go (RFC 9110 section 15.2). Not to HEAD either, though it is allowed: an nginx before 1.29 takes the hints for
/// the answer, which a HEAD ends with, and gives the answer that comes then to the next request on that connection.
pub fn takes_hints(head: &Head) -> bool {
    head.minor_version() > 0 && head.method() != "HEAD"
}

/// The hints of one request.
#[derive(Default)]
pub struct Hints {
    /// How many hints have come from the worker that runs the request, and how many bytes.
    count: usize,
    bytes: usize,
    /// Hints as they go to the client, as far as the kernel has not taken them.
    unsent: Vec<u8>,
    /// Where in `unsent` each hint ends.
    ends: Vec<usize>,
    /// The kernel has taken a part of the first hint: the client must get the rest before anything else.
    is_begun: bool,
}

impl Hints {
    /// Adds a hint. It is an error to send more than may go before an answer.
    pub(crate) fn add(&mut self, wire: &[u8]) -> Result<(), Corrupt> {
        self.count += 1;
        self.bytes += wire.len();
        if self.count > HINTS_MAX || self.bytes > HINTS_BYTES_MAX {
            return Err(Corrupt(
                "a worker sends more hints than may go before an answer",
            ));
        }
        self.unsent.extend_from_slice(wire);
        self.unsent.extend_from_slice(b"\r\n");
        self.ends.push(self.unsent.len());
        Ok(())
    }

    /// The bytes to send now.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// Notes that the kernel has taken `len` bytes. Hints that it had no room for are dropped, but for the rest of a
    /// hint that has begun: the server keeps no hints for a slow client, since they would come too late.
    pub fn sent(&mut self, len: usize) {
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

    /// Moves the unsent bytes to `out`, where the answer comes behind them.
    pub fn put(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.unsent);
        self.ends.clear();
        self.is_begun = false;
    }

    /// Counts from zero, because another worker begins with the request.
    pub(crate) fn begin_anew(&mut self) {
        (self.count, self.bytes) = (0, 0);
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
