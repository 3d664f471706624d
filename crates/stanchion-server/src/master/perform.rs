//! Performs the actions of the step.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use stanchion_master::{Action, ClientId, Event, Severity, called};
use stanchion_sys::channel::Channel;
use stanchion_sys::child;
use stanchion_sys::held_signals;
use stanchion_sys::listener::Listener;
use stanchion_sys::process::{self, Fork, OpenFiles};
use stanchion_sys::signal;
use tracing::{error, info, warn};

use super::other_house::OtherHouse;
use super::reports::{Link, Post};
use super::resources::{Before, HouseResources};
use super::stacks;
use super::{Loop, Role, SIGNALS};
use crate::control::{CtlReply, WorkerStacks};
use crate::hook::Hook;
use crate::signals::leave_signals_to_master;
use crate::{last_words, threads};
use stanchion_generation::figures::Attempt;
use stanchion_generation::listeners;
use stanchion_generation::messages::{FromTemplate, ToAcceptor, ToScribe, ToTemplate};
use stanchion_generation::spool::SpoolDir;
use stanchion_log::LogChannels;
use stanchion_log::{self as log, cure, exit_code};
use stanchion_settings::{Settings, kept_by_a_reload};

/// At most so many bytes of a worker's stacks are shown.
const DUMP_BYTES_MAX: usize = 64 << 10;

/// Forks, with a channel between the two; each gets its end.
fn fork_with_channel(
    open_files: OpenFiles,
    fork: impl FnOnce() -> io::Result<Fork>,
) -> io::Result<(Fork, Channel)> {
    let (ours, theirs) = Channel::pair()?;
    let forked = held_signals::fork_with(&SIGNALS, fork, || {
        open_files
            .restore()
            .and_then(|()| leave_signals_to_master())
    })?;
    Ok(match forked {
        Fork::Child => (Fork::Child, theirs),
        parent @ Fork::Parent(_) => (parent, ours),
    })
}

fn of_threads(threads: &str) -> io::Error {
    io::Error::other(format!("a hook has left {threads} in the master"))
}

