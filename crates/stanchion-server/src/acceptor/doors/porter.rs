//! The porter: a thread that accepts for the loop while that is kept from it, and sleeps otherwise.
//!
//! On a machine whose cores are all taken the loop waits for a slice of the scheduler's before it can accept, and the
//! kernel's queue may be full by then. The porter does nothing but accept, so it may have what the loop may not: a
//! core at once, whoever is at work there ([`stanchion_sys::scheduling::be_prompt`]).
//!
//! It wakes when somebody comes, gives the loop [`GRACE`] to accept, and takes who stands there still, unless the loop
//! has accepted somebody meanwhile, or the kernel's queue has plenty of room: then it gives it another one. So it wakes once
//! per [`GRACE`], however many come, and a loop that goes round has nobody taken from it.
//!
//! It accepts with the lock held: whoever takes a door from it knows, from then on, that it accepts nobody there, and
//! has everybody it did accept.

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

use super::door::{self, Guest};
use crate::panics;

/// What the thread is called.
const THREAD_NAME: &str = "stanchion-door";
/// How long the loop has to accept somebody itself: what comes in twice as long has to fit the kernel's queue.
const GRACE: Duration = Duration::from_millis(1);
/// A queue has plenty of room while less than one in so many of its places is taken.
const PLENTY: u32 = 4;
/// Guests that may wait for the loop; who comes when there are as many waits in the kernel's queue.
const HANDED_OVER_MAX: usize = 1024;
/// The same, as a share of all connections there may be.
const HANDED_OVER_SHARE: usize = 16;
/// Guests that are accepted with the lock held, before the loop is told of them.
const AT_A_TIME_MAX: usize = 64;

/// Logs whether a client may be turned away when all cores are taken.
pub(crate) fn tell_of_promptness(prompt: io::Result<()>) {
    match prompt {
        Ok(()) => info!("accepting does not wait for a free core (SCHED_RR)"),
        Err(why) => info!(
            "accepting may have to wait when all cores are busy, since SCHED_RR is refused: {why} \
             (CAP_SYS_NICE or ulimit -r 1 would allow it)"
        ),
    }
}

/// The loop's end of it. The thread ends when this is dropped.
pub(crate) struct Porter(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    handed_over_max: usize,
    /// Whether anybody was handed over and not taken yet: a look that needs no lock.
    has_guests: AtomicBool,
    /// Whether there is room for as many as it could accept before the loop looks again.
    is_permitted: AtomicBool,
    /// How many the loop has accepted itself.
    by_loop: AtomicU64,
    /// Rings when guests were handed over; to be watched edge-triggered.
    bell: EventFd,
    /// Has the thread look up.
    call: EventFd,
}

#[derive(Default)]
struct State {
    doors: Vec<Watched>,
    /// Guests of all doors.
    handed_over: usize,
    is_over: bool,
}

/// A door that it accepts at.
struct Watched {
    number: u32,
    listener: Arc<OwnedFd>,
    guests: VecDeque<Guest>,
    /// The kernel refuses, which is the loop's to deal with.
    is_refused: bool,
}

impl Porter {
    /// Starts the thread. To be called only in a process that does not fork any more.
    pub(crate) fn start(connections_max: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(connections_max)?);
        let porter = Self(Arc::clone(&shared));
        let builder = thread::Builder::new().name(THREAD_NAME.to_owned());
        builder.spawn(move || panics::vital(|| shared.run()))?;
        Ok(porter)
    }

    /// Rings when guests were handed over; to be watched edge-triggered.
    pub(crate) fn bell(&self) -> &EventFd {
        &self.0.bell
    }

    /// How many places must be free for it to be permitted to accept: for those that it has handed over when the loop takes
    /// them, and as many again that it may accept meanwhile.
    pub(super) fn places_needed(&self) -> usize {
        2 * self.0.handed_over_max
    }

    /// From now on it accepts at this door too.
    pub(super) fn watch(&self, number: u32, listener: &Listener) -> io::Result<()> {
        let watched = Watched {
            number,
            listener: Arc::new(listener.as_fd().try_clone_to_owned()?),
            guests: VecDeque::new(),
            is_refused: false,
        };
        self.0.state().doors.push(watched);
        self.0.call.ring();
        Ok(())
    }

    /// From now on it accepts nobody at this door. Gives those whom it has accepted there and nobody has taken. It waits
    /// for [`AT_A_TIME_MAX`] calls of accept(2) at most.
    pub(super) fn withdraw(&self, number: u32) -> VecDeque<Guest> {
        let mut state = self.0.state();
        let Some(index) = state.doors.iter().position(|door| door.number == number) else {
            return VecDeque::new();
        };
        let left = state.doors.remove(index).guests;
        state.handed_over -= left.len();
        drop(state);
        self.0.call.ring();
        left
    }

    /// The loop has accepted somebody itself. Only the loop writes here, so this is a load and a store.
    pub(super) fn accepted_by_loop(&self) {
        let before = self.0.by_loop.load(Ordering::Relaxed);
        self.0
            .by_loop
            .store(before.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether it may accept, wherever it does.
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

    /// Gives those who were handed over, and at which door. False if it is just at work, and is to be asked again.
    pub(super) fn take(&self, mut to: impl FnMut(u32, Guest)) -> bool {
        if !self.0.has_guests.load(Ordering::Acquire) {
            return true;
        }
        let mut state = match self.0.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => return false,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
        };
        self.0.has_guests.store(false, Ordering::Relaxed);
        let was_full = state.handed_over >= self.0.handed_over_max;
        state.handed_over = 0;
        for door in &mut state.doors {
            let number = door.number;
            door.guests.drain(..).for_each(|guest| to(number, guest));
        }
        drop(state);
        if was_full {
            self.0.call.ring();
        }
        true
    }
}

