//! News for the world outside the tree: the operator's hooks and the service manager.

use stanchion_master::{Command, MasterEvent, News, counted};
use stanchion_sys::code;
use stanchion_sys::notify::Notifier;

use super::{GenerationResources, Loop, show_title};
use crate::hook::Hook;
use stanchion_generation::figures::Attempt;
use stanchion_log as log;

impl Loop<'_> {
    pub(super) fn announce(&mut self, news: News) {
        match news {
            News::Ready { workers } => self.announce_ready(workers),
            News::Reloading => {
                self.manager.tell("RELOADING=1", Notifier::reloading);
                self.manager.show("reloading");
            }
            News::Promoted { generation_number } => {
                if let Some(before) = self.generations.promote(generation_number) {
                    self.generations.choose_log(&self.master);
                    let settings = self.generations.settings();
                    if before.settings.name() != settings.name() {
                        show_title(self.host, settings);
                    }
                }
            }
            News::Reloaded { generation_number } => {
                self.generations
                    .present()
                    .figures
                    .attempted(Attempt::Reloaded);
                self.show_that_serves(generation_number);
            }
            News::NotReloaded { generation_number } => {
                self.generations
                    .present()
                    .figures
                    .attempted(Attempt::ReloadFailed);
                // The operator's settings are those from before.
                self.host.revert();
                let identities = &self.generations.present().identities;
                log::belong_to(identities.of_error_log());
                self.show_that_serves(generation_number);
            }
            News::Stopping => {
                self.manager.tell("STOPPING=1", Notifier::stopping);
                self.manager.show("leaving");
            }
            News::WorkerGone { number, pid, cause } => {
                if let Some(cause) = cause {
                    self.generations.present().figures.restarted(cause);
                }
                self.hook(Hook::ChildExit { number, pid });
            }
            News::Target { new, old } => {
                self.hook(Hook::WorkersChanged { new, old });
                self.manager.show(&format!("serving, {}", counted(new)));
            }
            News::Heir { pid } => {
                self.generations
                    .present()
                    .figures
                    .attempted(Attempt::Upgraded);
                self.succession.heir_serves();
                self.manager.tell("MAINPID=", |to| to.main_pid(pid));
            }
        }
    }

    fn announce_ready(&mut self, workers: usize) {
        let ours = self.generations.iter().flat_map(GenerationResources::doors);
        let ours: Vec<_> = ours.map(|door| door.address().clone()).collect();
        self.succession.announce(&ours);
        self.desk.take_over(self.generations.settings());
        self.hook(Hook::Ready);
        self.manager.tell("READY=1", Notifier::ready);
        self.manager.show(&format!("serving, {}", counted(workers)));
        if self.launcher.is_waiting() {
            // All processes leave the terminal, and the shell goes on.
            self.events.push_back(MasterEvent::Commanded {
                command: Command::Reopen,
                by: "in the background",
                client: None,
            });
        }
        code::let_go_alone();
    }

    fn show_that_serves(&self, generation_number: u32) {
        self.manager.tell("READY=1", Notifier::ready);
        self.manager
            .show(&format!("serving, generation {generation_number}"));
    }
}
