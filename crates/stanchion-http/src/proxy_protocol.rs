//! The PROXY protocol, versions 1 and 2 (proxy-protocol.txt of HAProxy): a header at the start of a connection, in which a proxy describes the
//! client's connection that it forwards.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::fault::Fault;

/// The longest header of version 1, with its CR LF (section 2.1).
const V1_BYTES_MAX: usize = 107;
/// The first bytes of a header of version 1.
const V1_START: &[u8] = b"PROXY ";
/// The first bytes of a header of version 2 (section 2.2).
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and transport, length.
const V2_FIXED_BYTES: usize = 16;
/// The longest header, type-length-values included: nginx's limit.
pub const PROXY_HEADER_BYTES_MAX: usize = 4096;

/// Type-length-values (section 2.2.1) that are read here; all others are skipped.
const TLV_CRC32C: u8 = 0x03;
const TLV_SSL: u8 = 0x20;
/// Client flags and verdict of [`TLV_SSL`], before the values nested in it.
const SSL_BYTES_MIN: usize = 5;
/// The client flag that says: the client came by TLS.
const SSL_CLIENT: u8 = 0x01;

/// The versions that the operator permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersions {
    /// Version 1, and a header is required.
    V1,
    /// Version 2, and a header is required.
    V2,
    /// Either version, or no header.
    Auto,
}

/// The kind of the bytes at the start of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyStart {
    /// The beginning of a header; more has to come.
    Part,
    /// No header, where none is required.
    Absent,
    /// A whole header.
    Header(ProxyHeader),
}

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Its length in bytes; the client's own bytes follow.
    pub len: usize,
    /// Source and destination of the client's connection. `None` if the proxy speaks for itself, or gives no addresses: then only the addresses of
    /// the socket are known.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// Whether the client came to the proxy by TLS; `false` also if the header does not say.
    pub is_tls: bool,
}

/// Whether a peer seems to send a header, by its first bytes: so that the log can name the cause where this peer may not send one.
pub fn is_proxy_header(bytes: &[u8]) -> bool {
    let v1 = [&b"PROXY TCP"[..], b"PROXY UNKNOWN"];
    bytes.starts_with(V2_SIGNATURE) || v1.iter().any(|start| bytes.starts_with(start))
}

/// Reads the start of a connection; `bytes` are all that has come.
///
/// # Errors
/// The bytes are no header where one is required, or the header is malformed.
pub fn proxy_start(bytes: &[u8], versions: ProxyVersions) -> Result<ProxyStart, Fault> {
    let (v1, v2) = (begins(bytes, V1_START), begins(bytes, V2_SIGNATURE));
    match versions {
        ProxyVersions::V1 | ProxyVersions::Auto if v1 == Some(true) => version_1(bytes),
        ProxyVersions::V2 | ProxyVersions::Auto if v2 == Some(true) => version_2(bytes),
        _ if v1.is_none() || v2.is_none() => Ok(ProxyStart::Part),
        ProxyVersions::Auto => Ok(ProxyStart::Absent),
        ProxyVersions::V1 if v2 == Some(true) => Err(Fault::BadRequest(
            "a PROXY header of version 2 where proxy_protocol is v1",
        )),
        ProxyVersions::V2 if v1 == Some(true) => Err(Fault::BadRequest(
            "a PROXY header of version 1 where proxy_protocol is v2",
        )),
        ProxyVersions::V1 | ProxyVersions::V2 => Err(Fault::BadRequest(
            "no PROXY header from a peer in proxy_allow_ips",
        )),
    }
}

/// Whether the bytes begin with `start`; `None` if too few have come to decide.
fn begins(bytes: &[u8], start: &[u8]) -> Option<bool> {
    let len = bytes.len().min(start.len());
    let is_so = bytes[..len] == start[..len];
    (!is_so || len == start.len()).then_some(is_so)
}

/// Section 2.1: one line of words with single spaces between.
fn version_1(bytes: &[u8]) -> Result<ProxyStart, Fault> {
    const WRONG: Fault = Fault::BadRequest("a PROXY header that is not of version 1");
    let seen = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = seen.iter().position(|&byte| byte == b'\n') else {
        if seen.len() == V1_BYTES_MAX {
            return Err(Fault::BadRequest("a PROXY header over 107 bytes"));
        }
        return Ok(ProxyStart::Part);
    };
    let line = seen[..end].strip_suffix(b"\r").ok_or(WRONG)?;
    let line = std::str::from_utf8(&line[V1_START.len()..]).map_err(|_| WRONG)?;
    let mut words = line.split(' ');
    let family = words.next();
    let mut header = ProxyHeader {
        len: end + 1,
        ..ProxyHeader::default()
    };
    // Section 2.1 has a receiver ignore the words behind UNKNOWN.
    if family != Some("UNKNOWN") {
        let words: [&str; 4] = words.collect::<Vec<_>>().try_into().map_err(|_| WRONG)?;
        let [source, destination, source_port, destination_port] = words;
        let address = |text: &str| -> Option<IpAddr> {
            match family {
                Some("TCP4") => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
                Some("TCP6") => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
                _ => None,
            }
        };
        let place = |ip, number| Some(SocketAddr::new(address(ip)?, port(number)?));
        let source = place(source, source_port).ok_or(WRONG)?;
        let destination = place(destination, destination_port).ok_or(WRONG)?;
        header.addresses = Some((source, destination));
    }
    Ok(ProxyStart::Header(header))
}

