//! Gathers what has happened: signals, reports, deaths, and what the scoreboard and the kernel show.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use stanchion_master::{Command, Generation, MasterEvent, ProcessLook, command_of};
use stanchion_sys::channel::poll_readable;
use stanchion_sys::process::{self, Exit};
use stanchion_sys::signal;
use tracing::{debug, info};

use super::links::Links;
use super::reports::{Children, ReportsHeard};
use super::watches::Watches;
use super::{Loop, now_ms, status};
use crate::control::{CtlReply, CtlRequest, Data};
use stanchion_generation::messages::ToAcceptor;
use stanchion_log::exit_code;

/// How many children the master collects at once, as every orphan of the app becomes one.
const REAPED_PER_TURN_MAX: usize = 256;
/// How soon it tries again to send what did not fit into a channel.
const SEND_AGAIN_MS: u64 = 10;
/// The answer of a daemon that starts: until it serves, its standard streams are those of the process that waits for its start, and reopening the
/// logs would leave them.
pub(super) const REOPENED_LATER: &str = "the logs are reopened once the server serves";
/// How long it sleeps at most.
const SLEEP_MS_MAX: u64 = 60_000;

impl Loop<'_> {
    pub(super) fn wait(&self) -> io::Result<()> {
        let links = || self.generations.iter().map(|generation| &generation.links);
        let longest_ms = if self.has_more_dead {
            0
        } else if links().any(Links::has_unsent) {
            SEND_AGAIN_MS
        } else {
            Watches::every_ms(&self.generations).unwrap_or(SLEEP_MS_MAX)
        };
        let now_ms = now_ms();
        let listens_again = links().filter_map(|links| links.listens_again_ms(now_ms));
        let due_ms = [
            self.master.next_tick_ms(),
            self.desk.due_ms(),
            self.manager.due_ms(),
            Some(self.watches.look_due_ms()),
            listens_again.min(),
        ];
        let due_ms = due_ms.into_iter().flatten().min();
        let due_ms = due_ms.map_or(longest_ms, |due| due.saturating_sub(now_ms));
        // Rounded up, so that what is due then is due.
        let timeout = Duration::from_millis(due_ms.min(longest_ms) + 1);
        let mut fds = vec![self.signals.as_fd()];
        fds.extend(links().flat_map(|links| links.listened_to(now_ms)));
        fds.extend(self.succession.fds());
        fds.extend(self.desk.fds());
        poll_readable(&fds, timeout)?;
        Ok(())
    }

    /// Collects events. Reports come before deaths, since a child that reported was alive; so the dead are collected first, as a child may report and
    /// die between the two. The end of a worker's channel comes after the deaths: most often it ends because the worker died.
    pub(super) fn gather(&mut self) -> io::Result<()> {
        let signals = self.signals.take();
        let heard_ms = now_ms();
        let look = self.watches.look(heard_ms);
        let mut dead = Vec::new();
        while dead.len() < REAPED_PER_TURN_MAX
            && let Some(one) = process::reap()?
        {
            dead.push(one);
        }
        self.has_more_dead = dead.len() == REAPED_PER_TURN_MAX;
        let is_due = look.is_some();
        let out_of_memory = &mut self.watches.out_of_memory;
        out_of_memory.look(heard_ms, is_due, &self.master, &mut dead);
        let pids: Vec<i32> = dead.iter().map(|&(pid, _)| pid).collect();
        let later = self.gather_reports(&pids);
        self.events.extend(self.succession.gather(&pids));
        let mode = self.generations.settings().process.signals;
        for signal in signals {
            match command_of(signal, mode) {
                // A terminal sends SIGWINCH to the processes that run in it when its size changes.
                Some(_) if signal == signal::SIGWINCH && process::is_in_terminal() => {}
                Some((Command::Reopen, by)) if self.launcher.is_waiting() => {
                    info!("{by}: {REOPENED_LATER}");
                }
                Some((command, by)) => self.events.push_back(MasterEvent::Commanded {
                    command,
                    by,
                    client: None,
                }),
                None => debug!("signal {signal} means nothing here"),
            }
        }
        for &(pid, exit) in &dead {
            if exit == Exit::Code(exit_code::SPUN) {
                let spun = &mut self.watches.spun;
                spun.note(pid, &self.master, &self.generations);
            }
        }
        // After the commands: Ctrl-C reaches workers too, and those that leave by it need no successors.
        let dead = dead.into_iter();
        self.events
            .extend(dead.map(|(pid, exit)| MasterEvent::Reaped(pid, exit)));
        self.events.extend(later);
        if let Some(look) = look {
            self.look(look);
        }
        self.manager.show_life(now_ms(), self.watches.standing());
        self.gather_requests();
        let (master, generations) = (&self.master, &mut self.generations);
        self.events.extend(self.watches.overdue.look(generations));
        let beats = self.watches.loops.look(master, generations);
        self.events.extend(beats);
        let memory = &mut self.watches.memory;
        let weighed = memory.look(now_ms(), master, generations);
        self.events.extend(weighed);
        self.events.push_back(MasterEvent::Tick { heard_ms });
        Ok(())
    }

    /// Takes the reports of children; gives the events that count only after signals: TERM may have been sent to all at once.
    fn gather_reports(&mut self, dead: &[i32]) -> Vec<MasterEvent> {
        let now_ms = now_ms();
        let mut heard = ReportsHeard::nothing(Children::new(&self.master, dead));
        for generation in self.generations.iter_mut() {
            let own = (generation.number(), generation.common.settings.app.reload);
            generation.links.hear(own, now_ms, &mut heard);
        }
        let ReportsHeard {
            events,
            listens,
            weighs,
            later,
            ..
        } = heard;
        self.events.extend(events);
        // Before the acceptor hears, from the events, that the worker is ready.
        for one in listens {
            self.generations.lend(now_ms, one, &self.succession);
        }
        for generation_number in weighs {
            self.weigh(generation_number, now_ms);
        }
        later
    }

    /// Answers an acceptor that asks for the headroom.
    fn weigh(&mut self, generation_number: u32, now_ms: u64) {
        let known = self.master.generation(generation_number);
        let resources = self.generations.get_mut(generation_number);
        let (Some(known), Some(resources)) = (known, resources) else {
            return;
        };
        if let Some(read) = resources.headroom.look(known, now_ms) {
            resources.links.tell_acceptor(ToAcceptor::Headroom(read));
        }
    }

    /// Handles the requests of clients of the control socket.
    fn gather_requests(&mut self) {
        for (client, request) in self.desk.gather(now_ms()) {
            let command = match request {
                CtlRequest::Status => {
                    let status = status::of_server(&self.master, &self.generations, &self.watches);
                    let status = Data::Status(Box::new(status));
                    self.desk.reply(client, &CtlReply::with(status));
                    continue;
                }
                CtlRequest::Workers => {
                    let workers = status::of_workers(&self.master, &self.generations);
                    let workers = Data::Workers(workers);
                    self.desk.reply(client, &CtlReply::with(workers));
                    continue;
                }
                CtlRequest::Reopen if self.launcher.is_waiting() => {
                    let later = CtlReply::of(Ok(REOPENED_LATER.to_owned()));
                    self.desk.reply(client, &later);
                    continue;
                }
                CtlRequest::Reload => Command::Reload,
                CtlRequest::Upgrade => Command::Upgrade,
                CtlRequest::Scale { workers } => Command::Scale(workers),
                CtlRequest::Auto => Command::ScaleAuto,
                CtlRequest::Drain => Command::Drain,
                CtlRequest::Reopen => Command::Reopen,
                CtlRequest::Quit => Command::Quit,
                CtlRequest::Dump => Command::Dump,
                CtlRequest::Refork => Command::Refork {
                    worker: status::warmest(&self.master, &self.generations),
                },
            };
            self.events.push_back(MasterEvent::Commanded {
                command,
                by: "ctl",
                client: Some(client),
            });
        }
    }

    /// Looks at all processes.
    fn look(&mut self, look: ProcessLook) {
        let (master, generations) = (&self.master, &self.generations);
        let now_ms = now_ms();
        let present = generations.present();
        let generation = master.generation(present.generation);
        let acceptor = generation.and_then(Generation::ready_acceptor);
        let turns = present.tally.turns();
        let blocked = self.watches.acceptor.look(look, now_ms, acceptor, turns);
        self.watches.stopped.look(master);
        let idles = self.watches.idlers.look(look, now_ms, master, generations);
        self.events.extend(idles);
        if let Some(pid) = blocked {
            self.kill(pid, signal::SIGKILL);
        }
    }
}
