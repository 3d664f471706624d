//! The handover of a master to the one that follows it: open descriptors, kept over execve(2), and a JSON object in the environment that says which
//! is which.
//!
//! The two may be of different versions of stanchion, so the object has rules. Each side writes
//! [`VERSION`], and as `least` the oldest version whose readers understand what it wrote. A reader
//! takes an object whose `least` is not beyond its own version, ignores keys that it does not know,
//! and takes the stated default for keys that are missing; without a default the key is required.

use std::io;
use std::os::fd::RawFd;

use serde::{Deserialize, Serialize};
use stanchion_sys::channel::Channel;
use stanchion_sys::environment;
use stanchion_sys::listener::Listener;
use tracing::info;

use crate::inherited_listener::InheritedListener;
use crate::last_words::{self, Streams};
use stanchion_generation::demand_seconds::DemandSeconds;
use stanchion_generation::ticket_keys::TicketKeys;

/// The environment variable.
pub(crate) const VARIABLE: &str = "STANCHION_HANDOVER";
/// The version of this object; goes up when a key is added, or when the channel may carry more.
const VERSION: u32 = 9;
/// The first version whose masters understand [`ToPredecessor::Dropped`].
const HEARS_OF_DROPPED: u32 = 3;
/// The oldest version that understands this object; goes up when a key changes its meaning. A version before 6 would take the file in the place of
/// standard error for standard error: it would write its log there as long as it serves, where only memory holds it.
const LEAST: u32 = 6;
/// Listeners that are taken over.
pub(crate) const LISTENERS_MAX: usize = 1_024;

/// The object that is handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handover {
    version: u32,
    least: u32,
    /// The process that hands over.
    predecessor: i32,
    /// A channel to it: the new master reports there that it serves, and its end shows there.
    channel: RawFd,
    /// Listening sockets.
    listeners: Vec<InheritedListener>,
    /// Workers that were wanted, if by hand others than the setting says. Default: none were.
    #[serde(default)]
    scaled_to: Option<u16>,
    /// Listening sockets that single workers asked for (`worker.listen`), since version 2. Default:
    /// there are none.
    #[serde(default)]
    lent: Vec<InheritedListener>,
    /// The app that it serves is an asynchronous one, since version 4: so an app that is to decide its interface itself need not be imported to find
    /// that out. Default: it is a WSGI app, or that is unknown.
    #[serde(default)]
    is_asgi: bool,
    /// The file with the keys of session tickets, since version 5. Default: there is none, and the new master makes one.
    #[serde(default)]
    pub(crate) ticket_keys: Option<RawFd>,
    /// Standard error, and the file in its place, since version 6. Default: standard error is in its place.
    #[serde(default)]
    pub(crate) streams: Option<Streams>,
    /// The file with the demand of the last minute, since version 7. Default, and if it has another layout: the new master begins with nothing.
    /// An older master leaves it open, which costs a descriptor.
    #[serde(default)]
    pub(crate) demand: Option<RawFd>,
    /// The number of workers was fixed by an operator though the setting is a range, since version 8. Default: it was not.
    #[serde(default)]
    pub(crate) is_pinned: bool,
    /// The fewest and the most workers by the setting, since version 9. Default: unknown, and the number of workers stays whatever the setting is now.
    #[serde(default)]
    pub(crate) range: Option<(u16, u16)>,
}

impl Handover {
    pub(crate) fn new(
        predecessor: i32,
        channel: RawFd,
        listeners: Vec<InheritedListener>,
        lent: Vec<InheritedListener>,
        scaled_to: Option<u16>,
        is_asgi: bool,
    ) -> Self {
        Self {
            version: VERSION,
            least: LEAST,
            predecessor,
            channel,
            listeners,
            scaled_to,
            lent,
            is_asgi,
            ticket_keys: None,
            streams: None,
            demand: None,
            is_pinned: false,
            range: None,
        }
    }

