//! The facts about a connection's TLS that the app gets. The handshake shows all of them. Header fields of proxies say
//! other things, and come by other names.

use std::fmt;
use std::rc::Rc;

use stanchion_tls::{Certificate, Tls, pem};

use stanchion_generation::expiry;
use stanchion_record::TlsValues;

/// Why the server does not serve a client with the certificates that it has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactsFault {
    /// Its certificate cannot be read.
    Senseless,
    /// Its certificates have more bytes than an app gets.
    TooLarge,
}

impl fmt::Display for FactsFault {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.write_str(match self {
            Self::Senseless => "its certificate makes no sense",
            Self::TooLarge => "its certificates are larger than those of clients may be",
        })
    }
}

/// The facts for the app, by the names of its interface.
pub(crate) fn tls_facts(tls: &Tls, is_asgi: bool) -> Result<Rc<[u8]>, FactsFault> {
    let shown = match tls.client_chain().next() {
        Some(own) => Some(Certificate::read(own).ok_or(FactsFault::Senseless)?),
        None => None,
    };
    let values = if is_asgi {
        of_scope(tls, shown.as_ref())
    } else {
        of_environ(tls, shown.as_ref())
    };
    let bytes = values.finish().ok_or(FactsFault::TooLarge)?;
    Ok(bytes.into())
}

/// The variables of Apache's `mod_ssl`, which PEP 3333 recommends.
fn of_environ(tls: &Tls, shown: Option<&Certificate>) -> TlsValues {
    let mut values = TlsValues::default();
    values.put("HTTPS", b"on");
    values.put("SSL_PROTOCOL", tls.version().as_bytes());
    values.put("SSL_CIPHER", tls.suite().as_bytes());
    if let Some(name) = tls.server_name() {
        values.put("SSL_TLS_SNI", name.as_bytes());
    }
    let Some(own) = shown else {
        values.put("SSL_CLIENT_VERIFY", b"NONE");
        return values;
    };
    values.put("SSL_CLIENT_VERIFY", b"SUCCESS");
    values.put("SSL_CLIENT_S_DN", own.subject.as_bytes());
    if let Some(name) = &own.common_name {
        values.put("SSL_CLIENT_S_DN_CN", name.as_bytes());
    }
    values.put("SSL_CLIENT_I_DN", own.issuer.as_bytes());
    values.put("SSL_CLIENT_M_SERIAL", own.serial.as_bytes());
    values.put("SSL_CLIENT_V_START", time(own.not_before_s).as_bytes());
    values.put("SSL_CLIENT_V_END", time(own.not_after_s).as_bytes());
    let mut chain = tls.client_chain().map(pem);
    if let Some(own) = chain.next() {
        values.put("SSL_CLIENT_CERT", own.as_bytes());
    }
    for (number, one) in chain.enumerate() {
        let name = format!("SSL_CLIENT_CERT_CHAIN_{number}");
        values.put(&name, one.as_bytes());
    }
    values
}

/// The keys of ASGI's extension `tls`.
fn of_scope(tls: &Tls, shown: Option<&Certificate>) -> TlsValues {
    let mut values = TlsValues::default();
    for (name, number) in [
        ("tls_version", tls.version_number()),
        ("cipher_suite", tls.suite_number()),
    ] {
        if let Some(number) = number {
            values.put(name, number.to_string().as_bytes());
        }
    }
    if let Some(own) = shown {
        values.put("client_cert_name", own.subject.as_bytes());
    }
    for one in tls.client_chain() {
        values.put("client_cert_chain", pem(one).as_bytes());
    }
    // No client is to blame for the length of the server's own certificate.
    let own = tls.own_certificate().map(pem);
    if let Some(own) = own.filter(|own| values.has_room_for("server_cert", own.as_bytes())) {
        values.put("server_cert", own.as_bytes());
    }
    values
}

/// Writes a time as OpenSSL does, such as `Nov  6 08:49:37 1994 GMT`.
fn time(unix_s: u64) -> String {
    let date = expiry::date(unix_s);
    match *date.split(' ').collect::<Vec<_>>() {
        [_, day, month, year, clock, zone] => {
            let day = day.trim_start_matches('0');
            format!("{month} {day:>2} {clock} {year} {zone}")
        }
        _ => date,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_openssl() {
        assert_eq!(time(784_111_777), "Nov  6 08:49:37 1994 GMT");
        assert_eq!(time(1_700_000_000), "Nov 14 22:13:20 2023 GMT");
        assert_eq!(time(u64::MAX), "Dec 31 23:59:59 9999 GMT");
    }
}
