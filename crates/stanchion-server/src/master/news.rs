//! News for the world outside the tree: the operator's hooks and the service manager.

use std::io;
use std::rc::Rc;

use stanchion_master::{Command, Event, News, counted};
use stanchion_sys::code;
use stanchion_sys::notify::Notifier;
use tracing::{error, warn};

use super::resources::HouseResources;
use super::{Loop, now_ms, show_title};
use crate::hook::Hook;
use crate::hook_run::run_hook;
use stanchion_generation::figures::Attempt;
use stanchion_log as log;

/// While the master withholds WATCHDOG=1, it checks so often whether the acceptor's loop turns again.
const WITHHELD_CHECK_MS: u64 = 1_000;

impl Loop<'_> {
    pub(super) fn announce(&mut self, news: News) {
        match news {
            News::Ready { workers } => {
                let ours = self.houses.values().flat_map(HouseResources::doors);
                let ours: Vec<_> = ours.map(|door| door.address().clone()).collect();
                self.succession.announce(&ours);
                self.take_over_control();
                self.hook(Hook::Ready);
                self.tell_manager("READY=1", Notifier::ready);
                self.show(&format!("serving, {}", counted(workers)));
                if self.launcher.is_waiting() {
                    // All processes leave the terminal, and the shell goes on.
                    self.events.push_back(Event::Commanded {
                        command: Command::Reopen,
                        by: "in the background",
                        client: None,
                    });
                }
                code::let_go_alone();
            }
            News::Reloading => {
                self.tell_manager("RELOADING=1", Notifier::reloading);
                self.show("reloading");
            }
            News::Promoted { generation } => {
                if let Some(house) = self.houses.get(&generation) {
                    let before = std::mem::replace(&mut self.present, Rc::clone(&house.common));
                    self.choose_log();
                    if before.settings.name() != self.settings().name() {
                        show_title(self.host, self.settings());
                    }
                }
            }
            News::Reloaded { generation } => {
                self.present.figures.attempted(Attempt::Reloaded);
                self.show_that_serves(generation);
            }
            News::NotReloaded { generation } => {
                self.present.figures.attempted(Attempt::ReloadFailed);
                // The operator's settings are those from before.
                self.host.revert();
                log::belong_to(self.present.identities.of_error_log());
                self.show_that_serves(generation);
            }
            News::Stopping => {
                self.tell_manager("STOPPING=1", Notifier::stopping);
                self.show("leaving");
            }
            News::WorkerGone { number, pid, cause } => {
                if let Some(cause) = cause {
                    self.present.figures.restarted(cause);
                }
                self.hook(Hook::ChildExit { number, pid });
            }
            News::Target { new, old } => {
                self.hook(Hook::WorkersChanged { new, old });
                self.show(&format!("serving, {}", counted(new)));
            }
            News::Heir { pid } => {
                self.present.figures.attempted(Attempt::Upgraded);
                self.succession.heir_serves();
                self.tell_manager("MAINPID=", |to| to.main_pid(pid));
            }
        }
    }

    pub(super) fn hook(&mut self, hook: Hook) {
        // The host has logged what the hook raised; there is no more to do about it.
        let _ = run_hook(self.host, hook);
        self.recover_from(&format!("the hook {}", hook.name()));
    }

    /// Lets the service manager know that we are alive, if it wants to and it is time. An acceptor that stands still serves no
    /// client: the master then sends nothing, and the manager restarts the service as it does one that hangs.
    pub(super) fn show_life(&mut self) {
        let now_ms = now_ms();
        if self.alive_due_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        self.alive_ms = now_ms;
        let is_withheld = self.why_withheld().is_some();
        let was_withheld = std::mem::replace(&mut self.is_withheld, is_withheld);
        match self.why_withheld() {
            None => self.tell_manager("WATCHDOG=1", Notifier::watchdog),
            Some(who) if !was_withheld => error!(
                "the master withholds WATCHDOG=1 from the service manager until the {who} goes on"
            ),
            Some(_) => {}
        }
    }

    /// The process that stands still, if the server cannot do without it.
    fn why_withheld(&self) -> Option<&str> {
        let acceptor = self.watch.still_ms().map(|_| "acceptor");
        acceptor.or_else(|| self.stopped.vital())
    }

    /// When the service manager wants to hear from us.
    pub(super) fn alive_due_ms(&self) -> Option<u64> {
        let every = self.manager.watchdog_every()?;
        let every_ms = every.as_millis() as u64;
        // The acceptor may go on at any time, and systemd should get WATCHDOG=1 before WatchdogSec= is over.
        let every_ms = if self.is_withheld {
            every_ms.min(WITHHELD_CHECK_MS)
        } else {
            every_ms
        };
        Some(self.alive_ms + every_ms)
    }

    fn show_that_serves(&self, generation: u32) {
        self.tell_manager("READY=1", Notifier::ready);
        self.show(&format!("serving, generation {generation}"));
    }

    fn show(&self, status: &str) {
        self.tell_manager("STATUS=", |to| to.status(status));
    }

    fn tell_manager(&self, what: &str, tell: impl FnOnce(&Notifier) -> io::Result<()>) {
        if let Err(error) = tell(&self.manager) {
            warn!("the service manager could not be sent {what}: {error}");
        }
    }
}
