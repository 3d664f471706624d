//! The master: waits for signals, reports and dead children, asks [`step`] what follows, and does
//! it. It never imports the app, never sees a request, never starts a thread.

mod desk;
mod doors;
mod gather;
mod hearing;
mod idlers;
mod intrusion;
mod late_loop;
mod lending;
mod lent;
mod loops;
mod news;
mod other_house;
mod out_of_memory;
mod outbox;
mod perform;
mod reports;
mod resources;
mod stacks;
mod stopped;
mod succession;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;

use stanchion_master::{Event, Looks, Master, Pause};
use stanchion_sys::channel::Channel;
use stanchion_sys::child;
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::listener::Listener;
use stanchion_sys::notify::Notifier;
use stanchion_sys::process::{self, OpenFiles};
use stanchion_sys::signal::{self, SignalPipe};
use tracing::warn;

use crate::control::Control;
use crate::host::Host;
use crate::launcher::Launcher;
use crate::title;
use idlers::Idlers;
use other_house::OtherHouse;
use out_of_memory::OutOfMemory;
pub(crate) use resources::{Before, HouseResources};
use stanchion_generation::common::Common;
use stanchion_generation::tally::Counts;
use stanchion_settings::Settings;
use stopped::StoppedWatch;
pub(crate) use succession::Succession;
use watch::AcceptorWatch;

/// The role of this process when [`run`] returns: every fork comes back through it.
pub(crate) enum Role {
    /// The master, at the end.
    Master {
        /// Its exit code.
        code: i32,
        /// Its listeners, but for those that another master has.
        listeners: Vec<Listener>,
    },
    /// A newborn acceptor.
    Acceptor {
        /// Its house.
        common: &'static Common,
        /// Its listeners.
        listeners: Vec<Listener>,
        /// Where its orders come from.
        orders: Channel,
    },
    /// A newborn template.
    Template {
        /// Its house.
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
        /// Its house.
        common: &'static Common,
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

/// Files that the master may have open: it has one for each worker, of two houses at most for long, and
/// some more.
const OPEN_FILES_MAX: u64 = 16_384;

/// Refuses settings that only the acceptor understands, with the reason.
pub(crate) type CheckSettings = fn(&Settings) -> Result<(), String>;

struct Loop<'h> {
    host: &'h mut dyn Host,
    launcher: &'h Launcher,
    check_settings: CheckSettings,
    master: Master,
    signals: SignalPipe,
    /// By generation.
    houses: BTreeMap<u32, HouseResources>,
    other: OtherHouse,
    /// The house that serves, or is to: what is left of it once it is gone is still asked for.
    present: Rc<Common>,
    /// Counts of the requests of houses that are gone.
    departed: Counts,
    /// The house whose scribe gets the master's log lines, if one does.
    logs_through: Option<u32>,
    /// The listeners of the `present` house, once that is gone.
    doors: Vec<Listener>,
    succession: Succession,
    events: VecDeque<Event>,
    /// Where commands come from beside signals.
    control: Option<Control>,
    /// The service manager, if it started us and wants notifications.
    manager: Notifier,
    /// When the master last decided whether to send WATCHDOG=1 (`sd_notify(3)`).
    alive_ms: u64,
    /// Whether the master withheld it then, because the acceptor's loop stood still.
    is_withheld: bool,
    looks: Looks,
    watch: AcceptorWatch,
    stopped: StoppedWatch,
    idlers: Idlers,
    pause: Pause,
    /// When the memory of workers was last looked at.
    weighed_ms: u64,
    /// When event loops were last looked at, and since when that was done as often as it should be.
    looked_us: u64,
    watching_since_us: u64,
    /// The memory of a worker could not be read, and the log has said so.
    is_blind: bool,
    /// An acceptor that has ended since a turn of its loop did not, and where it was.
    spun: Option<(i32, Vec<u64>)>,
    out_of_memory: OutOfMemory,
    /// Not all children that have ended were collected.
    has_more_dead: bool,
    /// How many files children may have open.
    open_files: OpenFiles,
}

/// Runs the tree until it has ended, in the master; in each child it returns right after the fork.
pub(crate) fn run(
    first: HouseResources,
    succession: Succession,
    control: Option<Control>,
    host: &mut dyn Host,
    launcher: &Launcher,
    check_settings: CheckSettings,
) -> io::Result<Role> {
    process::set_name(c"stanchion");
    show_title(host, &first.common.settings);
    process::become_subreaper()?;
    child::can_be_asked_about()?;
    let manager = Notifier::from_env().unwrap_or_else(|problem| {
        warn!("the service manager gets no notifications: {problem}");
        Notifier::none()
    });
    let started = Event::Started {
        plan: first.plan(),
        is_heir: succession.has_predecessor(),
        scaled_to: succession.scaled_to(),
    };
    let mut this = Loop {
        host,
        launcher,
        check_settings,
        master: Master::new(),
        signals: SignalPipe::install(&SIGNALS)?,
        present: Rc::clone(&first.common),
        houses: BTreeMap::from([(first.common.generation, first)]),
        other: OtherHouse::NotMade,
        departed: Counts::default(),
        logs_through: None,
        doors: Vec::new(),
        succession,
        events: VecDeque::from([started]),
        control,
        manager,
        alive_ms: now_ms(),
        is_withheld: false,
        looks: Looks::new(now_ms()),
        watch: AcceptorWatch::new(now_ms()),
        stopped: StoppedWatch::default(),
        idlers: Idlers::default(),
        pause: Pause::default(),
        weighed_ms: 0,
        looked_us: 0,
        watching_since_us: 0,
        is_blind: false,
        spun: None,
        out_of_memory: OutOfMemory::new(),
        has_more_dead: false,
        open_files: OpenFiles::allow(OPEN_FILES_MAX)?,
    };
    loop {
        while let Some(event) = this.events.pop_front() {
            let actions = this.master.step(now_ms(), event);
            this.choose_log();
            for action in actions {
                if let Some(role) = this.perform(action) {
                    return Ok(role);
                }
            }
        }
        this.tell_where_it_spun();
        this.let_go_of_lent();
        this.houses
            .values_mut()
            .for_each(HouseResources::send_again);
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
