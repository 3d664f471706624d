//! Requests that the template answers before it forks workers (`warm_up`).

use stanchion_http::{Fault, Head, HeadRules, HeadWriter};

/// Most requests of a warm-up: each start and each reload waits for all of them.
const WARM_UP_MAX: usize = 100;
/// The host of a request that is written as a path.
const HOST: &str = "localhost";
/// By this field an app's own log knows these requests.
const USER_AGENT: &str = "stanchion-warm-up";

/// The requests of a warm-up in their order, written with commas between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUp(Vec<WarmUpRequest>);

/// A GET of a path or a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUpRequest {
    /// Path or URL, as the operator wrote it.
    pub text: String,
    /// Whether the scheme of the URL is https.
    pub is_https: bool,
    host: String,
    target: String,
}

impl WarmUp {
    /// Reads `/, https://shop.example/login`; an empty text has no requests.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim);
        let requests = parts
            .filter(|part| !part.is_empty())
            .map(WarmUpRequest::parse)
            .collect::<Result<Vec<_>, _>>()?;
        if requests.len() > WARM_UP_MAX {
            let count = requests.len();
            return Err(format!("expected at most {WARM_UP_MAX}, got {count}"));
        }
        Ok(Self(requests))
    }

    /// The requests, in the order in which the app gets them.
    pub fn requests(&self) -> &[WarmUpRequest] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl WarmUpRequest {
    /// The request of `/`.
    pub fn root() -> Self {
        let (text, is_https, host, target) =
            ("/".to_owned(), false, HOST.to_owned(), "/".to_owned());
        Self {
            text,
            is_https,
            host,
            target,
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (is_https, host, target) = if text.starts_with('/') {
            (false, HOST, text.to_owned())
        } else {
            parts_of_url(text).ok_or_else(|| {
                format!("'{text}' is neither a path, as /login, nor a URL, as https://shop.example/login")
            })?
        };
        let request = Self {
            text: text.to_owned(),
            is_https,
            host: host.to_owned(),
            target,
        };
        let read = request.head();
        let refused = |fault: Fault| format!("'{text}' makes no request: {}", fault.reason());
        read.map(|_| request).map_err(refused)
    }

    /// The head of the request, by the rules for heads of clients.
    ///
    /// # Errors
    /// No client could send it. A value of the setting has none of these.
    pub fn head(&self) -> Result<Head, Fault> {
        let mut writer = HeadWriter::begin(b"GET", self.target.as_bytes(), 1)?;
        writer.field(b"Host", self.host.as_bytes())?;
        writer.field(b"User-Agent", USER_AGENT.as_bytes())?;
        writer.field(b"Accept", b"*/*")?;
        let mut head = Head::default();
        writer.read(&HeadRules::DEFAULT, &mut head)?;
        Ok(head)
    }
}

/// Whether the scheme is https, the authority, and the target in origin-form; `None` if the text is no URL with a host.
fn parts_of_url(text: &str) -> Option<(bool, &str, String)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_https = scheme.eq_ignore_ascii_case("https");
    if !is_https && !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    let (host, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // RFC 9110 section 4.2.3: an empty path is sent as a slash.
    let slash = if target.starts_with('/') { "" } else { "/" };
    (!host.is_empty()).then(|| (is_https, host, format!("{slash}{target}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_of_the_root_is_the_one_of_its_path() {
        assert_eq!(WarmUpRequest::parse("/"), Ok(WarmUpRequest::root()));
    }

    #[test]
    fn a_path_is_of_localhost_and_a_url_has_its_own_host_and_scheme() {
        for (text, is_https, host, target) in [
            ("/", false, "localhost", "/"),
            ("/a/b?c=d", false, "localhost", "/a/b?c=d"),
            (
                "/to?url=https://a.example",
                false,
                "localhost",
                "/to?url=https://a.example",
            ),
            ("https://shop.example/login", true, "shop.example", "/login"),
            ("HTTP://shop.example:8080", false, "shop.example:8080", "/"),
            ("https://[::1]:8443?a", true, "[::1]:8443", "/?a"),
        ] {
            let warm_up = WarmUp::parse(text).expect(text);
            let [request] = warm_up.requests() else {
                panic!("{warm_up:?}")
            };
            let head = request.head().expect(text);
            assert_eq!(head.host(), Some(host.as_bytes()), "{text}");
            assert_eq!(
                (request.is_https, head.target()),
                (is_https, target.as_bytes()),
                "{text}"
            );
            assert_eq!((head.method(), request.text.as_str()), ("GET", text));
        }
    }

    #[test]
    fn requests_stay_in_their_order_and_empty_ones_are_left_out() {
        for (text, expected) in [
            ("", &[][..]),
            (" , ", &[]),
            ("/b, /a ,,/b,", &["/b", "/a", "/b"]),
        ] {
            let warm_up = WarmUp::parse(text).expect(text);
            let texts: Vec<_> = warm_up
                .requests()
                .iter()
                .map(|one| one.text.as_str())
                .collect();
            assert_eq!(texts, expected, "{text:?}");
            assert_eq!(warm_up.is_empty(), expected.is_empty());
        }
    }

    #[test]
    fn what_no_client_could_send_is_refused_and_why_is_said() {
        for (text, reason) in [
            (
                "login",
                "'login' is neither a path, as /login, nor a URL, as https://",
            ),
            (
                "/, shop.example/login",
                "'shop.example/login' is neither a path",
            ),
            ("ftp://a/", "'ftp://a/' is neither a path"),
            ("https:///a", "'https:///a' is neither a path"),
            ("/a b", "'/a b' makes no request: "),
            ("/a\r\nX: y", "'/a\r\nX: y' makes no request: "),
            ("https://a@b/", "'https://a@b/' makes no request: "),
            ("https://a b/", "'https://a b/' makes no request: "),
            (format!("/{}", "a".repeat(5000)).as_str(), "'/aaa"),
            ("/,".repeat(101).as_str(), "expected at most 100, got 101"),
        ] {
            let refused = WarmUp::parse(text).expect_err(text);
            assert!(refused.starts_with(reason), "{text}: {refused}");
        }
        assert!(WarmUp::parse(&"/,".repeat(100)).is_ok());
    }
}
