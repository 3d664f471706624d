//! A reader for the head of a request that comes in pieces: RFC 9112 sections 2 to 6.

use memchr::memchr;

use crate::body::Framing;
use crate::fault::Fault;
use crate::head::{ByteSpan, FieldSpan, Head};
use crate::head_rules::{HeadRules, Permits};
use crate::meaning::{Meaning, is_framing, is_understood};
use crate::octets::{
    FIELD_TEXT, LINE_TEXT, Octets, TOKEN, before_control, is_field_text, leading_whitespace,
    trimmed,
};
use crate::request_line::request_line;
use crate::stray::stray;

/// Empty lines that may come before a request line: old clients sent an empty line after a body (RFC 9112 section 2.2).
const EMPTY_LINES_MAX: u32 = 4;
/// The largest head under any limits: spans in it have 32 bits.
const HEAD_BYTES_MAX: usize = 1 << 30;

/// Reads a head that comes in pieces. The caller passes everything that has come of this head each time, and the reader looks at each line once. The
/// result does not depend on how the bytes were cut into pieces.
#[derive(Debug, Default)]
pub struct HeadReader {
    section: HeadSection,
    /// Where the request line starts.
    start: usize,
    /// Where the first incomplete line starts.
    line: usize,
    /// No line feed comes before here.
    searched: usize,
    /// The bytes before here hold no byte that their line may not hold.
    vetted: usize,
    empty_lines: u32,
    has_begun: bool,
    host_may_lack: bool,
    is_whole: bool,
    /// The number of lines that continue a value.
    folds: u32,
    /// Where the next line starts, if the field before it was dropped.
    after_dropped: Option<usize>,
    /// The first fault of the head that does not keep the reader from reading on.
    flaw: Option<Fault>,
    meaning: Meaning,
}

/// HTTP-message = start-line CRLF *( field-line CRLF ) CRLF (RFC 9112 section 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeadSection {
    #[default]
    StartLine,
    FieldLines,
}

/// A whole line.
struct TextLine<'b> {
    /// Without its end.
    text: &'b [u8],
    /// Whether the line is known to have no control character.
    is_vetted: bool,
    /// Where the next one starts.
    next: usize,
}

/// The limits for a line, whatever its content.
struct Bounds {
    /// The bytes that it may hold.
    text: &'static Octets,
    /// If so, the fault for a byte that it may not hold names that byte.
    is_request_line: bool,
    /// The most bytes it may have before the head is too large.
    len_max: usize,
    /// The fault of a longer line.
    too_large: Fault,
}

impl HeadReader {
    pub(crate) fn without_host() -> Self {
        Self {
            host_may_lack: true,
            ..Self::default()
        }
    }

    /// Prepares for another head.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether anything but empty lines has come.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the whole head has come. If [`HeadReader::read`] returned a fault with it, the server must not serve the request, but `head` holds its
    /// fields for the access log.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Reads on. `bytes` is all that has come of this head, from its beginning, and `head` is the same each time. Returns `None` while the head is
    /// incomplete; then its length, including the empty lines before it. After a fault the content of `head` is useless, unless
    /// [`HeadReader::is_whole`].
    pub fn read(
        &mut self,
        bytes: &[u8],
        rules: &HeadRules,
        head: &mut Head,
    ) -> Result<Option<usize>, Fault> {
        if !self.has_begun {
            head.clear();
        }
        while let Some(line) = self.whole_line(bytes) {
            let next = line.next;
            match self.section {
                HeadSection::StartLine if line.text.is_empty() => self.empty_line(next)?,
                HeadSection::StartLine => self.start_line(line.text, rules, head)?,
                HeadSection::FieldLines if line.text.is_empty() => {
                    self.end(&bytes[self.start..next], rules, head)?;
                    return self.flaw.map_or(Ok(Some(next)), Err);
                }
                HeadSection::FieldLines
                    if rules.permits.obsolete_folding && goes_on(line.text, head) =>
                {
                    self.folded_line(&line, &bytes[self.start..], rules, head)?;
                }
                HeadSection::FieldLines => self.field_line(&line, rules, head)?,
            }
            (self.line, self.searched, self.vetted) = (next, next, next);
        }
        self.searched = bytes.len();
        self.part_of_line(without_cr(&bytes[self.line..]), rules, head)?;
        Ok(None)
    }

