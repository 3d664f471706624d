//! Requests of HTTP/2 (RFC 9113) as heads: what its frames say ahead of a body, once they are decoded.

use crate::body::Framing;
use crate::fault::Fault;
use crate::head::{Field, Head};
use crate::reader::HeadRules;
use crate::writer::HeadWriter;

/// What a head of such a request says of its version: as RFC 3875 section 4.1.16 wants it, nginx writes it and gunicorn too.
pub const HTTP2: &str = "HTTP/2.0";
/// What a client sends first (RFC 9113 section 3.4).
pub const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What each field of a list takes besides its name and value (RFC 9113 section 6.5.2).
const OF_FIELD: usize = 32;

/// Fields that concern the connection, which is no request's own (RFC 9113 section 8.2.2).
const OF_CONNECTION: [&[u8]; 5] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
];

/// What the handshake of a WebSocket has in HTTP/1.1, and has not in HTTP/2 (RFC 8441 section 5). Nobody answers to the key.
const OF_HANDSHAKE: [(&str, &[u8]); 3] = [
    ("connection", b"Upgrade"),
    ("upgrade", b"websocket"),
    ("sec-websocket-key", b"AAAAAAAAAAAAAAAAAAAAAA=="),
];

/// Whether a connection begins with [`HTTP2_PREFACE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefaceStart {
    /// It does not.
    Absent,
    /// It may; too little has come.
    Part,
    /// It does.
    Whole,
}

/// Whether these bytes, the first of a connection, begin with [`HTTP2_PREFACE`].
pub fn preface_start(bytes: &[u8]) -> PrefaceStart {
    if bytes.starts_with(HTTP2_PREFACE) {
        PrefaceStart::Whole
    } else if HTTP2_PREFACE.starts_with(bytes) {
        PrefaceStart::Part
    } else {
        PrefaceStart::Absent
    }
}

/// The head of a request as frames of HTTP/2 say it (RFC 9113 section 8.3.1).
#[derive(Clone, Copy, Debug)]
pub struct StreamHead<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:path`; a CONNECT has none.
    pub path: Option<&'a [u8]>,
    /// `:authority`.
    pub authority: Option<&'a [u8]>,
    /// Nothing follows it.
    pub is_all: bool,
    /// It is a CONNECT whose `:protocol` is a WebSocket's (RFC 8441 section 4). It becomes a GET that asks for one.
    pub is_websocket: bool,
}

impl StreamHead<'_> {
    /// Reads it, with its fields, into `head`, under the same rules as HTTP/1.1. As a list it may have so many bytes.
    ///
    /// # Errors
    /// It is too large, malformed (RFC 9113 section 8.1.1), or against those rules.
    pub fn read(
        &self,
        fields: &[Field<'_>],
        list_bytes_max: usize,
        rules: &HeadRules,
        head: &mut Head,
    ) -> Result<(), Fault> {
        if self.list_bytes(fields) > list_bytes_max {
            return Err(Fault::HeadTooLarge);
        }
        let target = self.path.or(self.authority).unwrap_or_default();
        let method = if self.is_websocket {
            b"GET"
        } else {
            self.method
        };
        let mut writer = HeadWriter::begin(method, target, 1)?;
        let is_host = |name: &[u8]| name == b"host";
        if let Some(authority) = self.authority {
            let mut hosts = fields.iter().filter(|(name, _)| is_host(name));
            // RFC 9113 section 8.3.1: a Host that is another one makes it malformed.
            if hosts.any(|(_, host)| !host.eq_ignore_ascii_case(authority)) {
                return Err(Fault::BadRequest("a Host that is not the :authority"));
            }
            writer.field(b"host", authority)?;
        }
        let crumbs = fields.iter().filter(|(name, _)| *name == b"cookie");
        let crumbs: Vec<_> = crumbs.map(|(_, crumb)| *crumb).collect();
        let mut has_cookie = false;
        for &(name, value) in fields {
            check(name, value)?;
            match name {
                b"host" if self.authority.is_some() => {}
                // Clients split it, so that its parts are compressed each for itself (RFC 9113 section 8.2.3).
                b"cookie" if has_cookie => {}
                b"cookie" => {
                    has_cookie = true;
                    writer.field(name, &crumbs.join(&b"; "[..]))?;
                }
                _ => writer.field(name, value)?,
            }
        }
        if self.is_websocket {
            for (name, value) in OF_HANDSHAKE {
                writer.field(name.as_bytes(), value)?;
            }
        }
        writer.read(rules, head)?;
        match head.framing {
            // What follows are frames.
            Framing::Empty if self.is_websocket => {}
            Framing::Length(1..) if self.is_all => {
                return Err(Fault::BadRequest("a Content-Length without a body"));
            }
            Framing::Empty if !self.is_all && head.first("content-length").is_none() => {
                head.framing = Framing::ToEnd;
            }
            _ => {}
        }
        // Its stream is for one request, and the connection is not its own.
        head.keeps_alive = false;
        head.set_protocol(HTTP2);
        Ok(())
    }

    /// How large it is as RFC 9113 section 6.5.2 counts, but for what nobody here looks at.
    fn list_bytes(&self, fields: &[Field<'_>]) -> usize {
        let pseudo = [
            (&b":method"[..], Some(self.method)),
            (b":path", self.path),
            (b":authority", self.authority),
        ];
        let pseudo = pseudo
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let all = pseudo.chain(fields.iter().copied());
        all.map(|(name, value)| name.len() + value.len() + OF_FIELD)
            .sum()
    }
}

impl Head {
    /// Takes out what only stood for the handshake of a WebSocket over HTTP/2: the client has not sent it.
    pub fn remove_handshake(&mut self) {
        if self.protocol() == HTTP2 {
            for (name, _) in OF_HANDSHAKE {
                self.remove(name);
            }
        }
    }
}

/// What is said of names and of fields that concern one hop: RFC 9113 sections 8.2.1 and 8.2.2.
fn check(name: &[u8], value: &[u8]) -> Result<(), Fault> {
    if name.iter().any(u8::is_ascii_uppercase) {
        return Err(Fault::BadRequest("a field whose name is not in lower case"));
    }
    if name == b"te" {
        return if value.eq_ignore_ascii_case(b"trailers") {
            Ok(())
        } else {
            Err(Fault::BadRequest("a TE other than trailers"))
        };
    }
    if OF_CONNECTION.contains(&name) {
        return Err(Fault::BadRequest("a field that concerns the connection"));
    }
    Ok(())
}
