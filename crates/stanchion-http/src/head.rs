//! The parsed head of a request.

use memchr::memchr;

use crate::body::Framing;
use crate::octets::{leading_whitespace, trimmed};

/// The first byte of the name of a [variable](crate::uwsgi) in a [`Head`].
pub const VARIABLE: u8 = b':';

/// Name and value of a field.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// Where some bytes are in those of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteSpan {
    /// Where they begin.
    pub at: u32,
    /// How many they are.
    pub len: u32,
}

impl ByteSpan {
    pub(crate) fn new(at: usize, len: usize) -> Self {
        Self {
            at: at as u32,
            len: len as u32,
        }
    }

    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..][..self.len as usize]
    }

    pub(crate) fn of_mut(self, bytes: &mut [u8]) -> &mut [u8] {
        &mut bytes[self.at as usize..][..self.len as usize]
    }
}

/// Where a field is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSpan {
    /// Its name, as it was sent.
    pub name: ByteSpan,
    /// Its value, without the whitespace around it.
    pub value: ByteSpan,
}

/// The head of a request. It owns its bytes, so it outlives the buffer it was read from; and a caller can reuse it, so that reading a head of usual
/// shape allocates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// From the request line on; behind the head are the bytes of the fields that were set later.
    pub(crate) bytes: Vec<u8>,
    pub(crate) fields: Vec<FieldSpan>,
    pub(crate) method: ByteSpan,
    pub(crate) target: ByteSpan,
    /// Empty in place of `/`.
    pub(crate) path: ByteSpan,
    pub(crate) query: ByteSpan,
    /// The authority of the target, if the target has one.
    pub(crate) authority: Option<ByteSpan>,
    pub(crate) protocol: ByteSpan,
    pub(crate) minor_version: u8,
    pub(crate) framing: Framing,
    pub(crate) expects_continue: bool,
    pub(crate) keeps_alive: bool,
}

impl Head {
    /// Forgets everything, but keeps the memory.
    pub fn clear(&mut self) {
        let (mut bytes, mut fields) = (
            std::mem::take(&mut self.bytes),
            std::mem::take(&mut self.fields),
        );
        bytes.clear();
        fields.clear();
        *self = Self {
            bytes,
            fields,
            ..Self::default()
        };
    }

    /// Its memory, for a caller that counts or recycles it.
    pub fn buffers(&mut self) -> (&mut Vec<u8>, &mut Vec<FieldSpan>) {
        (&mut self.bytes, &mut self.fields)
    }

    /// A token (RFC 9110 section 9.1).
    pub fn method(&self) -> &str {
        std::str::from_utf8(self.method.of(&self.bytes)).expect("a token is ASCII")
    }

    /// The target as it was sent, but without a fragment.
    pub fn target(&self) -> &[u8] {
        self.target.of(&self.bytes)
    }

    /// Such as `HTTP/1.1`.
    pub fn protocol(&self) -> &str {
        std::str::from_utf8(self.protocol.of(&self.bytes)).expect("letters and digits")
    }

    /// The request line, if method, target and protocol are still where they were read: not in HTTP/2, nor with a fragment,
    /// which is no part of the target.
    pub fn request_line(&self) -> Option<&[u8]> {
        let follows = |before: ByteSpan, after: ByteSpan| before.at + before.len + 1 == after.at;
        let is_one = follows(self.method, self.target) && follows(self.target, self.protocol);
        let (from, end) = (self.method.at, self.protocol.at + self.protocol.len);
        is_one.then(|| &self.bytes[from as usize..end as usize])
    }

    /// The minor version of HTTP/1 as which the head was read: 0 or 1.
    pub fn minor_version(&self) -> u8 {
        self.minor_version
    }

    /// The path of the target in any of its forms; `*` for the server as a whole.
    pub fn path(&self) -> &[u8] {
        match self.path.of(&self.bytes) {
            b"" => b"/",
            path => path,
        }
    }

    /// The part of the target behind the `?`, or empty.
    pub fn query(&self) -> &[u8] {
        self.query.of(&self.bytes)
    }

