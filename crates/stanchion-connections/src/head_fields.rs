//! Counts the fields of HTTP/2 heads while they come, before h2 gets any of them: a single byte may stand for a field (RFC
//! 7541 section 6.1), and h2 takes a whole frame of them apart in one go.

/// Most heads have fewer fields than this. These fields count as the bytes that they have.
const FIELDS_FREE: u32 = 128;
/// Each further field counts as this many more bytes, as it does in a list of headers (RFC 9113 section 6.5.2).
pub(super) const FIELD_BYTES: usize = 32;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// Flags of HEADERS (RFC 9113 section 6.2), the first one of CONTINUATION, too.
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// The fields of one connection, as far as they have come.
#[derive(Debug, Default)]
pub(super) struct HeadFields {
    /// How many bytes of the present frame are still to come that hold fields, or stand before them. 0 if the frame has
    /// none.
    left: usize,
    has_padding: bool,
    /// How many bytes still come before the first field.
    before: usize,
    next: HpackState,
    fields: u32,
    extra_bytes: u64,
    /// The present head counts as so many.
    head_bytes: u64,
    /// Its last frame has begun.
    is_last: bool,
}

/// The kind of the next byte (RFC 7541 sections 5 and 6).
#[derive(Clone, Copy, Debug, Default)]
enum HpackState {
    /// The first byte of a field.
    #[default]
    Field,
    /// More of an index; behind it come so many strings.
    Index { strings: u8 },
    /// The length of the first of so many strings.
    Length { strings: u8 },
    /// More of that length, which is `len` so far.
    MoreLength { strings: u8, len: usize, shift: u32 },
    /// A byte of a string, of which so many are left.
    Text { strings: u8, left: usize },
}

impl HpackState {
    /// After an index or a string so many strings follow.
    fn strings(strings: u8) -> Self {
        match strings {
            0 => Self::Field,
            strings => Self::Length { strings },
        }
    }

    fn text(strings: u8, left: usize) -> Self {
        match left {
            0 => Self::strings(strings - 1),
            left => Self::Text { strings, left },
        }
    }

    /// The state after the first byte of a field: it holds an index, and tells how many strings follow.
    fn field(first: u8) -> Self {
        let (prefix, strings) = match first {
            0x80.. => (0x7f, 0),
            0x40.. => (0x3f, 1),
            // An update of the table's size is no field, but as much work.
            0x20.. => (0x1f, 0),
            _ => (0x0f, 1),
        };
        let index = first & prefix;
        // A field without an index has its name as a string, too.
        let strings = strings + u8::from(strings > 0 && index == 0);
        if index == prefix {
            Self::Index { strings }
        } else {
            Self::strings(strings)
        }
    }

    fn length(strings: u8, byte: u8) -> Self {
        match usize::from(byte & 0x7f) {
            len @ 0x7f => Self::MoreLength {
                strings,
                len,
                shift: 0,
            },
            len => Self::text(strings, len),
        }
    }

    fn more_length(strings: u8, len: usize, shift: u32, byte: u8) -> Self {
        // h2 ends a connection with a longer number.
        let more = usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        let len = len.saturating_add(more);
        if byte & 0x80 == 0 {
            return Self::text(strings, len);
        }
        let shift = shift.saturating_add(7);
        Self::MoreLength {
            strings,
            len,
            shift,
        }
    }
}

impl HeadFields {
    /// How many bytes the fields count as, beyond those that they have.
    pub(super) fn extra_bytes(&self) -> u64 {
        self.extra_bytes
    }

    /// The bytes that the present head counts as, if it is not whole yet. `is_frame_whole`: all of the present frame has come.
    pub(super) fn unfinished_bytes(&self, is_frame_whole: bool) -> u64 {
        if self.is_last && is_frame_whole {
            0
        } else {
            self.head_bytes
        }
    }

    /// Begins a frame, with `len` bytes to come.
    pub(super) fn frame(&mut self, kind: u8, flags: u8, len: usize) {
        self.left = 0;
        self.is_last = flags & END_HEADERS != 0;
        if kind != CONTINUATION {
            self.head_bytes = 0;
        }
        match kind {
            HEADERS => {
                self.has_padding = flags & PADDED != 0;
                self.before = if flags & PRIORITY == 0 {
                    0
                } else {
                    PRIORITY_BYTES
                };
                (self.left, self.next, self.fields) = (len, HpackState::Field, 0);
            }
            CONTINUATION => self.left = len,
            _ => {}
        }
    }

    /// Takes bytes of the frame's payload.
    pub(super) fn came(&mut self, mut bytes: &[u8]) {
        if self.left == 0 {
            return;
        }
        if self.has_padding
            && let Some((padding, rest)) = bytes.split_first()
        {
            self.has_padding = false;
            self.left = self.left.saturating_sub(1 + usize::from(*padding));
            bytes = rest;
        }
        bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        self.head_bytes += bytes.len() as u64;
        let before = self.before.min(bytes.len());
        self.before -= before;
        bytes = &bytes[before..];
        while let Some((byte, rest)) = bytes.split_first() {
            if let HpackState::Text { strings, left } = self.next {
                let len = left.min(bytes.len());
                bytes = &bytes[len..];
                self.next = HpackState::text(strings, left - len);
                continue;
            }
            bytes = rest;
            self.next = match self.next {
                HpackState::Field => {
                    self.count();
                    HpackState::field(*byte)
                }
                HpackState::Index { strings } if byte & 0x80 == 0 => HpackState::strings(strings),
                HpackState::Length { strings } => HpackState::length(strings, *byte),
                HpackState::MoreLength {
                    strings,
                    len,
                    shift,
                } => HpackState::more_length(strings, len, shift, *byte),
                next => next,
            };
        }
    }

