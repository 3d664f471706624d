//! The forms in which the head of a request comes.

use stanchion_http::{Fault, Head, HeadReader, HeadRules, read_packet};

/// Reads a head that comes in pieces.
pub(super) enum HeadForm {
    /// HTTP/1.1.
    Text(HeadReader),
    /// A packet of the uwsgi protocol.
    Packet,
}

impl HeadForm {
    /// Reads on: [`HeadReader::read`], [`read_packet`].
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        rules: &HeadRules,
        head: &mut Head,
    ) -> Result<Option<usize>, Fault> {
        match self {
            Self::Text(reader) => reader.read(bytes, rules, head),
            Self::Packet => read_packet(bytes, rules, head),
        }
    }

    /// Whether the head has come whole, so that its client is known though something in it is wrong.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Text(reader) => reader.is_whole(),
            Self::Packet => false,
        }
    }
}
