//! The requests that a connection would read from its bytes, one after the other.

#![allow(dead_code)] // each test that has this file uses a part of it

use stanchion_http::{Decoded, Decoder, Fault, Head, HeadReader, HeadRules, Permits};

/// Permits every fault.
pub(crate) const ALL: Permits = Permits {
    unconventional_method: true,
    unconventional_version: true,
    casefold_method: true,
    obsolete_folding: true,
    header_spaces: true,
};

/// A request that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its head.
    pub(crate) head: Head,
    /// Its body, without the framing.
    pub(crate) body: Vec<u8>,
}

/// The requests in `bytes`, which come in pieces of this size, and the fault of the one after them.
pub(crate) fn read_all(
    bytes: &[u8],
    limits: &HeadRules,
    piece: usize,
) -> (Vec<Request>, Option<Fault>) {
    let mut requests = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        match read_one(&mut rest, limits, piece) {
            Ok(Some(request)) => requests.push(request),
            Ok(None) => break,
            Err(fault) => return (requests, Some(fault)),
        }
    }
    (requests, None)
}

fn read_one(rest: &mut &[u8], limits: &HeadRules, piece: usize) -> Result<Option<Request>, Fault> {
    let (mut reader, mut head) = (HeadReader::default(), Head::default());
    let ends = (1..=rest.len().div_ceil(piece)).map(|n| (n * piece).min(rest.len()));
    let mut lens = ends.map(|end| reader.read(&rest[..end], limits, &mut head));
    let Some(len) = lens.find_map(Result::transpose).transpose()? else {
        return Ok(None);
    };
    *rest = &rest[len..];
    let (mut decoder, mut body) = (Decoder::new(head.framing()), Vec::new());
    while !decoder.is_over() {
        let (mut input, later) = rest.split_at(piece.min(rest.len()));
        if input.is_empty() {
            return Ok(None);
        }
        while let Decoded::Data(data) = decoder.decode(&mut input)? {
            assert!(!data.is_empty(), "no data is none");
            body.extend_from_slice(data);
        }
        *rest = &rest[rest.len() - later.len() - input.len()..];
    }
    Ok(Some(Request { head, body }))
}

/// A head written again from the parsed one.
pub(crate) fn rewritten(head: &Head) -> Vec<u8> {
    let mut bytes = [
        head.method().as_bytes(),
        b" ",
        head.target(),
        b" ",
        head.protocol().as_bytes(),
    ]
    .concat();
    bytes.extend_from_slice(b"\r\n");
    for (name, value) in head.fields() {
        bytes.extend_from_slice(&[name, b":", value, b"\r\n"].concat());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}
