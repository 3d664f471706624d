//! The pure step, tested without forking: events in, actions out, each written as a short line.

mod alone;
mod boot;
mod clients;
mod condemned;
mod death;
mod elastic;
mod interface;
mod leave;
mod numbers;
mod random;
mod recycling;
mod refork;
mod reload;
mod scribe;
mod situations;
mod upgrade;

use stanchion_sys::process::Exit;
use stanchion_sys::signal::{
    SIGABRT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
    SIGWINCH,
};

use super::commands::command_of;
use super::event::{
    Action, ChildKind, Command, GenerationEvent, GenerationPlan, MasterEvent, News, Observation,
    ReforkPlan, Severity,
};
use super::step::Master;
use crate::event::ClientId;
use stanchion_generation::figures::Cause;
use stanchion_generation::messages::{
    FromAcceptor, FromTemplate, FromWorker, ToAcceptor, ToScribe, ToTemplate, WorkerRef,
};
use stanchion_settings::{BesideOneWorker, SignalStyle};

/// All that children had sent was heard.
const TICK: MasterEvent = MasterEvent::Tick { heard_ms: u64::MAX };

const KILLED: Exit = Exit::Signal(SIGKILL);
const LEFT: Exit = Exit::Code(0);
const BROKEN: Exit = Exit::Code(4);

const HEIR: i32 = 50;
/// A client of the control socket.
const CLIENT: ClientId = 7;

const PLAN: GenerationPlan = GenerationPlan {
    workers: 2,
    elastic_max: None,
    workers_max: 3,
    graceful_ms: 5_000,
    drain_delay_ms: 0,
    memory_max: 100 << 20,
    memory_hard_max: 200 << 20,
    lifetime_ms: 0,
    lifetime_jitter_ms: 0,
    has_scribe: false,
    beside_one: BesideOneWorker::Template,
    is_event_loop: false,
    is_guess: false,
    refork: ReforkPlan::ByCommand,
};

/// Balancers have three seconds to notice that the server leaves.
const LATER: GenerationPlan = GenerationPlan {
    drain_delay_ms: 3_000,
    ..PLAN
};

/// The app is to decide by which interface it is called.
const GUESS: GenerationPlan = GenerationPlan {
    is_guess: true,
    ..PLAN
};

/// The first children of each generation; those that follow them get other numbers in each test.
fn acceptor(generation_number: u32) -> i32 {
    generation_number.cast_signed() * 10
}

fn template(generation_number: u32) -> i32 {
    acceptor(generation_number) + 1
}

fn worker(generation_number: u32, index: u16) -> i32 {
    generation_number.cast_signed() * 100 + i32::from(index)
}

/// How to get there.
type Situation = fn() -> Tree;

/// A master and its time.
struct Tree {
    master: Master,
    now_ms: u64,
}

impl Tree {
    fn new() -> Self {
        Self {
            master: Master::default(),
            now_ms: 1_000,
        }
    }

    /// Acceptor and template were forked.
    fn booting_with(plan: GenerationPlan) -> Self {
        let mut tree = Self::new();
        tree.play([started(plan)]);
        tree.fork(1);
        tree
    }

    /// The same, beside a master before this one.
    fn heir_with(plan: GenerationPlan, scaled_to: Option<u16>) -> Self {
        let mut tree = Self::new();
        tree.play([MasterEvent::Started {
            plan,
            is_heir: true,
            scaled_to,
            is_pinned: false,
            range_before: None,
        }]);
        tree.fork(1);
        tree
    }

    fn booting() -> Self {
        Self::booting_with(PLAN)
    }

    /// Its workers are asked for.
    fn loaded_with(plan: GenerationPlan) -> Self {
        let mut tree = Self::booting_with(plan);
        tree.load(1);
        tree
    }

    fn loaded() -> Self {
        Self::loaded_with(PLAN)
    }

    /// Its workers serve.
    fn serving_with(plan: GenerationPlan) -> Self {
        let mut tree = Self::loaded_with(plan);
        tree.fill(1, plan.workers);
        tree
    }

    fn serving() -> Self {
        Self::serving_with(PLAN)
    }

    /// As serving, and acceptor and template of another generation boot, which a client asked for.
    fn building() -> Self {
        let mut tree = Self::serving();
        tree.play([ask(Command::Reload), built(2, PLAN)]);
        tree.fork(2);
        tree
    }

