//! Which settings have no effect in workers of one kind or another.

use serde_json::Value;

use super::{Preset, Setting};

/// The way in which a worker runs requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// Threads, for WSGI apps.
    Threads,
    /// Greenlets, for WSGI apps under gevent.
    Greenlets,
    /// The event loop of an asynchronous app.
    EventLoop,
}

/// A setting that an operator may give in vain.
#[derive(Debug)]
pub(crate) struct WithoutEffect {
    pub(crate) name: &'static str,
    pub(crate) runners: &'static [Runner],
    pub(crate) unmissed: Unmissed,
    /// A sentence without its end.
    pub(crate) why: &'static str,
}

/// The values whose missing effect is not worth a warning.
#[derive(Debug)]
pub(crate) enum Unmissed {
    /// The default.
    Default,
    /// These, which ask for what happens anyway.
    Values(&'static [Preset]),
    /// All: what they ask for happens anyway, or gunicorn takes them in silence, too.
    All,
}

use Runner::{EventLoop, Greenlets, Threads};

const WSGI: &[Runner] = &[Threads, Greenlets];
const LOOPS: &[Runner] = &[Greenlets, EventLoop];

const NO_WEBSOCKETS: &str = "a WSGI app has no WebSockets";

pub(crate) const WITHOUT_EFFECT: &[WithoutEffect] = &[
    WithoutEffect {
        name: "threads",
        runners: LOOPS,
        unmissed: Unmissed::Default,
        why: "each worker has one thread, which runs up to worker_concurrency requests at once",
    },
    WithoutEffect {
        name: "preload_app",
        runners: &[Greenlets],
        unmissed: Unmissed::Values(&[Preset::Bool(false)]),
        why: "gevent changes Python's modules in each worker before that imports the app",
    },
    WithoutEffect {
        name: "worker_concurrency",
        runners: &[Threads],
        // As worker_connections in many a config file.
        unmissed: Unmissed::All,
        why: "`threads` says how many requests a worker runs at once",
    },
    WithoutEffect {
        name: "loop",
        runners: &[Threads],
        unmissed: Unmissed::Default,
        why: "asyncio and uvloop run asynchronous apps",
    },
    WithoutEffect {
        name: "loop_timeout",
        runners: &[Threads],
        unmissed: Unmissed::Default,
        why: "threads have no event loop",
    },
    WithoutEffect {
        name: "worker_sessions",
        runners: WSGI,
        unmissed: Unmissed::Default,
        why: NO_WEBSOCKETS,
    },
    WithoutEffect {
        name: "session_grace",
        runners: WSGI,
        unmissed: Unmissed::Default,
        why: NO_WEBSOCKETS,
    },
    WithoutEffect {
        name: "ws_ping_interval",
        runners: WSGI,
        unmissed: Unmissed::Default,
        why: NO_WEBSOCKETS,
    },
    WithoutEffect {
        name: "ws_ping_timeout",
        runners: WSGI,
        unmissed: Unmissed::Default,
        why: NO_WEBSOCKETS,
    },
    WithoutEffect {
        name: "ws_max_size",
        runners: WSGI,
        unmissed: Unmissed::Default,
        why: NO_WEBSOCKETS,
    },
    WithoutEffect {
        name: "ws_per_message_deflate",
        runners: WSGI,
        unmissed: Unmissed::Default,
        why: NO_WEBSOCKETS,
    },
    WithoutEffect {
        name: "max_ws_memory",
        runners: WSGI,
        unmissed: Unmissed::Default,
        why: NO_WEBSOCKETS,
    },
    WithoutEffect {
        name: "cancel_on_timeout",
        runners: WSGI,
        unmissed: Unmissed::Default,
        why: "a WSGI app has no task that could be cancelled",
    },
    WithoutEffect {
        name: "whole_uploads",
        runners: WSGI,
        unmissed: Unmissed::All,
        why: "a WSGI app is called when the whole body is there",
    },
    WithoutEffect {
        name: "lifespan",
        runners: WSGI,
        unmissed: Unmissed::Values(&[Preset::Text("auto"), Preset::Text("off")]),
        why: "a WSGI app is not told when a worker starts and ends; hooks are",
    },
    WithoutEffect {
        name: "response_spool",
        runners: LOOPS,
        unmissed: Unmissed::Values(&[Preset::Number(0)]),
        why: "an answer that waits for its client holds no thread, and is never spooled",
    },
];

impl Runner {
    /// As it stands after "with".
    pub(crate) fn words(self) -> &'static str {
        match self {
            Threads => "threads",
            Greenlets => "gevent",
            EventLoop => "an asynchronous app",
        }
    }
}

impl WithoutEffect {
    /// Whether the operator may miss the effect of this value of `setting`, which is the row's.
    pub(crate) fn is_missed(&self, setting: &Setting, value: &Value) -> bool {
        match self.unmissed {
            Unmissed::Default => *value != Value::from(&setting.default),
            Unmissed::Values(values) => values.iter().all(|one| *value != Value::from(one)),
            Unmissed::All => false,
        }
    }

    /// All of these, as [`Runner::words`].
    pub(crate) fn words(&self) -> String {
        let words: Vec<_> = self.runners.iter().map(|runner| runner.words()).collect();
        words.join(" or ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coerce::coerce;
    use crate::table::find;

    #[test]
    fn each_names_a_setting_and_values_that_it_takes() {
        let mut names: Vec<_> = WITHOUT_EFFECT.iter().map(|row| row.name).collect();
        for row in WITHOUT_EFFECT {
            let setting = find(row.name).unwrap_or_else(|| panic!("{}", row.name));
            assert!(!row.runners.is_empty() && row.runners.len() < 3);
            if let Unmissed::Values(values) = row.unmissed {
                let takes = |value| coerce(&setting.kind, &Value::from(value)).is_ok();
                assert!(values.iter().all(takes), "{row:?}");
            }
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WITHOUT_EFFECT.len(), "each stands there once");
    }
}
