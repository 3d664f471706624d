//! The chunked transfer coding (RFC 9112 section 7.1). Every line must end in CR LF here: if a proxy and a server disagree on whether a lone LF ends
//! a line, a client can smuggle a request.

use crate::fault::Fault;
use crate::octets::{FIELD_TEXT, TOKEN};

/// Hexadecimal digits of a chunk's size, leading zeros included: 16 fill 64 bits.
const SIZE_DIGITS_MAX: u32 = 16;
/// Bytes of chunk extensions in one body. In practice clients send extensions only to keep a server busy.
const EXTENSION_BYTES_MAX: u32 = 16 << 10;
/// Bytes of trailer fields after one body.
const TRAILER_BYTES_MAX: u32 = 16 << 10;

/// The position in a chunked body.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    state: ChunkedState,
    /// The size of this chunk, as far as its digits have come, then the rest of its data.
    size: u64,
    size_digits: u32,
    extension_bytes: u32,
    trailer_bytes: u32,
}

impl Default for Chunked {
    fn default() -> Self {
        Self {
            state: ChunkedState::Size,
            size: 0,
            size_digits: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
        }
    }
}

/// The position in the grammar: each state is named after the element that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkedState {
    /// chunk-size.
    Size,
    /// BWS and `;`.
    ExtensionStart,
    /// BWS or the first of chunk-ext-name.
    ExtensionName,
    /// The rest of chunk-ext-name.
    ExtensionNameRest,
    /// BWS and `=` or `;`, after chunk-ext-name.
    ExtensionNameEnd,
    /// BWS or the first of chunk-ext-val.
    ExtensionValue,
    /// The rest of a token.
    ExtensionToken,
    /// The rest of a quoted-string.
    ExtensionQuoted,
    /// The character that a backslash quotes (quoted-pair).
    ExtensionQuotedPair,
    /// `;` or the end of the line, after a quoted-string.
    ExtensionQuotedEnd,
    /// LF after the chunk's first line.
    SizeLf,
    /// chunk-data.
    Data,
    /// CR after chunk-data.
    DataCr,
    /// LF after chunk-data.
    DataLf,
    /// The first of a trailer field, or CR.
    Trailer,
    /// The rest of the name of a trailer field.
    TrailerName,
    /// The value of a trailer field.
    TrailerValue,
    /// LF after a trailer field.
    TrailerLf,
    /// LF after everything.
    LastLf,
    /// Nothing: the body is over.
    Over,
}

impl Chunked {
    pub(crate) fn is_over(&self) -> bool {
        self.state == ChunkedState::Over
    }

    /// Bytes of this chunk's data that have not been taken.
    pub(crate) fn data_left(&self) -> u64 {
        match self.state {
            ChunkedState::Data => self.size,
            _ => 0,
        }
    }

    /// Notes that so many bytes of the chunk's data were taken.
    pub(crate) fn took(&mut self, bytes: u64) {
        self.size -= bytes;
        if self.state == ChunkedState::Data && self.size == 0 {
            self.state = ChunkedState::DataCr;
        }
    }

    /// Takes the framing before the next data from the front of the input.
    pub(crate) fn skip_framing(&mut self, input: &mut &[u8]) -> Result<(), Fault> {
        while !matches!(self.state, ChunkedState::Data | ChunkedState::Over) {
            let Some((&byte, rest)) = input.split_first() else {
                break;
            };
            self.state = self.after(byte)?;
            *input = rest;
        }
        Ok(())
    }

    fn after(&mut self, byte: u8) -> Result<ChunkedState, Fault> {
        use ChunkedState as S;
        match self.state {
            S::Size => self.after_size(byte),
            S::ExtensionStart
            | S::ExtensionName
            | S::ExtensionNameRest
            | S::ExtensionNameEnd
            | S::ExtensionValue
            | S::ExtensionToken
            | S::ExtensionQuoted
            | S::ExtensionQuotedPair
            | S::ExtensionQuotedEnd => self.extension(self.state, byte),
            S::SizeLf => self.after_first_line(byte),
            S::DataCr if byte == b'\r' => Ok(S::DataLf),
            S::DataLf if byte == b'\n' => {
                self.size_digits = 0;
                Ok(S::Size)
            }
            S::DataCr | S::DataLf => Err(Fault::BadRequest("a chunk is longer than it says")),
            S::Trailer | S::TrailerName | S::TrailerValue | S::TrailerLf | S::LastLf => {
                self.trailer(byte)
            }
            S::Data | S::Over => Ok(self.state),
        }
    }

