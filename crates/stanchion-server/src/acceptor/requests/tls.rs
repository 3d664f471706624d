//! What connections with TLS have in common: the certificates, and the helper threads that compute handshakes.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::thread::available_parallelism;

use stanchion_sys::charge;
use stanchion_sys::eventfd::EventFd;
use stanchion_tls::{Config, Tls};
use tracing::{debug, warn};

use super::Requests;
use crate::acceptor::storage::clients::{Client, Share, Shares};
use crate::acceptor::storage::disk::{Crew, Disk, FileSystem, Job};
use crate::acceptor::storage::woken::Woken;
use crate::record::TLS_BYTES_MAX;
use crate::tally::Event;

/// Threads that compute handshakes: one for each core, within these bounds. They share the cores with the app.
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 8;
/// So many handshakes of one client are computed at a time, or wait for that. Its others wait until one of these is
/// through, so that who connects without end only waits for itself.
const TURNS_MAX_EACH: u64 = 64;

/// So many of those who wait look again when one is through: it may have been another client's, and some may be gone.
const WOKEN_AT_ONCE: usize = 8;

/// How TLS is served.
pub(crate) struct TlsService {
    config: Config,
    threads: Disk,
    turns: Rc<Turns>,
    /// The log has been told of certificates that are too large.
    has_told: Cell<bool>,
}

/// Who may have handshakes computed.
struct Turns {
    shares: Rc<Shares>,
    taken: Cell<usize>,
    /// Connections whose clients have as many turns as they may, each of them once.
    waiting: RefCell<Waiting>,
    woken: Rc<Woken>,
}

/// A queue of connections that has none twice, however often its client makes it ask.
#[derive(Default)]
struct Waiting {
    queue: VecDeque<u32>,
    queued: HashSet<u32>,
}

impl Waiting {
    fn add(&mut self, connection: u32) {
        if self.queued.insert(connection) {
            self.queue.push_back(connection);
        }
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes the first `count` out of it.
    fn drain(&mut self, count: usize) -> impl Iterator<Item = u32> {
        let first = self.queue.drain(..count);
        first.inspect(|number| {
            self.queued.remove(number);
        })
    }
}

/// A client's turn at the threads, until this is dropped.
pub(crate) struct Turn {
    share: Option<Share>,
    turns: Rc<Turns>,
}

impl TlsService {
    pub(crate) fn new(
        config: Config,
        connections_max: usize,
        woken: &Rc<Woken>,
    ) -> io::Result<Self> {
        let cores = available_parallelism().map_or(THREADS_MIN, usize::from);
        let crew = Crew {
            name: "stanchion-tls",
            threads_max: cores.clamp(THREADS_MIN, THREADS_MAX),
            overload: "there are as many handshakes as connections",
        };
        let threads = Disk::with_crew(crew, connections_max)?;
        Ok(Self::computed_by(threads, config, woken))
    }

    /// One whose handshakes these threads compute.
    pub(crate) fn computed_by(threads: Disk, config: Config, woken: &Rc<Woken>) -> Self {
        Self {
            config,
            threads,
            turns: Rc::new(Turns {
                shares: Rc::default(),
                taken: Cell::default(),
                waiting: RefCell::default(),
                woken: Rc::clone(woken),
            }),
            has_told: Cell::default(),
        }
    }

    /// Rings when handshakes are computed; to be watched edge-triggered.
    pub(crate) fn bell(&self) -> &EventFd {
        self.threads.bell()
    }

    /// Tells whose handshakes are computed. To be called once per turn of the loop.
    pub(crate) fn done(&self) {
        self.threads.done(&self.turns.woken);
    }

    /// For a new connection.
    pub(crate) fn begin(&self) -> io::Result<Tls> {
        Tls::new(&self.config)
    }

    /// A turn for whoever is at this address; `None` is nobody whose handshakes are limited. Without one the connection is
    /// woken when there may be one.
    pub(crate) fn turn(&self, ip: Option<IpAddr>, connection: u32) -> Option<Turn> {
        let turns = &self.turns;
        let share = ip.map(|ip| turns.shares.take(Client::at(ip), 1, TURNS_MAX_EACH));
        let Ok(share) = share.transpose() else {
            // No client pays for a table of all.
            let _charged = charge::to_nobody();
            turns.waiting.borrow_mut().add(connection);
            return None;
        };
        turns.taken.set(turns.taken.get() + 1);
        Some(Turn {
            share,
            turns: Rc::clone(turns),
        })
    }

    /// Has a thread do it.
    pub(crate) fn compute<T: Send + 'static>(
        &self,
        connection: u32,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Job<T> {
        self.threads.start(FileSystem::Own, connection, work)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // It is given back before others look.
        drop(self.share.take());
        let Turns {
            taken,
            waiting,
            woken,
            ..
        } = &*self.turns;
        taken.set(taken.get() - 1);
        let mut waiting = waiting.borrow_mut();
        let count = match taken.get() {
            // Nobody is left who would wake the others.
            0 => waiting.len(),
            _ => waiting.len().min(WOKEN_AT_ONCE),
        };
        waiting.drain(count).for_each(|number| woken.add(number));
    }
}

impl Requests {
    /// A client did not do its part of a handshake.
    pub(crate) fn handshake_failed(&self, why: &dyn Display, address: &str) {
        self.common.tally.happened(Event::HandshakeFailed);
        debug!("a client's fault: no TLS with {address:?}: {why}");
    }

    /// A client has shown good certificates, and is not served. The log is told once: who has one may have any number.
    pub(super) fn certificates_are_too_large(&self, address: &str) {
        let is_news = self
            .tls
            .as_ref()
            .is_some_and(|tls| !tls.has_told.replace(true));
        if is_news {
            warn!(
                "{address:?} is not served over TLS: its certificates, with what they say, have more than the {TLS_BYTES_MAX} \
                 bytes that an app is told of. Have it show shorter ones, and none that nobody needs. This is said once, and \
                 others are counted (handshakes_failed)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_asks_again_and_again_waits_once() {
        let mut waiting = Waiting::default();
        for number in [1, 2, 1, 1, 3, 2] {
            waiting.add(number);
        }
        assert_eq!(waiting.drain(2).collect::<Vec<_>>(), [1, 2]);
        waiting.add(1);
        assert_eq!(waiting.len(), 2);
        assert_eq!(waiting.drain(2).collect::<Vec<_>>(), [3, 1]);
        assert!(waiting.queued.is_empty());
    }
}
