//! The control socket's place in the loop: what clients ask for becomes a command, or is answered from
//! what is there.

use std::path::Path;

use stanchion_master::{ClientId, Command, Event, House, is_stopped};
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::{memory, process};
use tracing::warn;

use super::gather::REOPENED_LATER;
use super::{Loop, now_ms};
use crate::control::{
    Control, CtlReply, Data, Request, SeatTotals, Status, WorkerSeats, WorkerStacks, WorkerStatus,
};
use stanchion_generation::tally::{EventCounts, RequestCounts};
use stanchion_settings::SignalStyle;

impl Loop<'_> {
    /// Handles the requests of clients of the control socket.
    pub(super) fn gather_requests(&mut self) {
        let Some(control) = &mut self.control else {
            return;
        };
        for (client, request) in control.gather(now_ms()) {
            let command = match request {
                Request::Status => {
                    let status = Data::Status(Box::new(self.status()));
                    self.tell(client, &CtlReply::with(status));
                    continue;
                }
                Request::Workers => {
                    let workers = Data::Workers(self.workers());
                    self.tell(client, &CtlReply::with(workers));
                    continue;
                }
                Request::Reopen if self.launcher.is_waiting() => {
                    self.tell(client, &CtlReply::of(Ok(REOPENED_LATER.to_owned())));
                    continue;
                }
                Request::Reload => Command::Reload,
                Request::Upgrade => Command::Upgrade,
                Request::Scale { workers } => Command::Scale(workers),
                Request::Drain => Command::Drain,
                Request::Reopen => Command::Reopen,
                Request::Quit => Command::Quit,
                Request::Dump => Command::Dump,
            };
            self.events.push_back(Event::Commanded {
                command,
                by: "ctl",
                client: Some(client),
            });
        }
    }

    pub(super) fn tell(&mut self, client: ClientId, reply: &CtlReply) {
        if let Some(control) = &mut self.control {
            control.reply(client, reply);
        }
    }

    pub(super) fn keep_stacks(&mut self, client: ClientId, stacks: WorkerStacks) {
        if let Some(control) = &mut self.control {
            control.add_stacks(client, stacks);
        }
    }

    /// The door is ours now, and so is the control socket of the master before us.
    pub(super) fn take_over_control(&mut self) {
        let control = self.settings().control.clone();
        if self.control.is_none()
            && let Some(control) = control
        {
            match Control::take_over(control.path()) {
                Ok(control) => self.control = Some(control),
                Err(error) => warn_of(control.path(), &error),
            }
        }
    }

    fn status(&self) -> Status {
        let house = self.master.main_house();
        let retiring = self.master.houses().filter(|house| house.is_leaving());
        let listeners = self.houses.get(&self.present.generation);
        let listeners = listeners.into_iter().flat_map(|house| &house.listeners);
        let signals = match self.settings().signals {
            SignalStyle::Gunicorn => "gunicorn",
            SignalStyle::Unicorn => "unicorn",
        };
        let mut counts = self.departed;
        for house in self.houses.values() {
            counts += house.common.tally.read();
        }
        Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: process::pid(),
            uptime_s: (monotonic_us() - self.present.figures.started_us) / 1_000_000,
            phase: self.master.phase(),
            generation: self.master.main_generation().unwrap_or_default(),
            retiring: retiring.map(|house| house.generation).collect(),
            listeners: listeners.map(|one| one.address().to_string()).collect(),
            workers_wanted: house.map_or(0, |house| house.target),
            workers_ready: house.map_or(0, |house| house.workers.ready() as u16),
            seats: house.map_or_else(SeatTotals::default, |house| self.seats_of(house)),
            acceptor_still_s: self.watch.still_ms().map(|still_ms| still_ms / 1_000),
            stopped: self.stopped.named().map(str::to_owned).collect(),
            signals: signals.to_owned(),
            requests: RequestCounts(counts),
            events: EventCounts(counts),
        }
    }

    fn seats_of(&self, house: &House) -> SeatTotals {
        let Some(resources) = self.houses.get(&house.generation) else {
            return SeatTotals::default();
        };
        let (exchange, now_us) = (&resources.common.exchange, monotonic_us());
        let present = house.workers.present();
        SeatTotals::of(present.map(|one| WorkerSeats::of(exchange, one.worker.index, now_us)))
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let now_us = monotonic_us();
        let mut workers = Vec::new();
        for house in self.master.houses() {
            let Some(resources) = self.houses.get(&house.generation) else {
                continue;
            };
            for worker in house.workers.all() {
                let pid = worker.pid;
                let exchange = &resources.common.exchange;
                workers.push(WorkerStatus {
                    number: worker.number,
                    pid,
                    generation: house.generation,
                    stage: worker.stage,
                    stopped: pid.is_some_and(|pid| is_stopped(process::state(pid))),
                    memory_bytes: pid.and_then(memory::proportional_bytes),
                    seats: WorkerSeats::of(exchange, worker.index, now_us),
                });
            }
        }
        workers
    }
}

fn warn_of(path: &Path, error: &std::io::Error) {
    warn!(
        "the control socket {} could not be taken over, commands are taken by signals only: {error}",
        path.display()
    );
}