    fn count(&mut self) {
        self.fields = self.fields.saturating_add(1);
        if self.fields > FIELDS_FREE {
            self.extra_bytes += FIELD_BYTES as u64;
            self.head_bytes += FIELD_BYTES as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many fields a head has that comes in frames with these payloads, in pieces of `step` bytes.
    fn fields(frames: &[(u8, u8, &[u8])], step: usize) -> u32 {
        let mut fields = HeadFields::default();
        for (kind, flags, payload) in frames {
            fields.frame(*kind, *flags, payload.len());
            payload.chunks(step).for_each(|piece| fields.came(piece));
        }
        fields.fields
    }

    fn long(len: u8) -> Vec<u8> {
        // A string of 127 + len bytes, which look like fields.
        [&[0x7f, len][..], &vec![0x82; 127 + usize::from(len)]].concat()
    }

    #[test]
    fn each_field_is_counted_once_in_whatever_form_and_pieces() {
        let string: &[u8] = b"\x02\x82\x82";
        let long = long(100);
        let forms: [Vec<u8>; 9] = [
            vec![0x82],
            vec![0xff, 0x80, 0x80, 0x01],
            [&[0x41], string].concat(),
            [&[0x40], string, string].concat(),
            [&[0x00], string, &[0]].concat(),
            [&[0x10, 0, 0][..]].concat(),
            [&[0x0f, 0x81, 0x01], string].concat(),
            vec![0x3f, 0xe1, 0x1f],
            [&[0x00], &long[..], &long[..]].concat(),
        ];
        let all = forms.concat();
        for step in [1, 2, 3, 50, all.len()] {
            for form in &forms {
                assert_eq!(fields(&[(HEADERS, 4, form)], step), 1, "{form:?}");
            }
            assert_eq!(fields(&[(HEADERS, 4, &all)], step), 9);
            for cut in 0..=all.len() {
                let (first, rest) = all.split_at(cut);
                let frames = [(HEADERS, 0, first), (CONTINUATION, 4, rest)];
                assert_eq!(fields(&frames, step), 9, "cut at {cut}");
            }
            let padded = [&[3], &[0xff; 5][..], &all[..], &[0x82; 3]].concat();
            assert_eq!(fields(&[(HEADERS, PADDED | PRIORITY, &padded)], step), 9);
            let none = [(HEADERS, PADDED, &[9, 0x82][..]), (0, 0, &all[..])];
            assert_eq!(fields(&none, step), 0);
        }
    }

    #[test]
    fn only_fields_past_those_of_most_heads_count_as_more_than_they_have() {
        let head = |len: u32| vec![0x82; len as usize];
        let mut fields = HeadFields::default();
        for (len, extra) in [(FIELDS_FREE, 0), (FIELDS_FREE + 2, 2), (FIELDS_FREE, 2)] {
            fields.frame(HEADERS, 4, len as usize);
            fields.came(&head(len));
            assert_eq!(fields.extra_bytes(), extra * FIELD_BYTES as u64);
        }
    }

    #[test]
    fn a_head_counts_until_it_is_whole() {
        let mut fields = HeadFields::default();
        let mut came = |kind, flags, bytes: &[u8], of| {
            fields.frame(kind, flags, of);
            fields.came(bytes);
            fields.unfinished_bytes(bytes.len() == of)
        };
        assert_eq!(came(0, 0, &[0; 5], 5), 0);
        assert_eq!(came(HEADERS, 0, &[0x82; 5], 5), 5);
        assert_eq!(came(CONTINUATION, END_HEADERS, &[0x82; 2], 3), 7);
        assert_eq!(came(HEADERS, END_HEADERS, &[0x82; 3], 3), 0);
        let many = vec![0x82; FIELDS_FREE as usize + 2];
        let counted = (many.len() + 2 * FIELD_BYTES) as u64;
        assert_eq!(came(HEADERS, END_HEADERS, &many, 200), counted);
        let padded = [&[9], &many[..]].concat();
        let len = padded.len() + 9;
        assert_eq!(came(HEADERS, END_HEADERS | PADDED, &padded, len), counted);
        assert_eq!(came(0, 0, &[0; 5], 9), 0);
    }

    #[test]
    fn no_length_is_too_long_to_be_counted() {
        for byte in [0x7f, 0xff] {
            let endless = [&[0x00, 0x7f][..], &[0xff; 40], &[byte; 40]].concat();
            assert_eq!(fields(&[(HEADERS, 4, &endless)], 7), 1);
        }
    }
}
