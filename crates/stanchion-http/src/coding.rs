//! Which codings of a body a client accepts (RFC 9110 section 12.5.3).

use crate::head::Head;
use crate::octets::trimmed;

/// A coding that a body may have, in our order of preference.
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
    /// All codings, in the server's order of preference, which counts where a client states none.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstandard, Self::Gzip];

    /// Its name in `Content-Encoding`.
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

/// The codings `among` the given ones that the client accepts with at least the weight it gives the unencoded body, heaviest first. A request without
/// `Accept-Encoding` permits any coding (section 12.5.3), and still gets none, because many clients that omit the field cannot decode.
pub fn codings_taken(head: &Head, among: &[Coding]) -> Vec<Coding> {
    if head.first("accept-encoding").is_none() {
        return Vec::new();
    }
    let wishes = Wishes::of(head);
    // A client that does not mention `identity` accepts it, with a lower weight than every coding in the list.
    let unencoded = wishes.unencoded.unwrap_or(0);
    let mut taken: Vec<_> = among
        .iter()
        .map(|&coding| (coding, wishes.weight(coding)))
        .filter(|&(_, weight)| weight > 0 && weight >= unencoded)
        .collect();
    taken.sort_by_key(|&(_, weight)| std::cmp::Reverse(weight));
    taken.into_iter().map(|(coding, _)| coding).collect()
}

/// The weights that a client gives each coding, in thousandths. If it weighs one coding twice, the first weight counts.
#[derive(Default)]
struct Wishes {
    codings: [Option<u16>; Coding::ALL.len()],
    /// The weight of `*`: of every coding that the client does not list.
    others: Option<u16>,
    unencoded: Option<u16>,
}

impl Wishes {
    /// Reads the field in one pass, because it may have many KiB.
    fn of(head: &Head) -> Self {
        let mut wishes = Self::default();
        let elements = head
            .all("accept-encoding")
            .flat_map(|list| list.split(|&byte| byte == b','));
        for (token, weight) in elements.filter_map(element) {
            if let Some(place) = wishes.place(token) {
                place.get_or_insert(weight);
            }
        }
        wishes
    }

    /// The place for the weight of a coding with this name; `None` for a coding that is unknown here.
    fn place(&mut self, token: &[u8]) -> Option<&mut Option<u16>> {
        if token == b"*" {
            return Some(&mut self.others);
        }
        if token.eq_ignore_ascii_case(b"identity") {
            return Some(&mut self.unencoded);
        }
        let coding = Coding::ALL.into_iter().find(|coding| coding.is(token))?;
        Some(&mut self.codings[coding as usize])
    }

    fn weight(&self, coding: Coding) -> u16 {
        self.codings[coding as usize].or(self.others).unwrap_or(0)
    }
}

/// A coding and its weight in thousandths; `None` if the weight is malformed.
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
        // Among equal weights the server's order decides, and a coding that the server does not offer is left out.
        assert_eq!(
            codings_taken(&head, &[Gzip, Zstandard, Brotli]),
            [Gzip, Brotli]
        );
        assert_eq!(codings_taken(&head, &[Zstandard]), []);
    }
}
