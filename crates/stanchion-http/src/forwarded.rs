//! The fields in which trusted proxies describe a request: the client's scheme, how long the proxies held the request, and the client's address.

use std::net::{IpAddr, SocketAddr};

use crate::fault::Fault;
use crate::forwarded_elements::elements;
use crate::head::Head;

/// The field in which a proxy says when it got the request.
pub const REQUEST_START: &str = "x-request-start";
/// The clocks of a proxy and of this host may differ by so much: a start that lies up to this far in the future counts as a time of 0.
const SKEW_US_MAX: u64 = 1_000_000;
/// No proxy holds a request for longer than this; a longer time is a mistake.
const TIME_US_MAX: u64 = 3_600 * 1_000_000;

/// The fields in which proxies give the client's scheme, and the value of each that stands for https: gunicorn's `secure_scheme_headers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemeFields {
    fields: Vec<(Box<str>, Box<[u8]>)>,
    /// Bit n is set if one of the names is n bytes long, or n more than a multiple of 64. The length alone rules out most other fields.
    lengths: u64,
}

impl SchemeFields {
    /// Takes names, and the value of each that stands for https.
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

    /// The client's scheme, if a proxy gives it. All these fields must agree, repeated ones too: if a proxy adds its own field to one that the client
    /// sent, the client's must not win.
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

/// A proxy says that it had a request in the future, or too long ago: its clock or ours is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongClock;

/// Microseconds from when the first proxy had the request until `now_us`, in microseconds since the epoch; `None` if no proxy says so in a way that
/// is understood.
///
/// # Errors
/// The clocks of the proxy and of this host cannot both be right.
pub fn proxy_us(head: &Head, now_us: u64) -> Result<Option<u64>, WrongClock> {
    let value = head.only(REQUEST_START).map(std::str::from_utf8);
    let start_us = value.and_then(Result::ok).and_then(moment_us);
    start_us.map(|start_us| since(start_us, now_us)).transpose()
}

fn since(start_us: u64, now_us: u64) -> Result<u64, WrongClock> {
    let us = now_us.saturating_sub(start_us);
    if start_us > now_us.saturating_add(SKEW_US_MAX) || us > TIME_US_MAX {
        return Err(WrongClock);
    }
    Ok(us)
}

/// A moment in microseconds since the epoch: with or without `t=`, in seconds (nginx's `t=${msec}`), milliseconds (Heroku), microseconds (Apache's
/// `t=%t`) or nanoseconds. The unit is the one that puts the moment near the present.
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

/// The field in which proxies give the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientField {
    /// `X-Forwarded-For`; other fields give the scheme.
    XForwardedFor,
    /// `Forwarded` (RFC 7239) gives both, and no other field counts.
    Forwarded,
}

/// The address and scheme of a client according to proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedClient {
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The client's scheme.
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

    /// The address of the client. Each proxy appends the address that it saw, so the last address in the field that is not itself a trusted proxy is
    /// the client's, and the client may have written all addresses before its own. If the peer is no trusted proxy the caller passes no head, and the
    /// client is the peer.
    ///
    /// `is_proxy` says whether an address is a trusted proxy's.
    pub fn client(
        self,
        peer: Option<IpAddr>,
        said: Option<&Head>,
        is_proxy: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        let fields = said.into_iter().flat_map(|head| head.all(self.name()));
        self.nearest(fields, is_proxy).or(peer)
    }

    /// The client's address according to the values of the field; `None` if they do not give it.
    pub fn nearest<'v>(
        self,
        fields: impl DoubleEndedIterator<Item = &'v [u8]>,
        is_proxy: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        match self {
            Self::XForwardedFor => nearest_listed(fields, is_proxy),
            // The acceptor refuses a request with a malformed field, so there is no address to give.
            Self::Forwarded => forwarded(fields, is_proxy).ok()?.client,
        }
    }
}

/// Reads the last client in the values of `Forwarded` that is not a trusted proxy.
///
/// # Errors
/// A field value that a trusted proxy has passed on is malformed.
pub fn forwarded<'v>(
    fields: impl DoubleEndedIterator<Item = &'v [u8]>,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Result<ForwardedClient, Fault> {
    let mut said = ForwardedClient::default();
    for field in fields.rev() {
        for element in elements(field)?.into_iter().rev() {
            // The client's scheme is in the element of the proxy that it connected to: the last one that this loop reads.
            said.scheme = element.scheme;
            let Some(client) = element.client else {
                // This proxy hides its client: so the proxy stands for all its clients.
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

/// The last address in the values of `X-Forwarded-For` that is not a trusted proxy's.
fn nearest_listed<'v>(
    fields: impl DoubleEndedIterator<Item = &'v [u8]>,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut client = None;
    // Read from the end, over all fields as if they were one (RFC 9110 section 5.3).
    for word in fields
        .rev()
        .flat_map(|field| field.rsplit(|&byte| byte == b','))
    {
        let Some(address) = std::str::from_utf8(word).ok().and_then(address) else {
            // No trusted proxy writes such a word, except to hide its client: then the proxy stands for all its clients.
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
