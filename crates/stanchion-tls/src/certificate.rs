//! The fields of a certificate that people and apps read (RFC 5280 section 4.1).

use std::fmt::Write as _;

use crate::der::{self, DerElement, INTEGER, OID, SEQUENCE, SET};

/// id-at-commonName (RFC 5280 appendix A.1).
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Names of attributes that `mod_ssl` and OpenSSL write by their short names (RFC 4514 section 3, and OpenSSL's).
const ATTRIBUTES: [(&[u8], &str); 11] = [
    (COMMON_NAME, "CN"),
    (&[0x55, 0x04, 0x05], "serialNumber"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x09], "street"),
    (&[0x55, 0x04, 0x0a], "O"),
    (&[0x55, 0x04, 0x0b], "OU"),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01],
        "emailAddress",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19],
        "DC",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01],
        "UID",
    ),
];

/// The fields of a certificate that the server shows or logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// In upper-case hexadecimal digits.
    pub serial: String,
    /// The name of its issuer, in the form of RFC 4514.
    pub issuer: String,
    /// The name of its owner.
    pub subject: String,
    /// The `CN` of the subject, unescaped; `None` if it has a control character.
    pub common_name: Option<String>,
    /// The first second in which it is valid, since 1970.
    pub not_before_s: u64,
    /// The last second in which it is valid.
    pub not_after_s: u64,
}

