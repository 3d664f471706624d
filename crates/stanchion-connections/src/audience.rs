//! The side from which connections come, and what each side gives its connections: the rules for their heads, and the time
//! for them.

use std::time::Duration;

use stanchion_http::{HeadRules, Permits};

use super::judgement::Judgement;
use stanchion_requests::HeadPolicy;
use stanchion_requests::lifecycle::Lifecycle;
use stanchion_settings::Settings;

/// The rules for heads of operators' requests.
const OPERATORS_RULES: HeadRules = HeadRules {
    line_bytes: 8 << 10,
    field_bytes: 8 << 10,
    fields: 100,
    head_bytes: 16 << 10,
    permits: Permits::NONE,
};
/// While the server drains: how long a new connection may take to send its first byte.
const NEWCOMER: Duration = Duration::from_secs(1);
/// How long an operator's connection may be idle, or take for a request.
const OPERATORS_IDLE: Duration = Duration::from_secs(75);

/// The side from which a connection comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Clients of the app.
    Clients,
    /// Operators at the admin listener.
    Operators,
}

/// How long a client may take until its head is whole, and the verdict on one that takes longer.
pub(crate) struct HeadDeadlines {
    /// From the connection to the first byte.
    pub(crate) new: Option<Duration>,
    /// Between requests.
    pub(crate) idle: Option<Duration>,
    pub(crate) idle_over: Judgement,
    /// From the first byte to the last one of the head.
    pub(crate) head: Option<Duration>,
    pub(crate) head_over: Judgement,
}

impl Audience {
    pub(crate) fn head_rules(self, policy: &HeadPolicy) -> HeadRules {
        match self {
            Self::Clients => policy.rules,
            Self::Operators => OPERATORS_RULES,
        }
    }

    pub(crate) fn head_deadlines(self, settings: &Settings, lifecycle: Lifecycle) -> HeadDeadlines {
        match self {
            Self::Clients => HeadDeadlines {
                new: newcomer(settings, lifecycle),
                idle: if lifecycle.is_closing() {
                    Some(Duration::ZERO)
                } else {
                    settings.http.keepalive.as_duration()
                },
                idle_over: Judgement::Close,
                head: settings.limits.header_timeout.as_duration(),
                head_over: Judgement::HeadTimedOut,
            },
            Self::Operators => {
                let newcomer = if lifecycle.is_leaving() {
                    NEWCOMER
                } else {
                    OPERATORS_IDLE
                };
                HeadDeadlines {
                    new: Some(newcomer),
                    idle: Some(OPERATORS_IDLE),
                    idle_over: Judgement::Drop,
                    head: Some(newcomer),
                    head_over: Judgement::Drop,
                }
            }
        }
    }
}

/// How long a new connection of a client may take to send its first byte.
pub(crate) fn newcomer(settings: &Settings, lifecycle: Lifecycle) -> Option<Duration> {
    if lifecycle.is_closing() {
        Some(NEWCOMER)
    } else {
        settings.limits.header_timeout.as_duration()
    }
}
