//! The fields of a request that the server itself acts on: host, framing, expectation, end of the connection.

use crate::body::Framing;
use crate::fault::Fault;
use crate::rules::{content_length, lists};
use crate::target::is_host;

/// The facts in the fields so far.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is something that may have been said or not"
)]
pub(crate) struct Meaning {
    has_host: bool,
    length: Option<u64>,
    is_chunked: bool,
    pub(crate) expects_continue: bool,
    close: bool,
    keep_alive: bool,
}

/// Whether a field says how its message is framed.
pub(crate) fn is_framing(name: &[u8]) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    is("content-length") || is("transfer-encoding")
}

/// Whether [`Meaning::note`] acts on a field of this name.
pub(crate) fn is_understood(name: &[u8]) -> bool {
    let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    is_framing(name) || ["host", "expect", "connection"].iter().any(is)
}

impl Meaning {
    /// Takes note of a field. `false` if the field only repeats an earlier one, and is to be dropped.
    pub(crate) fn note(&mut self, name: &[u8], value: &[u8]) -> Result<bool, Fault> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 if is("host") => self.host(value).map(|()| true),
            6 if is("expect") => self.expect(value).map(|()| true),
            10 if is("connection") => {
                self.connection(value);
                Ok(true)
            }
            14 if is("content-length") => self.content_length(value),
            17 if is("transfer-encoding") => self.transfer_encoding(value).map(|()| true),
            _ => Ok(true),
        }
    }

    /// RFC 9112 section 3.2: there is one Host field, and it is valid.
    fn host(&mut self, value: &[u8]) -> Result<(), Fault> {
        if std::mem::replace(&mut self.has_host, true) {
            return Err(Fault::BadRequest("more than one Host field"));
        }
        if !is_host(value) {
            return Err(Fault::BadRequest("the Host field is not a host"));
        }
        Ok(())
    }

    /// RFC 9110 section 10.1.1.
    fn expect(&mut self, value: &[u8]) -> Result<(), Fault> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Fault::UnknownExpectation);
        }
        self.expects_continue = true;
        Ok(())
    }

    /// RFC 9110 section 7.6.1.
    fn connection(&mut self, value: &[u8]) {
        self.close |= lists(value, b"close");
        self.keep_alive |= lists(value, b"keep-alive");
    }

    /// RFC 9112 section 6.3, point 5: there is one length; a second field may repeat it.
    fn content_length(&mut self, value: &[u8]) -> Result<bool, Fault> {
        let length = content_length(value);
        let length = length.ok_or(Fault::BadRequest("the Content-Length is not a length"))?;
        match self.length.replace(length) {
            None => Ok(true),
            Some(earlier) if earlier == length => Ok(false),
            Some(_) => Err(Fault::BadRequest("two Content-Lengths that differ")),
        }
    }

    /// RFC 9112 sections 6.1 and 7: the only transfer coding is chunked.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Fault::Unimplemented("a transfer coding other than chunked"));
        }
        self.is_chunked = true;
        Ok(())
    }

    /// How the body is framed, once all fields were noted (RFC 9112 section 6.3).
    pub(crate) fn framing(&self, minor_version: u8) -> Result<Framing, Fault> {
        match (self.is_chunked, self.length) {
            (false, None | Some(0)) => Ok(Framing::Empty),
            (false, Some(length)) => Ok(Framing::Length(length)),
            // RFC 9112 section 6.1 calls this framing faulty.
            (true, _) if minor_version == 0 => {
                Err(Fault::BadRequest("a transfer coding in HTTP/1.0"))
            }
            // RFC 9112 section 6.1 permits a server to refuse it, and clients smuggle requests with it.
            (true, Some(_)) => Err(Fault::BadRequest(
                "both Content-Length and Transfer-Encoding",
            )),
            (true, None) => Ok(Framing::Chunked),
        }
    }

    /// RFC 9112 section 3.2: HTTP/1.1 has a Host.
    pub(crate) fn check_host(&self, minor_version: u8) -> Result<(), Fault> {
        if minor_version > 0 && !self.has_host {
            return Err(Fault::BadRequest("HTTP/1.1 without a Host field"));
        }
        Ok(())
    }

    /// RFC 9112 section 9.3.
    pub(crate) fn keeps_alive(&self, minor_version: u8) -> bool {
        !self.close && (minor_version > 0 || self.keep_alive)
    }
}
