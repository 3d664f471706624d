//! Files, read and written by helper threads, so that the disk does not hold up the event loop.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::fstatfs;
use stanchion_sys::charge;
use stanchion_sys::eventfd::EventFd;
use tracing::warn;

use super::woken::Woken;
use stanchion_log::caught::caught;

/// At most so many threads wait for the disk. Other reads and writes wait for one of them.
const DISK_THREADS_MAX: usize = 32;
/// At most so many of these threads wait for file systems that may not answer: all else must go on.
pub const FOREIGN_THREADS_MAX: usize = DISK_THREADS_MAX / 2;

/// The helper threads. A clone is another handle of the same.
#[derive(Clone)]
pub struct Disk(Rc<PoolOwner>);

/// File systems of this machine's own disks and memory: such a file system opens and closes what the kernel has in its caches without
/// asking another machine or process. A network's, or one in user space (FUSE), may ask its server each time, which may not answer. Their
/// numbers are in statfs(2).
const OWN_FILE_SYSTEMS: [u32; 12] = [
    0xef53,      // ext2, ext3 and ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x2fc1_2fc1, // ZFS
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
    0x9660,      // ISO 9660
];

/// The file system of the files that a job is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// The machine's own (`OWN_FILE_SYSTEMS`), or any on which an app has opened a file.
    Own,
    /// A file system that may ask a server each time, which may not answer.
    Foreign,
}

/// Work that a helper thread does for a connection. It is not done any more if this is dropped before its turn has come.
pub struct Job<T: Send + 'static> {
    slot: Arc<Slot<T>>,
    file_system: FileSystem,
    pool: Arc<Pool>,
}

/// The result of a job, from when it is done until it is taken.
type Slot<T> = Mutex<Option<io::Result<T>>>;
type Work = Box<dyn FnOnce() + Send>;

/// The threads end when this is dropped.
struct PoolOwner {
    pool: Arc<Pool>,
}

struct Pool {
    state: Mutex<PoolState>,
    crew: Crew,
    /// At most so many jobs wait while all threads are busy, and as many things that are to be let go of. A connection has one job at a
    /// time, so it is `max_connections`; but connections that are gone may have left their jobs behind.
    waiting_max: usize,
    /// Notified when there is work, or none will come any more.
    work: Condvar,
    /// Notified when nothing is left to do.
    rest: Condvar,
    /// Whether there is anything in [`PoolState::done`].
    has_done: AtomicBool,
    bell: EventFd,
}

/// Helper threads for one kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Crew {
    /// The name of the threads, for the kernel and in the log.
    pub name: &'static str,
    /// How many threads there are at most.
    pub threads_max: usize,
    /// The reason why a job is refused, if too many wait.
    pub overload: &'static str,
}

/// The threads that wait for the disk.
const DISK_CREW: Crew = Crew {
    name: "stanchion-disk",
    threads_max: DISK_THREADS_MAX,
    overload: "the disk is too slow: there are as many jobs for it as connections",
};

#[derive(Default)]
struct PoolState {
    own: VecDeque<Work>,
    foreign: VecDeque<Work>,
    threads: usize,
    /// How many of these threads work, and how many of them work with foreign files.
    busy: usize,
    busy_foreign: usize,
    /// The connections whose jobs are done, until the event loop has fetched them.
    done: Vec<u32>,
    is_over: bool,
}

impl Disk {
    /// Makes the threads that wait for the disk, for so many connections.
    pub fn new(connections_max: usize) -> io::Result<Self> {
        Self::with_crew(DISK_CREW, connections_max)
    }

    /// Makes threads that wait for something else, or compute.
    pub fn with_crew(crew: Crew, connections_max: usize) -> io::Result<Self> {
        let pool = Arc::new(Pool {
            state: Mutex::default(),
            crew,
            waiting_max: connections_max,
            work: Condvar::new(),
            rest: Condvar::new(),
            has_done: AtomicBool::new(false),
            bell: EventFd::new()?,
        });
        Ok(Self(Rc::new(PoolOwner { pool })))
    }

    /// Rings when jobs are done; to be watched edge-triggered.
    pub fn bell(&self) -> &EventFd {
        &self.0.pool.bell
    }

    /// Begins `work` for a connection, which is woken once it is done. The present payer pays for what the thread allocates.
    pub fn start<T: Send + 'static>(
        &self,
        file_system: FileSystem,
        connection: u32,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Job<T> {
        let slot = Arc::new(Slot::new(None));
        let pool = &self.0.pool;
        let (taker, for_thread) = (Arc::downgrade(&slot), Arc::clone(pool));
        let payer = charge::current();
        let task = Box::new(move || {
            let _charged = charge::to(payer);
            for_thread.run(connection, &taker, work);
        });
        if let Err(error) = pool.queue(file_system, task, pool.waiting_max) {
            *locked(&slot) = Some(Err(error));
            pool.report(connection);
        }
        Job {
            slot,
            file_system,
            pool: Arc::clone(pool),
        }
    }