impl Drop for Porter {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.call.ring();
    }
}

impl Shared {
    fn new(connections_max: usize) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            handed_over_max: HANDED_OVER_MAX.min(connections_max / HANDED_OVER_SHARE),
            has_guests: AtomicBool::new(false),
            is_permitted: AtomicBool::new(false),
            by_loop: AtomicU64::new(0),
            bell: EventFd::new()?,
            call: EventFd::new()?,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics with the lock held, but what panics elsewhere is no reason to stop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of the thread.
    fn run(&self) {
        let mut listeners = Vec::new();
        while self.list(&mut listeners) {
            match self.somebody_came(&listeners) {
                Ok(false) => {}
                Ok(true) => {
                    // A door that is closed meanwhile is not kept open by us.
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

    /// Lets the loop accept for as long as it does. Nobody would tell when it is late, so it is the clock that does.
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

    /// Whether it may accept somebody at some door.
    fn may_accept(&self, state: &State) -> bool {
        self.is_permitted.load(Ordering::Relaxed) && state.handed_over < self.handed_over_max
    }

    /// Whether somebody stands at a door, and nobody at one whose queue might soon be full. Of a unix socket's the kernel
    /// does not tell. False if it may not accept them: it is called once it may, and need not look until then.
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
                // If it cannot be told, it might be full.
                Ok(_) | Err(_) => return false,
            }
        }
        standing > 0
    }

    /// Where it may accept now. False if it is to end.
    fn list(&self, listeners: &mut Vec<Arc<OwnedFd>>) -> bool {
        listeners.clear();
        let state = self.state();
        if self.may_accept(&state) {
            let doors = state.doors.iter().filter(|door| !door.is_refused);
            listeners.extend(doors.map(|door| Arc::clone(&door.listener)));
        }
        !state.is_over
    }

    /// Waits until somebody is at a door; or until it is called, which is false.
    fn somebody_came(&self, listeners: &[Arc<OwnedFd>]) -> io::Result<bool> {
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

    /// Somebody else who has this socket has shut it, of which poll(2) would tell for ever: the loop sees it, and it is
    /// the loop's to deal with.
    fn refused(&self, listener: &Arc<OwnedFd>) {
        let mut state = self.state();
        let mut doors = state.doors.iter_mut();
        if let Some(door) = doors.find(|door| Arc::ptr_eq(&door.listener, listener)) {
            door.is_refused = true;
        }
    }

    /// Accepts who is there, [`AT_A_TIME_MAX`] at most, and hands them over. True if there may be more.
    fn accept_some(&self) -> bool {
        let mut accepted = 0;
        let mut state = self.state();
        let State {
            doors, handed_over, ..
        } = &mut *state;
        for door in doors.iter_mut().filter(|door| !door.is_refused) {
            while accepted < AT_A_TIME_MAX
                && *handed_over < self.handed_over_max
                && self.is_permitted.load(Ordering::Relaxed)
            {
                match door::accept_at(&door.listener) {
                    Ok(Some(guest)) => {
                        door.guests.push_back(guest);
                        *handed_over += 1;
                        accepted += 1;
                    }
                    // It is out of the queue.
                    Err(error) if door::is_of_one_connection(&error) => {}
                    // Of an error the loop hears the same, tells of it and knows what to do.
                    Ok(None) | Err(_) => break,
                }
            }
        }
        if accepted > 0 {
            self.has_guests.store(true, Ordering::Release);
        }
        drop(state);
        // After the lock is free, since the loop does not wait for it.
        if accepted > 0 {
            self.bell.ring();
        }
        accepted == AT_A_TIME_MAX
    }
}

#[cfg(test)]
mod tests;
