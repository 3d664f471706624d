//! Performs the actions of the step.

use std::io;

use stanchion_master::{
    Action, ChildKind, ClientId, GenerationEvent, MasterEvent, Severity, called,
};
use stanchion_sys::channel::Channel;
use stanchion_sys::child;
use stanchion_sys::process::Fork;
use stanchion_sys::signal;
use tracing::{error, info, warn};

use super::forks::fork_child;
use super::reports::{Link, Post};
use super::resources::GenerationResources;
use super::succession::OldMaster;
use super::{Loop, ProcessRole, intrusion, stacks};
use crate::control::{CtlReply, WorkerStacks};
use crate::hook::Hook;
use crate::hook_run::run_hook;
use crate::{last_words, threads};
use stanchion_generation::figures::Attempt;
use stanchion_generation::listeners;
use stanchion_generation::messages::{FromTemplate, ToAcceptor, ToTemplate, WorkerRef};
use stanchion_log::{self as log, cure, exit_code};
use stanchion_settings::{Settings, kept_by_a_reload};

/// At most so many bytes of a worker's stacks are shown.
const DUMP_BYTES_MAX: usize = 64 << 10;

fn write_log(severity: Severity, message: &str) {
    match severity {
        Severity::Info => info!("{message}"),
        Severity::Warning => warn!("{message}"),
        Severity::Error => error!("{message}"),
    }
}

