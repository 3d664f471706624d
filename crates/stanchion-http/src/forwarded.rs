//! What the proxies in front say of a request, if they are believed: by which scheme the client came, how long
//! the request was with them, and whose it is.

use std::net::{IpAddr, SocketAddr};

use crate::fault::Fault;
use crate::forwarded_elements::elements;
use crate::head::Head;

/// What proxies say it in, when they had the request.
const START_FIELD: &str = "x-request-start";
/// Two clocks that differ by so much still count as the same: then the time is 0, not negative.
const SKEW_US_MAX: u64 = 1_000_000;
/// No proxy holds a request for longer; what says so is not a time.
const TIME_US_MAX: u64 = 3_600 * 1_000_000;

/// The fields in which proxies say by which scheme the client came, and what each says for https: gunicorn's
/// `secure_scheme_headers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemeFields {
    fields: Vec<(Box<str>, Box<[u8]>)>,
    /// Bit n: a name is n bytes long, or n more than a multiple of 64. Most fields are told apart by that.
    lengths: u64,
}

impl SchemeFields {
    /// Names, and what they say for https.
    pub fn new<'f>(fields: impl Iterator<Item = (&'f str, &'f str)>) -> Self {
        let fields: Vec<(Box<str>, Box<[u8]>)> = fields
            .map(|(name, https)| (name.into(), https.as_bytes().into()))
            .collect();
        let lengths = fields.iter().map(|(name, _)| 1 << (name.len() % 64));
        Self {
            lengths: lengths.fold(0, |all, one| all | one),
            fields,
        }
    }

    /// The scheme by which the client came, if a proxy says so. All that is said of it counts, also twice by one field: a
    /// proxy that adds its own to what the client sent must not leave the client's in force.
    pub fn scheme(&self, head: &Head) -> Result<Option<&'static str>, Fault> {
        let mut said = head.fields().filter_map(|(name, value)| {
            if self.lengths >> (name.len() % 64) & 1 == 0 {
                return None;
            }
            let is_called = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let (_, https) = self.fields.iter().find(|(known, _)| is_called(known))?;
            Some(value.eq_ignore_ascii_case(https))
        });
        let first = said.next();
        if said.any(|other| Some(other) != first) {
            return Err(Fault::BadRequest("contradictory scheme headers"));
        }
        Ok(first.map(|is_https| if is_https { "https" } else { "http" }))
    }
}

/// Microseconds from when the first proxy had the request until `now_us`, in microseconds since the epoch;
/// `None` if none says so, or if it makes no sense.
pub fn proxy_us(head: &Head, now_us: u64) -> Option<u64> {
    let value = std::str::from_utf8(head.only(START_FIELD)?).ok()?;
    since(moment_us(value)?, now_us)
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

/// In which field proxies say whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientField {
    /// `X-Forwarded-For`, and other fields for the scheme.
    XForwardedFor,
    /// `Forwarded` (RFC 7239), for both: then no other counts.
    Forwarded,
}

/// What proxies say of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Where it is.
    pub client: Option<IpAddr>,
    /// The scheme by which it came.
    pub scheme: Option<&'static str>,
}

impl ClientField {
    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }

    /// Whose a request is: the peer's, or, where the peer is believed and its head therefore given, the one nearest
    /// to us in the field that is not a proxy we believe as well. Each proxy adds the address it saw at
    /// the end, and what stands before the last one we believe anybody may have written.
    ///
    /// `is_proxy` says whether an address is one of those we believe.
    pub fn client(
        self,
        peer: Option<IpAddr>,
        said: Option<&Head>,
        is_proxy: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        let fields = said.into_iter().flat_map(|head| head.all(self.name()));
        self.nearest(fields, is_proxy).or(peer)
    }

    /// The same, as far as the values of the field say it: `None` if they do not.
    pub fn nearest<'v>(
        self,
        fields: impl DoubleEndedIterator<Item = &'v [u8]>,
        is_proxy: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        match self {
            Self::XForwardedFor => nearest_listed(fields, is_proxy),
            // One that cannot be read is refused.
            Self::Forwarded => forwarded(fields, is_proxy).ok()?.client,
        }
    }
}

/// What the values of `Forwarded` say of the client nearest to us that is not a proxy we believe.
///
/// # Errors
/// One of them, that a proxy which we believe has passed on, cannot be read.
pub fn forwarded<'v>(
    fields: impl DoubleEndedIterator<Item = &'v [u8]>,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Result<Said, Fault> {
    let mut said = Said::default();
    for field in fields.rev() {
        for element in elements(field)?.into_iter().rev() {
            // Of the connection to the proxy that the client has come to, not of those behind it.
            said.scheme = element.scheme;
            let Some(client) = element.client else {
                // It is hidden: the proxy stands for all of them.
                return Ok(said);
            };
            said.client = Some(client);
            if !is_proxy(client) {
                return Ok(said);
            }
        }
    }
    Ok(said)
}

/// The address nearest to us in the values of `X-Forwarded-For` that is not a proxy's.
fn nearest_listed<'v>(
    fields: impl DoubleEndedIterator<Item = &'v [u8]>,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut client = None;
    // From the end, over all fields as if they were one (RFC 9110 section 5.3).
    for word in fields
        .rev()
        .flat_map(|field| field.rsplit(|&byte| byte == b','))
    {
        let Some(address) = std::str::from_utf8(word).ok().and_then(address) else {
            // Nobody we believe writes such a thing, or it hides who it was: the proxy stands for
            // all of them.
            break;
        };
        client = Some(address);
        if !is_proxy(address) {
            break;
        }
    }
    client
}

/// An address as proxies write it: some add the port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let with_port = || text.parse().ok().map(|with: SocketAddr| with.ip());
    text.parse()
        .ok()
        .or_else(with_port)
        .map(|address: IpAddr| address.to_canonical())
}