impl Certificate {
    /// Reads a certificate in DER; `None` if it is malformed.
    pub fn read(der: &[u8]) -> Option<Self> {
        let mut whole = der::take_tagged(&mut &*der, SEQUENCE)?.content;
        let mut fields = der::take_tagged(&mut whole, SEQUENCE)?.content;
        // The version is absent in certificates of version 1.
        let _version = der::take_tagged(&mut fields, 0xa0);
        let serial = der::take_tagged(&mut fields, INTEGER)?;
        let _algorithm = der::take_tagged(&mut fields, SEQUENCE)?;
        let issuer = der::take_tagged(&mut fields, SEQUENCE)?;
        let mut validity = der::take_tagged(&mut fields, SEQUENCE)?.content;
        let subject = der::take_tagged(&mut fields, SEQUENCE)?;
        Some(Self {
            serial: hex(serial.content.strip_prefix(&[0]).unwrap_or(serial.content)),
            issuer: name(issuer),
            subject: name(subject),
            common_name: common_name(subject),
            not_before_s: der::unix_s(der::take(&mut validity)?)?,
            not_after_s: der::unix_s(der::take(&mut validity)?)?,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` never fails.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// A name, from its last part to its first (RFC 4514 section 2.1).
fn name(name: DerElement<'_>) -> String {
    let parts: Vec<_> = der::elements(name.content)
        .filter(|part| part.tag == SET)
        .map(|part| {
            let attributes: Vec<_> = der::elements(part.content).filter_map(attribute).collect();
            attributes.join("+")
        })
        .collect();
    let parts: Vec<_> = parts.iter().rev().map(String::as_str).collect();
    parts.join(",")
}

fn common_name(name: DerElement<'_>) -> Option<String> {
    let parts = der::elements(name.content).flat_map(|part| der::elements(part.content));
    let found = parts.filter_map(|attribute| {
        let mut parts = attribute.content;
        let kind = der::take_tagged(&mut parts, OID)?.content;
        (kind == COMMON_NAME).then(|| der::take(&mut parts))?
    });
    found
        .last()
        .and_then(text)
        .filter(|text| !text.contains(char::is_control))
}

fn attribute(attribute: DerElement<'_>) -> Option<String> {
    let mut parts = attribute.content;
    let kind = der::take_tagged(&mut parts, OID)?.content;
    let value = der::take(&mut parts)?;
    let known = ATTRIBUTES.iter().find(|(oid, _)| *oid == kind);
    Some(match (known, text(value)) {
        (Some((_, known)), Some(text)) => format!("{known}={}", escaped(&text)),
        // An unknown attribute is written in hexadecimal (RFC 4514 section 2.4).
        _ => format!("{}=#{}", dotted(kind), hex(value.whole)),
    })
}

/// The text of a value, for the types that names consist of (RFC 5280 section 4.1.2.4).
fn text(value: DerElement<'_>) -> Option<String> {
    match value.tag {
        // UTF8String, and the types that are subsets of it.
        0x0c | 0x12 | 0x13 | 0x16 => String::from_utf8(value.content.to_vec()).ok(),
        // TeletexString is Latin-1 in practice.
        0x14 => Some(value.content.iter().map(|&byte| char::from(byte)).collect()),
        // BMPString.
        0x1e => {
            let (units, rest) = value.content.as_chunks();
            let units: Vec<u16> = units.iter().map(|&unit| u16::from_be_bytes(unit)).collect();
            rest.is_empty().then(|| String::from_utf16(&units).ok())?
        }
        _ => None,
    }
}

/// Escapes text by RFC 4514 section 2.4, and control characters too, because they would break a log line or a header field.
fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut out = String::with_capacity(text.len());
    for (index, char) in text.chars().enumerate() {
        let is_edge = (index == 0 && matches!(char, ' ' | '#')) || (index == last && char == ' ');
        if is_edge || matches!(char, '"' | '+' | ',' | ';' | '<' | '>' | '\\') {
            out.push('\\');
            out.push(char);
        } else if char.is_control() {
            for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(out, "\\{byte:02X}");
            }
        } else {
            out.push(char);
        }
    }
    out
}

/// An object identifier as numbers (X.690 section 8.19).
fn dotted(oid: &[u8]) -> String {
    let mut out = String::new();
    let mut number = 0_u64;
    for &byte in oid {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if out.is_empty() {
            let first = (number / 40).min(2);
            let _ = write!(out, "{first}.{}", number - first * 40);
        } else {
            let _ = write!(out, ".{number}");
        }
        number = 0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::certificates;

    #[test]
    fn a_certificate_says_whose_it_is_and_how_long() {
        let pem = include_bytes!("../tests/keys/client.pem");
        let chain = certificates(pem).unwrap();
        let read = Certificate::read(&chain[0]).unwrap();
        assert_eq!(read.subject, r#"CN=a \"client\",O=Shop,C=DE"#);
        assert_eq!(read.common_name.as_deref(), Some(r#"a "client""#));
        assert_eq!(read.issuer, "CN=stanchion test root");
        assert_eq!(read.not_after_s - read.not_before_s, 36_500 * 86_400);
        assert_eq!(read.serial.len(), 40);
        for len in 0..chain[0].len() {
            // A truncated certificate may be unreadable, but reading it must not panic.
            let _ = Certificate::read(&chain[0][..len]);
        }
    }

    #[test]
    fn what_would_mean_something_is_escaped() {
        for (text, expected) in [
            ("", ""),
            ("One, Inc.", r"One\, Inc."),
            (" both ", r"\ both\ "),
            ("#1", r"\#1"),
            ("a\r\nb", r"a\0D\0Ab"),
            ("Jürgen", "Jürgen"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn what_has_no_name_is_a_number() {
        assert_eq!(
            dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]),
            "1.2.840.113549"
        );
        assert_eq!(dotted(&[0x55, 0x04, 0x2a]), "2.5.4.42");
        let name_of = |kind: &[u8], tag: u8, value: &[u8]| {
            let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
            let pair = [element(OID, kind), element(tag, value)].concat();
            let whole = element(SEQUENCE, &element(SET, &element(SEQUENCE, &pair)));
            name(der::take(&mut &*whole).unwrap())
        };
        assert_eq!(name_of(&[0x55, 0x04, 0x2a], 0x0c, b"x"), "2.5.4.42=#0C0178");
        assert_eq!(name_of(&[0x55, 0x04, 0x03], 0x1e, b"\0a\0b"), "CN=ab");
        assert_eq!(name_of(&[0x55, 0x04, 0x03], 0x14, b"\xe4"), "CN=ä");
        assert_eq!(
            name_of(&[0x55, 0x04, 0x03], 0x0c, b"\xe4"),
            "2.5.4.3=#0C01E4"
        );
    }
}
