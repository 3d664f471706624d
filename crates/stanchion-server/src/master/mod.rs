//! The master: waits for signals, reports and dead children, asks [`step`] what follows, and does
//! it. It never imports the app, never sees a request, never starts a thread.

mod acceptor;
mod backoff;
mod departed;
mod event;
mod outbox;
mod stage;
mod step;
mod templates;
#[cfg(test)]
mod tests;
mod workers;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd;

use stanchion_sys::channel::{Channel, poll_readable};
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::process::{self, Fork};
use stanchion_sys::signal::{self, SignalPipe};
use tracing::{error, info, warn};

use crate::host::Host;
use crate::messages::{self, Incoming, ToAcceptor, ToMaster, ToTemplate};
use crate::tree::Common;
use event::{Action, Event, Plan, Severity};
use outbox::Outbox;
use step::Master;

/// How often the master looks at the scoreboard for requests past their timeout. Their deadlines
/// are exact; this is how late it may notice.
const OVERDUE_CHECK_MS: u64 = 100;
/// How soon it tries again to send what did not fit into a channel.
const SEND_AGAIN_MS: u64 = 10;
/// How long it sleeps at most.
const SLEEP_MS_MAX: u64 = 60_000;

/// Who we are when [`run`] returns: every fork comes back through it.
pub(crate) enum Role {
    /// The master, at the end, with its exit code.
    Master(i32),
    /// A newborn acceptor, and where its orders come from.
    Acceptor(Channel),
    /// A newborn template.
    Template {
        /// Which generation of the code it is to load.
        generation: u32,
        /// Where its orders come from.
        orders: Channel,
    },
}

/// The signals the master takes.
const SIGNALS: [i32; 10] = [
    signal::SIGTERM,
    signal::SIGINT,
    signal::SIGQUIT,
    signal::SIGHUP,
    signal::SIGTTIN,
    signal::SIGTTOU,
    signal::SIGUSR1,
    signal::SIGUSR2,
    signal::SIGWINCH,
    signal::SIGCHLD,
];

struct Loop<'h> {
    common: &'static Common,
    host: &'h mut dyn Host,
    master: Master,
    signals: SignalPipe,
    acceptor: Option<Outbox<ToAcceptor>>,
    /// By generation: the present one, and during a reload the next.
    templates: BTreeMap<u32, Outbox<ToTemplate>>,
    events: VecDeque<Event>,
}

/// Runs the tree until it has ended, in the master; in each child it returns right after the fork.
pub(crate) fn run(common: &'static Common, host: &mut dyn Host) -> io::Result<Role> {
    process::set_name(c"stanchion");
    process::become_subreaper()?;
    let settings = &common.settings;
    let plan = Plan {
        workers: settings.workers as u16,
        workers_max: common.workers_max,
        graceful_ms: settings.graceful_timeout.duration().as_millis() as u64,
    };
    let mut this = Loop {
        common,
        host,
        master: Master::new(plan),
        signals: SignalPipe::install(&SIGNALS)?,
        acceptor: None,
        templates: BTreeMap::new(),
        events: VecDeque::from([Event::Started]),
    };
    loop {
        while let Some(event) = this.events.pop_front() {
            for action in this.master.step(now_ms(), event) {
                if let Some(role) = this.perform(action)? {
                    return Ok(role);
                }
            }
        }
        this.send_again();
        this.wait()?;
        this.gather()?;
    }
}

/// Forks, with a channel between the two; each gets its end.
fn fork_with_channel(fork: impl FnOnce() -> io::Result<Fork>) -> io::Result<(Fork, Channel)> {
    let (ours, theirs) = Channel::pair()?;
    Ok(match fork()? {
        Fork::Child => (Fork::Child, theirs),
        parent @ Fork::Parent(_) => (parent, ours),
    })
}

fn now_ms() -> u64 {
    monotonic_us() / 1_000
}

