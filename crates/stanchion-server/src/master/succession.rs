//! The way from master to master: the one before us, if there was one, and the one after us.
//!
//! An upgrade is a reload across an execve(2). The new master inherits the listeners and a versioned JSON object
//! (`crate::handover`), and reports when it serves. It is not our child but a child of our parent
//! (`stanchion_sys::sibling`), because a service manager waits only for its own children.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stanchion_master::MasterEvent;
use stanchion_sys::channel::Channel;
use stanchion_sys::held_signals;
use stanchion_sys::listener::{Listener, ListenerAddress};
use stanchion_sys::notify::Notifier;
use stanchion_sys::process::{self, Fork, OpenFiles};
use stanchion_sys::sibling::{self, Sibling};
use stanchion_sys::signal;
use tracing::{error, info, warn};

use super::SIGNALS;
use super::generations::Generations;
use crate::handover::{HandedOver, Handover, LISTENERS_MAX, ToPredecessor, VARIABLE};
use crate::host::StartedAs;
use crate::inherited_listener::InheritedListener;
use crate::last_words::{self, GivenStreams, LastWords};
use crate::pidfile::{PidFile, with_suffix};
use stanchion_generation::listeners::{self, of_worker};
use stanchion_generation::messages::{self, Incoming};
use stanchion_settings::{BindAddress, SignalStyle};

/// The suffix of a pid file while there are two masters: of the old master's in Unicorn's way, of the new master's in gunicorn's.
const OLD_SUFFIX: &str = ".oldbin";
const NEW_SUFFIX: &str = ".2";

/// The masters before and after this one, and the file that holds the pid of the master that is the server.
pub(crate) struct Succession {
    pidfile: PidFile,
    path: Option<PathBuf>,
    signals: SignalStyle,
    predecessor: Option<Channel>,
    /// Whether it takes messages on listeners that we have dropped.
    hears_of_dropped: bool,
    /// Listeners that only the master before us has: once it is gone, no process uses their socket files.
    leftover: Vec<Listener>,
    /// The addresses that it listens on, as long as it is there.
    theirs: Vec<ListenerAddress>,
    /// Listeners of single workers of that master.
    lent: Vec<Listener>,
    scaled_to: Option<u16>,
    is_pinned: bool,
    range_before: Option<(u16, u16)>,
    heir: Option<HeirProcess>,
    heir_serves: bool,
}

/// The master after this one.
struct HeirProcess {
    pid: i32,
    /// If it is our parent's child; otherwise it is ours, and its end is reaped.
    sibling: Option<Sibling>,
    /// Its words before it serves, if the kernel had memory for them.
    words: Option<LastWords>,
    /// Where it says that it serves; `None` once its end has been closed.
    channel: Option<Channel>,
    /// Addresses of our listeners that it does not have.
    dropped: Vec<String>,
}

impl Succession {
    /// Writes the pid file; under another name if another master has handed over and the settings ask for gunicorn's way.
    pub(crate) fn begin(
        path: Option<&Path>,
        signals: SignalStyle,
        mut handed_over: Option<HandedOver>,
        (leftover, theirs): (Vec<Listener>, Vec<ListenerAddress>),
    ) -> Result<Self, String> {
        let pid = handed_over.as_ref().map(|taken| taken.predecessor);
        let name = match (path, signals, pid) {
            (Some(path), SignalStyle::Gunicorn, Some(_)) => Some(with_suffix(path, NEW_SUFFIX)),
            (path, ..) => path.map(ToOwned::to_owned),
        };
        let scaled_to = handed_over.as_ref().and_then(|taken| taken.scaled_to);
        let is_pinned = handed_over.as_ref().is_some_and(|taken| taken.is_pinned);
        let range_before = handed_over.as_ref().and_then(|taken| taken.range);
        let lent = handed_over
            .as_mut()
            .map(|taken| std::mem::take(&mut taken.lent));
        Ok(Self {
            pidfile: PidFile::create(name.as_deref(), pid)?,
            path: path.map(ToOwned::to_owned),
            signals,
            hears_of_dropped: handed_over
                .as_ref()
                .is_some_and(|taken| taken.hears_of_dropped),
            predecessor: handed_over.map(|taken| taken.channel),
            leftover,
            theirs,
            lent: lent.unwrap_or_default(),
            scaled_to,
            is_pinned,
            range_before,
            heir: None,
            heir_serves: false,
        })
    }