impl Loop<'_> {
    pub(super) fn perform(&mut self, action: Action) -> Option<Role> {
        match action {
            Action::BuildHouse { generation } => {
                let built = self.build(generation);
                self.built(generation, built, None);
            }
            Action::RebuildHouse {
                generation,
                first,
                template,
            } => self.go_over(generation, first, template),
            Action::DropHouse { generation } => self.drop_house(generation),
            Action::ForkAcceptor { generation } => return self.fork_acceptor(generation),
            Action::ForkTemplate {
                generation,
                may_preload,
            } => return self.fork_template(generation, may_preload),
            Action::ForkScribe { generation } => return self.fork_scribe(generation),
            Action::TellAcceptor {
                generation,
                message,
            } => self.tell_acceptor(generation, message),
            Action::TellTemplate {
                generation,
                message,
            } => self.tell_template(generation, message),
            Action::TellScribe {
                generation,
                message,
            } => self.tell_scribe(generation, message),
            Action::Kill(pid, signal) => self.kill(pid, signal),
            Action::Vacate { generation, worker } => {
                if let Some(house) = self.houses.get_mut(&generation) {
                    house.vacate(worker);
                }
            }
            Action::Dump { generation, pid } => self.ask_for_stacks(generation, pid),
            Action::ShowDump {
                generation,
                number,
                pid,
                client,
            } => self.show_stacks(generation, (number, pid), client),
            Action::Reopen => self.reopen_logs(),
            Action::LeaveBecause(reason) => last_words::leave_because(&reason),
            Action::StartHeir => self.start_heir(),
            Action::EndHeir => self.succession.end_heir(),
            Action::DropHeir => {
                self.present.figures.attempted(Attempt::UpgradeFailed);
                self.succession.drop_heir();
            }
            Action::Reply { client, outcome } => self.tell(client, &CtlReply::of(outcome)),
            Action::Announce(news) => self.announce(news),
            Action::Log(Severity::Info, message) => info!("{message}"),
            Action::Log(Severity::Warning, message) => warn!("{message}"),
            Action::Log(Severity::Error, message) => error!("{message}"),
            Action::Exit(code) => {
                self.hook(Hook::Exit);
                let doors = std::mem::take(&mut self.doors);
                let listeners = self.succession.ours_alone(doors);
                return Some(Role::Master { code, listeners });
            }
        }
        None
    }

    /// A signal that cannot be sent is no reason to give up the server.
    pub(super) fn kill(&self, pid: i32, signal: i32) {
        // The child may have been reaped already: the step hears its last reports before its end.
        let is_its_end = |event: &Event| matches!(event, Event::Reaped(dead, _) if *dead == pid);
        if !self.events.iter().any(is_its_end)
            && let Err(error) = child::send_signal(pid, signal)
        {
            error!("process {pid} is not sent signal {signal}: {error}");
        }
    }

    fn tell_acceptor(&mut self, generation: u32, message: ToAcceptor) {
        self.see_to_doors(generation, &message);
        let house = self.houses.get_mut(&generation);
        if let Some(link) = house.and_then(|house| house.acceptor.as_mut()) {
            link.outbox.send(message);
        }
    }

    /// A worker that is to be forked gets a channel of its own, by which the master knows it.
    fn tell_template(&mut self, generation: u32, message: ToTemplate) {
        let Some(house) = self.houses.get_mut(&generation) else {
            return;
        };
        let (worker, number, becomes) = match message {
            ToTemplate::Fork { worker, number } => (worker, number, false),
            ToTemplate::Become { worker, number } => (worker, number, true),
            ToTemplate::GoOver | ToTemplate::Reopen => {
                if let Some(link) = &mut house.template {
                    link.outbox.send(message);
                }
                return;
            }
        };
        // A worker is wanted, so the app is called as this house is made for it.
        self.other = OtherHouse::Over;
        let known = house.template.as_ref().map(Link::pid);
        let known = known.filter(|_| becomes);
        match Channel::pair() {
            Ok((ours, theirs)) => {
                let post = Post::new(worker.epoch, number, ours, known);
                house.posts.insert(worker.index, post);
                if let Some(link) = &mut house.template {
                    link.outbox.send_with(message, Some(theirs.into()));
                }
            }
            Err(error) => {
                error!("worker {number} cannot be given a channel to the master: {error}");
                if let Some(pid) = known {
                    self.kill(pid, signal::SIGKILL);
                    return;
                }
                let said = FromTemplate::NotForked(worker);
                self.events
                    .push_back(Event::TemplateSaid { generation, said });
            }
        }
    }

    fn tell_scribe(&mut self, generation: u32, message: ToScribe) {
        let house = self.houses.get_mut(&generation);
        if let Some(link) = house.and_then(|house| house.scribe.as_mut()) {
            link.outbox.send(message);
        }
    }

    /// The master's log lines go to the scribe of the house that serves or is to, as long as that scribe does its work; otherwise to the log itself,
    /// so that the operator can read what becomes of a scribe that is lost.
    pub(super) fn choose_log(&mut self) {
        let generation = self.present.generation;
        let is_there = self.master.has_ready_scribe(generation);
        let through = is_there.then_some(generation);
        if self.logs_through == through {
            return;
        }
        self.logs_through = through;
        log::go_directly();
        if !is_there {
            return;
        }
        match self.present.log_channels.as_ref().map(LogChannels::writer) {
            Some(Ok(writer)) => log::go_through(writer, true),
            Some(Err(error)) => error!("the scribe cannot be written to: {error}"),
            None => {}
        }
    }

    /// The acceptor reopens the access log itself, as the user that it has become; so the file must be there.
    fn reopen_logs(&self) {
        log::reopen();
        // A process that waits for the start of a daemon hears of it here: while it waits, no other command reopens the logs.
        self.launcher.tell(exit_code::FINE);
        let accesslog = self.settings().accesslog.as_deref();
        let owner = self
            .present
            .identities
            .of_access_log(self.present.log_channels.is_some());
        if let Err(error) = log::create(accesslog, owner) {
            error!("the access log cannot be created: {error}");
        }
    }

    pub(super) fn built(
        &mut self,
        generation: u32,
        built: Result<HouseResources, String>,
        template: Option<i32>,
    ) {
        let plan = built.map(|resources| {
            let plan = resources.plan();
            let is_the_server = !self.master.has_served();
            if is_the_server {
                self.present = Rc::clone(&resources.common);
            }
            self.houses.insert(generation, resources);
            plan
        });
        self.events.push_front(Event::HouseBuilt {
            generation,
            plan,
            template,
        });
    }

    /// Reads the configuration again and makes what a house needs.
    fn build(&mut self, generation: u32) -> Result<HouseResources, String> {
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
            // As the app is now, it most likely will be.
            settings.taken_for(self.settings().is_asgi())?
        } else {
            settings
        };
        let present = self.houses.get(&self.present.generation);
        let inherited = present.map(|house| listeners::clones(&house.listeners));
        let inherited = inherited.transpose().map_err(|error| error.to_string())?;
        (self.check_settings)(&settings)?;
        stanchion_generation::identities::find(&settings)?;
        let listeners = listeners::open(&settings, inherited.unwrap_or_default())?;
        self.furnish(generation, settings, listeners, None)
    }

    /// Makes what a house needs, with the settings of another one, for an app that is called by the other interface.
    pub(super) fn rebuild(
        &mut self,
        generation: u32,
        first: u32,
    ) -> Result<HouseResources, String> {
        let first = self.houses.get(&first);
        let first = first.ok_or("the house that was made first is gone")?;
        let settings = first.common.settings.clone();
        let is_asgi = settings.is_asgi();
        let settings = settings.taken_for(!is_asgi)?;
        let listeners = listeners::clones(&first.listeners).map_err(|error| error.to_string())?;
        let spool = Rc::clone(&first.spool);
        self.furnish(generation, settings, listeners, Some(spool))
    }

    fn furnish(
        &mut self,
        generation: u32,
        settings: Settings,
        listeners: Vec<Listener>,
        spool: Option<Rc<SpoolDir>>,
    ) -> Result<HouseResources, String> {
        let before = Before {
            figures: Arc::clone(&self.present.figures),
            ticket_keys: Arc::clone(&self.present.ticket_keys),
            departed: self.departed,
            others: self.houses.values().map(HouseResources::tally).collect(),
            spool,
        };
        let has_scribe = self.host.has_scribe();
        HouseResources::build(generation, (settings, has_scribe), listeners, &before).map_err(
            |(error, listeners)| {
                self.remove_files_of_others(listeners);
                format!(
                    "the kernel refused what the server needs: {}",
                    cure::told(&error)
                )
            },
        )
    }

    /// Removes the socket files of listeners that the present house does not have.
    fn remove_files_of_others(&self, listeners: Vec<Listener>) {
        let kept = self.houses.get(&self.present.generation);
        let kept = kept.map_or(&self.doors[..], |house| &house.listeners);
        let others = listeners::not_among(listeners, kept);
        listeners::remove_files(&others);
    }

    /// Settings that a running server cannot change are named.
    fn name_what_stays(&self, new: &Settings) {
        let kept = kept_by_a_reload(self.settings(), new);
        if !kept.is_empty() {
            warn!(
                "reload: a change of {} takes effect when the server is restarted",
                kept.join(", ")
            );
        }
    }

    fn drop_house(&mut self, generation: u32) {
        let Some(mut house) = self.houses.remove(&generation) else {
            return;
        };
        house.close_logs();
        house.settle();
        self.departed += house.common.tally.read();
        let listeners = std::mem::take(&mut house.listeners);
        if generation == self.present.generation {
            self.doors = listeners;
            return;
        }
        self.remove_files_of_others(listeners);
    }

    fn fork_acceptor(&mut self, generation: u32) -> Option<Role> {
        let alone = threads::refuse(self.host);
        let has_threads = alone.is_err();
        let house = self.houses.get_mut(&generation)?;
        house.settle();
        // The acceptor runs no Python, so no interpreter needs to know of this fork.
        let fork = || fork_with_channel(self.open_files, process::fork_single_threaded);
        let pid = match alone
            .map_err(|threads| of_threads(&threads))
            .and_then(|()| fork())
        {
            Ok((Fork::Child, orders)) => {
                return Some(Role::Acceptor {
                    common: house.common_for_life(),
                    listeners: std::mem::take(&mut house.listeners),
                    orders,
                });
            }
            Ok((Fork::Parent(pid), channel)) => {
                house.acceptor = Some(Link::new(pid, channel));
                house.tell_of_lent(None);
                Some(pid)
            }
            Err(error) => {
                error!("the acceptor cannot be forked: {}", cure::told(&error));
                house.acceptor = None;
                None
            }
        };
        if has_threads {
            self.events.push_front(Event::Childless { generation });
        }
        // Before all other events, so that those find the child known.
        self.events
            .push_front(Event::AcceptorForked { generation, pid });
        None
    }

    fn fork_template(&mut self, generation: u32, may_preload: bool) -> Option<Role> {
        let alone = threads::refuse(self.host);
        if may_preload {
            self.make_other(generation);
        }
        let house = self.houses.get_mut(&generation)?;
        let mut fork = || fork_with_channel(self.open_files, || self.host.fork());
        let pid = match alone
            .map_err(|threads| of_threads(&threads))
            .and_then(|()| fork())
        {
            Ok((Fork::Child, orders)) => {
                return Some(Role::Template {
                    other: self.other.common(),
                    common: house.common_for_life(),
                    orders,
                    may_preload,
                });
            }
            Ok((Fork::Parent(pid), channel)) => {
                house.template = Some(Link::new(pid, channel));
                Some(pid)
            }
            Err(error) => {
                error!("the template cannot be forked: {}", cure::told(&error));
                None
            }
        };
        self.events
            .push_front(Event::TemplateForked { generation, pid });
        None
    }

    fn fork_scribe(&mut self, generation: u32) -> Option<Role> {
        let alone = threads::refuse(self.host);
        let house = self.houses.get_mut(&generation)?;
        let mut fork = || fork_with_channel(self.open_files, || self.host.fork());
        let pid = match alone
            .map_err(|threads| of_threads(&threads))
            .and_then(|()| fork())
        {
            Ok((Fork::Child, orders)) => {
                let common = house.common_for_life();
                return Some(Role::Scribe { common, orders });
            }
            Ok((Fork::Parent(pid), channel)) => {
                house.scribe = Some(Link::new(pid, channel));
                Some(pid)
            }
            Err(error) => {
                error!("the scribe cannot be forked: {}", cure::told(&error));
                None
            }
        };
        self.events
            .push_front(Event::ScribeForked { generation, pid });
        None
    }

    fn ask_for_stacks(&self, generation: u32, pid: i32) {
        if let Some(house) = self.houses.get(&generation)
            && let Err(error) = house.common.dumps.clear()
        {
            warn!("the stacks of worker {pid} are mixed with earlier ones: {error}");
        }
        self.kill(pid, signal::DUMP);
    }

    /// Shows the stacks to the client that asked for them, or else in the log.
    fn show_stacks(
        &mut self,
        generation: u32,
        (number, pid): (u16, i32),
        client: Option<ClientId>,
    ) {
        let stacks = self.stacks(generation);
        match client {
            None => {
                let stacks = stacks::of_seats(&stacks);
                let who = called(number, Some(pid));
                error!(target: log::CRITICAL, "the stacks of {who}:\n{stacks}");
            }
            Some(client) => self.keep_stacks(
                client,
                WorkerStacks {
                    number,
                    pid,
                    generation,
                    stacks,
                },
            ),
        }
    }

    fn stacks(&self, generation: u32) -> String {
        let house = self.houses.get(&generation);
        let text = match house.map(|house| house.common.dumps.read(DUMP_BYTES_MAX)) {
            Some(Ok(text)) if !text.is_empty() => text,
            Some(Err(error)) => format!("they cannot be read: {error}"),
            _ => "it has not written down any".to_owned(),
        };
        text.trim_end().to_owned()
    }
}
