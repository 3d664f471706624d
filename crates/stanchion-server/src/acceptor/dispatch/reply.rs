//! An answer that the server gives itself.

use std::borrow::Cow;

use bytes::Bytes;

/// What it says, apart from how it is framed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    /// Further fields, as they are sent.
    pub(crate) fields: Vec<(Cow<'static, str>, String)>,
    pub(crate) body: Bytes,
    /// The connection cannot go on after it.
    pub(crate) closes: bool,
}

impl Reply {
    /// One of plain text.
    pub(crate) fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            fields: Vec::new(),
            body: body.into(),
            closes: false,
        }
    }

    /// With one more field.
    #[must_use]
    pub(crate) fn with(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// It is as it was at that moment, and no cache is to tell it later.
    #[must_use]
    pub(crate) fn unstored(self) -> Self {
        self.with("Cache-Control", "no-store")
    }
}
