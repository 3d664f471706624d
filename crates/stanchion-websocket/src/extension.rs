//! Extensions (RFC 6455 section 9). The server knows one, which compresses messages: permessage-deflate (RFC 7692).

use std::borrow::Cow;

use crate::deflate::WINDOW_BITS_MAX;

const DEFLATE: &[u8] = b"permessage-deflate";
/// RFC 7692 also knows windows of 8 bits, but no library compresses with one: zlib has none without its own header.
const WINDOW_BITS_MIN: u8 = 9;

/// The parameters of compression for a WebSocket (RFC 7692 section 7). Each message is compressed by itself in both
/// directions, so neither side has a window to keep between messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// The window that the client needs for the server's messages, if the client has asked for a limit.
    told_bits: Option<u8>,
}

impl Deflate {
    /// Agrees to the first acceptable offer in the `fields` of a client's request.
    ///
    /// # Errors
    /// The fields do not have the form of RFC 6455 section 9.1.
    pub fn of_offers<'a>(
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Option<Self>, &'static str> {
        let mut agreed = None;
        for (name, value) in fields {
            if !name.eq_ignore_ascii_case(b"sec-websocket-extensions") {
                continue;
            }
            let mut scanner = Scanner(value);
            while let Some(offer) = scanner.extension()? {
                if offer.name == DEFLATE && agreed.is_none() {
                    agreed = Self::of_offer(&offer.params);
                }
            }
        }
        Ok(agreed)
    }

    /// A server declines an offer if a parameter is unknown, comes twice or has a wrong value (RFC 7692 section 7).
    fn of_offer(params: &[Param<'_>]) -> Option<Self> {
        let mut told_bits = None;
        for (at, (name, value)) in params.iter().enumerate() {
            if params[..at].iter().any(|(before, _)| before == name) {
                return None;
            }
            match (*name, value) {
                // With the last parameter a client says that the server may limit the client's window. The server does
                // not, because the client's window costs it nothing.
                (
                    b"server_no_context_takeover"
                    | b"client_no_context_takeover"
                    | b"client_max_window_bits",
                    None,
                ) => {}
                (b"client_max_window_bits", Some(bits)) => {
                    window_bits(bits)?;
                }
                (b"server_max_window_bits", Some(bits)) => {
                    let bits = window_bits(bits)?;
                    told_bits = Some(bits).filter(|bits| *bits >= WINDOW_BITS_MIN);
                    told_bits?;
                }
                _ => return None,
            }
        }
        Some(Self { told_bits })
    }

    /// The value of `Sec-WebSocket-Extensions` in the answer.
    pub fn answer(self) -> String {
        let bits = match self.told_bits {
            Some(bits) => format!("; server_max_window_bits={bits}"),
            None => String::new(),
        };
        format!("permessage-deflate; server_no_context_takeover; client_no_context_takeover{bits}")
    }

    /// The window for messages to the client, as a power of two.
    pub fn window_bits(self) -> u8 {
        self.told_bits.unwrap_or(WINDOW_BITS_MAX)
    }
}

/// Reads a number of bits by RFC 7692 section 7.1.2: from 8 to 15, without a leading zero.
fn window_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// The name of a parameter and its value, if it has one.
type Param<'a> = (&'a [u8], Option<Cow<'a, [u8]>>);

/// An extension that a client offers.
struct Extension<'a> {
    name: &'a [u8],
    params: Vec<Param<'a>>,
}

/// The rest of a list of extensions (RFC 6455 section 9.1).
struct Scanner<'a>(&'a [u8]);

const BAD_FORM: &str = "Sec-WebSocket-Extensions is no list of extensions";

impl<'a> Scanner<'a> {
    /// The next extension. Elements of the list may be empty (RFC 9110 section 5.6.1.2).
    fn extension(&mut self) -> Result<Option<Extension<'a>>, &'static str> {
        while self.takes(b',') {}
        if self.0.is_empty() {
            return Ok(None);
        }
        let name = self.token()?;
        let mut params = Vec::new();
        while self.takes(b';') {
            let name = self.token()?;
            let value = if self.takes(b'=') {
                Some(self.value()?)
            } else {
                None
            };
            params.push((name, value));
        }
        if self.takes(b',') || self.0.is_empty() {
            return Ok(Some(Extension { name, params }));
        }
        Err(BAD_FORM)
    }

    /// Takes this byte, with space around it, if it comes next.
    fn takes(&mut self, byte: u8) -> bool {
        self.0 = self.0.trim_ascii_start();
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0).trim_ascii_start();
        rest.is_some()
    }

    fn token(&mut self) -> Result<&'a [u8], &'static str> {
        let len = self.0.iter().take_while(|byte| is_of_token(**byte)).count();
        let (token, rest) = self.0.split_at(len);
        self.0 = rest;
        if token.is_empty() {
            return Err(BAD_FORM);
        }
        Ok(token)
    }

    /// A token, plain or quoted.
    fn value(&mut self) -> Result<Cow<'a, [u8]>, &'static str> {
        let Some(mut rest) = self.0.strip_prefix(b"\"") else {
            return self.token().map(Cow::Borrowed);
        };
        let mut value = Vec::new();
        loop {
            let (byte, behind) = match rest {
                [b'"', behind @ ..] if !value.is_empty() => {
                    self.0 = behind;
                    return Ok(Cow::Owned(value));
                }
                [b'\\', byte, behind @ ..] | [byte, behind @ ..] => (*byte, behind),
                [] => return Err(BAD_FORM),
            };
            if !is_of_token(byte) {
                return Err(BAD_FORM);
            }
            value.push(byte);
            rest = behind;
        }
    }
}