    /// chunk-size is 1*HEXDIG, followed by chunk-ext or CRLF.
    fn after_size(&mut self, byte: u8) -> Result<ChunkedState, Fault> {
        if let Some(digit) = char::from(byte).to_digit(16) {
            self.size = if self.size_digits == 0 { 0 } else { self.size };
            self.size_digits += 1;
            if self.size_digits > SIZE_DIGITS_MAX {
                // A size that wraps around would look like a small one (RFC 9112 section 7.1).
                return Err(match self.size {
                    0 => Fault::BadRequest("a chunk's size has too many digits"),
                    _ => Fault::ChunkTooLarge,
                });
            }
            self.size = self.size << 4 | u64::from(digit);
            return Ok(ChunkedState::Size);
        }
        match byte {
            _ if self.size_digits == 0 => Err(Fault::BadRequest("a chunk without a size")),
            b'\r' => Ok(ChunkedState::SizeLf),
            b';' | b' ' | b'\t' => self.extension(ChunkedState::ExtensionStart, byte),
            _ => Err(Fault::BadRequest("a chunk's size is not hexadecimal")),
        }
    }

    fn extension(&mut self, state: ChunkedState, byte: u8) -> Result<ChunkedState, Fault> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(Fault::BadRequest("too many bytes of chunk extensions"));
        }
        after_extension(state, byte)
    }

    fn trailer(&mut self, byte: u8) -> Result<ChunkedState, Fault> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(Fault::BadRequest("too many bytes of trailer fields"));
        }
        after_trailer(self.state, byte)
    }

    /// The last chunk is the one whose size is zero; trailer fields follow it.
    fn after_first_line(&mut self, byte: u8) -> Result<ChunkedState, Fault> {
        match byte {
            b'\n' if self.size == 0 => Ok(ChunkedState::Trailer),
            b'\n' => Ok(ChunkedState::Data),
            _ => Err(BARE_CR),
        }
    }
}

const BARE_CR: Fault = Fault::BadRequest("a CR without LF between chunks");

/// chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] ) (RFC 9112 section 7.1.1).
fn after_extension(state: ChunkedState, byte: u8) -> Result<ChunkedState, Fault> {
    use ChunkedState as S;
    let next = match (byte, state) {
        (_, S::ExtensionQuoted | S::ExtensionQuotedPair) => after_quoted(state, byte),
        (b' ' | b'\t', _) => Some(after_whitespace(state)),
        (
            b';',
            S::ExtensionStart
            | S::ExtensionNameRest
            | S::ExtensionNameEnd
            | S::ExtensionToken
            | S::ExtensionQuotedEnd,
        ) => Some(S::ExtensionName),
        (b'=', S::ExtensionNameRest | S::ExtensionNameEnd) => Some(S::ExtensionValue),
        (b'\r', S::ExtensionNameRest | S::ExtensionToken | S::ExtensionQuotedEnd) => {
            Some(S::SizeLf)
        }
        (b'"', S::ExtensionValue) => Some(S::ExtensionQuoted),
        (_, _) if !TOKEN.has(byte) => None,
        (_, S::ExtensionName | S::ExtensionNameRest) => Some(S::ExtensionNameRest),
        (_, S::ExtensionValue | S::ExtensionToken) => Some(S::ExtensionToken),
        _ => None,
    };
    next.ok_or(Fault::BadRequest("a malformed chunk extension"))
}

/// BWS ends a name and a value, and has no meaning anywhere else.
fn after_whitespace(state: ChunkedState) -> ChunkedState {
    use ChunkedState as S;
    match state {
        S::ExtensionNameRest => S::ExtensionNameEnd,
        S::ExtensionToken | S::ExtensionQuotedEnd => S::ExtensionStart,
        state => state,
    }
}

/// qdtext, quoted-pair, or the end of the string (RFC 9110 section 5.6.4).
fn after_quoted(state: ChunkedState, byte: u8) -> Option<ChunkedState> {
    match (state, byte) {
        (ChunkedState::ExtensionQuoted, b'"') => Some(ChunkedState::ExtensionQuotedEnd),
        (ChunkedState::ExtensionQuoted, b'\\') => Some(ChunkedState::ExtensionQuotedPair),
        _ => FIELD_TEXT
            .has(byte)
            .then_some(ChunkedState::ExtensionQuoted),
    }
}

/// trailer-section = *( field-line CRLF ) (RFC 9112 section 7.1.2), and the CRLF that ends the body.
fn after_trailer(state: ChunkedState, byte: u8) -> Result<ChunkedState, Fault> {
    use ChunkedState as S;
    match (state, byte) {
        (S::Trailer, b'\r') => Ok(S::LastLf),
        (S::TrailerName, b':') => Ok(S::TrailerValue),
        (S::Trailer | S::TrailerName, _) if TOKEN.has(byte) => Ok(S::TrailerName),
        (S::TrailerValue, b'\r') => Ok(S::TrailerLf),
        (S::TrailerValue, _) if FIELD_TEXT.has(byte) => Ok(S::TrailerValue),
        (S::TrailerLf, b'\n') => Ok(S::Trailer),
        (S::LastLf, b'\n') => Ok(S::Over),
        (S::TrailerLf | S::LastLf, _) => Err(BARE_CR),
        _ => Err(Fault::BadRequest("a malformed trailer field")),
    }
}
