//! The certificates, and the helper threads that compute handshakes, which all connections with TLS share.
//!
//! A handshake costs as much as dozens of small requests. Helper threads compute only a few of one client's at a time.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::thread::available_parallelism;

use stanchion_sys::charge;
use stanchion_sys::eventfd::EventFd;
use stanchion_tls::{Config, Tls};
use tracing::warn;

use super::tls_facts::{FactsFault, tls_facts};
use stanchion_dispatch::storage::clients::{Client, Share, Shares};
use stanchion_dispatch::storage::disk::{Crew, Disk, FileSystem, Job};
use stanchion_dispatch::storage::woken::Woken;
use stanchion_record::TLS_BYTES_MAX;

/// Threads that compute handshakes: one for each core, within these bounds. They share the cores with the app.
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 8;
/// At most so many handshakes of one client are computed at a time, or wait for a thread. Its others wait until one of
/// these is through, so that a client that connects without end only waits for itself.
const TURNS_MAX_EACH: u64 = 64;

/// So many waiting connections look again when a handshake is through: it may have been another client's, and some
/// connections may be gone.
const WOKEN_AT_ONCE: usize = 8;

/// The service for TLS connections.
pub struct TlsService {
    config: Config,
    threads: Disk,
    turns: Rc<HandshakeTurns>,
    /// The log has named a client whose certificates are too large. It does that once: a client that has one such certificate
    /// may have any number of them.
    has_logged: Cell<bool>,
}

/// The turns of clients at the threads.
struct HandshakeTurns {
    shares: Rc<Shares>,
    taken: Cell<usize>,
    /// Connections whose clients have as many turns as they may, each of them once.
    waiting: RefCell<UniqueQueue>,
    woken: Rc<Woken>,
}

/// A queue of connections that has none twice, however often its client makes it ask.
#[derive(Default)]
struct UniqueQueue {
    queue: VecDeque<u32>,
    queued: HashSet<u32>,
}

impl UniqueQueue {
    fn add(&mut self, connection: u32) {
        if self.queued.insert(connection) {
            self.queue.push_back(connection);
        }
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes the first `count` connections out of the queue.
    fn drain(&mut self, count: usize) -> impl Iterator<Item = u32> {
        let first = self.queue.drain(..count);
        first.inspect(|number| {
            self.queued.remove(number);
        })
    }
}

/// A client's turn at the threads, until this is dropped.
pub struct HandshakeTurn {
    share: Option<Share>,
    turns: Rc<HandshakeTurns>,
}

impl TlsService {
    /// Starts the threads that compute for handshakes of so many connections.
    pub fn new(config: Config, connections_max: usize, woken: &Rc<Woken>) -> io::Result<Self> {
        let cores = available_parallelism().map_or(THREADS_MIN, usize::from);
        let crew = Crew {
            name: "stanchion-tls",
            threads_max: cores.clamp(THREADS_MIN, THREADS_MAX),
            overload: "there are as many handshakes as connections",
        };
        let threads = Disk::with_crew(crew, connections_max)?;
        Ok(Self::computed_by(threads, config, woken))
    }

    /// Makes a service whose handshakes these threads compute.
    pub fn computed_by(threads: Disk, config: Config, woken: &Rc<Woken>) -> Self {
        Self {
            config,
            threads,
            turns: Rc::new(HandshakeTurns {
                shares: Rc::default(),
                taken: Cell::default(),
                waiting: RefCell::default(),
                woken: Rc::clone(woken),
            }),
            has_logged: Cell::default(),
        }
    }

    /// Rings when handshakes are computed; to be watched edge-triggered.
    pub fn bell(&self) -> &EventFd {
        self.threads.bell()
    }

    /// Wakes the connections whose handshakes are computed. To be called once per turn of the loop.
    pub(crate) fn done(&self) {
        self.threads.done(&self.turns.woken);
    }

    /// Begins TLS on a new connection.
    pub fn begin(&self) -> io::Result<Tls> {
        Tls::new(&self.config)
    }

    /// Takes a turn for the client at this address; without an address the client has no limit. If there is no turn,
    /// the connection is woken when there may be one.
    pub fn turn(&self, ip: Option<IpAddr>, connection: u32) -> Option<HandshakeTurn> {
        let turns = &self.turns;
        let share = ip.map(|ip| turns.shares.take(Client::at(ip), 1, TURNS_MAX_EACH));
        let Ok(share) = share.transpose() else {
            // The table is for all clients, so no single one pays for it.
            let _charged = charge::to_nobody();
            turns.waiting.borrow_mut().add(connection);
            return None;
        };
        turns.taken.set(turns.taken.get() + 1);
        Some(HandshakeTurn {
            share,
            turns: Rc::clone(turns),
        })
    }

    /// Has a thread do the work.
    pub fn compute<T: Send + 'static>(
        &self,
        connection: u32,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Job<T> {
        self.threads.start(FileSystem::Own, connection, work)
    }

    /// The facts about a connection's TLS for the app, by the names of its interface.
    ///
    /// # Errors
    /// The client is at fault: the reason why the server does not serve it with the certificate that it has shown.
    pub fn facts(&self, tls: &Tls, is_asgi: bool, address: &str) -> Result<Rc<[u8]>, FactsFault> {
        let facts = tls_facts(tls, is_asgi);
        if let Err(FactsFault::TooLarge) = facts
            && !self.has_logged.replace(true)
        {
            warn!(
                "{address:?} is not served over TLS: its certificates, with the values read from them, have more than the {TLS_BYTES_MAX} \
                 bytes that an app gets. Let the client send shorter certificates, and only those that are needed. The log says this once; \
                 handshakes_failed counts other clients"
            );
        }
        facts
    }
}

impl Drop for HandshakeTurn {
    fn drop(&mut self) {
        // The share is given back before others look.
        drop(self.share.take());
        let HandshakeTurns {
            taken,
            waiting,
            woken,
            ..
        } = &*self.turns;
        taken.set(taken.get() - 1);
        let mut waiting = waiting.borrow_mut();
        let count = match taken.get() {
            // No turn is left whose end would wake the others.
            0 => waiting.len(),
            _ => waiting.len().min(WOKEN_AT_ONCE),
        };
        waiting.drain(count).for_each(|number| woken.add(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_asks_again_and_again_waits_once() {
        let mut waiting = UniqueQueue::default();
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