/// Whether a token may contain this byte (RFC 9110 section 5.6.2).
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(values: &[&str]) -> Result<Option<Deflate>, &'static str> {
        let fields = values.iter().map(|value| {
            let name: &[u8] = b"sec-WebSocket-extensions";
            (name, value.as_bytes())
        });
        Deflate::of_offers(fields)
    }

    const PLAIN: &str =
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

    #[test]
    fn the_first_offer_is_taken_that_can_be_had() {
        for (offers, bits) in [
            (&["permessage-deflate"][..], None),
            (&["permessage-deflate; client_max_window_bits"], None),
            (&["permessage-deflate;client_max_window_bits=8"], None),
            (
                &["permessage-deflate; client_no_context_takeover; server_no_context_takeover"],
                None,
            ),
            (&["permessage-deflate; server_max_window_bits=9"], Some(9)),
            (&["permessage-deflate; server_max_window_bits=15"], Some(15)),
            (
                &["permessage-deflate ; server_max_window_bits\t= \"1\\0\" "],
                Some(10),
            ),
            (&["x-webkit-deflate-frame, permessage-deflate"], None),
            (&["other; p=\"v\"; q , ,permessage-deflate,"], None),
            (&["", "other", "permessage-deflate"], None),
            // The first offer is not acceptable.
            (
                &["permessage-deflate; server_max_window_bits=8, permessage-deflate"],
                None,
            ),
            (
                &[
                    "permessage-deflate; unknown",
                    "permessage-deflate; server_max_window_bits=11",
                ],
                Some(11),
            ),
            (
                &["permessage-deflate; server_max_window_bits=12, permessage-deflate"],
                Some(12),
            ),
        ] {
            let deflate = agreed(offers).expect("they have the form");
            let deflate = deflate.unwrap_or_else(|| panic!("{offers:?} is declined"));
            assert_eq!(deflate.window_bits(), bits.unwrap_or(15), "{offers:?}");
            let told = bits.map(|bits| format!("; server_max_window_bits={bits}"));
            let answer = format!("{PLAIN}{}", told.unwrap_or_default());
            assert_eq!(deflate.answer(), answer, "{offers:?}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_declined() {
        for offer in [
            "",
            " , ,",
            "other",
            "Permessage-Deflate",
            "permessage-deflates",
            "permessage-deflate; unknown",
            "permessage-deflate; unknown=1",
            "permessage-deflate; Client_Max_Window_Bits",
            "permessage-deflate; client_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover=true",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; server_max_window_bits=7",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=012",
            "permessage-deflate; server_max_window_bits=+12",
            "permessage-deflate; server_max_window_bits=1",
            "permessage-deflate; server_max_window_bits=100",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=16",
            "permessage-deflate; client_max_window_bits=08",
            "permessage-deflate; client_max_window_bits; client_max_window_bits",
            "permessage-deflate; client_max_window_bits; client_max_window_bits=10",
            "permessage-deflate; server_max_window_bits=10; server_max_window_bits=10",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
        ] {
            assert_eq!(agreed(&[offer]), Ok(None), "{offer}");
        }
    }

    #[test]
    fn what_is_no_list_of_extensions_is_refused() {
        for value in [
            ";",
            "=",
            "permessage-deflate;",
            "permessage-deflate; ;client_max_window_bits",
            "permessage-deflate; client_max_window_bits=",
            "permessage-deflate; client_max_window_bits=\"\"",
            "permessage-deflate; client_max_window_bits=\"10",
            "permessage-deflate; client_max_window_bits=\"1 0\"",
            "permessage-deflate; client_max_window_bits=\"10\\",
            "permessage-deflate; client_max_window_bits=\"10\\\"",
            "permessage-deflate; client_max_window_bits=\"10\"1",
            "permessage-deflate; client_max_window_bits=10=11",
            "permessage-deflate client_max_window_bits",
            "permessage-deflate, (",
            "permessage-deflate, \"quoted\"",
            "permessage-deflate; \u{e4}",
            "permessage-deflate\0",
        ] {
            assert_eq!(agreed(&[value]), Err(BAD_FORM), "{value}");
            // It stays an error with good elements before and behind it.
            let others = ["permessage-deflate", value, "permessage-deflate"];
            assert_eq!(agreed(&others), Err(BAD_FORM), "{value}");
        }
    }

    #[test]
    fn other_fields_say_nothing() {
        let fields: [(&[u8], &[u8]); 2] = [
            (b"Sec-WebSocket-Protocol", b"permessage-deflate"),
            (b"Upgrade", b"websocket"),
        ];
        assert_eq!(Deflate::of_offers(fields.into_iter()), Ok(None));
    }
}