    pub(super) fn scaled_to(&self) -> Option<u16> {
        self.scaled_to
    }

    /// Whether the number of workers was fixed by an operator.
    pub(super) fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// The fewest and the most workers by the setting of the master before, if it has said them.
    pub(super) fn range_before(&self) -> Option<(u16, u16)> {
        self.range_before
    }

    /// The listener of a single worker of the master before us at this address.
    pub(super) fn lent(&self, address: &BindAddress) -> Option<&Listener> {
        let mut lent = self.lent.iter();
        lent.find(|listener| of_worker::is_at(listener, address))
    }

    /// Whether there is a master before us.
    pub(super) fn has_predecessor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Our listeners that no other master has, neither the heir nor the one before us.
    pub(super) fn ours_alone(&self, doors: Vec<Listener>) -> Vec<Listener> {
        if self.heir_serves {
            return Vec::new();
        }
        listeners::not_at(doors, &self.theirs)
    }

    pub(super) fn heir_serves(&mut self) {
        self.heir_serves = true;
    }

    /// The descriptors to wait for.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let predecessor = self.predecessor.iter().map(AsFd::as_fd);
        let heir = self.heir.iter().flat_map(|heir| {
            let channel = heir.channel.iter().map(AsFd::as_fd);
            channel.chain(heir.sibling.iter().map(AsFd::as_fd))
        });
        predecessor.chain(heir)
    }

    /// Tells the master before us that we serve, and which of its listeners we do not have.
    pub(super) fn announce(&mut self, ours: &[ListenerAddress]) {
        last_words::say_no_more();
        let Some(predecessor) = &self.predecessor else {
            return;
        };
        if self.hears_of_dropped {
            // It closes these: a worker that asks for the address only now must not get it.
            let dropped = self
                .lent
                .extract_if(.., |one| !ours.contains(one.address()));
            let dropped: Vec<_> = dropped.collect();
            for listener in self.leftover.iter().chain(&dropped) {
                let address = listener.address().to_string();
                let message = ToPredecessor::Dropped { address };
                if let Err(error) = messages::report(predecessor, &message) {
                    warn!(
                        "the old master did not hear that {} is dropped, and may reset connections that wait there: {error}",
                        listener.address()
                    );
                }
            }
        }
        if let Err(error) = messages::report(predecessor, &ToPredecessor::Ready) {
            warn!("the old master did not hear that the new one serves: {error}");
        }
    }

    /// Whether the heir has said that it does not have the listener at this address.
    pub(super) fn heir_has_dropped(&self, address: &ListenerAddress) -> bool {
        let address = address.to_string();
        let heir = self.heir.as_ref();
        heir.is_some_and(|heir| heir.dropped.contains(&address))
    }

    /// Events of the other masters. `dead` are children of ours that have ended.
    pub(super) fn gather(&mut self, dead: &[i32]) -> Vec<MasterEvent> {
        let mut events = Vec::new();
        if let Some(predecessor) = &self.predecessor
            && matches!(
                messages::receive::<ToPredecessor>(predecessor),
                Ok(Incoming::Closed) | Err(_)
            )
        {
            info!("the old master is gone");
            self.predecessor = None;
            self.lent.clear();
            self.theirs.clear();
            listeners::remove_files(&std::mem::take(&mut self.leftover));
            if let Some(path) = &self.path
                && self.signals == SignalStyle::Gunicorn
            {
                self.pidfile.rename(path);
            }
            events.push(MasterEvent::PredecessorGone);
        }
        if let Some(heir) = &mut self.heir {
            let has_ended = heir.has_ended();
            // This comes after the check: an heir that has ended has sent all that it had to send.
            events.extend(heir.gather());
            if has_ended || dead.contains(&heir.pid) {
                events.extend(heir.reason().map(MasterEvent::HeirLeaves));
            }
            if has_ended {
                events.push(MasterEvent::HeirEnded(heir.pid));
                self.heir = None;
            }
        }
        events
    }

    /// Has the heir leave.
    pub(super) fn end_heir(&self) {
        let Some(HeirProcess { pid, sibling, .. }) = &self.heir else {
            return;
        };
        let told = match sibling {
            Some(sibling) => sibling.signal(signal::SIGTERM),
            None => process::kill(*pid, signal::SIGTERM),
        };
        if let Err(error) = told {
            error!("the new master {pid} cannot be sent TERM: {error}");
        }
    }

    /// The pid file gets its old master's name, where that is the way.
    fn step_aside(&mut self) {
        if let Some(path) = &self.path
            && self.signals == SignalStyle::Unicorn
        {
            self.pidfile.rename(&with_suffix(path, OLD_SUFFIX));
        }
    }

    /// The heir has failed.
    pub(super) fn drop_heir(&mut self) {
        self.heir = None;
        if let Some(path) = &self.path
            && self.signals == SignalStyle::Unicorn
        {
            self.pidfile.rename(path);
        }
    }
}