impl Loop<'_> {
    fn wait(&self) -> io::Result<()> {
        let unsent = self.acceptor.as_ref().is_some_and(Outbox::has_unsent)
            || self.templates.values().any(Outbox::has_unsent);
        let longest_ms = if unsent {
            SEND_AGAIN_MS
        } else if self.common.settings.timeout.as_duration().is_some() {
            OVERDUE_CHECK_MS
        } else {
            SLEEP_MS_MAX
        };
        let due_ms = self
            .master
            .next_tick_ms()
            .map_or(longest_ms, |due| due.saturating_sub(now_ms()));
        // Rounded up, so that what is due then is due.
        let timeout_ms = i32::try_from(due_ms.min(longest_ms) + 1).unwrap_or(i32::MAX);
        poll_readable(
            &[self.signals.as_fd(), self.common.reports.master_end.as_fd()],
            timeout_ms,
        )?;
        Ok(())
    }

    /// Collects what happened. Reports come before deaths, since what a child said, it said alive;
    /// so the dead are collected first, as one may report and die between the two.
    fn gather(&mut self) -> io::Result<()> {
        let signals = self.signals.take();
        let mut dead = Vec::new();
        while let Some((pid, exit)) = process::reap()? {
            dead.push(Event::Reaped(pid, exit));
        }
        loop {
            match messages::receive::<ToMaster>(&self.common.reports.master_end) {
                Ok(Incoming::Message(report)) => self.events.push_back(Event::Report(report)),
                Ok(Incoming::Nothing | Incoming::Closed) => break,
                Err(error) => warn!("a report that makes no sense was dropped: {error}"),
            }
        }
        self.events.extend(dead);
        for signal in signals
            .into_iter()
            .filter(|signal| *signal != signal::SIGCHLD)
        {
            self.events.push_back(Event::Signal(signal));
        }
        let threads = self.common.settings.threads as u16;
        let now_us = monotonic_us();
        for seat in 0..self.common.exchange.geometry().seats as u16 {
            if let Some(ran_us) = self.common.exchange.overdue_us(seat, now_us) {
                let ran_ms = ran_us / 1_000;
                self.events.push_back(Event::Overdue {
                    worker: seat / threads,
                    ran_ms,
                });
            }
        }
        self.events.push_back(Event::Tick);
        Ok(())
    }

    fn perform(&mut self, action: Action) -> io::Result<Option<Role>> {
        match action {
            Action::ForkAcceptor => {
                // The acceptor knows no Python, so no interpreter has to be told of this fork.
                let pid = match fork_with_channel(process::fork_single_threaded) {
                    Ok((Fork::Child, orders)) => return Ok(Some(Role::Acceptor(orders))),
                    Ok((Fork::Parent(pid), channel)) => {
                        self.acceptor = Some(Outbox::new(channel));
                        Some(pid)
                    }
                    Err(error) => {
                        error!("the acceptor cannot be forked: {error}");
                        self.acceptor = None;
                        None
                    }
                };
                // Next of all, so that whatever else has happened finds the child known.
                self.events.push_front(Event::AcceptorForked(pid));
            }
            Action::ForkTemplate { generation } => {
                let pid = match fork_with_channel(|| self.host.fork()) {
                    Ok((Fork::Child, orders)) => {
                        return Ok(Some(Role::Template { generation, orders }));
                    }
                    Ok((Fork::Parent(pid), channel)) => {
                        self.templates.insert(generation, Outbox::new(channel));
                        Some(pid)
                    }
                    Err(error) => {
                        error!("a template cannot be forked: {error}");
                        None
                    }
                };
                self.events
                    .push_front(Event::TemplateForked { generation, pid });
            }
            Action::DropTemplate { generation } => {
                self.templates.remove(&generation);
            }
            Action::TellAcceptor(message) => {
                if let Some(outbox) = &mut self.acceptor {
                    outbox.send(message);
                }
            }
            Action::TellTemplate {
                generation,
                message,
            } => {
                if let Some(outbox) = self.templates.get_mut(&generation) {
                    outbox.send(message);
                }
            }
            Action::Kill(pid, signal) => process::kill(pid, signal)?,
            Action::Vacate(worker) => {
                let threads = self.common.settings.threads as u16;
                for seat in worker * threads..(worker + 1) * threads {
                    self.common.exchange.vacate(seat);
                }
            }
            Action::Log(Severity::Info, message) => info!("{message}"),
            Action::Log(Severity::Warning, message) => warn!("{message}"),
            Action::Log(Severity::Error, message) => error!("{message}"),
            Action::Exit(code) => return Ok(Some(Role::Master(code))),
        }
        Ok(None)
    }

    fn send_again(&mut self) {
        self.acceptor.iter_mut().for_each(Outbox::send_again);
        self.templates.values_mut().for_each(Outbox::send_again);
    }
}
