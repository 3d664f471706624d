//! Reports of children, and whether a child may make them. The master believes nothing that a child says of itself: the kernel names the process that
//! sent a message; the master knows the part of that process in the tree from its own fork(2) or, for a worker, from the channel that was made for it
//! alone.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use serde::de::DeserializeOwned;
use stanchion_master::{GenerationEvent, Master, MasterEvent, called};
use stanchion_sys::channel::Channel;
use stanchion_sys::child;
use tracing::warn;

use super::outbox::Outbox;
use stanchion_generation::messages::{self, Envelope, FromWorker, Incoming, WorkerRef};

/// Reports of one child that are read in a turn of the loop: far more than it has to say.
const REPORTS_PER_TURN_MAX: usize = 64;
/// A child that had more to say is not listened to for so long, so that one that never stops keeps
/// the master neither from the others nor from anything else. It fills its own channel only.
const QUIET_MS: u64 = 100;
/// How often the log names refused reports of one child.
const REFUSED_EVERY_MS: u64 = 10_000;

/// The bounds on what one child may say.
#[derive(Debug, Default)]
pub(super) struct ReportIntake {
    pub(super) quiet_until_ms: u64,
    pub(super) has_ended: bool,
    refused: u64,
    /// When a refusal was last logged.
    told_ms: Option<u64>,
}

impl ReportIntake {
    pub(super) fn is_read_at(&self, now_ms: u64) -> bool {
        !self.has_ended && now_ms >= self.quiet_until_ms
    }

    /// Gives each message to `hear`, which says why it refuses one.
    fn read<T: DeserializeOwned>(
        &mut self,
        now_ms: u64,
        channel: &Channel,
        who: &str,
        mut hear: impl FnMut(Envelope<T>) -> Result<(), String>,
    ) {
        if !self.is_read_at(now_ms) {
            return;
        }
        for _ in 0..REPORTS_PER_TURN_MAX {
            let heard = match messages::receive_from(channel) {
                Ok(Incoming::Message(said)) => hear(said),
                Ok(Incoming::Nothing) => return,
                Ok(Incoming::Closed) => {
                    self.has_ended = true;
                    return;
                }
                Err(error) => Err(format!("it makes no sense: {error}")),
            };
            if let Err(why) = heard {
                self.refuse(now_ms, who, &why);
            }
        }
        self.quiet_until_ms = now_ms + QUIET_MS;
    }

    pub(super) fn refuse(&mut self, now_ms: u64, who: &str, why: &str) {
        self.refused += 1;
        if self
            .told_ms
            .is_some_and(|told_ms| now_ms < told_ms + REFUSED_EVERY_MS)
        {
            return;
        }
        self.told_ms = Some(now_ms);
        let refused = std::mem::take(&mut self.refused);
        warn!("a report of {who} was refused: {why} refused={refused}");
    }
}

/// The channel to and from a child that the master has forked itself.
#[derive(Debug)]
pub(super) struct Link<T> {
    pid: i32,
    pub(super) outbox: Outbox<T>,
    pub(super) intake: ReportIntake,
}