    /// The second generation serves, and the first one may still accept clients.
    fn taking_over() -> Self {
        let mut tree = Self::building();
        tree.load(2);
        tree.fill(2, 2);
        tree
    }

    /// The second generation serves, the first one has those that were there.
    fn retiring() -> Self {
        let mut tree = Self::taking_over();
        tree.play([retired(1)]);
        tree
    }

    /// As serving, and another master boots, which a client asked for.
    fn upgrading() -> Self {
        let mut tree = Self::serving();
        tree.play([ask(Command::Upgrade), MasterEvent::HeirStarted(Some(HEIR))]);
        tree
    }

    /// The other master serves, and this one may still accept clients.
    fn handing_over() -> Self {
        let mut tree = Self::upgrading();
        tree.play([MasterEvent::HeirReady]);
        tree
    }

    /// The other master serves.
    fn handed_over() -> Self {
        let mut tree = Self::handing_over();
        tree.play([retired(1)]);
        tree
    }

    /// Told to leave, and accepting on.
    fn lame_duck() -> Self {
        let mut tree = Self::serving_with(LATER);
        tree.play([signal(SIGTERM)]);
        tree
    }

    fn draining() -> Self {
        let mut tree = Self::serving();
        tree.play([signal(SIGTERM)]);
        tree
    }

    fn stopping() -> Self {
        let mut tree = Self::serving();
        tree.play([signal(SIGINT)]);
        tree
    }

    fn gone() -> Self {
        let mut tree = Self::stopping();
        tree.bury(1);
        tree
    }

    // Reports of several children at once.

    fn fork(&mut self, generation_number: u32) {
        self.play([
            acceptor_forked(generation_number, Some(acceptor(generation_number))),
            template_forked(generation_number, Some(template(generation_number))),
        ]);
    }

    fn load(&mut self, generation_number: u32) {
        self.play([
            acceptor_ready(generation_number),
            template_ready(generation_number),
        ]);
    }

    /// So many workers, in their first epoch.
    fn fill(&mut self, generation_number: u32, workers: u16) {
        for index in 0..workers {
            let pid = worker(generation_number, index);
            self.play([
                here(generation_number, index, 1, pid),
                ready(generation_number, index, 1),
            ]);
        }
    }

    /// Worker 0 serves, and worker 1 boots.
    fn nearly_fill(&mut self, generation_number: u32) {
        self.fill(generation_number, 1);
        let pid = worker(generation_number, 1);
        self.play([here(generation_number, 1, 1, pid)]);
    }

    /// All of the first children of a generation end; gives what followed from the last of them.
    fn bury(&mut self, generation_number: u32) -> String {
        let first = [acceptor(generation_number), template(generation_number)];
        let workers = [worker(generation_number, 0), worker(generation_number, 1)];
        let last = first.iter().chain(&workers);
        last.fold(String::new(), |_, &pid| self.step(reaped(pid, LEFT)))
    }

    // Steps.

    fn play(&mut self, events: impl IntoIterator<Item = MasterEvent>) {
        for event in events {
            self.step(event);
        }
    }

    /// The resulting actions, one a line.
    fn step(&mut self, event: MasterEvent) -> String {
        let is_tick = matches!(event, MasterEvent::Tick { .. });
        let actions = self.master.step(self.now_ms, event);
        if let Some(due_ms) = self.master.next_tick_ms().filter(|_| is_tick) {
            let spins = || format!("the loop would spin: {:?}", self.master);
            assert!(due_ms > self.now_ms, "{}", spins());
        }
        let lines: Vec<String> = actions.iter().map(line).collect();
        lines.join("\n")
    }

    /// The indentation of `actions` does not count.
    #[track_caller]
    fn expect(&mut self, event: MasterEvent, actions: &str) {
        let shown = format!("{event:?}");
        let expected: Vec<&str> = actions.trim().lines().map(str::trim).collect();
        let actual = self.step(event);
        assert_eq!(
            actual.lines().collect::<Vec<_>>(),
            expected,
            "after {shown}"
        );
    }

    /// That these are among what follows, in this order.
    #[track_caller]
    fn expect_among(&mut self, event: MasterEvent, actions: &str) {
        let shown = format!("{event:?}");
        let actual = self.step(event);
        let mut lines = actual.lines();
        for action in actions.trim().lines().map(str::trim) {
            let found = lines.any(|line| line == action);
            assert!(found, "no {action:?} in its place after {shown}:\n{actual}");
        }
    }