    /// A new master calls this before it opens a log, and says all that follows at the standard error of the old master. `take` says later if the
    /// variable cannot be read.
    pub(crate) fn go_back_to_standard_error() -> io::Result<()> {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let streams = Self::from_json(&text).ok().and_then(|it| it.streams);
        streams.map_or(Ok(()), last_words::go_back_to_standard_error)
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// The handover to this process, if there was one; the variable is gone then, so that the app's own subprocesses do not take themselves for
    /// masters.
    pub(crate) fn take() -> Result<Option<HandedOver>, String> {
        environment::take(VARIABLE)
            .map(|text| Self::from_json(&text)?.take_over())
            .transpose()
    }

    /// Takes the descriptors over.
    fn take_over(&self) -> Result<HandedOver, String> {
        let refused = |what: &str, fd: RawFd, error: io::Error| {
            format!("inherited descriptor {fd} is not a {what}: {error}")
        };
        let channel = Channel::inherit(self.channel)
            .map_err(|error| refused("channel", self.channel, error))?;
        let take_over =
            |inherited_listeners: &[InheritedListener]| -> Result<Vec<Listener>, String> {
                let taken = inherited_listeners.iter().map(|inherited_listener| {
                    let taken = inherited_listener.take_over();
                    taken.map_err(|error| refused("listener", inherited_listener.fd, error))
                });
                taken.collect()
            };
        Ok(HandedOver {
            predecessor: self.predecessor,
            hears_of_dropped: self.version >= HEARS_OF_DROPPED,
            scaled_to: self.scaled_to,
            is_pinned: self.is_pinned,
            range: self.range,
            is_asgi: self.is_asgi,
            channel,
            listeners: take_over(&self.listeners)?,
            lent: take_over(&self.lent)?,
            ticket_keys: self
                .ticket_keys
                .map(|fd| {
                    TicketKeys::inherit(fd)
                        .map_err(|error| refused("file of ticket keys", fd, error))
                })
                .transpose()?,
            demand: self.demand.and_then(|fd| {
                let taken = DemandSeconds::inherit(fd);
                // Another version may count otherwise; an estimate is no reason to refuse an upgrade.
                let said = |error: &io::Error| {
                    info!("the demand of the last minute is not taken over: {error}");
                };
                taken.inspect_err(said).ok()
            }),
        })
    }

    /// Reads what another master, perhaps of another version, has written.
    fn from_json(text: &str) -> Result<Self, String> {
        /// The keys that must be understood before all others.
        #[derive(Deserialize)]
        struct Versions {
            version: u32,
            least: u32,
        }

        let unreadable = |error: serde_json::Error| format!("{VARIABLE} cannot be read: {error}");
        let Versions { version, least } = serde_json::from_str(text).map_err(unreadable)?;
        if least > VERSION {
            return Err(format!(
                "{VARIABLE} is of version {version}, and needs a stanchion that reads version {least}; \
                 this one reads up to {VERSION}"
            ));
        }
        let handover: Self = serde_json::from_str(text).map_err(unreadable)?;
        let is_bad = |fd: RawFd| fd <= 2;
        let inherited_listeners = || handover.listeners.iter().chain(&handover.lent);
        if inherited_listeners().count() > LISTENERS_MAX
            || inherited_listeners().any(|inherited_listener| is_bad(inherited_listener.fd))
            || is_bad(handover.channel)
            || handover.ticket_keys.is_some_and(is_bad)
            || handover.demand.is_some_and(is_bad)
            || handover
                .streams
                .is_some_and(|streams| is_bad(streams.standard_error) || is_bad(streams.file))
        {
            return Err(format!("{VARIABLE} names descriptors that cannot be"));
        }
        Ok(handover)
    }
}

/// The handover, once it is taken over.
pub(crate) struct HandedOver {
    pub(crate) predecessor: i32,
    /// Whether it understands [`ToPredecessor::Dropped`].
    pub(crate) hears_of_dropped: bool,
    pub(crate) scaled_to: Option<u16>,
    pub(crate) is_pinned: bool,
    pub(crate) range: Option<(u16, u16)>,
    pub(crate) is_asgi: bool,
    pub(crate) channel: Channel,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) lent: Vec<Listener>,
    pub(crate) ticket_keys: Option<TicketKeys>,
    pub(crate) demand: Option<DemandSeconds>,
}

/// Messages of the new master over the channel.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToPredecessor {
    /// It does not have the listener at this address, so the clients in its queue are the old master's to serve. Sent before [`Self::Ready`], since
    /// version 3.
    Dropped {
        /// As the listener shows it.
        address: String,
    },
    /// It serves.
    Ready,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited_listener(fd: RawFd) -> InheritedListener {
        serde_json::from_value(serde_json::json!({"fd": fd})).expect("all else has a default")
    }

    fn read(text: &str) -> Result<Handover, String> {
        Handover::from_json(text)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut handover = Handover::new(
            7,
            9,
            vec![inherited_listener(5), inherited_listener(6)],
            vec![inherited_listener(8)],
            Some(3),
            true,
        );
        handover.is_pinned = true;
        handover.range = Some((2, 8));
        let text = handover.to_json().expect("written");
        assert_eq!(read(&text), Ok(handover));
    }

    #[test]
    fn only_masters_that_go_back_to_standard_error_take_over() {
        let handover = Handover::new(7, 9, vec![], vec![], None, false);
        let written: serde_json::Value =
            serde_json::from_str(&handover.to_json().expect("written")).expect("JSON");
        // They do since version 6.
        assert!(written["least"].as_u64() >= Some(6), "{written}");
    }

    #[test]
    fn keys_of_newer_masters_are_ignored_and_missing_ones_have_defaults() {
        let text = r#"{"version": 7, "least": 1, "predecessor": 7, "channel": 9, "listeners": [{"fd": 5, "news": 1}], "news": {"a": []}}"#;
        let handover = read(text).expect("read");
        assert_eq!(
            (handover.listeners, handover.scaled_to, handover.lent),
            (vec![inherited_listener(5)], None, vec![])
        );
        assert!(
            !handover.is_asgi
                && !handover.is_pinned
                && handover.range.is_none()
                && handover.ticket_keys.is_none()
                && handover.demand.is_none()
        );
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for (text, reason) in [
            ("", "cannot be read"),
            ("[]", "cannot be read"),
            (r#"{"version": 1}"#, "missing field `least`"),
            // The rest may have any form by then.
            (
                r#"{"version": 11, "least": 10, "listeners": "?"}"#,
                "of version 11",
            ),
            (
                r#"{"version": 1, "least": 1, "predecessor": 7, "channel": 9}"#,
                "missing field `listeners`",
            ),
            (
                r#"{"version": 1, "least": 1, "predecessor": 7, "channel": 2, "listeners": []}"#,
                "cannot be",
            ),
            (
                r#"{"version": 1, "least": 1, "predecessor": 7, "channel": 9, "listeners": [{"fd": -1}]}"#,
                "cannot be",
            ),
            (
                r#"{"version": 2, "least": 1, "predecessor": 7, "channel": 9, "listeners": [], "lent": [{"fd": 1}]}"#,
                "cannot be",
            ),
            (
                r#"{"version": 5, "least": 1, "predecessor": 7, "channel": 9, "listeners": [], "ticket_keys": 2}"#,
                "cannot be",
            ),
            (
                r#"{"version": 7, "least": 1, "predecessor": 7, "channel": 9, "listeners": [], "demand": 1}"#,
                "cannot be",
            ),
        ] {
            let problem = read(text).expect_err(text);
            assert!(problem.contains(reason), "{text}: {problem}");
        }
    }
}
