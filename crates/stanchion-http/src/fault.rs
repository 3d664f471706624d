//! Faults of a message, and the status that each earns.

/// A fault of a message: its sender is always at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not HTTP.
    BadRequest(&'static str),
    /// It uses a feature of HTTP that this server does not have.
    Unimplemented(&'static str),
    /// It has a version of HTTP that this server does not speak.
    Version,
    /// The request line is over its limit.
    LineTooLong,
    /// One field is over its limit.
    FieldTooLarge,
    /// The whole head, or the number of its fields, is over its limit.
    HeadTooLarge,
    /// It has an expectation that this server cannot fulfil.
    UnknownExpectation,
    /// A chunk of its body has a size that does not fit into 64 bits.
    ChunkTooLarge,
}

impl Fault {
    /// The status of the answer (RFC 9110 section 15; 431 is RFC 6585 section 5).
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Unimplemented(_) => 501,
            Self::Version => 505,
            Self::LineTooLong => 414,
            Self::FieldTooLarge | Self::HeadTooLarge => 431,
            Self::UnknownExpectation => 417,
            Self::ChunkTooLarge => 413,
        }
    }

    /// For the log and for the client, in one line.
    pub fn reason(self) -> &'static str {
        match self {
            Self::BadRequest(reason) | Self::Unimplemented(reason) => reason,
            Self::Version => "a version other than HTTP/1.0 and HTTP/1.1",
            Self::LineTooLong => "the request line is too long",
            Self::FieldTooLarge => "a header field is too large",
            Self::HeadTooLarge => "the head is too large",
            Self::UnknownExpectation => "an expectation other than 100-continue",
            Self::ChunkTooLarge => "a chunk is too large",
        }
    }
}
