//! The pure step, tested without forking: events in, actions out, each written as a short line.

mod boot;
mod death;
mod leave;
mod numbers;
mod phases;
mod random;
mod reload;

use stanchion_sys::process::Exit;
use stanchion_sys::signal::{SIGHUP, SIGINT, SIGKILL, SIGTERM};

use super::event::{Action, Event, Plan, Severity};
use super::step::Master;
use crate::messages::{ToAcceptor, ToMaster, ToTemplate};

const ACCEPTOR: i32 = 10;
const TEMPLATE: i32 = 11;
const NEXT: i32 = 12;
/// The workers of [`Tree::serving`], in their first tenure.
const WORKERS: [i32; 2] = [100, 101];

const KILLED: Exit = Exit::Signal(SIGKILL);
const LEFT: Exit = Exit::Code(0);

const PLAN: Plan = Plan {
    workers: 2,
    workers_max: 3,
    graceful_ms: 5_000,
};

/// A master, and the time it is told.
struct Tree {
    master: Master,
    now_ms: u64,
}

impl Tree {
    fn new(plan: Plan) -> Self {
        Self {
            master: Master::new(plan),
            now_ms: 1_000,
        }
    }

    /// Acceptor and template were forked.
    fn booting() -> Self {
        let mut tree = Self::new(PLAN);
        tree.play([
            Event::Started,
            Event::AcceptorForked(Some(ACCEPTOR)),
            Event::TemplateForked {
                generation: 1,
                pid: Some(TEMPLATE),
            },
        ]);
        tree
    }

    /// Two workers are asked for.
    fn loaded() -> Self {
        let mut tree = Self::booting();
        tree.play([
            Event::Report(ToMaster::AcceptorReady),
            Event::Report(ToMaster::TemplateReady { generation: 1 }),
        ]);
        tree
    }

    /// Two workers serve.
    fn serving() -> Self {
        let mut tree = Self::loaded();
        for (worker, pid) in (0..).zip(WORKERS) {
            tree.play([forked(worker, 1, pid), ready(worker, 1, pid)]);
        }
        tree
    }

    /// As serving, and a new template is loading the second generation.
    fn reloading() -> Self {
        let mut tree = Self::serving();
        tree.play([
            Event::Signal(SIGHUP),
            Event::TemplateForked {
                generation: 2,
                pid: Some(NEXT),
            },
        ]);
        tree
    }

    fn draining() -> Self {
        let mut tree = Self::serving();
        tree.play([Event::Signal(SIGTERM)]);
        tree
    }

    fn stopping() -> Self {
        let mut tree = Self::serving();
        tree.play([Event::Signal(SIGINT)]);
        tree
    }

    fn gone() -> Self {
        let mut tree = Self::stopping();
        tree.play([ACCEPTOR, TEMPLATE, WORKERS[0], WORKERS[1]].map(|pid| Event::Reaped(pid, LEFT)));
        tree
    }

    fn play(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.step(event);
        }
    }

    fn step(&mut self, event: Event) -> Vec<String> {
        let actions = self.master.step(self.now_ms, event);
        if let Some(due_ms) = self.master.next_tick_ms() {
            assert!(
                due_ms > self.now_ms,
                "the loop would spin: {:?}",
                self.master
            );
        }
        actions.iter().map(line).collect()
    }

    #[track_caller]
    fn expect(&mut self, event: Event, actions: &[&str]) {
        let shown = format!("{event:?}");
        assert_eq!(self.step(event), actions, "after {shown}");
    }

    /// Until the next tick that the master asks for, which comes after this long.
    #[track_caller]
    fn expect_tick_after(&mut self, wait_ms: u64, actions: &[&str]) {
        assert_eq!(self.master.next_tick_ms(), Some(self.now_ms + wait_ms));
        self.now_ms += wait_ms - 1;
        self.expect(Event::Tick, &[]);
        self.now_ms += 1;
        self.expect(Event::Tick, actions);
    }
}

fn forked(worker: u16, tenure: u16, pid: i32) -> Event {
    Event::Report(ToMaster::Forked {
        worker,
        tenure,
        pid: Some(pid),
    })
}

fn not_forked(worker: u16, tenure: u16) -> Event {
    Event::Report(ToMaster::Forked {
        worker,
        tenure,
        pid: None,
    })
}

fn ready(worker: u16, tenure: u16, pid: i32) -> Event {
    Event::Report(ToMaster::WorkerReady {
        worker,
        tenure,
        pid,
    })
}

fn template_ready(generation: u32) -> Event {
    Event::Report(ToMaster::TemplateReady { generation })
}

fn changed() -> Event {
    Event::Report(ToMaster::Changed {
        path: "app.py".to_owned(),
    })
}

/// An action in short; a worker is written as index/tenure=pid.
fn line(action: &Action) -> String {
    match action {
        Action::ForkAcceptor => "fork acceptor".to_owned(),
        Action::ForkTemplate { generation } => format!("fork template {generation}"),
        Action::TellAcceptor(ToAcceptor::WorkerReady {
            worker,
            tenure,
            pid,
        }) => {
            format!("acceptor: ready {worker}/{tenure}={pid}")
        }
        Action::TellAcceptor(ToAcceptor::WorkerGone {
            worker,
            tenure,
            gone,
        }) => {
            format!("acceptor: gone {worker}/{tenure} {gone:?}")
        }
        Action::TellAcceptor(ToAcceptor::Drain { timeout_ms }) => {
            format!("acceptor: drain {timeout_ms}")
        }
        Action::TellAcceptor(ToAcceptor::Reopen) => "acceptor: reopen".to_owned(),
        Action::TellAcceptor(ToAcceptor::Quit) => "acceptor: quit".to_owned(),
        Action::TellTemplate {
            generation,
            message: ToTemplate::Fork { worker, tenure },
        } => {
            format!("template {generation}: fork {worker}/{tenure}")
        }
        Action::TellTemplate {
            generation,
            message: ToTemplate::Reopen,
        } => {
            format!("template {generation}: reopen")
        }
        Action::TellTemplate {
            generation,
            message: ToTemplate::Quit,
        } => {
            format!("template {generation}: quit")
        }
        Action::DropTemplate { generation } => format!("drop template {generation}"),
        Action::Kill(pid, SIGTERM) => format!("TERM {pid}"),
        Action::Kill(pid, SIGKILL) => format!("KILL {pid}"),
        Action::Kill(pid, signal) => format!("signal {signal} to {pid}"),
        Action::Vacate(worker) => format!("vacate {worker}"),
        Action::Log(Severity::Info, message) => format!("info: {message}"),
        Action::Log(Severity::Warning, message) => format!("warning: {message}"),
        Action::Log(Severity::Error, message) => format!("error: {message}"),
        Action::Exit(code) => format!("exit {code}"),
    }
}