    /// Until the next tick that the master asks for, which comes after this long.
    #[track_caller]
    fn expect_tick_after(&mut self, wait_ms: u64, actions: &str) {
        assert_eq!(self.due_in_ms(), Some(wait_ms), "{:?}", self.master);
        self.now_ms += wait_ms - 1;
        self.expect(TICK, "");
        self.now_ms += 1;
        self.expect(TICK, actions);
    }

    fn due_in_ms(&self) -> Option<u64> {
        let due_ms = self.master.next_tick_ms();
        due_ms.map(|due_ms| due_ms.saturating_sub(self.now_ms))
    }
}

// Events.

fn started(plan: GenerationPlan) -> MasterEvent {
    MasterEvent::Started {
        plan,
        is_heir: false,
        scaled_to: None,
        is_pinned: false,
        range_before: None,
    }
}

fn signal_as(number: i32, style: SignalStyle) -> MasterEvent {
    let (command, by) = command_of(number, style).expect("a signal that means something");
    let client = None;
    MasterEvent::Commanded {
        command,
        by,
        client,
    }
}

fn signal(number: i32) -> MasterEvent {
    signal_as(number, SignalStyle::Gunicorn)
}

fn ask_as(client: ClientId, command: Command) -> MasterEvent {
    let client = Some(client);
    let by = "ctl";
    MasterEvent::Commanded {
        command,
        by,
        client,
    }
}

fn ask(command: Command) -> MasterEvent {
    ask_as(CLIENT, command)
}

fn reaped(pid: i32, exit: Exit) -> MasterEvent {
    MasterEvent::Reaped(pid, exit)
}

fn built(generation_number: u32, plan: GenerationPlan) -> MasterEvent {
    let plan = Ok(plan);
    MasterEvent::GenerationBuilt {
        generation_number,
        plan,
        template: None,
    }
}

fn not_built(generation_number: u32) -> MasterEvent {
    let plan = Err("bind: the address is taken".to_owned());
    MasterEvent::GenerationBuilt {
        generation_number,
        plan,
        template: None,
    }
}

fn forked(generation_number: u32, child: ChildKind, pid: Option<i32>) -> MasterEvent {
    MasterEvent::OfGeneration(generation_number, GenerationEvent::Forked { child, pid })
}

fn acceptor_forked(generation_number: u32, pid: Option<i32>) -> MasterEvent {
    forked(generation_number, ChildKind::Acceptor, pid)
}

fn template_forked(generation_number: u32, pid: Option<i32>) -> MasterEvent {
    let may_preload = true;
    forked(generation_number, ChildKind::Template { may_preload }, pid)
}

fn acceptor_said(generation_number: u32, said: FromAcceptor) -> MasterEvent {
    MasterEvent::OfGeneration(generation_number, GenerationEvent::AcceptorSaid(said))
}

fn template_said(generation_number: u32, said: FromTemplate) -> MasterEvent {
    MasterEvent::OfGeneration(generation_number, GenerationEvent::TemplateSaid(said))
}

fn worker_said(generation_number: u32, index: u16, epoch: u16, said: FromWorker) -> MasterEvent {
    let worker = WorkerRef { index, epoch };
    MasterEvent::OfGeneration(
        generation_number,
        GenerationEvent::WorkerSaid { worker, said },
    )
}

fn acceptor_ready(generation_number: u32) -> MasterEvent {
    acceptor_said(generation_number, FromAcceptor::Ready)
}

fn retired(generation_number: u32) -> MasterEvent {
    acceptor_said(generation_number, FromAcceptor::Retired)
}

fn template_ready(generation_number: u32) -> MasterEvent {
    template_said(generation_number, FromTemplate::Ready)
}

fn not_for_workers(generation_number: u32) -> MasterEvent {
    template_said(generation_number, FromTemplate::NotForWorkers)
}

fn other_interface(generation_number: u32) -> MasterEvent {
    template_said(generation_number, FromTemplate::OtherInterface)
}

fn here(generation_number: u32, index: u16, epoch: u16, pid: i32) -> MasterEvent {
    let worker = WorkerRef { index, epoch };
    MasterEvent::OfGeneration(
        generation_number,
        GenerationEvent::WorkerHere { worker, pid },
    )
}

fn silent(generation_number: u32, index: u16, epoch: u16) -> MasterEvent {
    let worker = WorkerRef { index, epoch };
    MasterEvent::OfGeneration(generation_number, GenerationEvent::WorkerSilent(worker))
}

