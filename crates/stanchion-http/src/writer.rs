//! A writer for heads of requests that came in another form than HTTP/1.1: as packets of the uwsgi protocol, or frames of HTTP/2.

use crate::answer::put_field;
use crate::fault::Fault;
use crate::head::Head;
use crate::head_rules::HeadRules;
use crate::octets::{TARGET, is_field_text};
use crate::reader::HeadReader;
use crate::rules::is_token;
use crate::stray::stray;

/// Writes such a head as text of HTTP/1.1, and has [`HeadReader`] read it: so the same rules and limits apply, and one place decides how the message
/// is framed.
#[derive(Clone, Debug)]
pub struct HeadWriter {
    text: Vec<u8>,
}

impl HeadWriter {
    /// Begins with the parts of a request line, for HTTP/1.0 or 1.1. Each part is checked on its own, so that no part can pass for two.
    ///
    /// # Errors
    /// The method is not a token, or the target is empty or has a byte that no target may hold.
    pub fn begin(method: &[u8], target: &[u8], minor_version: u8) -> Result<Self, Fault> {
        if !is_token(method) {
            return Err(Fault::BadRequest("the method is not a token"));
        }
        if target.is_empty() {
            return Err(Fault::BadRequest("the target is empty"));
        }
        if let Some(&byte) = target.get(TARGET.run(target)) {
            return Err(stray(byte));
        }
        let version: &[u8] = match minor_version {
            0 => b" HTTP/1.0\r\n",
            _ => b" HTTP/1.1\r\n",
        };
        let text = [method, b" ", target, version].concat();
        Ok(Self { text })
    }

    /// Adds a field.
    ///
    /// # Errors
    /// Its name is not a token, or its value has a control character.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        if !is_token(name) {
            return Err(Fault::BadRequest("a field whose name is not a token"));
        }
        if !is_field_text(value) {
            return Err(Fault::BadRequest("a control character in the head"));
        }
        put_field(&mut self.text, name, value);
        Ok(())
    }

    /// Reads the written head into `head`, which then has that version.
    ///
    /// # Errors
    /// The same as in [`HeadReader::read`].
    pub fn read(mut self, rules: &HeadRules, head: &mut Head) -> Result<(), Fault> {
        self.text.extend_from_slice(b"\r\n");
        let read = HeadReader::default().read(&self.text, rules, head)?;
        debug_assert_eq!(read, Some(self.text.len()), "each part was checked");
        Ok(())
    }
}

impl Head {
    /// An HTTP/1.1 head from its parts. It need have no Host.
    ///
    /// # Panics
    ///
    /// If the parts make no head.
    pub fn of(method: &str, target: &str, fields: &[(&str, &str)]) -> Self {
        let lines: String = fields
            .iter()
            .map(|(name, value)| [name, ": ", value, "\r\n"].concat())
            .collect();
        let text = format!("{method} {target} HTTP/1.1\r\n{lines}\r\n");
        let mut head = Self::default();
        let read = HeadReader::without_host().read(text.as_bytes(), &HeadRules::NONE, &mut head);
        assert_eq!(read, Ok(Some(text.len())), "{text:?} is no head");
        head
    }
}
