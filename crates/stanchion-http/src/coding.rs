//! Which codings of a body a client takes (RFC 9110 section 12.5.3).

use crate::head::Head;
use crate::octets::trimmed;

/// A coding that a body may have, those that are preferred first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstandard,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All of them, by preference where a client has none.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstandard, Self::Gzip];

    /// As `Content-Encoding` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstandard => "zstd",
            Self::Gzip => "gzip",
        }
    }

    fn is(self, token: &[u8]) -> bool {
        token.eq_ignore_ascii_case(self.name().as_bytes())
            || self == Self::Gzip && token.eq_ignore_ascii_case(b"x-gzip")
    }
}

/// Those `among` these codings that the client of a request takes and does not want less than the body as it is, the one that
/// it wants most first. Without the field it may take any (section 12.5.3), and gets none, as many that send no such field
/// cannot decode.
pub fn codings_taken(head: &Head, among: &[Coding]) -> Vec<Coding> {
    if head.first("accept-encoding").is_none() {
        return Vec::new();
    }
    let asked = || {
        let elements = head
            .all("accept-encoding")
            .flat_map(|list| list.split(|&byte| byte == b','));
        elements.filter_map(element)
    };
    let of = |is_meant: &dyn Fn(&[u8]) -> bool| {
        let found = asked().find(|(token, _)| is_meant(token));
        found.map(|(_, weight)| weight)
    };
    let weight = |coding: Coding| {
        of(&|token| coding.is(token))
            .or_else(|| of(&|token| token == b"*"))
            .unwrap_or(0)
    };
    // Who says nothing of it takes it, and wants it less than anything that is listed.
    let unencoded = of(&|token| token.eq_ignore_ascii_case(b"identity")).unwrap_or(0);
    let mut taken: Vec<_> = among
        .iter()
        .copied()
        .filter(|&coding| weight(coding) > 0 && weight(coding) >= unencoded)
        .collect();
    taken.sort_by_key(|&coding| std::cmp::Reverse(weight(coding)));
    taken
}

/// A coding and its weight in thousandths; `None` if the weight is none.
fn element(element: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = element.split(|&byte| byte == b';').map(trimmed);
    let token = parts.next().filter(|token| !token.is_empty())?;
    let mut weight = 1_000;
    for parameter in parts {
        if let Some(value) = parameter
            .strip_prefix(b"q=")
            .or(parameter.strip_prefix(b"Q="))
        {
            weight = thousandths(value)?;
        }
    }
    Some((token, weight))
}

/// qvalue (RFC 9110 section 12.4.2).
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, fraction) = match value {
        [whole] => (*whole, &b""[..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return None,
    };
    let digits = fraction
        .iter()
        .copied()
        .chain(std::iter::repeat(b'0'))
        .take(3);
    let mut thousandths = match whole {
        b'0' => 0,
        b'1' => 1,
        _ => return None,
    };
    for digit in digits {
        let digit = char::from(digit).to_digit(10)?;
        thousandths = thousandths * 10 + digit as u16;
    }
    (thousandths <= 1_000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_coding_it_wants_most() {
        use Coding::{Brotli, Gzip, Zstandard};
        for (accepted, expected) in [
            (None, &[][..]),
            (Some(""), &[]),
            (Some("gzip"), &[Gzip]),
            (Some("GZIP"), &[Gzip]),
            (Some("x-gzip"), &[Gzip]),
            (Some("gzip, deflate, br, zstd"), &[Brotli, Zstandard, Gzip]),
            (Some("br;q=0.5, gzip"), &[Gzip, Brotli]),
            (Some("br ; q=0.001 ,gzip;q=0.002"), &[Gzip, Brotli]),
            (Some("*"), &[Brotli, Zstandard, Gzip]),
            (Some("*;q=0, gzip"), &[Gzip]),
            (Some("gzip;q=0, *"), &[Brotli, Zstandard]),
            (Some("gzip;q=0"), &[]),
            (Some("gzip;q=0.000"), &[]),
            (Some("identity"), &[]),
            (Some("identity;q=0, *"), &[Brotli, Zstandard, Gzip]),
            (Some("identity;q=0"), &[]),
            (Some("identity, *;q=0.1"), &[]),
            (Some("Identity;q=0.5, gzip;q=0.4, br;q=0.6"), &[Brotli]),
            (Some("identity, gzip"), &[Gzip]),
            (Some("gzip;q=2"), &[]),
            (Some("gzip;q=1.001"), &[]),
            (Some("gzip;q=0.1234"), &[]),
            (Some("gzip;q="), &[]),
            (Some("gzip;level=9"), &[Gzip]),
            (Some(",,gzip,"), &[Gzip]),
            (Some("gzippy"), &[]),
        ] {
            let field = accepted.map(|value| ("Accept-Encoding", value));
            let head = Head::of("GET", "/", field.as_slice());
            assert_eq!(codings_taken(&head, &Coding::ALL), expected, "{accepted:?}");
        }
        let twice = [("Accept-Encoding", "gzip"), ("Accept-Encoding", "br")];
        let head = Head::of("GET", "/", &twice);
        assert_eq!(codings_taken(&head, &Coding::ALL), [Brotli, Gzip]);
        // Among equals the server's order counts, and only what is there.
        assert_eq!(
            codings_taken(&head, &[Gzip, Zstandard, Brotli]),
            [Gzip, Brotli]
        );
        assert_eq!(codings_taken(&head, &[Zstandard]), []);
    }
}
