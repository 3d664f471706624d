//! Settings that are one of a few words.

use stanchion_http::{ClientField, HeaderMap, ProxyVersions};

/// A type whose values have a word each, or several.
pub(super) trait Worded: Copy + PartialEq + 'static {
    /// The words, as the help lists them.
    const WORDS: &'static [(&'static str, Self)];
}

/// The words of a type.
pub(super) fn words<T: Worded>() -> Vec<&'static str> {
    T::WORDS.iter().map(|(word, _)| *word).collect()
}

/// The value of a word.
pub(super) fn meaning<T: Worded>(text: &str) -> Option<T> {
    let mut words = T::WORDS.iter();
    words
        .find(|(word, _)| *word == text)
        .map(|(_, value)| *value)
}

macro_rules! words {
    ($($(#[$doc:meta])* pub enum $name:ident { $($(#[$of_one:meta])* $word:literal => $value:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub enum $name {
                $($(#[$of_one])* $value,)*
            }

            impl Worded for $name {
                const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),*];
            }
        )*
    };
}

words! {
    /// How important an event of the error log is, the least first.
    pub enum LogLevel {
        /// For people who change the server or its app.
        "debug" => Debug,
        /// The normal life of the process tree.
        "info" => Info,
        /// Something to look at in working hours.
        "warning" => Warning,
        /// A request or a process was lost.
        "error" => Error,
        /// The server cannot go on.
        "critical" => Critical,
    }

    /// The meanings of QUIT, TERM and TTOU.
    pub enum SignalStyle {
        /// TERM graceful, QUIT quick, TTOU down to one worker.
        "gunicorn" => Gunicorn,
        /// QUIT graceful, TERM quick, TTOU down to none.
        "unicorn" => Unicorn,
    }

    /// In which order the line is served.
    pub enum QueueOrder {
        /// First in, first out.
        "fifo" => Fifo,
        /// The same until the line is over its target, then newest first.
        "adaptive" => Adaptive,
    }

    /// How answers tell trusted proxies how busy the server is.
    pub enum LoadReporting {
        /// They do not.
        "none" => None,
        /// In the text format of ORCA.
        "orca" => Orca,
    }

    /// The oldest version of TLS that is served.
    pub enum OldestTls {
        /// RFC 5246.
        "1.2" => Tls12,
        /// RFC 8446.
        "1.3" => Tls13,
    }

    /// The protocol that clients, or the proxies before them, speak with the server.
    pub enum Protocol {
        /// HTTP.
        "http" => Http,
        /// The uwsgi protocol.
        "uwsgi" => Uwsgi,
    }

    /// How HTTP/2 begins without TLS.
    pub enum Http2Cleartext {
        /// Not at all.
        "off" => Off,
        /// With the client's preface (RFC 9113 section 3.4).
        "prior-knowledge" => PriorKnowledge,
        /// gunicorn's word for the upgrade from HTTP/1.1, which the checks refuse.
        "upgrade" => Upgrade,
        /// gunicorn's word for either, which the checks refuse.
        "both" => Both,
    }

    /// The interface by which the app is called.
    pub enum Interface {
        /// As the app turns out to be.
        "auto" => Auto,
        /// PEP 3333, in threads.
        "wsgi" => Wsgi,
        /// ASGI 3, in an event loop.
        "asgi" => Asgi,
    }

    /// Which event loop.
    pub enum EventLoop {
        /// uvloop where it is installed.
        "auto" => Auto,
        /// Python's own.
        "asyncio" => Asyncio,
        /// uvloop and no other.
        "uvloop" => Uvloop,
        /// gevent's hub, of which each greenlet runs a WSGI app.
        "gevent" => Gevent,
    }

    /// Whether the app is called with the lifespan scope.
    pub enum Lifespan {
        /// Yes, and it may refuse.
        "auto" => Auto,
        /// Yes, and it must take it.
        "on" => On,
        /// No.
        "off" => Off,
    }

    /// gunicorn's words for ways to watch files, which all mean the same here.
    pub enum ReloadEngine {
        /// As the server likes.
        "auto" => Auto,
        /// By looking again and again.
        "poll" => Poll,
        /// By looking again and again, too.
        "inotify" => Inotify,
    }

    /// The answer to a request whose path is below a prefix of `static_files` and names no file.
    pub enum StaticMissing {
        /// The app's answer.
        "app" => App,
        /// 404.
        "404" => NotFound,
    }
}

impl Worded for HeaderMap {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("drop", Self::Drop),
        ("refuse", Self::Refuse),
        ("dangerous", Self::Dangerous),
    ];
}

impl Worded for ClientField {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("x-forwarded-for", Self::XForwardedFor),
        ("forwarded", Self::Forwarded),
    ];
}

impl Worded for Option<ProxyVersions> {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", None),
        ("v1", Some(ProxyVersions::V1)),
        ("v2", Some(ProxyVersions::V2)),
        ("auto", Some(ProxyVersions::Auto)),
    ];
}
