//! The master: waits for signals, reports and dead children, asks [`Master::step`] what follows, and does
//! it. It never imports the app, never sees a request, never starts a thread.

mod desk;
mod doors;
mod forks;
mod gather;
mod generations;
mod headroom;
mod intrusion;
mod late_loops;
mod lent;
mod links;
mod news;
mod other_generation;
mod outbox;
mod perform;
mod reports;
mod resources;
mod service_manager;
mod stacks;
mod status;
mod succession;
mod watches;

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use stanchion_master::{ChildKind, Master, MasterEvent};
use stanchion_sys::channel::Channel;
use stanchion_sys::child;
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::listener::Listener;
use stanchion_sys::process::{self, OpenFiles};
use stanchion_sys::signal::{self, SignalPipe};

use crate::control::Control;
use crate::host::Host;
use crate::launcher::Launcher;
use crate::title;
use desk::CommandDesk;
use generations::Generations;
#[cfg(debug_assertions)]
pub(crate) use resources::geometry;
pub(crate) use resources::{CarriedOver, GenerationResources};
use service_manager::ServiceManager;
use stanchion_generation::common::Common;
use stanchion_settings::Settings;
pub(crate) use succession::Succession;
use watches::Watches;

/// The role of this process when [`run`] returns: every fork comes back through it.
pub(crate) enum ProcessRole {
    /// The master, at the end.
    Master {
        /// Its exit code.
        code: i32,
        /// Its listeners, but for those that another master has.
        listeners: Vec<Listener>,
    },
    /// A newborn acceptor.
    Acceptor {
        /// Its generation.
        common: &'static Common,
        /// Its listeners.
        listeners: Vec<Listener>,
        /// Where its orders come from.
        orders: Channel,
    },
    /// A newborn template.
    Template {
        /// Its generation.
        common: &'static Common,
        /// Where its orders come from.
        orders: Channel,
        /// Whether it may import the app, if the settings say so.
        may_preload: bool,
        /// The template works with this if the app is called by the other interface.
        other: Option<Rc<Common>>,
    },
    /// A newborn scribe.
    Scribe {
        /// Its generation.
        common: &'static Common,
        /// Where its orders come from.
        orders: Channel,
    },
}

impl ProcessRole {
    /// The role of a child that was just forked, which has all that the master has.
    fn of_child(
        kind: ChildKind,
        generation: &mut GenerationResources,
        other: Option<Rc<Common>>,
        orders: Channel,
    ) -> Self {
        let common = generation.common_for_life();
        match kind {
            ChildKind::Acceptor => Self::Acceptor {
                common,
                listeners: std::mem::take(&mut generation.listeners),
                orders,
            },
            ChildKind::Template { may_preload } => Self::Template {
                common,
                orders,
                may_preload,
                other,
            },
            ChildKind::Scribe => Self::Scribe { common, orders },
        }
    }
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

/// Files that the master may have open: it has one for each worker, of two generations at most for long, and
/// some more.
const OPEN_FILES_MAX: u64 = 16_384;

/// Refuses settings that only the acceptor understands, with the reason.
pub(crate) type CheckSettings = fn(&Settings) -> Result<(), String>;

/// The loop of the master: waits, gathers events, and performs the actions that follow.
struct Loop<'h> {
    host: &'h mut dyn Host,
    launcher: &'h Launcher,
    check_settings: CheckSettings,
    master: Master,
    generations: Generations,
    succession: Succession,
    desk: CommandDesk,
    manager: ServiceManager,
    watches: Watches,
    signals: SignalPipe,
    events: VecDeque<MasterEvent>,
    /// Not all children that have ended were collected.
    has_more_dead: bool,
    /// How many files children may have open.
    open_files: OpenFiles,
}

/// Runs the tree until it has ended, in the master; in each child it returns right after the fork.
pub(crate) fn run(
    first: GenerationResources,
    succession: Succession,
    control: Option<Control>,
    host: &mut dyn Host,
    launcher: &Launcher,
    check_settings: CheckSettings,
) -> io::Result<ProcessRole> {
    process::set_name(c"stanchion");
    show_title(host, &first.common.settings);
    process::become_subreaper()?;
    child::can_be_asked_about()?;
    let manager = ServiceManager::from_env(now_ms());
    let started = MasterEvent::Started {
        plan: first.plan(),
        is_heir: succession.has_predecessor(),
        scaled_to: succession.scaled_to(),
        is_pinned: succession.is_pinned(),
        range_before: succession.range_before(),
    };
    let mut this = Loop {
        host,
        launcher,
        check_settings,
        master: Master::default(),
        signals: SignalPipe::install(&SIGNALS)?,
        generations: Generations::new(first),
        succession,
        events: VecDeque::from([started]),
        desk: CommandDesk::at(control),
        manager,
        watches: Watches::begin(now_ms()),
        has_more_dead: false,
        open_files: OpenFiles::allow(OPEN_FILES_MAX)?,
    };
    loop {
        while let Some(event) = this.events.pop_front() {
            let actions = this.master.step(now_ms(), event);
            this.generations.choose_log(&this.master);
            for action in actions {
                if let Some(role) = this.perform(action) {
                    return Ok(role);
                }
            }
        }
        this.watches.spun.tell();
        let (master, succession) = (&this.master, &this.succession);
        this.generations.let_go_of_lent(master, succession);
        let generations = this.generations.iter_mut();
        generations.for_each(|generation| generation.links.send_again());
        this.wait()?;
        this.gather()?;
    }
}

/// Shows the master's title with its command line, from which `stanchion doctor` reads settings.
fn show_title(host: &dyn Host, settings: &Settings) {
    title::show_with("master", settings, &host.started_as().command);
}

fn now_ms() -> u64 {
    monotonic_us() / 1_000
}