    /// The next line, if it is complete. Usually it is complete when the reader first looks at it, and has no control character before the CR LF at
    /// its end.
    fn whole_line<'b>(&self, bytes: &'b [u8]) -> Option<TextLine<'b>> {
        let line = &bytes[self.line..];
        if self.searched == self.line {
            let len = before_control(line);
            if let [b'\r', b'\n', ..] = line[len..] {
                return Some(TextLine {
                    text: &line[..len],
                    is_vetted: true,
                    next: self.line + len + "\r\n".len(),
                });
            }
        }
        let end = self.searched + memchr(b'\n', &bytes[self.searched..])?;
        Some(TextLine {
            text: without_cr(&bytes[self.line..end]),
            is_vetted: false,
            next: end + 1,
        })
    }

    /// RFC 9112 section 2.2: a server should ignore at least one empty line before the request line.
    fn empty_line(&mut self, next: usize) -> Result<(), Fault> {
        self.empty_lines += 1;
        if self.empty_lines > EMPTY_LINES_MAX {
            return Err(Fault::BadRequest("empty lines instead of a request"));
        }
        self.start = next;
        Ok(())
    }

    fn start_line(&mut self, text: &[u8], rules: &HeadRules, head: &mut Head) -> Result<(), Fault> {
        self.has_begun = true;
        let bounds = self.bounds(rules);
        let parsed = request_line(text, rules.permits, head);
        bounds.check(text, parsed)?;
        if text.len() > rules.line_bytes {
            self.flawed(Fault::LineTooLong);
        }
        self.section = HeadSection::FieldLines;
        Ok(())
    }

    /// Notes a fault. The first one counts.
    fn flawed(&mut self, fault: Fault) {
        self.flaw.get_or_insert(fault);
    }

    fn field_line(
        &mut self,
        line: &TextLine<'_>,
        rules: &HeadRules,
        head: &mut Head,
    ) -> Result<(), Fault> {
        check_count(rules, head)?;
        let (text, bounds) = (line.text, self.bounds(rules));
        let (name_len, colon) = bounds.check(text, field_name(line, rules.permits))?;
        if text.len() > rules.field_bytes {
            self.flawed(Fault::FieldTooLarge);
        }
        let after_colon = &text[colon + 1..];
        let value = trimmed(after_colon);
        let is_new = self.meaning.note(&text[..name_len], value);
        if is_new.unwrap_or_else(|fault| {
            self.flawed(fault);
            true
        }) {
            let line = self.line - self.start;
            let value_at = colon + 1 + leading_whitespace(after_colon);
            head.fields.push(FieldSpan {
                name: ByteSpan::new(line, name_len),
                value: ByteSpan::new(line + value_at, value.len()),
            });
        } else {
            self.after_dropped = Some(line.next);
        }
        Ok(())
    }

    /// obs-fold (RFC 9112 section 5.2): this line continues the value of the field before. The fields that the server itself acts on have been noted
    /// already, so they must be in one line: another server may read two lines, or none.
    fn folded_line(
        &mut self,
        line: &TextLine<'_>,
        bytes: &[u8],
        rules: &HeadRules,
        head: &mut Head,
    ) -> Result<(), Fault> {
        let (text, bounds) = (line.text, self.bounds(rules));
        bounds.check_text(0, text)?;
        let is_dropped = self.after_dropped == Some(self.line);
        let field = head.fields.last_mut().filter(|_| !is_dropped);
        let field = field.filter(|field| !is_understood(field.name.of(bytes)));
        let Some(field) = field else {
            return Err(Fault::BadRequest(
                "a field that continues in the next line and must not",
            ));
        };
        let at = self.line - self.start;
        if at + text.len() - field.name.at as usize > rules.field_bytes {
            self.flawed(Fault::FieldTooLarge);
        }
        let words = trimmed(text);
        if !words.is_empty() {
            let end = at + leading_whitespace(text) + words.len();
            field.value.len = (end - field.value.at as usize) as u32;
            self.folds += 1;
        }
        Ok(())
    }

    /// Checks a line whose end has not come. The result must be the same as that for the complete line.
    fn part_of_line(&mut self, text: &[u8], rules: &HeadRules, head: &Head) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }
        self.has_begun = true;
        let (vetted, bounds) = (self.vetted - self.line, self.bounds(rules));
        match self.section {
            HeadSection::FieldLines if rules.permits.obsolete_folding && goes_on(text, head) => {
                bounds.check_text(vetted, text)?;
            }
            HeadSection::FieldLines => {
                check_count(rules, head)?;
                bounds.check_from(vetted, text)?;
            }
            HeadSection::StartLine => bounds.check_from(vetted, text)?,
        }
        self.vetted = self.line + text.len();
        Ok(())
    }

    /// The limits for the next line. The fault found first counts: for a single line that exceeds both limits that fault is its own length.
    fn bounds(&self, rules: &HeadRules) -> Bounds {
        let (text, is_request_line, own_max, too_long) = match self.section {
            HeadSection::StartLine => (&LINE_TEXT, true, rules.line_bytes, Fault::LineTooLong),
            HeadSection::FieldLines => {
                (&FIELD_TEXT, false, rules.field_bytes, Fault::FieldTooLarge)
            }
        };
        let before = self.line - self.start;
        let len_max = rules.head_bytes.min(HEAD_BYTES_MAX).saturating_sub(before);
        let too_large = if own_max <= len_max {
            too_long
        } else {
            Fault::HeadTooLarge
        };
        Bounds {
            text,
            is_request_line,
            len_max,
            too_large: self.flaw.unwrap_or(too_large),
        }
    }

    /// Handles the empty line after the fields: decides what the fields mean together.
    fn end(&mut self, bytes: &[u8], rules: &HeadRules, head: &mut Head) -> Result<(), Fault> {
        if self.line - self.start > rules.head_bytes {
            return Err(self.flaw.unwrap_or(Fault::HeadTooLarge));
        }
        let minor_version = head.minor_version;
        if !self.host_may_lack
            && let Err(fault) = self.meaning.check_host(minor_version)
        {
            self.flawed(fault);
        }
        head.framing = self.meaning.framing(minor_version).unwrap_or_else(|fault| {
            self.flawed(fault);
            Framing::Empty
        });
        head.expects_continue = self.meaning.expects_continue && minor_version > 0;
        head.keeps_alive = self.meaning.keeps_alive(minor_version);
        head.bytes.extend_from_slice(bytes);
        self.is_whole = true;
        if self.folds > 0 {
            head.unfold();
        }
        if rules.permits.casefold_method {
            head.method.of_mut(&mut head.bytes).make_ascii_uppercase();
        }
        // RFC 9112 section 3.2.2: the authority of the target replaces the Host field.
        if let Some(authority) = head.authority {
            let authority = authority.of(bytes);
            head.set("Host", authority);
        }
        Ok(())
    }
}