fn not_forked(generation_number: u32, index: u16, epoch: u16) -> MasterEvent {
    template_said(
        generation_number,
        FromTemplate::NotForked(WorkerRef { index, epoch }),
    )
}

fn ready(generation_number: u32, index: u16, epoch: u16) -> MasterEvent {
    worker_said(generation_number, index, epoch, FromWorker::Ready)
}

fn replace(generation_number: u32, index: u16, epoch: u16) -> MasterEvent {
    acceptor_said(
        generation_number,
        FromAcceptor::Replace(WorkerRef { index, epoch }),
    )
}

fn due(generation_number: u32, index: u16, epoch: u16) -> MasterEvent {
    let (requests, messages) = (1_000, 0);
    let said = FromWorker::Due { requests, messages };
    worker_said(generation_number, index, epoch, said)
}

fn dumped(generation_number: u32, index: u16, epoch: u16) -> MasterEvent {
    worker_said(generation_number, index, epoch, FromWorker::Dumped)
}

fn changed(generation_number: u32) -> MasterEvent {
    let path = "app.py".to_owned();
    template_said(generation_number, FromTemplate::Changed { path })
}

/// Of the seat of the same number as the worker.
fn overdue(generation_number: u32, worker: u16, others: bool) -> MasterEvent {
    let (seat, ran_ms) = (worker, 30_042);
    let seen = Observation::Overdue {
        seat,
        ran_ms,
        others,
    };
    MasterEvent::seen(generation_number, worker, seen)
}

fn memory(generation_number: u32, worker: u16, megabytes: u64) -> MasterEvent {
    takes(generation_number, worker, megabytes, false)
}

fn takes(generation_number: u32, worker: u16, megabytes: u64, is_unused: bool) -> MasterEvent {
    let seen = Observation::Memory {
        bytes: megabytes << 20,
        is_unused,
        others: false,
    };
    MasterEvent::seen(generation_number, worker, seen)
}

/// An action in short; a worker is written as index/epoch=pid, or with its generation as 1:index.
fn line(action: &Action) -> String {
    match action {
        Action::BuildGeneration { generation_number } => format!("build {generation_number}"),
        Action::RebuildGeneration {
            generation_number,
            first,
            template,
        } => match template {
            Some(pid) => format!("build {generation_number} like {first} with template {pid}"),
            None => format!("build {generation_number} like {first}"),
        },
        Action::DropGeneration { generation_number } => format!("drop {generation_number}"),
        Action::Fork {
            generation_number,
            child,
        } => {
            let without = match child {
                ChildKind::Template { may_preload: false } => " without the app",
                _ => "",
            };
            format!("fork {} {generation_number}{without}", child.name())
        }
        Action::TellAcceptor {
            generation_number,
            message,
        } => format!("acceptor {generation_number}: {}", to_acceptor(message)),
        Action::TellTemplate {
            generation_number,
            message,
        } => format!("template {generation_number}: {}", to_template(message)),
        Action::OfferTemplate {
            generation_number,
            worker,
            pid,
        } => format!("offer {generation_number}:{}={pid}", short(*worker)),
        Action::SwapTemplates { generation_number } => {
            format!("swap templates {generation_number}")
        }
        Action::DropOtherTemplate { generation_number } => {
            format!("drop other template {generation_number}")
        }
        Action::TellScribe {
            generation_number,
            message,
        } => match message {
            ToScribe::Reopen => format!("scribe {generation_number}: reopen"),
            ToScribe::Finish => format!("scribe {generation_number}: finish"),
        },
        Action::Kill(pid, SIGTERM) => format!("TERM {pid}"),
        Action::Kill(pid, SIGKILL) => format!("KILL {pid}"),
        Action::Kill(pid, SIGABRT) => format!("ABRT {pid}"),
        Action::Kill(pid, SIGUSR1) => format!("USR1 {pid}"),
        Action::Kill(pid, signal) => format!("signal {signal} to {pid}"),
        Action::Vacate {
            generation_number,
            worker,
        } => format!("vacate {generation_number}:{worker}"),
        Action::Dump {
            generation_number,
            pid,
        } => format!("dump {generation_number}:{pid}"),
        Action::ShowDump {
            generation_number,
            number,
            pid,
            client,
        } => match client {
            Some(client) => format!("show {generation_number}:{number}={pid} to {client}"),
            None => format!("show {generation_number}:{number}={pid}"),
        },
        Action::Reopen => "reopen".to_owned(),
        Action::LeaveBecause(reason) => format!("leave because {reason}"),
        Action::StartHeir => "start heir".to_owned(),
        Action::EndHeir => "end heir".to_owned(),
        Action::DropHeir => "drop heir".to_owned(),
        Action::Reply { client, outcome } => match outcome {
            Ok(told) if told.is_empty() => format!("reply {client}: ok"),
            Ok(told) => format!("reply {client}: ok: {told}"),
            Err(told) => format!("reply {client}: error: {told}"),
        },
        Action::Announce(news) => format!("news: {}", of_the_world(*news)),
        Action::Log(Severity::Info, message) => format!("info: {message}"),
        Action::Log(Severity::Warning, message) => format!("warning: {message}"),
        Action::Log(Severity::Error, message) => format!("error: {message}"),
        Action::Exit(code) => format!("exit {code}"),
    }
}