    /// The fields in the order in which they were sent, names as they were sent.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.fields.iter().map(|&field| self.field(field))
    }

    fn field(&self, field: FieldSpan) -> Field<'_> {
        (field.name.of(&self.bytes), field.value.of(&self.bytes))
    }

    /// The values of all fields of a name, which is compared without regard to case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let fields = self.fields.iter();
        fields
            .filter(move |field| self.is_called(field, name))
            .map(|field| field.value.of(&self.bytes))
    }

    /// The value of the first field of a name.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        let field = self.fields.iter().find(|field| self.is_called(field, name));
        field.map(|field| field.value.of(&self.bytes))
    }

    /// The value of a [variable](crate::uwsgi).
    pub fn variable(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter().map(|&field| self.field(field));
        let found =
            fields.find(|(known, _)| known.split_first() == Some((&VARIABLE, name.as_bytes())));
        found.map(|(_, value)| value)
    }

    /// The value of a field that may come only once; `None` if it came twice, because either may be the wrong one.
    pub fn only(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self
            .fields
            .iter()
            .filter(|field| self.is_called(field, name));
        let field = fields.next().filter(|_| fields.next().is_none())?;
        Some(field.value.of(&self.bytes))
    }

    fn is_called(&self, field: &FieldSpan, name: &str) -> bool {
        field.name.len as usize == name.len()
            && field
                .name
                .of(&self.bytes)
                .eq_ignore_ascii_case(name.as_bytes())
    }

    /// Replaces the values of all fields of a name by one, at the place of the first, or at the end if there is none. Facts that were parsed from the
    /// head before, such as its framing, do not change.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        let value = self.append(value);
        let first = self
            .fields
            .iter()
            .position(|field| self.is_called(field, name));
        match first {
            Some(first) => {
                self.fields[first].value = value;
                self.remove_from(first + 1, name);
            }
            None => {
                let name = self.append(name.as_bytes());
                self.fields.push(FieldSpan { name, value });
            }
        }
    }

    /// Puts a field behind all others, whatever its name.
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        let (name, value) = (self.append(name), self.append(value));
        self.fields.push(FieldSpan { name, value });
    }

    /// Takes out all fields of a name.
    pub fn remove(&mut self, name: &str) {
        self.remove_from(0, name);
    }

    fn remove_from(&mut self, first: usize, name: &str) {
        let mut at = self.fields.len();
        while at > first {
            at -= 1;
            if self.is_called(&self.fields[at], name) {
                self.fields.remove(at);
            }
        }
    }

    /// Puts one space for each line's end, with the whitespace around it, in the values (RFC 9112 section 5.2). They stay
    /// where they are, and become shorter.
    pub(crate) fn unfold(&mut self) {
        for field in &mut self.fields {
            let value = field.value.of_mut(&mut self.bytes);
            let (mut from, mut len) = (0, 0);
            while from < value.len() {
                let line = &value[from..];
                let line = &line[..memchr(b'\n', line).unwrap_or(line.len())];
                let next = from + line.len() + 1;
                let words = trimmed(line.strip_suffix(b"\r").unwrap_or(line));
                if !words.is_empty() {
                    let start = from + leading_whitespace(line);
                    let end = start + words.len();
                    if len > 0 {
                        value[len] = b' ';
                        len += 1;
                    }
                    value.copy_within(start..end, len);
                    len += end - start;
                }
                from = next;
            }
            field.value.len = len as u32;
        }
    }

    fn append(&mut self, bytes: &[u8]) -> ByteSpan {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        ByteSpan::new(at, bytes.len())
    }

    /// Sets the protocol and version to show, where they differ from those of the parsed head.
    pub fn set_protocol(&mut self, protocol: &str) {
        self.protocol = self.append(protocol.as_bytes());
    }

    /// How its body is framed.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1). Only HTTP/1.1 has that.
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Whether another request may follow on the connection (RFC 9112 section 9.3).
    pub fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }

    /// The requested host, perhaps with a port: from the target, else from the Host field (RFC 9112 section 3.3).
    pub fn host(&self) -> Option<&[u8]> {
        self.first("host")
    }

    /// The bytes that the spans refer to.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the fields are.
    pub fn spans(&self) -> &[FieldSpan] {
        &self.fields
    }

    /// Where the method is.
    pub fn method_span(&self) -> ByteSpan {
        self.method
    }

    /// Where the version is, with the name of the protocol.
    pub fn protocol_span(&self) -> ByteSpan {
        self.protocol
    }

    /// Where the target is.
    pub fn target_span(&self) -> ByteSpan {
        self.target
    }
}
