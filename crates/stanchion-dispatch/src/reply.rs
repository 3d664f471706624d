//! An answer of the server itself.

use std::borrow::Cow;

use bytes::Bytes;

/// The content of an answer, without its framing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// Further fields, as they are sent.
    pub fields: Vec<(Cow<'static, str>, String)>,
    /// The body.
    pub body: Bytes,
    /// The connection cannot go on after it.
    pub closes: bool,
}

impl Reply {
    /// A reply of plain text.
    pub fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            fields: Vec::new(),
            body: body.into(),
            closes: false,
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Keeps caches from storing the reply: it shows how things were at one moment.
    #[must_use]
    pub fn unstored(self) -> Self {
        self.with("Cache-Control", "no-store")
    }
}