fn short(WorkerRef { index, epoch }: WorkerRef) -> String {
    format!("{index}/{epoch}")
}

/// Its number, if its index is another one.
fn called_else(worker: WorkerRef, number: u16) -> String {
    if number == worker.index {
        String::new()
    } else {
        format!(" nr={number}")
    }
}

fn to_acceptor(message: &ToAcceptor) -> String {
    match message {
        ToAcceptor::AcceptOperators => "accept operators".to_owned(),
        ToAcceptor::Accept => "accept".to_owned(),
        ToAcceptor::WorkerReady {
            worker,
            number,
            pid,
            ..
        } => format!(
            "ready {}={pid}{}",
            short(*worker),
            called_else(*worker, *number)
        ),
        ToAcceptor::WorkerGone(worker) => format!("gone {}", short(*worker)),
        ToAcceptor::Workers { wanted, is_pinned } => {
            let pinned = if *is_pinned { ", pinned" } else { "" };
            format!("workers {wanted}{pinned}")
        }
        ToAcceptor::Overdue {
            seat,
            epoch,
            ran_ms,
        } => format!("overdue seat {seat}/{epoch} {ran_ms}"),
        ToAcceptor::LoopStuck(worker) => format!("loop stuck {}", short(*worker)),
        ToAcceptor::Reopen => "reopen".to_owned(),
        ToAcceptor::LameDuck => "lame duck".to_owned(),
        ToAcceptor::Drain { timeout_ms } => format!("drain {timeout_ms}"),
        ToAcceptor::Retire { timeout_ms } => format!("retire {timeout_ms}"),
        ToAcceptor::TurnAway => "turn away".to_owned(),
        ToAcceptor::Quit => "quit".to_owned(),
        ToAcceptor::Shared(shared) => format!("shared {shared}"),
        // Not a matter of the step.
        ToAcceptor::Listen { .. }
        | ToAcceptor::CloseDoor { .. }
        | ToAcceptor::LastOnes { .. }
        | ToAcceptor::Headroom(_) => {
            format!("{message:?}")
        }
    }
}

fn to_template(message: &ToTemplate) -> String {
    match message {
        ToTemplate::Fork {
            worker,
            number,
            is_canary,
        } => {
            let canary = if *is_canary { " canary" } else { "" };
            let number = called_else(*worker, *number);
            format!("fork {}{number}{canary}", short(*worker))
        }
        ToTemplate::Become { worker, number } => {
            format!("become {}{}", short(*worker), called_else(*worker, *number))
        }
        ToTemplate::GoOver => "go over".to_owned(),
        ToTemplate::Reopen => "reopen".to_owned(),
    }
}

fn of_the_world(news: News) -> String {
    match news {
        News::Ready { workers } => format!("ready {workers}"),
        News::Reloading => "reloading".to_owned(),
        News::Promoted { generation_number } => format!("promoted {generation_number}"),
        News::Reloaded { generation_number } => format!("reloaded {generation_number}"),
        News::NotReloaded { generation_number } => format!("not reloaded {generation_number}"),
        News::Stopping => "stopping".to_owned(),
        News::WorkerGone { number, pid, cause } => {
            let why = cause.map_or("", Cause::name);
            format!("gone {number}={pid} {why}").trim_end().to_owned()
        }
        News::Target { new, old } => format!("target {new}, was {old}"),
        News::Heir { pid } => format!("heir {pid}"),
    }
}
