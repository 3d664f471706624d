//! By which names the admin listener may be called.
//!
//! A page of a stranger's can have its own name lead to our address once a browser has loaded it (DNS
//! rebinding), and then read from us whatever we tell that browser. What gives it away is the Host field:
//! the name in it is the stranger's. An address is no name, so nobody can have it lead elsewhere.

use std::net::IpAddr;

use http::Request;
use http::header::HOST;
use http::uri::Authority;

use crate::settings::{BindAddress, Settings};

/// What somebody else is told.
pub(super) const MISDIRECTED: &str = "\
the admin listener does not go by this name: ask for its address or localhost, or list the name in \
admin_allowed_hosts\n";

/// All names.
const ANY: &str = "*";

/// The names that do; in lower case.
pub(super) struct AllowedHosts {
    any: bool,
    names: Vec<String>,
}

/// The request does not say clearly for whom it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoHost;

impl AllowedHosts {
    /// What the settings say, `localhost`, and the name that the listener was given.
    pub(super) fn of(settings: &Settings) -> Self {
        let given = match settings.admin.as_ref().map(|bind| &bind.address) {
            Some(BindAddress::Tcp { host, .. }) => Some(host.as_str()),
            _ => None,
        };
        let listed = settings.admin_allowed_hosts.iter().map(String::as_str);
        let names = listed.chain(["localhost"]).chain(given);
        Self {
            any: settings.admin_allowed_hosts.iter().any(|name| name == ANY),
            names: names
                .map(|name| without_dot(name).to_ascii_lowercase())
                .collect(),
        }
    }

    /// Whether somebody may ask for this host; `None` is one that names none, which no browser does.
    pub(super) fn allow(&self, host: Option<&str>) -> bool {
        let Some(host) = host.filter(|_| !self.any) else {
            return true;
        };
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        if bare.unwrap_or(host).parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = without_dot(host);
        self.names.iter().any(|one| one.eq_ignore_ascii_case(name))
    }
}

/// A name without the dot that ends a whole one (RFC 1034 section 3.1).
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The host that a request is for, without a port: that of a whole URI, else of the Host field (RFC 9112
/// section 3.2.2).
pub(super) fn host_of<T>(request: &Request<T>) -> Result<Option<&str>, NoHost> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.host()));
    }
    let mut fields = request.headers().get_all(HOST).into_iter();
    let Some(field) = fields.next() else {
        return Ok(None);
    };
    let text = field.to_str().map_err(|_| NoHost)?;
    // Checked as a whole, and then its host taken: what `Authority` has parsed it does not lend for long enough.
    let authority = Authority::try_from(text).map_err(|_| NoHost)?;
    if fields.next().is_some() || text.contains('@') {
        return Err(NoHost);
    }
    Ok(text.get(..authority.host().len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(admin: &str, allowed: &str) -> AllowedHosts {
        let text = format!(r#"{{"admin": "{admin}", "admin_allowed_hosts": [{allowed}]}}"#);
        AllowedHosts::of(&Settings::from_json(&text).unwrap())
    }

    fn allows(hosts: &AllowedHosts, fields: &[&str], target: &str) -> bool {
        let mut request = Request::builder().uri(target);
        for field in fields {
            request = request.header(HOST, *field);
        }
        let request = request.body(()).unwrap();
        host_of(&request).is_ok_and(|host| hosts.allow(host))
    }

    #[test]
    fn addresses_and_names_that_are_ours() {
        let hosts = hosts(
            "stats.internal:9100",
            r#""Web", "metrics.example", "dotted.example.""#,
        );
        for host in [
            "127.0.0.1",
            "127.0.0.1:9100",
            "10.1.2.3:9100",
            "[::1]",
            "[fd00::1]:9100",
            "localhost",
            "LOCALHOST:9100",
            "localhost.",
            "stats.internal:9100",
            "web:9100",
            "metrics.example",
            "metrics.example.",
            "dotted.example",
            "dotted.example.:9100",
        ] {
            assert!(allows(&hosts, &[host], "/status"), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9100",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "2130706433",
            "::1",
            "a@127.0.0.1",
            "evil.example@127.0.0.1",
            "[::1",
            "metrics.example.evil.example",
        ] {
            assert!(!allows(&hosts, &[host], "/status"), "{host}");
        }
    }

    #[test]
    fn a_whole_uri_counts_and_two_hosts_are_none() {
        let hosts = hosts("127.0.0.1:9100", "");
        assert!(allows(&hosts, &["evil.example"], "http://127.0.0.1/status"));
        assert!(!allows(
            &hosts,
            &["127.0.0.1"],
            "http://evil.example/status"
        ));
        assert!(!allows(&hosts, &["127.0.0.1", "127.0.0.1"], "/status"));
        assert!(allows(&hosts, &[], "/status"), "no browser does that");
        assert!(!allows(&hosts, &["web"], "/status"));
    }

    #[test]
    fn a_star_allows_every_name() {
        let hosts = hosts("127.0.0.1:9100", r#""*""#);
        assert!(allows(&hosts, &["evil.example"], "/status"));
    }
}
