//! The host names that the admin listener answers to.
//!
//! A hostile page can point its own host name at our address once a browser has loaded it (DNS rebinding), and then read all
//! that the admin listener sends that browser. The Host field gives such a page away: it names the page's host. An IP
//! address is always allowed, because no page can have it lead elsewhere.

use std::net::IpAddr;

use stanchion_settings::{BindAddress, Settings};

/// The answer to a request that names another host.
pub(super) const MISDIRECTED: &str = "\
the admin listener does not go by this name: ask for its address or localhost, or list the name in \
admin_allowed_hosts\n";

/// Stands for all names in `admin_allowed_hosts`.
const ANY: &str = "*";

/// Names of services in a Kubernetes cluster end so. Only the cluster's own name server knows such names, so a page from
/// elsewhere cannot have one; and autoscalers and Prometheus ask by them.
const OF_SERVICES: [&str; 2] = [".svc", ".svc.cluster.local"];

/// The names that are allowed, in lower case.
pub(super) struct AllowedHosts {
    any: bool,
    names: Vec<String>,
}

impl AllowedHosts {
    /// The names in the settings, `localhost`, and the host of the `admin` address.
    pub(super) fn of(settings: &Settings) -> Self {
        let given = match settings.monitoring.admin.as_ref().map(|bind| &bind.address) {
            Some(BindAddress::Tcp { host, .. }) => Some(host.as_str()),
            _ => None,
        };
        let listed = settings
            .monitoring
            .admin_allowed_hosts
            .iter()
            .map(String::as_str);
        let names = listed.chain(["localhost"]).chain(given);
        Self {
            any: settings
                .monitoring
                .admin_allowed_hosts
                .iter()
                .any(|name| name == ANY),
            names: names
                .map(|name| without_dot(name).to_ascii_lowercase())
                .collect(),
        }
    }

    /// Whether a request may name this host; `None` is a request without a host, which no browser sends.
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
        let name = without_dot(host).to_ascii_lowercase();
        self.names.contains(&name) || OF_SERVICES.iter().any(|end| name.ends_with(end))
    }
}

/// A name without the dot that ends a fully qualified name (RFC 1034 section 3.1).
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use stanchion_http::{Head, HeadReader, HeadRules, Permits};

    use super::*;
    use stanchion_requests::host::host_of;

    fn hosts(admin: &str, allowed: &str) -> AllowedHosts {
        let text = format!(r#"{{"admin": "{admin}", "admin_allowed_hosts": [{allowed}]}}"#);
        AllowedHosts::of(&Settings::from_json(&text).unwrap())
    }

    fn allows(hosts: &AllowedHosts, host: &str) -> bool {
        let mut head = Head::of("GET", "/status", &[]);
        // The reader of heads refuses malformed hosts already; the check does not rely on that.
        head.set("Host", host.as_bytes());
        host_of(&head).is_ok_and(|host| hosts.allow(host))
    }

    /// The same for a request in wire form; `None` if the reader refuses it.
    fn allows_read(hosts: &AllowedHosts, request: &str) -> Option<bool> {
        let limits = HeadRules {
            line_bytes: 1024,
            field_bytes: 1024,
            fields: 10,
            head_bytes: 4096,
            permits: Permits::NONE,
        };
        let mut head = Head::default();
        let mut reader = HeadReader::default();
        let len = reader.read(request.as_bytes(), &limits, &mut head).ok()?;
        assert_eq!(len, Some(request.len()));
        Some(host_of(&head).is_ok_and(|host| hosts.allow(host)))
    }

    #[test]
    fn addresses_and_names_that_are_ours() {
        let hosts = hosts(
            "stats.internal:8299",
            r#""Web", "metrics.example", "dotted.example.""#,
        );
        for host in [
            "127.0.0.1",
            "127.0.0.1:8299",
            "10.1.2.3:8299",
            "[::1]",
            "[fd00::1]:8299",
            "localhost",
            "LOCALHOST:8299",
            "localhost.",
            "stats.internal:8299",
            "web:8299",
            "metrics.example",
            "metrics.example.",
            "shop-admin.default.svc:8299",
            "Shop-admin.default.svc.cluster.local.",
            "dotted.example",
            "dotted.example.:8299",
        ] {
            assert!(allows(&hosts, host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8299",
            "localhost.evil.example",
            "shop.default.svc.evil.example",
            "shop.default.svc.cluster.local.evil.example",
            "evilsvc",
            "127.0.0.1.evil.example",
            "127.1",
            "2130706433",
            "::1",
            "a@127.0.0.1",
            "evil.example@127.0.0.1",
            "127.0.0.1:8299@evil.example",
            "127.0.0.1:x",
            "127.0.0.1:8299:",
            "[::1]x",
            "[::1].evil.example",
            ":8299",
            "[::1",
            "metrics.example.evil.example",
        ] {
            assert!(!allows(&hosts, host), "{host}");
        }
    }

    #[test]
    fn a_whole_uri_counts_and_two_hosts_are_none() {
        let hosts = hosts("127.0.0.1:8299", "");
        let asked = |target: &str, host: &str| {
            let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            allows_read(&hosts, &request)
        };
        assert_eq!(asked("http://127.0.0.1/status", "evil.example"), Some(true));
        assert_eq!(
            asked("http://evil.example/status", "127.0.0.1"),
            Some(false)
        );
        assert_eq!(asked("/status", "127.0.0.1:8299"), Some(true));
        assert_eq!(asked("/status", "evil.example"), Some(false));
        let twice = "127.0.0.1\r\nHost: 127.0.0.1";
        assert_ne!(asked("/status", twice), Some(true));
        let nobody = Head::of("GET", "/status", &[]);
        assert!(
            host_of(&nobody).is_ok_and(|host| hosts.allow(host)),
            "no browser does that"
        );
        assert!(!allows(&hosts, "web"));
    }

    #[test]
    fn a_star_allows_every_name() {
        let hosts = hosts("127.0.0.1:8299", r#""*""#);
        assert!(allows(&hosts, "evil.example"));
    }
}
