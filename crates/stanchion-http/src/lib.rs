//! HTTP/1.1 (RFC 9110, RFC 9112) and its meaning for a gateway: bytes in, meaning out, and back.
//!
//! [`HeadReader`] makes a [`Head`] of bytes that come in pieces, [`Decoder`] takes a body out of its framing,
//! [`answer`] writes and checks the heads of answers, [`gateway`] has the names and values that CGI and PEP 3333 derive
//! from a request, [`forwarded`] reads how proxies in front describe a request, and [`proxy_protocol`] how they
//! describe a connection. [`uwsgi`] reads requests of that protocol. A request that is wrong gives a [`Fault`], which
//! knows the status it earns; a table in `docs/internals/http.md` says which side this crate takes where servers
//! differ.
//!
//! Only this crate reads HTTP from clients: two readers that understand the same bytes differently are how requests are
//! smuggled. So a head that comes in another form than HTTP/1.1 is written as HTTP/1.1 and read again, and one reader
//! has all rules.
//!
//! It may not do I/O, read a clock, have threads or use unsafe code, and it names no other crate of ours.
//!
//! ```
//! use stanchion_http::{Framing, Head, HeadReader, HeadRules};
//!
//! let (mut reader, mut head) = (HeadReader::default(), Head::default());
//! let came = b"POST /a?b HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\nhi";
//! assert_eq!(reader.read(&came[..30], &HeadRules::DEFAULT, &mut head), Ok(None));
//! assert_eq!(reader.read(came, &HeadRules::DEFAULT, &mut head), Ok(Some(50)));
//! assert_eq!((head.method(), head.path(), head.query()), ("POST", &b"/a"[..], &b"b"[..]));
//! assert_eq!(head.framing(), Framing::Length(2));
//! ```

#![forbid(unsafe_code)]

pub mod answer;
mod body;
mod chunked;
mod coding;
mod compression;
mod conditional;
mod fault;
pub mod forwarded;
mod forwarded_elements;
pub mod gateway;
mod head;
mod head_rules;
mod http2;
mod meaning;
mod octets;
pub mod proxy_protocol;
mod reader;
mod request_line;
pub mod rules;
mod stray;
mod target;
pub mod uwsgi;
mod writer;

pub use answer::*;
pub use body::{Decoded, Decoder, Framing};
pub use coding::{Coding, codings_taken};
pub use compression::{CompressRules, Compression, put_compressed, put_varied};
pub use conditional::{Condition, Ranges, Validators, condition, ranges};
pub use fault::Fault;
pub use forwarded::*;
pub use gateway::*;
pub use head::{ByteSpan, Field, FieldSpan, Head, VARIABLE};
pub use head_rules::{HeadRules, Permits};
pub use http2::{HTTP2, HTTP2_PREFACE, PrefaceStart, StreamHead, preface_start};
pub use octets::put_uri;
pub use proxy_protocol::*;
pub use reader::HeadReader;
pub use uwsgi::*;
pub use writer::HeadWriter;
