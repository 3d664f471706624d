//! The rules for answers (RFC 9110, RFC 9112, PEP 3333). A host holds its app to them and explains to the app what is wrong; the acceptor holds
//! workers to them, because an app can corrupt its worker's memory.

use crate::octets::{TOKEN, number};
pub use crate::octets::{is_field_text, is_plain_text};

/// Fields that concern one hop (RFC 9110 section 7.6.1, and section 11.7 for those of proxies), in lower case. The acceptor sets them.
const HOP_BY_HOP: [&[u8]; 9] = [
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// Fields that say how a body is to be read, in lower case: in a trailer they would come too late (RFC 9110 section 6.5.1).
const OF_BODY: [&[u8]; 4] = [
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
];

/// The statuses that an answer may have: a lower status announces another answer (RFC 9110 section 15.2), and an app gives only one.
pub const STATUSES: std::ops::RangeInclusive<u16> = 200..=999;

/// Whether a field of this name concerns one hop; case does not matter.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    // The length alone rules out most other names.
    matches!(name.len(), 2 | 7 | 10 | 16..=19)
        && HOP_BY_HOP
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a list has this member, such as an option of `Connection` (RFC 9110 section 5.6.1); case does not matter.
pub fn lists(list: &[u8], member: &[u8]) -> bool {
    let mut members = list.split(|&byte| byte == b',');
    members.any(|one| one.trim_ascii().eq_ignore_ascii_case(member))
}

/// Whether a field of this name may follow a body; case does not matter.
pub fn may_be_trailer(name: &[u8]) -> bool {
    !is_hop_by_hop(name) && !OF_BODY.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether an answer of this status has a body (RFC 9110 sections 15.3.5 and 15.4.5).
pub fn has_body(status: u16) -> bool {
    !matches!(status, 204 | 304)
}

/// Whether an answer of this status may have a `Content-Length` (RFC 9110 section 8.6).
pub fn may_tell_length(status: u16) -> bool {
    !matches!(status, 100..=199 | 204)
}

/// The value of a `Content-Length`: digits and nothing else (RFC 9110 section 8.6).
pub fn content_length(value: &[u8]) -> Option<u64> {
    number(value)
}

/// Whether a name is a token (RFC 9110 section 5.6.2), as the names of fields and methods have to be.
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && TOKEN.has_all(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_digits() {
        let table: [(&[u8], Option<u64>); 10] = [
            (b"0", Some(0)),
            (b"0042", Some(42)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"", None),
            (b"+1", None),
            (b"-1", None),
            (b" 1", None),
            (b"1, 1", None),
            (b"0x1", None),
        ];
        for (value, expected) in table {
            assert_eq!(content_length(value), expected, "{value:?}");
        }
    }

    #[test]
    fn plain_text_is_printable_ascii_wherever_a_byte_stands() {
        for len in 0..20 {
            let mut value = vec![b'x'; len];
            assert!(is_plain_text(&value), "{len}");
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    value[at] = byte;
                    let expected = (b' '..=b'~').contains(&byte);
                    assert_eq!(is_plain_text(&value), expected, "{byte} at {at} of {len}");
                }
                value[at] = b'x';
            }
        }
    }

    #[test]
    fn names_of_one_hop_in_any_case() {
        for name in HOP_BY_HOP {
            assert!(is_hop_by_hop(name), "{name:?}");
            assert!(!may_be_trailer(name), "{name:?}");
            assert!(is_hop_by_hop(&name.to_ascii_uppercase()), "{name:?}");
        }
        for name in ["", "date", "t", "te2", "connections"] {
            assert!(!is_hop_by_hop(name.as_bytes()), "{name}");
        }
    }
}