    /// Drops a thing of which the disk lets go slowly: a large file takes a file system many writes, and a file system in user space is
    /// asked at each close(2).
    pub fn discard<T: Send + 'static>(&self, file_system: FileSystem, thing: T) {
        self.0.pool.discard(file_system, thing);
    }

    /// Wakes the connections whose jobs are done. To be called once per turn.
    pub fn done(&self, woken: &Woken) {
        let pool = &self.0.pool;
        if pool.has_done.load(Ordering::Acquire) {
            let mut state = pool.state();
            pool.has_done.store(false, Ordering::Relaxed);
            state.done.drain(..).for_each(|number| woken.add(number));
        }
    }

    /// Refuses further jobs, and waits for those that there are, but no longer than `bound`.
    pub fn finish(&self, bound: Duration) {
        let pool = &self.0.pool;
        pool.end();
        let works = |state: &mut PoolState| state.left() > 0;
        let waited = pool.rest.wait_timeout_while(pool.state(), bound, works);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let left = state.left();
        if left > 0 {
            warn!("the disk is slow: the acceptor leaves with {left} reads or writes unfinished");
        }
    }
}

impl<T: Send + 'static> Job<T> {
    /// Takes the result, once the job is done.
    pub fn take(&mut self) -> Option<io::Result<T>> {
        locked(&self.slot).take()
    }
}

impl<T: Send + 'static> Drop for Job<T> {
    fn drop(&mut self) {
        // The result may be a file, which no connection wants any more.
        if let Some(done) = self.take() {
            self.pool.discard(self.file_system, done);
        }
    }
}

impl Drop for PoolOwner {
    fn drop(&mut self) {
        self.pool.end();
    }
}

impl PoolState {
    /// Jobs that are not done.
    fn left(&self) -> usize {
        self.own.len() + self.foreign.len() + self.busy
    }

    /// The next job that may be done now.
    fn next(&mut self) -> Option<(FileSystem, Work)> {
        if self.busy_foreign < FOREIGN_THREADS_MAX
            && let Some(task) = self.foreign.pop_front()
        {
            return Some((FileSystem::Foreign, task));
        }
        self.own.pop_front().map(|task| (FileSystem::Own, task))
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        locked(&self.state)
    }

    /// See [`Disk::discard`].
    fn discard<T: Send + 'static>(self: &Arc<Self>, file_system: FileSystem, thing: T) {
        let waiting_max = self.waiting_max.saturating_mul(2);
        let task: Work = match file_system {
            // A thing that the queue refuses is dropped here and now: the disk is that slow for all, or no event loop is held up any more.
            FileSystem::Own => Box::new(move || drop(thing)),
            // A thing that the queue refuses is never let go of: that takes a file system that hangs, or the end of the server.
            FileSystem::Foreign => {
                let thing = ManuallyDrop::new(thing);
                Box::new(move || drop(ManuallyDrop::into_inner(thing)))
            }
        };
        let _refused = self.queue(file_system, task, waiting_max);
    }

    /// Has a thread do the task, a new one if all are busy.
    fn queue(
        self: &Arc<Self>,
        file_system: FileSystem,
        task: Work,
        waiting_max: usize,
    ) -> io::Result<()> {
        // The queue and the threads are for all clients, so no single one pays for them.
        let _charged = charge::to_nobody();
        let mut state = self.state();
        if state.is_over {
            return Err(io::Error::other("the server leaves"));
        }
        let (jobs, threads_max) = match file_system {
            FileSystem::Own => (
                state.own.len() + state.busy - state.busy_foreign,
                self.crew.threads_max,
            ),
            FileSystem::Foreign => (
                state.foreign.len() + state.busy_foreign,
                FOREIGN_THREADS_MAX,
            ),
        };
        if jobs >= threads_max + waiting_max {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                self.crew.overload,
            ));
        }
        let idle = state.threads - state.busy;
        if idle <= state.own.len() + state.foreign.len() && state.threads < self.crew.threads_max {
            let pool = Arc::clone(self);
            let thread = std::thread::Builder::new().name(self.crew.name.to_owned());
            match thread.spawn(move || pool.work()) {
                Ok(_) => state.threads += 1,
                // The other threads do it.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err(error),
            }
        }
        match file_system {
            FileSystem::Own => state.own.push_back(task),
            FileSystem::Foreign => state.foreign.push_back(task),
        }
        self.work.notify_one();
        Ok(())
    }

    /// The life of a thread.
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some((file_system, task)) = state.next() {
                let is_foreign = usize::from(file_system == FileSystem::Foreign);
                state.busy += 1;
                state.busy_foreign += is_foreign;
                drop(state);
                // If the drop of a thing panics, the log has that, as any panic.
                let _told = caught(task);
                state = self.state();
                state.busy -= 1;
                state.busy_foreign -= is_foreign;
            } else if state.is_over {
                state.threads -= 1;
                self.rest.notify_all();
                return;
            } else {
                let waited = self.work.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Does a job, if its connection still wants the result.
    fn run<T>(&self, connection: u32, taker: &Weak<Slot<T>>, work: impl FnOnce() -> io::Result<T>) {
        if taker.strong_count() == 0 {
            return;
        }
        let done = caught(work)
            .unwrap_or_else(|| Err(io::Error::other("our fault: the work has panicked")));
        if let Some(slot) = taker.upgrade() {
            *locked(&slot) = Some(done);
            self.report(connection);
        }
    }

    fn report(&self, connection: u32) {
        let _charged = charge::to_nobody(); // No client pays for the list of all.
        let mut state = self.state();
        state.done.push(connection);
        let is_first = state.done.len() == 1;
        self.has_done.store(true, Ordering::Release);
        drop(state);
        // At the first ring the event loop looks at all that is done.
        if is_first {
            self.bell.ring();
        }
    }

    fn end(&self) {
        self.state().is_over = true;
        self.work.notify_all();
    }
}

