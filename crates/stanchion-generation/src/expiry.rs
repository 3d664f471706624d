//! Until when certificates can be used, and the concerns that the server logs before clients find them.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use stanchion_tls::Certificate;

/// It is time to renew a certificate this long before its end, or when a third of its life is left if that is later.
/// Clients for ACME renew with a third left, as a rule, and there are certificates that live for six days.
const RENEW_S: u64 = 14 * DAY_S;
const RENEW_PART: u64 = 3;
const DAY_S: u64 = 24 * 3600;
/// The last second of the year 9999: what does not end has it (RFC 5280 section 4.1.2.5), and no later one can be written.
const LAST_S: u64 = 253_402_300_799;

/// A certificate that clients are shown, as `/status` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServedCertificate {
    /// Where it was read.
    pub certfile: PathBuf,
    /// Its subject, as text.
    pub subject: String,
    /// The first second in which clients accept it, since 1970.
    pub not_before_s: u64,
    /// The last of these seconds.
    pub not_after_s: u64,
}

impl ServedCertificate {
    /// The facts of a certificate that was read from `certfile`.
    pub fn new(certfile: PathBuf, certificate: &Certificate) -> Self {
        Self {
            certfile,
            subject: certificate.subject.clone(),
            not_before_s: certificate.not_before_s,
            not_after_s: certificate.not_after_s,
        }
    }

    /// How long before its end it is time to renew it.
    fn renew_s(&self) -> u64 {
        let life_s = self.not_after_s.saturating_sub(self.not_before_s);
        RENEW_S.min(life_s / RENEW_PART)
    }

    /// Its fault at this time, or soon, if it has one; and the operator's next step.
    pub fn concern(&self, now_s: u64) -> Option<String> {
        let Self {
            not_before_s,
            not_after_s,
            ..
        } = *self;
        let what = if now_s < not_before_s {
            format!(
                "is not valid before {}, and clients refuse it until then: is it the right one, and is the clock of this host?",
                date(not_before_s)
            )
        } else if now_s > not_after_s {
            format!(
                "has expired {} ({}), and clients refuse it: renew it, then reload",
                ago(now_s - not_after_s),
                date(not_after_s)
            )
        } else if now_s + self.renew_s() > not_after_s {
            format!(
                "expires {} ({}): renew it, then reload",
                ahead(not_after_s - now_s),
                date(not_after_s)
            )
        } else {
            return None;
        };
        let path = self.certfile.display();
        let subject = &self.subject;
        Some(match subject.as_str() {
            "" => format!("the certificate in {path} {what}"),
            _ => format!("the certificate of {subject} in {path} {what}"),
        })
    }
}

/// A time of a certificate as HTTP writes it, at most the last that can be written.
pub fn date(unix_s: u64) -> String {
    let at = Duration::from_secs(unix_s.min(LAST_S));
    httpdate::fmt_http_date(UNIX_EPOCH + at)
}

fn ago(past_s: u64) -> String {
    match past_s / DAY_S {
        0 => "today".to_owned(),
        1 => "1 day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}

fn ahead(left_s: u64) -> String {
    match left_s / DAY_S {
        0 => "within a day".to_owned(),
        1 => "in 1 day".to_owned(),
        days => format!("in {days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM_S: u64 = 1_700_000_000;
    const UNTIL_S: u64 = FROM_S + 90 * DAY_S;

    #[test]
    fn one_of_six_days_is_a_concern_in_its_last_two() {
        let certificate = ServedCertificate {
            certfile: "/a.pem".into(),
            subject: String::new(),
            not_before_s: FROM_S,
            not_after_s: FROM_S + 6 * DAY_S,
        };
        let concern = |now_s| certificate.concern(now_s);
        assert_eq!(concern(FROM_S + 4 * DAY_S), None);
        let told = concern(FROM_S + 4 * DAY_S + 1).expect("a concern");
        assert!(told.contains("expires in 1 day ("), "{told}");
    }

    fn concern(now_s: u64) -> Option<String> {
        let certificate = ServedCertificate {
            certfile: "/a.pem".into(),
            subject: "CN=a".to_owned(),
            not_before_s: FROM_S,
            not_after_s: UNTIL_S,
        };
        certificate.concern(now_s)
    }

    #[test]
    fn a_certificate_is_a_concern_before_and_after_its_time_and_a_fortnight_before_its_end() {
        for now_s in [FROM_S, UNTIL_S - 14 * DAY_S] {
            assert_eq!(concern(now_s), None);
        }
        for (now_s, expected) in [
            (
                FROM_S - 1,
                "is not valid before Tue, 14 Nov 2023 22:13:20 GMT",
            ),
            (UNTIL_S - 14 * DAY_S + 1, "expires in 13 days"),
            (UNTIL_S - DAY_S, "expires in 1 day"),
            (UNTIL_S, "expires within a day"),
            (UNTIL_S + 1, "has expired today"),
            (UNTIL_S + DAY_S, "has expired 1 day ago"),
            (UNTIL_S + 9 * DAY_S, "has expired 9 days ago"),
        ] {
            let told = concern(now_s).unwrap();
            let expected = format!("the certificate of CN=a in /a.pem {expected}");
            assert!(told.starts_with(&expected), "{told}");
        }
    }
}
