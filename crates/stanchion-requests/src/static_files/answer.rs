//! Answers for static files: the head, and the parts of the file that the client asks for.

use std::borrow::Cow;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use stanchion_http::{
    AnswerFacts, BodyLength, Condition, Head, Ranges, Validators, condition, put_field, put_status,
    ranges,
};

use super::{Attributes, Opened, RequestedFile, StaticFiles, date_s};
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::storage::disk::{Disk, OpenFile};
use stanchion_dispatch::ticket::{AppAnswer, BodySection, Start};
use stanchion_record::FilePart;

/// Cache-Control for a file whose name has a hash of its content (RFC 8246).
const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// Digits of such a hash, at least: fewer may be a date.
const HASH_DIGITS_MIN: usize = 12;
/// The answer that the connection gets.
pub(crate) enum StaticAnswer {
    /// The file, parts of it, or its head alone.
    File(AppAnswer),
    /// A reply of the server, without the file.
    Reply(Reply),
}

impl StaticFiles {
    /// Answers a GET or HEAD of a file. Errors are the kernel's, which has no random bytes.
    pub(crate) fn answer(
        &mut self,
        head: &Head,
        opened: Opened,
        disk: &Disk,
        now_us: u64,
    ) -> io::Result<StaticAnswer> {
        let Opened {
            file,
            attributes: found,
            wanted,
        } = opened;
        self.note_uncoded(&wanted, &found, now_us);
        let file = OpenFile::new(file, found.file_system, disk);
        let etag = found.etag();
        let there = Validators {
            etag: &etag,
            modified_s: found.modified_s,
        };
        match condition(head, there, date_s) {
            Condition::Failed => {
                let reply = Reply::text(412, "the file is another one by now\n");
                return Ok(StaticAnswer::Reply(reply));
            }
            Condition::NotModified => {
                let mut wire = status(304);
                self.put_what_caches_need(&mut wire, (&found, &wanted), &etag);
                return Ok(without_body(304, wire));
            }
            Condition::Met => {}
        }
        let is_head = head.method() == "HEAD";
        let parts = match ranges(head, there, found.len, date_s) {
            // A range means nothing to a HEAD (RFC 9110 section 14.2).
            _ if is_head => Vec::new(),
            Ranges::Whole => Vec::new(),
            Ranges::Parts(parts) => parts,
            Ranges::Unsatisfiable => return Ok(StaticAnswer::Reply(too_short(found.len))),
        };
        let code = if parts.is_empty() { 200 } else { 206 };
        let mut wire = status(code);
        let sections = put_content(&mut wire, &parts, found.len, &wanted.content_type)?;
        if let Some(coding) = found.coding {
            put_field(&mut wire, b"Content-Encoding", coding.name().as_bytes());
        }
        put_field(&mut wire, b"Accept-Ranges", b"bytes");
        self.put_what_caches_need(&mut wire, (&found, &wanted), &etag);
        if is_head {
            let len = found.len.to_string();
            put_field(&mut wire, b"Content-Length", len.as_bytes());
            return Ok(without_body(code, wire));
        }
        Ok(StaticAnswer::File(AppAnswer {
            head: 0..wire.len(),
            facts: facts(code, BodyLength::Unknown),
            closes: false,
            bytes: wire,
            body: Start::File(file, sections),
        }))
    }

    /// Remembers a file that was looked for in codings, and is there in none.
    fn note_uncoded(&mut self, wanted: &RequestedFile, found: &Attributes, now_us: u64) {
        if let Some(number) = wanted.mount
            && wanted.may_be_coded
            && found.coding.is_none()
            && !found.varies
        {
            self.mounts[number].uncoded.add(&wanted.path, now_us);
        }
    }