/// No code panics with a lock held, but a panic elsewhere is no reason to stop.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file system of a file or directory. The question may take as long as anything else there.
pub fn file_system_of(file: impl AsFd) -> FileSystem {
    // The number is one of 32 bits, whatever type the machine's word has.
    match fstatfs(file) {
        Ok(found) if OWN_FILE_SYSTEMS.contains(&(found.f_type as u32)) => FileSystem::Own,
        _ => FileSystem::Foreign,
    }
}

/// A file that is open until it is sent.
pub struct OpenFile {
    /// `None` once it is closed.
    file: Option<Arc<File>>,
    /// The threads that close it, if it is foreign.
    disk: Option<Disk>,
}

impl OpenFile {
    /// A file of this file system, which the disk's threads close if it is foreign.
    pub fn new(file: File, file_system: FileSystem, disk: &Disk) -> Self {
        Self {
            file: Some(Arc::new(file)),
            disk: (file_system == FileSystem::Foreign).then(|| disk.clone()),
        }
    }

    /// A file that an app has opened, wherever that is.
    pub fn of_app(file: File) -> Self {
        Self {
            file: Some(Arc::new(file)),
            disk: None,
        }
    }

    /// The kind of file system that the file is on.
    pub fn file_system(&self) -> FileSystem {
        if self.disk.is_some() {
            FileSystem::Foreign
        } else {
            FileSystem::Own
        }
    }
}

impl Deref for OpenFile {
    type Target = Arc<File>;

    fn deref(&self) -> &Arc<File> {
        self.file
            .as_ref()
            .expect("it is there until this is dropped")
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let (Some(file), Some(disk)) = (self.file.take(), &self.disk) {
            disk.discard(FileSystem::Foreign, file);
        }
    }
}

/// Reads what the page cache has at once (preadv2(2), `RWF_NOWAIT`); `None` if it has nothing, or if the file system cannot tell.
pub fn read_cached(file: &File, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    read_cached_onto(&mut bytes, file, offset, len).map(|_read| bytes)
}

/// The same, appended to `out`; gives how many bytes it was.
pub fn read_cached_onto(out: &mut Vec<u8>, file: &File, offset: u64, len: usize) -> Option<usize> {
    let before = out.len();
    out.resize(before + len, 0);
    let mut slices = [io::IoSliceMut::new(&mut out[before..])];
    let read = rustix::io::preadv2(
        file,
        &mut slices,
        offset,
        rustix::io::ReadWriteFlags::NOWAIT,
    );
    let read = read.ok().filter(|&read| read > 0);
    out.truncate(before + read.unwrap_or(0));
    read
}

/// Reads up to `len` bytes, however long it takes.
pub fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads as [`read_at`] does, of a file that has bytes at this offset.
///
/// # Errors
/// `UnexpectedEof` if there are none: another process has made the file shorter since its length was read.
pub fn read_some_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let bytes = read_at(file, offset, len)?;
    if bytes.is_empty() {
        return Err(became_shorter());
    }
    Ok(bytes)
}

/// A file ends before the bytes that are to be sent.
pub fn became_shorter() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the file became shorter while it was sent",
    )
}

/// Writes all of `pieces`, one after the other.
pub(super) fn write_at(file: &File, offset: u64, pieces: &[Bytes]) -> io::Result<()> {
    let mut at = offset;
    for piece in pieces {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(debug_assertions)]
mod by_hand;
#[cfg(test)]
mod tests;
