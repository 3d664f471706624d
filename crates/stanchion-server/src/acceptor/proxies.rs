//! What the proxies in front say of a request, if they are believed: by which scheme the client
//! came, and how long it was with them.

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderValue};
use stanchion_sys::clock::wall_us;

use super::refusal::Refusal;

/// What proxies say it in.
const FIELD: &str = "x-request-start";
/// Two clocks that differ by so much still count as the same: then the time is 0, not negative.
const SKEW_US_MAX: u64 = 1_000_000;
/// No proxy holds a request for longer; what says so is not a time.
const TIME_US_MAX: u64 = 3_600 * 1_000_000;

/// gunicorn's default `secure_scheme_headers`: the fields that say so, and what each says for https.
const SCHEME_FIELDS: [(&str, &str); 3] = [
    ("x-forwarded-proto", "https"),
    ("x-forwarded-protocol", "ssl"),
    ("x-forwarded-ssl", "on"),
];

/// The scheme by which the client came. All that is said of it counts, also twice by one field: a
/// proxy that adds its own to what the client sent must not leave the client's in force.
pub(super) fn forwarded_scheme(headers: &HeaderMap) -> Result<&'static str, Refusal> {
    let mut said = SCHEME_FIELDS.into_iter().flat_map(|(name, https)| {
        let values = headers.get_all(name).into_iter();
        values.map(move |value| value.as_bytes().eq_ignore_ascii_case(https.as_bytes()))
    });
    let first = said.next();
    if said.any(|other| Some(other) != first) {
        return Err(Refusal::BadRequest("contradictory scheme headers"));
    }
    Ok(if first == Some(true) { "https" } else { "http" })
}

/// The value of a field that may come once. Of two nobody knows which is the proxy's.
pub(super) fn only_value(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).into_iter();
    values.next().filter(|_| values.next().is_none())
}

/// Microseconds from when the first proxy had the request until now; `None` if none says so, or if
/// it makes no sense.
pub(super) fn proxy_us(headers: &HeaderMap) -> Option<u64> {
    let value = only_value(headers, FIELD)?.to_str().ok()?;
    since(moment_us(value)?, wall_us())
}

fn since(start_us: u64, now_us: u64) -> Option<u64> {
    if start_us > now_us.saturating_add(SKEW_US_MAX) {
        return None;
    }
    Some(now_us.saturating_sub(start_us)).filter(|&us| us <= TIME_US_MAX)
}

/// A moment in microseconds since the epoch: `t=` or not, and seconds (nginx's `t=${msec}`),
/// milliseconds (Heroku), microseconds (Apache's `t=%t`) or nanoseconds, by what would be our time.
fn moment_us(text: &str) -> Option<u64> {
    const NS_PER_S: u128 = 1_000_000_000;
    let text = text.trim();
    let text = text.strip_prefix("t=").unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 19 || fraction.len() > 9 {
        return None;
    }
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let number: u128 = whole.parse().ok()?;
    // Each bound is the year 5138 in its unit, and 1973 in the next.
    let unit_ns = match number {
        0..100_000_000_000 => NS_PER_S,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    let scale = 10_u128.pow(fraction.len() as u32);
    let part: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let ns = number * unit_ns + part * unit_ns / scale;
    u64::try_from(ns / 1_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn all_that_is_said_of_the_scheme_counts() {
        const PROTO: &str = "x-forwarded-proto";
        const PROTOCOL: &str = "x-forwarded-protocol";
        const SSL: &str = "x-forwarded-ssl";
        let contradiction = Err(Refusal::BadRequest("contradictory scheme headers"));
        let table: &[(&[(&str, &str)], _)] = &[
            (&[], Ok("http")),
            (&[(PROTO, "https")], Ok("https")),
            (&[(PROTO, "HTTPS")], Ok("https")),
            (&[(PROTO, "http")], Ok("http")),
            (&[(PROTO, "")], Ok("http")),
            (&[(PROTO, "https, http")], Ok("http")),
            (&[(PROTOCOL, "ssl")], Ok("https")),
            (&[(SSL, "on")], Ok("https")),
            (
                &[(PROTO, "https"), (SSL, "on"), (PROTOCOL, "ssl")],
                Ok("https"),
            ),
            (&[(PROTO, "http"), (SSL, "off")], Ok("http")),
            (&[(PROTO, "http"), (SSL, "on")], contradiction),
            (&[(PROTO, "https"), (PROTOCOL, "http")], contradiction),
            (&[(PROTO, "https"), (PROTO, "https")], Ok("https")),
            (&[(PROTO, "https"), (PROTO, "http")], contradiction),
            (&[(PROTO, "http"), (PROTO, "https")], contradiction),
            (
                &[(PROTO, "https"), (PROTO, "https"), (PROTO, "")],
                contradiction,
            ),
        ];
        for (said, expected) in table {
            assert_eq!(forwarded_scheme(&fields(said)), *expected, "{said:?}");
        }
    }

    #[test]
    fn of_two_values_neither_is_believed() {
        let given = fields(&[("a", "1"), ("b", "1"), ("b", "1")]);
        assert_eq!(only_value(&given, "a").unwrap(), "1");
        assert_eq!(only_value(&given, "b"), None);
        assert_eq!(only_value(&given, "c"), None);
    }

    #[test]
    fn every_unit_that_is_in_use() {
        let expected = Some(1_700_000_000_123_000);
        for text in [
            "t=1700000000.123",
            "1700000000.123",
            "t=1700000000123",
            "1700000000123",
            "1700000000123.0",
            "t=1700000000123000",
            "1700000000123000000",
            " t=1700000000123 ",
        ] {
            assert_eq!(moment_us(text), expected, "{text}");
        }
        assert_eq!(moment_us("1700000000"), Some(1_700_000_000_000_000));
        for text in [
            "",
            "t=",
            "t=now",
            "-1",
            "1e9",
            "1.2.3",
            "0x10",
            "17000000001230000000",
            "1.0123456789",
        ] {
            assert_eq!(moment_us(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_that_cannot_be_is_none() {
        const NOW_US: u64 = 1_700_000_000_000_000;
        for (start_us, expected) in [
            (NOW_US - 1_500, Some(1_500)),
            (NOW_US, Some(0)),
            (NOW_US + SKEW_US_MAX, Some(0)),
            (NOW_US + SKEW_US_MAX + 1, None),
            (NOW_US - TIME_US_MAX, Some(TIME_US_MAX)),
            (NOW_US - TIME_US_MAX - 1, None),
            (0, None),
        ] {
            assert_eq!(since(start_us, NOW_US), expected, "{start_us}");
        }
    }
}