impl HeirProcess {
    /// Whether it has ended, if it is not our child: a child is reaped.
    fn has_ended(&self) -> bool {
        let asked = self.sibling.as_ref().map(Sibling::has_ended);
        asked.unwrap_or(Ok(false)).unwrap_or_else(|error| {
            error!(
                "the master cannot find out whether the new master {} still runs: {error}",
                self.pid
            );
            false
        })
    }

    /// The reason that it has given for its end, if it has. The log has all that it has written by then.
    fn reason(&mut self) -> Option<String> {
        let said = self.words.take()?.read().unwrap_or_else(|error| {
            error!(
                "the output of the new master {} cannot be read: {error}",
                self.pid
            );
            None
        });
        let (reason, all) = said?;
        if all != reason {
            error!("the new master {} has said:\n{all}", self.pid);
        }
        Some(reason)
    }

    /// Reads its messages.
    fn gather(&mut self) -> Option<MasterEvent> {
        // It can drop as many listeners as it was given, and no more.
        for _ in 0..=LISTENERS_MAX {
            match messages::receive(self.channel.as_ref()?) {
                Ok(Incoming::Message(ToPredecessor::Dropped { address })) => {
                    if self.dropped.len() < LISTENERS_MAX {
                        self.dropped.push(address);
                    }
                }
                Ok(Incoming::Message(ToPredecessor::Ready)) => return Some(MasterEvent::HeirReady),
                Ok(Incoming::Nothing) => break,
                // The kernel reports when it has ended.
                Ok(Incoming::Closed) => self.channel = None,
                Err(error) => {
                    error!("the new master has sent an invalid message: {error}");
                    break;
                }
            }
        }
        None
    }
}

/// The present master, from which the heir takes over.
pub(super) struct OldMaster<'a> {
    pub(super) generations: &'a Generations,
    /// Workers wanted.
    pub(super) target: Option<u16>,
    /// By an operator, though the setting is a range.
    pub(super) is_pinned: bool,
    /// The present master was started so.
    pub(super) started_as: StartedAs,
    /// How many files the heir may have open.
    pub(super) open_files: OpenFiles,
}

impl Succession {
    /// Starts the stanchion that is installed now, and gives it the door. Gives its process.
    pub(super) fn start_heir(&mut self, old: &OldMaster<'_>) -> Option<i32> {
        // Before the heir can write its own pid file.
        self.step_aside();
        let forked = self.fork_heir(old);
        forked
            .inspect_err(|error| error!("a new master cannot be started: {error}"))
            .ok()
    }