/// A decimal number without leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_octal = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| is_plain && !is_octal)
}

/// Section 2.2: fixed fields, addresses, and type-length-values.
fn version_2(bytes: &[u8]) -> Result<ProxyStart, Fault> {
    let Some(fixed) = bytes.first_chunk::<V2_FIXED_BYTES>() else {
        return Ok(ProxyStart::Part);
    };
    let [.., version_command, family_transport, len_high, len_low] = *fixed;
    let len = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([len_high, len_low]));
    if len > PROXY_HEADER_BYTES_MAX {
        return Err(Fault::BadRequest("a PROXY header over 4096 bytes"));
    }
    let is_local = match version_command {
        0x20 => true,
        0x21 => false,
        _ => {
            return Err(Fault::BadRequest(
                "a PROXY header of an unknown version or command",
            ));
        }
    };
    let Some(header) = bytes.get(..len) else {
        return Ok(ProxyStart::Part);
    };
    // LOCAL: the proxy speaks for itself, and the receiver has to discard the rest.
    if is_local {
        return Ok(ProxyStart::Header(ProxyHeader {
            len,
            ..ProxyHeader::default()
        }));
    }
    let (addresses, tlvs) = addresses(family_transport, &header[V2_FIXED_BYTES..])?;
    let is_tls = read_tlvs(header, tlvs)?;
    Ok(ProxyStart::Header(ProxyHeader {
        len,
        addresses,
        is_tls,
    }))
}

/// Source and destination of a connection, if the header gives them, and the bytes behind them.
type Addresses<'b> = (Option<(SocketAddr, SocketAddr)>, &'b [u8]);

fn addresses(family_transport: u8, block: &[u8]) -> Result<Addresses<'_>, Fault> {
    const SHORT: Fault = Fault::BadRequest("a PROXY header that is too short for its addresses");
    match family_transport {
        // Unspecified, in whole or in part: the header gives no addresses.
        0x00..=0x02 => Ok((None, block)),
        0x11 => places::<4>(block).ok_or(SHORT),
        0x21 => places::<16>(block).ok_or(SHORT),
        // Two names of unix sockets, which are no addresses of a client.
        0x31 => Ok((None, block.get(216..).ok_or(SHORT)?)),
        _ => Err(Fault::BadRequest(
            "a PROXY header for something other than TCP or a unix socket",
        )),
    }
}

/// Two addresses of `N` bytes each, and their ports; `None` if the block is too short for them.
fn places<const N: usize>(block: &[u8]) -> Option<Addresses<'_>>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = block.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (&[from_high, from_low, to_high, to_low], rest) = rest.split_first_chunk()?;
    let place =
        |address: &[u8; N], port| SocketAddr::new((*address).into(), u16::from_be_bytes(port));
    let source = place(source, [from_high, from_low]);
    let destination = place(destination, [to_high, to_low]);
    Some((Some((source, destination)), rest))
}

/// Reads the type-length-values at the end of a header. Returns whether the client came by TLS.
fn read_tlvs(header: &[u8], mut tlvs: &[u8]) -> Result<bool, Fault> {
    const WRONG: Fault = Fault::BadRequest("a PROXY header whose type-length-values do not fit it");
    let mut is_tls = None;
    while let [kind, len_high, len_low, rest @ ..] = tlvs {
        let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
        let value_at = header.len() - rest.len();
        let (value, behind) = rest.split_at_checked(len).ok_or(WRONG)?;
        match *kind {
            TLV_CRC32C => {
                let said = value.try_into().map_err(|_| WRONG)?;
                if crc32c(header, value_at) != u32::from_be_bytes(said) {
                    return Err(Fault::BadRequest("a PROXY header whose checksum is wrong"));
                }
            }
            TLV_SSL if is_tls.is_some() || value.len() < SSL_BYTES_MIN => return Err(WRONG),
            TLV_SSL => is_tls = Some(value[0] & SSL_CLIENT != 0),
            _ => {}
        }
        tlvs = behind;
    }
    if !tlvs.is_empty() {
        return Err(WRONG);
    }
    Ok(is_tls.unwrap_or_default())
}

/// CRC-32C (RFC 4960 appendix B) of a header, computed as if the checksum in it were zero.
fn crc32c(header: &[u8], checksum_at: usize) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let checksum = checksum_at..checksum_at + 4;
    let bytes = (0..).zip(header);
    let bytes = bytes.map(|(at, &byte)| if checksum.contains(&at) { 0 } else { byte });
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg())
        })
    })
}
