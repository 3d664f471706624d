//! The service manager that has started the server, if one has.

use std::io;

use stanchion_sys::notify::Notifier;
use tracing::{error, warn};

/// While the master withholds WATCHDOG=1, it checks so often whether it may send it again.
const WITHHELD_CHECK_MS: u64 = 1_000;

/// The service manager, if it started us and wants notifications.
pub(super) struct ServiceManager {
    notifier: Notifier,
    /// When the master last decided whether to send WATCHDOG=1 (`sd_notify(3)`).
    alive_ms: u64,
    /// Whether the master withheld it then.
    is_withheld: bool,
}

impl ServiceManager {
    /// The one that the environment names.
    pub(super) fn from_env(now_ms: u64) -> Self {
        let notifier = Notifier::from_env().unwrap_or_else(|problem| {
            warn!("the service manager gets no notifications: {problem}");
            Notifier::none()
        });
        Self {
            notifier,
            alive_ms: now_ms,
            is_withheld: false,
        }
    }

    /// Lets it know that we are alive, if it wants to and it is time. While a process stands still that the server cannot do without
    /// (`vital`), the master sends nothing, and the manager restarts the service as it does one that hangs.
    pub(super) fn show_life(&mut self, now_ms: u64, vital: Option<&str>) {
        if self.due_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        self.alive_ms = now_ms;
        let was_withheld = std::mem::replace(&mut self.is_withheld, vital.is_some());
        match vital {
            None => self.tell("WATCHDOG=1", Notifier::watchdog),
            Some(who) if !was_withheld => error!(
                "the master withholds WATCHDOG=1 from the service manager until the {who} goes on"
            ),
            Some(_) => {}
        }
    }

    /// When it wants to hear from us.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let every = self.notifier.watchdog_every()?;
        let every_ms = every.as_millis() as u64;
        // The acceptor may go on at any time, and systemd should get WATCHDOG=1 before WatchdogSec= is over.
        let every_ms = if self.is_withheld {
            every_ms.min(WITHHELD_CHECK_MS)
        } else {
            every_ms
        };
        Some(self.alive_ms + every_ms)
    }

    /// Shows it what the server does.
    pub(super) fn show(&self, status: &str) {
        self.tell("STATUS=", |to| to.status(status));
    }

    /// Sends it a notification, which the log calls `what`.
    pub(super) fn tell(&self, what: &str, tell: impl FnOnce(&Notifier) -> io::Result<()>) {
        if let Err(error) = tell(&self.notifier) {
            warn!("the service manager could not be sent {what}: {error}");
        }
    }
}