    /// Adds the fields that a 304 has as well (RFC 9110 section 15.4.5).
    fn put_what_caches_need(
        &self,
        wire: &mut Vec<u8>,
        (found, wanted): (&Attributes, &RequestedFile),
        etag: &str,
    ) {
        let modified = UNIX_EPOCH + Duration::from_secs(found.modified_s);
        put_field(
            wire,
            b"Last-Modified",
            httpdate::fmt_http_date(modified).as_bytes(),
        );
        put_field(wire, b"ETag", etag.as_bytes());
        if found.varies {
            put_field(wire, b"Vary", b"Accept-Encoding");
        }
        if wanted.mount.is_none() {
            put_field(wire, b"Cache-Control", b"no-store");
        } else if has_hash(wanted.path.as_bytes()) {
            put_field(wire, b"Cache-Control", IMMUTABLE.as_bytes());
        } else if self.max_age_s > 0 {
            let value = format!("public, max-age={}", self.max_age_s);
            put_field(wire, b"Cache-Control", value.as_bytes());
        }
    }
}

fn too_short(len: u64) -> Reply {
    let reply = Reply::text(416, "the file is shorter\n");
    reply.with("Content-Range", format!("bytes */{len}"))
}

/// Adds the fields that name the content: all of a file of `len` bytes, or parts of it. Gives the sections of the body.
fn put_content(
    wire: &mut Vec<u8>,
    parts: &[(u64, u64)],
    len: u64,
    content_type: &str,
) -> io::Result<Vec<BodySection>> {
    let (kind, sections) = match parts {
        [] => (Cow::from(content_type), vec![section(0, len)]),
        [(start, end)] => {
            let range = content_range(*start, *end, len);
            put_field(wire, b"Content-Range", range.as_bytes());
            (Cow::from(content_type), vec![section(*start, *end)])
        }
        parts => {
            let (kind, sections) = in_parts(parts, len, content_type)?;
            (Cow::from(kind), sections)
        }
    };
    put_field(wire, b"Content-Type", kind.as_bytes());
    Ok(sections)
}

fn status(status: u16) -> Vec<u8> {
    let mut wire = Vec::with_capacity(384);
    put_status(&mut wire, status, b"");
    wire
}

fn facts(status: u16, length: BodyLength) -> AnswerFacts {
    AnswerFacts {
        status,
        length,
        has_server: false,
        has_date: false,
    }
}

/// The head alone.
fn without_body(status: u16, wire: Vec<u8>) -> StaticAnswer {
    StaticAnswer::File(AppAnswer {
        head: 0..wire.len(),
        facts: facts(status, BodyLength::Nothing),
        closes: false,
        bytes: wire,
        body: Start::Whole,
    })
}

fn section(start: u64, end: u64) -> BodySection {
    BodySection::Part(FilePart {
        offset: start,
        len: end - start,
    })
}

fn content_range(start: u64, end: u64, len: u64) -> String {
    format!("bytes {start}-{}/{len}", end - 1)
}

/// Puts several parts into one answer (RFC 9110 section 14.6), and gives its content type.
fn in_parts(
    parts: &[(u64, u64)],
    len: u64,
    content_type: &str,
) -> io::Result<(String, Vec<BodySection>)> {
    let mut random = [0; size_of::<u128>()];
    stanchion_sys::random::fill(&mut random)?;
    // The boundary between the parts is random: no file has it by chance.
    let boundary = format!("{:032x}", u128::from_ne_bytes(random));
    let mut sections = Vec::with_capacity(2 * parts.len() + 1);
    for &(start, end) in parts {
        let range = content_range(start, end, len);
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {range}\r\n\r\n"
        );
        sections.push(BodySection::Text(Bytes::from(head)));
        sections.push(section(start, end));
    }
    let end = format!("\r\n--{boundary}--\r\n");
    sections.push(BodySection::Text(Bytes::from(end)));
    Ok((
        format!("multipart/byteranges; boundary={boundary}"),
        sections,
    ))
}

/// Whether a file is named after its content, so that another content has another name: `app.0f3c9a2b41de.css`, as
/// Django and packers of scripts have it. A hash behind a hyphen does not count: a UUID ends like that, and names a
/// thing, not its content.
fn has_hash(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let mut words = name.split(|&byte| byte == b'.');
    // The first word is its own name, and the last its ending.
    let _own = words.next();
    let _ending = words.next_back();
    words.any(|word| {
        let digits = word.len() >= HASH_DIGITS_MIN && word.iter().all(u8::is_ascii_hexdigit);
        digits && word.iter().any(u8::is_ascii_alphabetic)
    })
}
