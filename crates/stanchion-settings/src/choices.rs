//! Settings that are one of a few words, or a port instead of one.

use serde::Deserialize;

/// How important an event of the error log is, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For people who change the server or its app.
    Debug,
    /// The normal life of the process tree.
    Info,
    /// Something to look at in working hours.
    Warning,
    /// A request or a process was lost.
    Error,
    /// The server cannot go on.
    Critical,
}

/// The meanings of QUIT, TERM and TTOU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalStyle {
    /// TERM graceful, QUIT quick, TTOU down to one worker.
    Gunicorn,
    /// QUIT graceful, TERM quick, TTOU down to none.
    Unicorn,
}

/// In which order the line is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOrder {
    /// First in, first out.
    Fifo,
    /// The same until the line is over its target, then newest first.
    Adaptive,
}

/// The oldest version of TLS that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum OldestTls {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

/// The port that clients in clear text are sent on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpsPort {
    /// The port of the first listener with TLS.
    OfTls,
    /// This port, perhaps of another process, that leads there.
    Is(u16),
}

impl HttpsPort {
    /// From its spelling.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::OfTls),
            port => port.parse().ok().filter(|port| *port > 0).map(Self::Is),
        }
    }
}

impl<'de> Deserialize<'de> for HttpsPort {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("no port"))
    }
}
