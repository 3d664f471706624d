//! Requests of HTTP/2 (RFC 9113) as heads, made of their decoded pseudo-header fields and fields.

use crate::body::Framing;
use crate::fault::Fault;
use crate::head::{Field, Head};
use crate::head_rules::HeadRules;
use crate::writer::HeadWriter;

/// The protocol of such a head, in the form of RFC 3875 section 4.1.16, which nginx and gunicorn also write.
pub const HTTP2: &str = "HTTP/2.0";
/// The first bytes of a client's connection (RFC 9113 section 3.4).
pub const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The overhead of each field in the size of a list, besides its name and value (RFC 9113 section 6.5.2).
const OF_FIELD: usize = 32;

/// Fields that concern the connection and not a request (RFC 9113 section 8.2.2).
const OF_CONNECTION: [&[u8]; 5] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
];

/// Fields that the handshake of a WebSocket has in HTTP/1.1, and lacks in HTTP/2 (RFC 8441 section 5). The key is a dummy: HTTP/2 has no answer to
/// it.
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

/// The head of a request in HTTP/2 (RFC 9113 section 8.3.1).
#[derive(Clone, Copy, Debug)]
pub struct StreamHead<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:path`; a CONNECT has none.
    pub path: Option<&'a [u8]>,
    /// `:authority`.
    pub authority: Option<&'a [u8]>,
    /// The stream ends with this head.
    pub is_all: bool,
    /// It is a CONNECT whose `:protocol` is `websocket` (RFC 8441 section 4). [`StreamHead::read`] makes it a GET that asks for one.
    pub is_websocket: bool,
}

impl StreamHead<'_> {
    /// Reads it, with its fields, into `head`, under the same rules as HTTP/1.1. `list_bytes_max` limits its size as a list.
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
            // RFC 9113 section 8.3.1: a Host that differs from the authority makes the request malformed.
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
                // Clients split the field so that each part is compressed by itself (RFC 9113 section 8.2.3).
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
            // The frames of the WebSocket follow, and no body.
            Framing::Empty if self.is_websocket => {}
            Framing::Length(1..) if self.is_all => {
                return Err(Fault::BadRequest("a Content-Length without a body"));
            }
            Framing::Empty if !self.is_all && head.first("content-length").is_none() => {
                head.framing = Framing::ToEnd;
            }
            _ => {}
        }
        // The stream carries one request, and the request does not decide whether the connection stays open.
        head.keeps_alive = false;
        head.set_protocol(HTTP2);
        Ok(())
    }

    /// Its size by the rules of RFC 9113 section 6.5.2, without the pseudo-header fields that are not kept here, such as `:scheme`.
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
    /// Removes the fields that stood in for the handshake of a WebSocket over HTTP/2: the client has not sent them.
    pub fn remove_handshake(&mut self) {
        if self.protocol() == HTTP2 {
            for (name, _) in OF_HANDSHAKE {
                self.remove(name);
            }
        }
    }
}

/// Checks a name, and fields that concern one hop, by RFC 9113 sections 8.2.1 and 8.2.2.
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
