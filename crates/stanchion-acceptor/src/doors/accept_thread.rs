//! The accept thread: a thread that accepts connections while the loop is kept from it, and sleeps otherwise.
//!
//! When all cores are busy, the loop waits for a slice of the scheduler's before it can accept, and the kernel's queue may
//! fill up meanwhile. The accept thread does nothing but accept, so it may have what the loop may not: real-time priority, which
//! gives it a core at once ([`stanchion_sys::scheduling::be_prompt`]).
//!
//! The accept thread wakes when a connection comes, and gives the loop [`GRACE`] to accept it. If the loop has accepted none
//! meanwhile, the accept thread accepts those that wait. If the loop has, or the kernel's queue has plenty of room, the accept thread
//! waits for another [`GRACE`]. So it wakes once per [`GRACE`], however many connections come, and takes none from a loop
//! that keeps turning.
//!
//! The accept thread accepts with the lock held. So when [`AcceptThread::withdraw`] returns, the accept thread accepts nothing at that door any
//! more, and the caller has every connection that it did accept there.
//!
//! Without this thread a short queue overflows on a machine whose cores are all busy. If the kernel does not allow it
//! to be real-time, the thread does not help.
//!
//! - "Plenty of room" means that three quarters of a TCP listener's queue are free (`TCP_INFO`). For unix sockets the
//!   kernel does not report it.
//! - The acceptor becomes real-time (`SCHED_RR`, priority 1) and starts this thread, which inherits that. Then the loop
//!   goes back to `SCHED_BATCH`, and the acceptor gives up the right to become real-time with all its other rights.
//! - The thread never accepts at a listener that is shut or being closed (loop and thread accept under one lock), nor
//!   near `max_connections`, nor while accepting pauses.
//! - It sleeps in poll(2), because a second epoll(7) would cost a callback for each connection, even while no thread
//!   waits in it.
//! - If each request has its own connection, the thread costs some CPU time for each of them on one core: it takes
//!   connections that a quick loop would have accepted itself.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use stanchion_sys::eventfd::EventFd;
use stanchion_sys::listener::Listener;
use stanchion_sys::sock_diag::tcp_queue;
use tracing::{error, info};

use super::door::{self, Accepted};
use stanchion_log::panics;

/// The thread's name, as ps(1) shows it.
const THREAD_NAME: &str = "stanchion-door";
/// How long the loop has to accept a connection itself. The kernel's queue has to hold what comes in twice this time.
const GRACE: Duration = Duration::from_millis(1);
/// A queue has plenty of room while fewer than one in so many of its places are taken.
const PLENTY: u32 = 4;
/// How many accepted connections may wait for the loop; further ones stay in the kernel's queue.
const HANDED_OVER_MAX: usize = 1024;
/// The same, as a share of all connections there may be.
const HANDED_OVER_SHARE: usize = 16;
/// How many connections the accept thread accepts at a time with the lock held, before it rings for the loop.
const AT_A_TIME_MAX: usize = 64;

/// Logs whether clients may have to wait for a free core before the acceptor accepts them.
pub(crate) fn tell_of_promptness(prompt: io::Result<()>) {
    match prompt {
        Ok(()) => info!("accepting does not wait for a free core (SCHED_RR)"),
        Err(why) => info!(
            "accepting may have to wait when all cores are busy, since SCHED_RR is refused: {why} \
             (CAP_SYS_NICE or ulimit -r 1 would allow it)"
        ),
    }
}

/// The loop's handle of the thread, which ends when this is dropped.
pub(crate) struct AcceptThread(Arc<AcceptThreadShared>);

struct AcceptThreadShared {
    state: Mutex<AcceptThreadState>,
    handed_over_max: usize,
    /// Whether the accept thread has accepted a connection that the loop has not taken yet: the loop reads it without the lock.
    has_accepted: AtomicBool,
    /// Whether there is room for as many connections as the accept thread could accept before the loop looks again.
    is_permitted: AtomicBool,
    /// How many connections the loop has accepted itself.
    by_loop: AtomicU64,
    /// Rings when the accept thread has connections for the loop; to be watched edge-triggered.
    bell: EventFd,
    /// Wakes the thread, so that it looks at its doors again.
    call: EventFd,
}

#[derive(Default)]
struct AcceptThreadState {
    doors: Vec<WatchedDoor>,
    /// Connections that wait for the loop, of all doors.
    handed_over: usize,
    is_over: bool,
}

/// A door at which the accept thread accepts.
struct WatchedDoor {
    number: u32,
    listener: Arc<OwnedFd>,
    accepted: VecDeque<Accepted>,
    /// The listener was shut: poll(2) reports that for ever, and the loop deals with it.
    is_refused: bool,
}

