//! The kind and the form of a message (RFC 6455 section 5.6).

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// The form of a message, according to its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageForm {
    /// Text or binary.
    pub kind: MessageKind,
    /// Whether it is compressed. Then its content has not been checked against its kind yet.
    pub is_deflated: bool,
}

impl From<MessageKind> for MessageForm {
    /// The form of a message that is not compressed.
    fn from(kind: MessageKind) -> Self {
        Self {
            kind,
            is_deflated: false,
        }
    }
}
