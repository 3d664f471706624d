//! An answer, on its way from the dispatch to the connection.

use std::ops::Range;

use bytes::Bytes;
use stanchion_generation::tally::Outcome;
use stanchion_http::AnswerFacts;
use stanchion_record::FilePart;

use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::storage::disk::OpenFile;

/// An answer, as the connection gets it.
pub enum Answer {
    /// The app's answer, whole or with more to come.
    App(AppAnswer),
    /// A refusal by the server.
    Refused(Refusal),
    /// A reply of the server, and the outcome that the request counts as.
    Ours(Reply, Outcome),
    /// A static file.
    Static(AppAnswer),
}

/// The head of the app's answer and the start of its body.
pub struct AppAnswer {
    /// The bytes as they came from the worker: a prefix, the head, perhaps the body.
    pub bytes: Vec<u8>,
    /// Where the head is in there, in wire form, without the empty line; checked.
    pub head: Range<usize>,
    /// The facts that the head gives about the answer.
    pub facts: AnswerFacts,
    /// The app wants the connection to end behind it. A stream of HTTP/2 has no connection of its own (RFC 9113 section
    /// 8.2.2).
    pub closes: bool,
    /// The start of the body.
    pub body: Start,
}

/// The body of an answer, as far as it is known when the head is there.
pub enum Start {
    /// All of the body is behind the head.
    Whole,
    /// The body comes through the ticket's outflow; so many bytes, if that is known.
    Streamed(Option<u64>),
    /// Parts of a file, perhaps with something between.
    File(OpenFile, Vec<BodySection>),
    /// A file of which only the head was asked for.
    FileUnasked,
}

/// A part of a body.
#[derive(Clone, Debug)]
pub enum BodySection {
    /// These bytes.
    Text(Bytes),
    /// These bytes of the file.
    Part(FilePart),
}

impl BodySection {
    /// How long it is.
    #[allow(
        clippy::len_without_is_empty,
        reason = "no caller asks whether it is empty"
    )]
    pub fn len(&self) -> u64 {
        match self {
            Self::Text(bytes) => bytes.len() as u64,
            Self::Part(part) => part.len,
        }
    }
}