impl AcceptThread {
    /// Starts the thread. Only a process that does not fork any more may call this.
    pub(crate) fn start(connections_max: usize) -> io::Result<Self> {
        let shared = Arc::new(AcceptThreadShared::new(connections_max)?);
        let accept_thread = Self(Arc::clone(&shared));
        let builder = thread::Builder::new().name(THREAD_NAME.to_owned());
        builder.spawn(move || panics::vital(|| shared.run()))?;
        Ok(accept_thread)
    }

    /// Rings when the accept thread has connections for the loop; to be watched edge-triggered.
    pub(crate) fn bell(&self) -> &EventFd {
        &self.0.bell
    }

    /// How many places must be free before the loop permits the accept thread to accept: one for each connection that may wait for
    /// the loop, and as many again for those that the accept thread may accept meanwhile.
    pub(super) fn places_needed(&self) -> usize {
        2 * self.0.handed_over_max
    }

    /// Has the accept thread accept at this door too.
    pub(super) fn watch(&self, number: u32, listener: &Listener) -> io::Result<()> {
        let watched = WatchedDoor {
            number,
            listener: Arc::new(listener.as_fd().try_clone_to_owned()?),
            accepted: VecDeque::new(),
            is_refused: false,
        };
        self.0.state().doors.push(watched);
        self.0.call.ring();
        Ok(())
    }

    /// Has the accept thread accept at this door no more. Returns the connections that it has accepted there and the loop has not
    /// taken. Waits for [`AT_A_TIME_MAX`] calls of accept(2) at most.
    pub(super) fn withdraw(&self, number: u32) -> VecDeque<Accepted> {
        let mut state = self.0.state();
        let Some(index) = state.doors.iter().position(|door| door.number == number) else {
            return VecDeque::new();
        };
        let left = state.doors.remove(index).accepted;
        state.handed_over -= left.len();
        drop(state);
        self.0.call.ring();
        left
    }

    /// Counts a connection that the loop has accepted itself. Only the loop writes here, so this is a load and a store.
    pub(super) fn accepted_by_loop(&self) {
        let before = self.0.by_loop.load(Ordering::Relaxed);
        self.0
            .by_loop
            .store(before.wrapping_add(1), Ordering::Relaxed);
    }

    /// Permits the accept thread to accept at its doors, or forbids it.
    pub(super) fn permit(&self, permitted: bool) {
        if self.0.is_permitted.swap(permitted, Ordering::Relaxed) == permitted {
            return;
        }
        if permitted {
            for door in &mut self.0.state().doors {
                door.is_refused = false;
            }
            self.0.call.ring();
        }
    }

    /// Hands out the connections that wait for the loop, each with the number of its door. False if the accept thread holds the
    /// lock: the loop then asks again.
    pub(super) fn take(&self, mut to: impl FnMut(u32, Accepted)) -> bool {
        if !self.0.has_accepted.load(Ordering::Acquire) {
            return true;
        }
        let mut state = match self.0.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => return false,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
        };
        self.0.has_accepted.store(false, Ordering::Relaxed);
        let was_full = state.handed_over >= self.0.handed_over_max;
        state.handed_over = 0;
        for door in &mut state.doors {
            let number = door.number;
            door.accepted
                .drain(..)
                .for_each(|accepted| to(number, accepted));
        }
        drop(state);
        if was_full {
            self.0.call.ring();
        }
        true
    }
}

impl Drop for AcceptThread {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.call.ring();
    }
}

