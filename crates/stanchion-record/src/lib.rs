//! How a request and the head of its answer are laid out as bytes in the exchange.
//!
//! ```text
//! request   fixed numbers │ small texts │ where the fields are │ the head as it was sent │ body
//! answer    prefix │ head in wire form, without the empty line at its end │ body
//! hints     prefix │ head in wire form, any number of times before the answer
//! trailed   an answer with trailers: prefix │ head │ (prefix │ piece of the body)* │ prefix │ fields in wire form
//! message   kind │ length │ bytes
//! ```
//!
//! The acceptor copies a request in one piece, not field by field. The worker checks its table of fields once, and
//! copies the body directly to the memory from which the app reads. The prefix of an answer says how long the head is,
//! and, if the body is part of a file, which part.
//!
//! Numbers are little-endian. Acceptor and worker read each other's records. Both are of one build, so a record has no
//! version. But each side checks every length: the app's native code may spoil the worker's memory, and a worker can
//! write to all of the exchange.
//!
//! This crate reads and writes bytes that its caller hands it, and decides nothing. It may not do I/O, read a clock,
//! have threads or use unsafe code.

#![forbid(unsafe_code)]

mod answer;
mod message;
mod request;
mod tls;

pub use answer::{
    ANSWER_HEAD_BYTES_MAX, AnswerHead, AnswerPart, AnswerPrefix, FilePart, HINT_BYTES_MAX,
    HINTS_BYTES_MAX, HINTS_MAX, PREFIX_BYTES, RESPONSE_RING_BYTES, TRAILERS_BYTES_MAX, answer_part,
    answer_prefix, hints_len, piece_prefix, response_ring_bytes,
};
pub use message::{
    Claim, Close, Codec, Content, MESSAGE_HEAD_BYTES, MessageForm, MessageKind, REASON_BYTES_MAX,
    Ration, close_record, code, fault_record, is_sendable, message_head, read_close, read_fault,
    read_message_head, restart,
};
pub use request::{
    BodyRecord, BodySource, REQUEST_HEAD_BYTES_MAX, REQUEST_RECORD_EXTRA_BYTES, RequestBuffer,
    RequestFacts, RequestRecord, write_request,
};
pub use tls::{TLS_BYTES_MAX, TlsValues, tls_values};

/// A longer buffer is not kept for the next record.
const KEPT_BYTES: usize = 16 * 1024;

/// The record ends before it should, or says something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord;

impl std::fmt::Display for BadRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a record in the exchange makes no sense")
    }
}

impl std::error::Error for BadRecord {}

/// Fills a fixed number of bytes from the front.
struct Numbers<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Numbers<N> {
    fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    fn put<const B: usize>(&mut self, bytes: [u8; B]) {
        self.bytes[self.len..self.len + B].copy_from_slice(&bytes);
        self.len += B;
    }
}

/// Reads from the front of a slice.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BadRecord)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadRecord> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BadRecord)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn short(&mut self) -> Result<usize, BadRecord> {
        Ok(usize::from(u16::from_le_bytes(self.array()?)))
    }

    fn word(&mut self) -> Result<usize, BadRecord> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn number(&mut self) -> Result<u64, BadRecord> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