impl Bounds {
    /// Checks a whole line against the limits. A forbidden byte comes before the length, and both come before the result of parsing the line: so a
    /// part of the line gives the same fault.
    fn check<T>(&self, text: &[u8], parsed: Result<T, Fault>) -> Result<T, Fault> {
        if parsed.is_err() || text.len() > self.len_max {
            self.check_from(0, text)?;
        }
        parsed
    }

    fn check_from(&self, vetted: usize, text: &[u8]) -> Result<(), Fault> {
        let first = text.first().copied();
        if first.is_some_and(|first| !TOKEN.has(first)) {
            return Err(Fault::BadRequest("a line does not begin with a token"));
        }
        self.check_text(vetted, text)
    }

    fn check_text(&self, vetted: usize, text: &[u8]) -> Result<(), Fault> {
        let end = text.len().min(self.len_max);
        let rest = &text[vetted.min(end)..end];
        if let Some(&byte) = rest.get(self.text.run(rest)) {
            return Err(if self.is_request_line {
                stray(byte)
            } else {
                Fault::BadRequest("a control character in the head")
            });
        }
        if text.len() > self.len_max {
            return Err(self.too_large);
        }
        Ok(())
    }
}

/// Checks that the limits permit one more field.
fn check_count(rules: &HeadRules, head: &Head) -> Result<(), Fault> {
    if head.fields.len() >= rules.fields {
        return Err(Fault::HeadTooLarge);
    }
    Ok(())
}

/// Whether a line continues the field before it: there is one, and the line begins with whitespace.
fn goes_on(text: &[u8], head: &Head) -> bool {
    matches!(text, [b' ' | b'\t', ..]) && !head.fields.is_empty()
}

/// A line without the CR of its end: a recipient may accept a lone LF as the end of a line (RFC 9112 section 2.2).
fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// field-line = field-name ":" OWS field-value OWS (RFC 9112 section 5): the length of its name, and where the colon is.
fn field_name(line: &TextLine<'_>, permits: Permits) -> Result<(usize, usize), Fault> {
    let text = line.text;
    let len = TOKEN.run(text);
    let mut colon = len;
    match text.get(len) {
        Some(b':') if len > 0 => {}
        Some(b' ' | b'\t') if len > 0 => colon += spaces_before_colon(text, len, permits)?,
        // An obsolete folded line (RFC 9112 section 5.2) begins with whitespace and ends here.
        _ => return Err(Fault::BadRequest("a field without a name and a colon")),
    }
    if !line.is_vetted && !is_field_text(&text[colon + 1..]) {
        return Err(Fault::BadRequest("a control character in the head"));
    }
    Ok((len, colon))
}

/// RFC 9112 section 5.1 forbids whitespace here, because servers disagree on whether the name includes it.
fn spaces_before_colon(text: &[u8], name_len: usize, permits: Permits) -> Result<usize, Fault> {
    let (name, rest) = text.split_at(name_len);
    let len = leading_whitespace(rest);
    let is_one = permits.header_spaces && rest.get(len) == Some(&b':');
    if !is_one || is_framing(name) {
        return Err(Fault::BadRequest("whitespace after the name of a field"));
    }
    Ok(len)
}