impl Loop<'_> {
    pub(super) fn perform(&mut self, action: Action) -> Option<ProcessRole> {
        match action {
            Action::BuildGeneration { generation_number } => {
                let built = self.build(generation_number);
                self.built(generation_number, built, None);
            }
            Action::RebuildGeneration {
                generation_number,
                first,
                template,
            } => self.go_over(generation_number, first, template),
            Action::DropGeneration { generation_number } => {
                self.generations.drop_one(generation_number);
            }
            Action::Fork {
                generation_number,
                child,
            } => return self.fork_child(generation_number, child),
            Action::TellAcceptor {
                generation_number,
                message,
            } => self.tell_acceptor(generation_number, message),
            Action::TellTemplate {
                generation_number,
                message,
            } => self.tell_template(generation_number, message),
            Action::OfferTemplate {
                generation_number,
                worker,
                pid,
            } => self.offer_template(generation_number, worker, pid),
            Action::SwapTemplates { generation_number } => {
                if let Some(generation) = self.generations.get_mut(generation_number) {
                    generation.links.swap_templates();
                }
            }
            Action::DropOtherTemplate { generation_number } => {
                if let Some(generation) = self.generations.get_mut(generation_number) {
                    generation.links.other_template = None;
                }
            }
            Action::TellScribe {
                generation_number,
                message,
            } => {
                if let Some(generation) = self.generations.get_mut(generation_number) {
                    generation.links.tell_scribe(message);
                }
            }
            Action::Kill(pid, signal) => self.kill(pid, signal),
            Action::Vacate {
                generation_number,
                worker,
            } => {
                if let Some(generation) = self.generations.get_mut(generation_number) {
                    generation.vacate(worker);
                }
            }
            Action::Dump {
                generation_number,
                pid,
            } => self.ask_for_stacks(generation_number, pid),
            Action::ShowDump {
                generation_number,
                number,
                pid,
                client,
            } => self.show_stacks(generation_number, (number, pid), client),
            Action::Reopen => self.reopen_logs(),
            Action::LeaveBecause(reason) => last_words::leave_because(&reason),
            Action::StartHeir => self.start_heir(),
            Action::EndHeir => self.succession.end_heir(),
            Action::DropHeir => {
                let present = self.generations.present();
                present.figures.attempted(Attempt::UpgradeFailed);
                self.succession.drop_heir();
            }
            Action::Reply { client, outcome } => {
                self.desk.reply(client, &CtlReply::of(outcome));
            }
            Action::Announce(news) => self.announce(news),
            Action::Log(severity, message) => write_log(severity, &message),
            Action::Exit(code) => return Some(self.leave(code)),
        }
        None
    }

    /// The last action.
    fn leave(&mut self, code: i32) -> ProcessRole {
        self.hook(Hook::Exit);
        let doors = self.generations.take_doors();
        let listeners = self.succession.ours_alone(doors);
        ProcessRole::Master { code, listeners }
    }

    /// A signal that cannot be sent is no reason to give up the server.
    pub(super) fn kill(&self, pid: i32, signal: i32) {
        // The child may have been reaped already: the step hears its last reports before its end.
        if !self.events.iter().any(|event| event.is_end_of(pid))
            && let Err(error) = child::send_signal(pid, signal)
        {
            error!("process {pid} is not sent signal {signal}: {error}");
        }
    }

    fn tell_acceptor(&mut self, generation_number: u32, message: ToAcceptor) {
        if matches!(message, ToAcceptor::Retire { .. }) {
            let (master, succession) = (&self.master, &self.succession);
            self.generations
                .close_dropped(generation_number, master, succession);
        }
        if let Some(generation) = self.generations.get_mut(generation_number) {
            generation.links.tell_acceptor(message);
        }
    }

    /// A worker that is to be forked gets a channel of its own, by which the master knows it.
    fn tell_template(&mut self, generation_number: u32, message: ToTemplate) {
        if let ToTemplate::Fork { .. } | ToTemplate::Become { .. } = message {
            // A worker is wanted, so the app is called as this generation is made for it.
            self.generations.needs_no_other();
        }
        let Some(generation) = self.generations.get_mut(generation_number) else {
            return;
        };
        let links = &mut generation.links;
        let (worker, number, becomes) = match message {
            ToTemplate::Fork { worker, number, .. } => (worker, number, false),
            ToTemplate::Become { worker, number } => (worker, number, true),
            ToTemplate::GoOver => {
                links.tell_template(message, None);
                return;
            }
            ToTemplate::Reopen => {
                links.reopen_templates();
                return;
            }
        };
        let known = links.template.as_ref().map(Link::pid);
        let known = known.filter(|_| becomes);
        match Channel::pair() {
            Ok((ours, theirs)) => {
                let post = Post::new(worker.epoch, number, ours, known);
                links.posts.insert(worker.index, post);
                links.tell_template(message, Some(theirs.into()));
            }
            Err(error) => {
                error!("worker {number} cannot be given a channel to the master: {error}");
                if let Some(pid) = known {
                    self.kill(pid, signal::SIGKILL);
                    return;
                }
                let said = GenerationEvent::TemplateSaid(FromTemplate::NotForked(worker));
                self.events
                    .push_back(MasterEvent::OfGeneration(generation_number, said));
            }
        }
    }

    /// A worker that does not get the order leaves, and the re-fork is given up.
    fn offer_template(&mut self, generation_number: u32, worker: WorkerRef, pid: i32) {
        let Some(generation) = self.generations.get_mut(generation_number) else {
            return;
        };
        if let Err(error) = generation.links.offer_template(worker, pid) {
            error!(
                "process {pid} cannot be ordered to become the template: {}",
                cure::told(&error)
            );
        }
    }

    /// The acceptor reopens the access log itself, as the user that it has become; so the file must be there.
    fn reopen_logs(&self) {
        log::reopen();
        // A process that waits for the start of a daemon hears of it here: while it waits, no other command reopens the logs.
        self.launcher.tell(exit_code::FINE);
        let present = self.generations.present();
        let accesslog = present.settings.log.accesslog.as_deref();
        let has_scribe = present.log_channels.is_some();
        let owner = present.identities.of_access_log(has_scribe);
        if let Err(error) = log::create(accesslog, owner) {
            error!("the access log cannot be created again after its rotation: {error}");
        }
    }

    pub(super) fn built(
        &mut self,
        generation_number: u32,
        built: Result<GenerationResources, String>,
        template: Option<i32>,
    ) {
        let plan = built.map(|resources| {
            let is_the_server = !self.master.has_served();
            self.generations.add(resources, is_the_server)
        });
        self.events.push_front(MasterEvent::GenerationBuilt {
            generation_number,
            plan,
            template,
        });
    }

    /// Reads the configuration again and makes what a generation needs.
    fn build(&mut self, generation_number: u32) -> Result<GenerationResources, String> {
        let settings = self.host.reconfigure();
        self.recover_from("the configuration");
        let settings = settings?;
        self.hook(Hook::Reload);
        if let Err(threads) = threads::refuse(self.host) {
            return Err(format!(
                "the new configuration, or a hook, has left {threads} in the master, which cannot fork \
                 with them: start them in post_fork or post_worker_init, and restart the server"
            ));
        }
        self.name_what_stays(&settings);
        let settings = if settings.is_guess() {
            // As the app is now, it most likely will be. If these settings do not allow that, the new app may be another.
            let is_asgi = self.generations.settings().is_asgi();
            settings.clone().taken_for(is_asgi).unwrap_or(settings)
        } else {
            settings
        };
        let present = self.generations.present_resources();
        let inherited = present.map(|generation| listeners::clones(&generation.listeners));
        let inherited = inherited.transpose().map_err(|error| error.to_string())?;
        (self.check_settings)(&settings)?;
        stanchion_generation::identities::find(&settings)?;
        let listeners = listeners::open(&settings, inherited.unwrap_or_default())?;
        let has_scribe = self.host.has_scribe();
        let settings = (settings, has_scribe);
        self.generations
            .furnish(generation_number, settings, listeners, None)
    }

    /// Makes the generation for the other interface, and has the template that has imported the app come along. A template that cannot is killed.
    fn go_over(&mut self, generation_number: u32, first: u32, template: Option<i32>) {
        if let Some(made) = self.generations.go_over(generation_number, first, template) {
            self.built(generation_number, Ok(made), template);
            return;
        }
        if let Some(pid) = template {
            self.kill(pid, signal::SIGKILL);
        }
        let has_scribe = self.host.has_scribe();
        let built = self
            .generations
            .rebuild(generation_number, first, has_scribe);
        if let Ok(generation) = &built {
            let settings = &generation.common.settings;
            let name = if settings.is_asgi() { "asgi" } else { "wsgi" };
            info!("the app is imported once more: --interface {name} saves that");
        }
        self.built(generation_number, built, None);
    }

    /// Settings that a running server cannot change are named.
    fn name_what_stays(&self, new: &Settings) {
        let kept = kept_by_a_reload(self.generations.settings(), new);
        if !kept.is_empty() {
            warn!(
                "reload: a change of {} takes effect when the server is restarted",
                kept.join(", ")
            );
        }
    }

    /// Forks a child of a generation. Gives its role in the child.
    fn fork_child(&mut self, generation_number: u32, kind: ChildKind) -> Option<ProcessRole> {
        let alone = threads::refuse(self.host);
        let has_threads = alone.is_err();
        if let ChildKind::Template { may_preload: true } = kind {
            let has_served = self.master.has_served();
            self.generations
                .make_other(generation_number, has_served, self.host);
        }
        let other = self.generations.other();
        let generation = self.generations.get_mut(generation_number)?;
        if kind == ChildKind::Acceptor {
            generation.settle();
        }
        let forked = alone
            .map_err(|threads| io::Error::other(format!("a hook has left {threads} in the master")))
            .and_then(|()| fork_child(kind, self.host, self.open_files));
        let pid = match forked {
            Ok((Fork::Child, orders)) => {
                return Some(ProcessRole::of_child(kind, generation, other, orders));
            }
            Ok((Fork::Parent(pid), channel)) => {
                generation.have_child(kind, pid, channel);
                Some(pid)
            }
            Err(error) => {
                error!(
                    "the {} cannot be forked: {}",
                    kind.name(),
                    cure::told(&error)
                );
                if kind == ChildKind::Acceptor {
                    generation.links.acceptor = None;
                }
                None
            }
        };
        if kind == ChildKind::Acceptor && has_threads {
            self.events
                .push_front(MasterEvent::Childless { generation_number });
        }
        // Before all other events, so that those find the child known.
        let forked = GenerationEvent::Forked { child: kind, pid };
        self.events
            .push_front(MasterEvent::OfGeneration(generation_number, forked));
        None
    }

    fn ask_for_stacks(&self, generation_number: u32, pid: i32) {
        if let Some(generation) = self.generations.get(generation_number)
            && let Err(error) = generation.common.dumps.clear()
        {
            warn!("the stacks of worker {pid} are mixed with earlier ones: {error}");
        }
        self.kill(pid, signal::DUMP);
    }

    /// Shows the stacks to the client that asked for them, or else in the log.
    fn show_stacks(
        &mut self,
        generation_number: u32,
        (number, pid): (u16, i32),
        client: Option<ClientId>,
    ) {
        let stacks = self.stacks(generation_number);
        match client {
            None => {
                let stacks = stacks::of_seats(&stacks);
                let who = called(number, Some(pid));
                error!(target: log::CRITICAL, "the stacks of {who}:\n{stacks}");
            }
            Some(client) => self.desk.keep_stacks(
                client,
                WorkerStacks {
                    number,
                    pid,
                    generation: generation_number,
                    stacks,
                },
            ),
        }
    }

    fn stacks(&self, generation_number: u32) -> String {
        let generation = self.generations.get(generation_number);
        let text = match generation.map(|generation| generation.common.dumps.read(DUMP_BYTES_MAX)) {
            Some(Ok(text)) if !text.is_empty() => text,
            Some(Err(error)) => format!("they cannot be read: {error}"),
            _ => "it has not written down any".to_owned(),
        };
        text.trim_end().to_owned()
    }

    /// Has a new master started.
    fn start_heir(&mut self) {
        self.hook(Hook::PreExec);
        let old = OldMaster {
            generations: &self.generations,
            target: self.master.target(),
            is_pinned: self.master.is_pinned(),
            started_as: self.host.started_as(),
            open_files: self.open_files,
        };
        let pid = self.succession.start_heir(&old);
        self.events.push_front(MasterEvent::HeirStarted(pid));
    }

    pub(super) fn hook(&mut self, hook: Hook) {
        // The host has logged what the hook raised; there is no more to do about it.
        let _ = run_hook(self.host, hook);
        self.recover_from(&format!("the hook {}", hook.name()));
    }

    /// The operator's code has run in the master, and `whose` names it.
    fn recover_from(&mut self, whose: &str) {
        intrusion::recover_from(whose, &mut self.signals, &self.master, &mut self.events);
    }
}