impl<T: serde::Serialize + std::fmt::Debug> Link<T> {
    pub(super) fn new(pid: i32, channel: Channel) -> Self {
        Self {
            pid,
            outbox: Outbox::new(channel),
            intake: ReportIntake::default(),
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn hear<S: DeserializeOwned>(
        &mut self,
        now_ms: u64,
        who: &str,
        mut take: impl FnMut(S, Option<OwnedFd>) -> Result<(), String>,
    ) {
        let pid = self.pid;
        let channel = self.outbox.channel();
        self.intake.read(now_ms, channel, who, |said| {
            if said.sender == pid {
                take(said.message, said.fd)
            } else {
                Err(format!("process {} sent it, not {pid}", said.sender))
            }
        });
    }
}

/// The channel by which one worker reports.
#[derive(Debug)]
pub(super) struct Post {
    epoch: u16,
    /// The worker's number among those that are wanted, for the log.
    pub(super) number: u16,
    pub(super) channel: Channel,
    /// The worker's process: the first child of ours that reports `Here`, or the former template.
    pub(super) pid: Option<i32>,
    pub(super) intake: ReportIntake,
    /// `WorkerSilent` has been reported for it.
    was_ended: bool,
}

impl Post {
    /// `pid`: the worker's process, if that is known.
    pub(super) fn new(epoch: u16, number: u16, channel: Channel, pid: Option<i32>) -> Self {
        Self {
            epoch,
            number,
            channel,
            pid,
            intake: ReportIntake::default(),
            was_ended: false,
        }
    }

    /// The number of the worker of this epoch, if the post is that worker's.
    pub(super) fn number_of(&self, epoch: u16) -> Option<u16> {
        (self.epoch == epoch).then_some(self.number)
    }

    pub(super) fn hear(
        &mut self,
        (generation_number, index): (u32, u16),
        now_ms: u64,
        heard: &mut ReportsHeard<'_>,
    ) {
        let epoch = self.epoch;
        let worker = WorkerRef { index, epoch };
        let who = called(self.number, self.pid);
        let own = |event| MasterEvent::OfGeneration(generation_number, event);
        self.intake.read(now_ms, &self.channel, &who, |said| {
            let Envelope {
                message,
                fd,
                sender,
            } = said;
            match (self.pid, message) {
                (None, FromWorker::Here) => {
                    heard.children.adopt(sender)?;
                    self.pid = Some(sender);
                    let pid = sender;
                    heard
                        .events
                        .push(own(GenerationEvent::WorkerHere { worker, pid }));
                }
                (Some(pid), _) if pid != sender => {
                    return Err(format!("process {sender} sent it, not {pid}"));
                }
                (None, _) | (Some(_), FromWorker::Here) => {
                    return Err(format!("process {sender} sent it out of turn"));
                }
                (Some(_), FromWorker::Listen { bind }) => {
                    heard.listens.push(Listens {
                        generation_number,
                        worker,
                        bind,
                        fd,
                    });
                }
                (Some(_), said) => {
                    let events = match said {
                        FromWorker::Terminated => &mut heard.later,
                        _ => &mut heard.events,
                    };
                    events.push(own(GenerationEvent::WorkerSaid { worker, said }));
                }
            }
            Ok(())
        });
        if self.intake.has_ended && !std::mem::replace(&mut self.was_ended, true) {
            heard.later.push(own(GenerationEvent::WorkerSilent(worker)));
        }
    }
}

/// Which processes may turn out to be workers.
pub(super) struct Children<'m> {
    master: &'m Master,
    /// Children that have just been reaped: what they said, they said as ours.
    dead: &'m [i32],
    adopted: BTreeSet<i32>,
}

impl<'m> Children<'m> {
    pub(super) fn new(master: &'m Master, dead: &'m [i32]) -> Self {
        Self {
            master,
            dead,
            adopted: BTreeSet::new(),
        }
    }

    fn adopt(&mut self, pid: i32) -> Result<(), String> {
        if !self.dead.contains(&pid) && !child::is_ours(pid) {
            return Err(format!("process {pid} is not a child of the master"));
        }
        let mut known = self.master.children().chain(self.master.heir_pid());
        if known.any(|known| known == pid) || !self.adopted.insert(pid) {
            return Err(format!("process {pid} has another part already"));
        }
        Ok(())
    }
}

/// A worker wants an address for itself, and perhaps listens there already.
#[derive(Debug)]
pub(super) struct Listens {
    pub(super) generation_number: u32,
    pub(super) worker: WorkerRef,
    pub(super) bind: String,
    pub(super) fd: Option<OwnedFd>,
}

/// Reports of children since the last look.
pub(super) struct ReportsHeard<'m> {
    children: Children<'m>,
    /// In the order in which each of them said it.
    pub(super) events: Vec<MasterEvent>,
    pub(super) listens: Vec<Listens>,
    /// Generations whose acceptors ask for the headroom.
    pub(super) weighs: Vec<u32>,
    /// Events that count only after the signals that came with them: the ends of workers' channels, and TERM that a worker has received.
    pub(super) later: Vec<MasterEvent>,
}

impl<'m> ReportsHeard<'m> {
    pub(super) fn nothing(children: Children<'m>) -> Self {
        Self {
            children,
            events: Vec::new(),
            listens: Vec::new(),
            weighs: Vec::new(),
            later: Vec::new(),
        }
    }
}
