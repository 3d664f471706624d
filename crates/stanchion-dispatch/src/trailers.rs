//! A worker writes the body in pieces behind a head that announces trailers (RFC 9110 section 6.5), so that the body
//! has an end, and then the trailers.
//!
//! The prefix of such an answer says that the body comes in pieces, each behind a prefix of its own, and the trailers
//! behind the last one. The acceptor takes the pieces apart where it collects the body, and holds the trailers to the
//! rules before it counts the answer as whole. A worker that dies in between leaves an answer that is not whole.

use bytes::Bytes;
use stanchion_exchange::Corrupt;
use stanchion_http::check_trailers;

use stanchion_record::{AnswerPart, PREFIX_BYTES, answer_part};

/// How far an answer with trailers has come.
#[derive(Default)]
pub(crate) struct Trailed {
    /// The bytes that have come of the prefix of a part.
    prefix: Vec<u8>,
    /// Bytes that are still to come of the present piece.
    piece_left: u64,
    /// The length of the trailers, which is no more than a prefix may say, and the bytes of them that have come.
    trailers: Option<(usize, Vec<u8>)>,
    /// All of the answer is there, and its trailers keep the rules.
    is_checked: bool,
}

impl Trailed {
    /// Takes what a worker has written, and gives the bytes of it that are body, in one piece, since an app may have
    /// written it byte by byte.
    pub(crate) fn take(&mut self, written: &[u8]) -> Result<Bytes, Corrupt> {
        let mut body = Vec::new();
        let mut rest = written;
        while !rest.is_empty() {
            let wanted = self.wanted()?.min(rest.len() as u64) as usize;
            let (part, behind) = rest.split_at(wanted);
            rest = behind;
            if let Some((_, trailers)) = &mut self.trailers {
                trailers.extend_from_slice(part);
            } else if self.piece_left > 0 {
                body.extend_from_slice(part);
                self.piece_left -= wanted as u64;
            } else {
                self.prefix.extend_from_slice(part);
                self.begin_part()?;
            }
        }
        Ok(Bytes::from(body))
    }

    /// How many bytes of the present part are still to come.
    fn wanted(&self) -> Result<u64, Corrupt> {
        match &self.trailers {
            Some((len, trailers)) if trailers.len() == *len => {
                Err(Corrupt("a worker goes on behind the trailers of an answer"))
            }
            Some((len, trailers)) => Ok((len - trailers.len()) as u64),
            None if self.piece_left > 0 => Ok(self.piece_left),
            None => Ok((PREFIX_BYTES - self.prefix.len()) as u64),
        }
    }

    /// Begins with the part that the prefix announces, once all of the prefix is there.
    fn begin_part(&mut self) -> Result<(), Corrupt> {
        if self.prefix.len() < PREFIX_BYTES {
            return Ok(());
        }
        let part = answer_part(&self.prefix);
        match part
            .map_err(|_| Corrupt("a part of an answer with trailers has an invalid prefix"))?
        {
            AnswerPart::Piece(len) => self.piece_left = len,
            AnswerPart::Trailers(len) => self.trailers = Some((len, Vec::new())),
        }
        self.prefix.clear();
        Ok(())
    }

    /// Checks, at the end of an answer, that it has trailers and that they keep the rules.
    pub(crate) fn check(&mut self) -> Result<(), Corrupt> {
        match &self.trailers {
            Some((len, trailers)) if trailers.len() == *len => {
                check_trailers(trailers).map_err(Corrupt)?;
            }
            Some(_) | None => {
                return Err(Corrupt(
                    "an answer has no trailers, though it announced them",
                ));
            }
        }
        self.is_checked = true;
        Ok(())
    }

    /// The trailers in wire form, if they were checked.
    pub(crate) fn into_trailers(self) -> Option<Vec<u8>> {
        let (_, wire) = self.trailers.filter(|_| self.is_checked)?;
        Some(wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stanchion_record::{AnswerHead, piece_prefix};

    fn trailers(lines: &[u8]) -> Vec<u8> {
        let mut whole = AnswerHead::trailers().whole_trailers().to_vec();
        whole[..4].copy_from_slice(&(lines.len() as u32).to_le_bytes());
        whole.extend_from_slice(lines);
        whole
    }

    fn taken(written: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Corrupt> {
        let mut trailed = Trailed::default();
        let body = trailed.take(written)?;
        trailed.check()?;
        let trailers = trailed.into_trailers().expect("they were checked");
        Ok((body.to_vec(), trailers))
    }

    proptest! {
        #[test]
        fn body_and_trailers_come_out_however_they_are_cut(
            pieces: Vec<Vec<u8>>,
            cuts in proptest::collection::vec(1_usize..40, 1..10),
        ) {
            let mut written = Vec::new();
            for piece in &pieces {
                written.extend_from_slice(&piece_prefix(piece.len() as u64));
                written.extend_from_slice(piece);
            }
            written.extend_from_slice(&trailers(b"a: b\r\n"));
            let (mut trailed, mut body) = (Trailed::default(), Vec::new());
            let (mut rest, mut cuts) = (&written[..], cuts.iter().cycle());
            while !rest.is_empty() {
                prop_assert!(trailed.check().is_err());
                let cut = cuts.next().map_or(1, |cut| (*cut).min(rest.len()));
                body.extend_from_slice(&trailed.take(&rest[..cut]).expect("as it should be"));
                rest = &rest[cut..];
            }
            prop_assert_eq!(body, pieces.concat());
            prop_assert_eq!(trailed.check(), Ok(()));
            prop_assert_eq!(trailed.into_trailers(), Some(b"a: b\r\n".to_vec()));
        }

        #[test]
        fn garbage_is_refused_without_a_panic(written: Vec<u8>) {
            let _ = taken(&written);
        }
    }

    #[test]
    fn no_trailers_may_come_but_only_once() {
        assert_eq!(taken(&trailers(b"")), Ok((vec![], vec![])));
        let twice = [trailers(b""), trailers(b"")].concat();
        assert!(taken(&twice).is_err());
        assert!(taken(&piece_prefix(0)).is_err());
        let cut = trailers(b"a: b\r\n");
        assert!(taken(&cut[..cut.len() - 1]).is_err());
        let mut unchecked = Trailed::default();
        unchecked.take(&cut).expect("as it should be");
        assert_eq!(unchecked.into_trailers(), None);
    }

    #[test]
    fn trailers_keep_to_the_rules() {
        for lines in [
            &b"a: b"[..],
            b"a: b\n",
            b":status: 200\r\n",
            b"a b: c\r\n",
            b"a: b\0\r\n",
            b"\r\na: b\r\n",
            b"Content-Length: 0\r\n",
            b"transfer-encoding: chunked\r\n",
            b"connection: close\r\n",
        ] {
            assert!(taken(&trailers(lines)).is_err(), "{lines:?}");
        }
    }
}