impl AcceptThreadShared {
    fn new(connections_max: usize) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            handed_over_max: HANDED_OVER_MAX.min(connections_max / HANDED_OVER_SHARE),
            has_accepted: AtomicBool::new(false),
            is_permitted: AtomicBool::new(false),
            by_loop: AtomicU64::new(0),
            bell: EventFd::new()?,
            call: EventFd::new()?,
        })
    }

    fn state(&self) -> MutexGuard<'_, AcceptThreadState> {
        // No code panics with the lock held; a panic elsewhere is no reason to stop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of the thread.
    fn run(&self) {
        let mut listeners = Vec::new();
        while self.list(&mut listeners) {
            match self.has_come(&listeners) {
                Ok(false) => {}
                Ok(true) => {
                    // The thread must not keep a listener open that the loop closes meanwhile.
                    listeners.clear();
                    self.give_grace();
                    while self.accept_some() {}
                }
                Err(error) => {
                    error!(
                        "the accepting thread has ended, so connections may be refused when all cores are busy: poll(2): {error}"
                    );
                    return;
                }
            }
        }
    }

    /// Waits until the loop has accepted nothing for one [`GRACE`] while clients cannot wait. A loop that is late sends no
    /// signal, so only the clock shows it.
    fn give_grace(&self) {
        let mut before = self.by_loop.load(Ordering::Relaxed);
        loop {
            thread::sleep(GRACE);
            let now = self.by_loop.load(Ordering::Relaxed);
            if now == before && !self.they_can_wait() {
                return;
            }
            before = now;
        }
    }

    /// Whether the accept thread may accept another connection.
    fn may_accept(&self, state: &AcceptThreadState) -> bool {
        self.is_permitted.load(Ordering::Relaxed) && state.handed_over < self.handed_over_max
    }

    /// Whether connections wait in the queues, and each of these queues has plenty of room. The kernel does not report how
    /// full the queue of a unix socket is, so with one the answer is no. False also if the accept thread may not accept: the loop
    /// calls it once it may, and it need not look until then.
    fn they_can_wait(&self) -> bool {
        let state = self.state();
        if state.is_over || !self.may_accept(&state) {
            return false;
        }
        let mut standing = 0;
        for door in state.doors.iter().filter(|door| !door.is_refused) {
            match tcp_queue(door.listener.as_fd()) {
                Ok(Some(queue)) if queue.waiting * PLENTY < queue.backlog => {
                    standing += queue.waiting;
                }
                // A queue whose length the kernel does not report might be full.
                Ok(_) | Err(_) => return false,
            }
        }
        standing > 0
    }

    /// Lists the listeners at which the accept thread may accept now. False if the thread is to end.
    fn list(&self, listeners: &mut Vec<Arc<OwnedFd>>) -> bool {
        listeners.clear();
        let state = self.state();
        if self.may_accept(&state) {
            let doors = state.doors.iter().filter(|door| !door.is_refused);
            listeners.extend(doors.map(|door| Arc::clone(&door.listener)));
        }
        !state.is_over
    }

    /// Waits until a connection comes at one of the listeners. False if the loop called the thread instead.
    fn has_come(&self, listeners: &[Arc<OwnedFd>]) -> io::Result<bool> {
        let shut = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut watched = vec![PollFd::new(&self.call, PollFlags::IN)];
        let wanted = PollFlags::IN | PollFlags::RDHUP;
        watched.extend(
            listeners
                .iter()
                .map(|listener| PollFd::new(listener, wanted)),
        );
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [call, doors @ ..] = &watched[..] else {
            unreachable!("it polls what it is called by")
        };
        for (door, listener) in doors.iter().zip(listeners) {
            if door.revents().intersects(shut) {
                self.refused(listener);
            }
        }
        if !call.revents().is_empty() {
            self.call.silence();
            return Ok(false);
        }
        Ok(doors.iter().any(|door| !door.revents().is_empty()))
    }

    /// Another process that has this socket has shut it. poll(2) reports that for ever; the loop sees it as well and deals
    /// with it, so the accept thread leaves this listener alone.
    fn refused(&self, listener: &Arc<OwnedFd>) {
        let mut state = self.state();
        let mut doors = state.doors.iter_mut();
        if let Some(door) = doors.find(|door| Arc::ptr_eq(&door.listener, listener)) {
            door.is_refused = true;
        }
    }

    /// Accepts the connections that wait, [`AT_A_TIME_MAX`] at most, and queues them for the loop. True if there may be
    /// more.
    fn accept_some(&self) -> bool {
        let mut count = 0;
        let mut state = self.state();
        let AcceptThreadState {
            doors, handed_over, ..
        } = &mut *state;
        for door in doors.iter_mut().filter(|door| !door.is_refused) {
            while count < AT_A_TIME_MAX
                && *handed_over < self.handed_over_max
                && self.is_permitted.load(Ordering::Relaxed)
            {
                match door::accept_at(&door.listener) {
                    Ok(Some(accepted)) => {
                        door.accepted.push_back(accepted);
                        *handed_over += 1;
                        count += 1;
                    }
                    // accept(2) has removed the failed connection from the queue.
                    Err(error) if door::is_of_one_connection(&error) => {}
                    // The loop meets the same error, logs it and knows what to do.
                    Ok(None) | Err(_) => break,
                }
            }
        }
        if count > 0 {
            self.has_accepted.store(true, Ordering::Release);
        }
        drop(state);
        // The accept thread rings after it has freed the lock, since the loop only tries the lock and does not wait for it.
        if count > 0 {
            self.bell.ring();
        }
        count == AT_A_TIME_MAX
    }
}

#[cfg(test)]
mod tests;
