//! What the proxies in front say of a request, if they are believed: by which scheme the client
//! came, and how long it was with them.

use http::HeaderMap;
use stanchion_sys::clock::wall_us;

use super::refusal::Refusal;

/// What proxies say it in.
const FIELD: &str = "x-request-start";
/// Two clocks that differ by so much still count as the same: then the time is 0, not negative.
const SKEW_US_MAX: u64 = 1_000_000;
/// No proxy holds a request for longer; what says so is not a time.
const TIME_US_MAX: u64 = 3_600 * 1_000_000;

/// gunicorn's default `secure_scheme_headers`. Proxies that contradict each other are a mistake
/// somebody should hear of.
pub(super) fn forwarded_scheme(headers: &HeaderMap) -> Result<&'static str, Refusal> {
    let says_https = |name: &str, value: &str| {
        headers
            .get(name)
            .map(|found| found.as_bytes().eq_ignore_ascii_case(value.as_bytes()))
    };
    let said = [
        says_https("x-forwarded-proto", "https"),
        says_https("x-forwarded-protocol", "ssl"),
        says_https("x-forwarded-ssl", "on"),
    ];
    let mut said = said.into_iter().flatten();
    let first = said.next();
    if said.any(|other| Some(other) != first) {
        return Err(Refusal::BadRequest("contradictory scheme headers"));
    }
    Ok(if first == Some(true) { "https" } else { "http" })
}

/// Microseconds from when the first proxy had the request until now; `None` if none says so, or if
/// it makes no sense.
pub(super) fn proxy_us(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get(FIELD)?.to_str().ok()?;
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