    fn fork_heir(&mut self, old: &OldMaster<'_>) -> io::Result<i32> {
        // The kernel ends all processes of a pid namespace with the first one (pid_namespaces(7)).
        if process::pid() == 1 {
            return Err(io::Error::other(
                "this master is the first process of its pid namespace, as in a container, and all other processes \
                 end with it: restart the container instead",
            ));
        }
        let (ours, theirs) = Channel::pair()?;
        // Before the fork: a child of a process that had threads could not allocate.
        let (mut handover, mut doors) = old.handover(&theirs)?;
        // Without these the heir starts as well, and this master cannot say why it ends.
        let (words, given) = LastWords::make().ok().unzip();
        handover.streams = given.as_ref().map(GivenStreams::streams);
        let mut command = old.command_for_heir(&handover)?;
        let mut beside = None;
        let fork = || {
            let (forked, sibling) = sibling::fork()?;
            beside = sibling;
            Ok(forked)
        };
        // The heir may be sent TERM before it has become another program.
        let open_files = old.open_files;
        let in_child = || open_files.restore().and_then(|()| signal::reset(&SIGNALS));
        match held_signals::fork_with(&SIGNALS, fork, in_child)? {
            Fork::Parent(pid) => {
                self.heir = Some(HeirProcess {
                    pid,
                    sibling: beside,
                    words,
                    channel: Some(ours),
                    dropped: Vec::new(),
                });
                Ok(pid)
            }
            Fork::Child => {
                let replaced = given
                    .as_ref()
                    .map_or(Ok(()), GivenStreams::replace_standard_error);
                doors.extend(given.into_iter().flat_map(GivenStreams::into_fds));
                let kept = doors.iter().map(AsFd::as_fd).chain([theirs.as_fd()]);
                let problem = match replaced.and_then(|()| process::keep_over_exec(kept)) {
                    Ok(()) => command.exec(),
                    Err(error) => error,
                };
                let program = command.get_program().display();
                let problem = format!("{program} cannot be started: {problem}");
                let line = format!("{problem}\n");
                // The old master reads it there; the log has it in any case.
                let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
                error!("a new master cannot be started: {problem}");
                process::exit_now(stanchion_log::exit_code::INTERNAL)
            }
        }
    }
}

impl OldMaster<'_> {
    /// The handover to a new master, which reports over `channel` that it serves; and descriptors of the listeners and of all else that it gets,
    /// which it has once they are kept over the exec.
    fn handover(&self, channel: &Channel) -> io::Result<(Handover, Vec<OwnedFd>)> {
        let present = self.generations.present_resources();
        let settings = self.generations.settings();
        let listeners: Vec<_> = present
            .iter()
            .flat_map(|generation| &generation.listeners)
            .collect();
        let lent: Vec<_> = present
            .iter()
            .flat_map(|generation| generation.lent.listeners())
            .collect();
        let mut doors: Vec<_> = listeners
            .iter()
            .chain(&lent)
            .map(|listener| listener.try_clone_fd())
            .collect::<io::Result<_>>()?;
        let both = listeners.iter().chain(&lent).zip(&doors);
        let mut inherited_listeners: Vec<_> = both
            .map(|(one, fd)| InheritedListener::of(one, fd))
            .collect();
        let lent = inherited_listeners.split_off(listeners.len());
        let scaled_to = self
            .target
            .filter(|&target| u32::from(target) != settings.workers.workers.min);
        let channel = channel.as_raw_fd();
        let is_asgi = settings.is_asgi();
        let mut handover = Handover::new(
            process::pid(),
            channel,
            inherited_listeners,
            lent,
            scaled_to,
            is_asgi,
        );
        // An older version has no use for the descriptor and would leave it open, for its app to inherit.
        let ticket_keys = if settings.serves_tls() {
            self.generations.present().ticket_keys.try_clone_fd()?
        } else {
            None
        };
        handover.ticket_keys = ticket_keys.as_ref().map(AsRawFd::as_raw_fd);
        doors.extend(ticket_keys);
        handover.is_pinned = self.is_pinned;
        let count = settings.workers.workers;
        handover.range = Some((count.min as u16, count.max as u16));
        let demand = self.generations.present().figures.demand.try_clone_fd()?;
        handover.demand = demand.as_ref().map(AsRawFd::as_raw_fd);
        doors.extend(demand);
        Ok((handover, doors))
    }

    /// The stanchion that is installed now, started as this one was.
    fn command_for_heir(&self, handover: &Handover) -> io::Result<Command> {
        let mut words = self.started_as.command.iter();
        let program = words
            .next()
            .ok_or_else(|| io::Error::other("it is not known how this one was started"))?;
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(&self.started_as.directory)
            .env(VARIABLE, handover.to_json()?);
        for (name, value) in Notifier::environment() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Ok(command)
    }
}
