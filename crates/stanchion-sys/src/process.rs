//! Processes: fork, reap, and the ties between parent and child.

pub mod title;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::call::{InCall, checked, named, number, retry};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};

/// The result of `fork`, in the parent and in the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// In the parent: the child's pid.
    Parent(i32),
    /// In the child.
    Child,
}

/// Forks (fork(2)).
///
/// # Safety
///
/// Only the calling thread exists in the child, so any lock another thread holds stays locked
/// for ever: the process must have a single thread, or the child must keep to async-signal-safe
/// calls. [`thread_count`] lets the caller check.
pub unsafe fn fork() -> io::Result<Fork> {
    // SAFETY: the caller keeps the contract above.
    match checked("fork", unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Forks a process that has one thread; fails in a process with more.
pub fn fork_single_threaded() -> io::Result<Fork> {
    refuse_threads()?;
    // SAFETY: there is no other thread that could hold a lock, nor start one in between.
    unsafe { fork() }
}

/// An error if this process has more than one thread.
pub(crate) fn refuse_threads() -> io::Result<()> {
    match thread_count()? {
        1 => Ok(()),
        threads => Err(io::Error::other(format!(
            "the process has {threads} threads"
        ))),
    }
}

/// Ends the process at once: no destructors, no `atexit` (_exit(2)).
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(code) }
}

/// The directory in which [`thread_count`] looks.
pub const TASKS: &str = "/proc/self/task";

/// How many threads this process has (proc(5)). An error if proc(5) is not mounted.
pub fn thread_count() -> io::Result<usize> {
    Ok(std::fs::read_dir(TASKS)?.count())
}

/// How many threads a process has (`num_threads` in `proc_pid_stat(5)`); `None` if it is gone.
pub fn threads_of(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the process may hold anything, so the fields are counted from its end.
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(17)?.parse().ok()
}

/// The threads of this process except the calling one, each with the kernel's name for it (/proc/self/task/TID/comm in
/// proc(5)). A thread that ends meanwhile may be missing.
pub fn other_threads() -> io::Result<Vec<(i32, String)>> {
    let ours = rustix::thread::gettid().as_raw_nonzero().get();
    let mut others = Vec::new();
    for task in std::fs::read_dir(TASKS)? {
        let task = task?;
        let id = task.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(id) = id.filter(|&id| id != ours)
            && let Ok(name) = std::fs::read(task.path().join("comm"))
        {
            let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
            others.push((id, name));
        }
    }
    Ok(others)
}

/// The kernel's name for the calling thread (`PR_GET_NAME` in prctl(2)).
pub fn thread_name() -> io::Result<String> {
    let name = rustix::thread::name().in_call("prctl")?;
    Ok(name.to_string_lossy().into_owned())
}

/// The pid of this process.
pub fn pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The pid of the parent, or 0 if it is outside our pid namespace.
pub fn parent_pid() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

/// Makes this process the adopter of its orphaned descendants.
pub fn become_subreaper() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).in_call("prctl")
}

/// Asks the kernel to send `signal` when `parent` dies (`PR_SET_PDEATHSIG`). True if `parent` has died already. This
/// holds after an adoption too: the kernel sends the signal when the present parent dies.
pub fn die_with(parent: i32, signal: i32) -> io::Result<bool> {
    // The kernel would send none for `None`.
    let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    rustix::process::set_parent_process_death_signal(Some(signal)).in_call("prctl")?;
    Ok(parent_pid() != parent)
}

/// Sends a signal, which may be a real-time one; a process that has gone is no error.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // kill(2) takes 0 and negative numbers for groups.
    if pid <= 0 || signal <= 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: kill(2) has no preconditions.
    unless_it_has_gone(checked("kill", unsafe { libc::kill(pid, signal) }))
}

/// Sends a signal to the process of a pidfd; a process that has gone is no error. The signal may be a real-time one, for
/// which rustix has no type.
pub(crate) fn send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    let fd = pidfd.as_raw_fd();
    // SAFETY: pidfd_send_signal(2) reads nothing through a null pointer, and the descriptor is open.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_info, 0) };
    unless_it_has_gone(checked("pidfd_send_signal", sent))
}

fn unless_it_has_gone<R>(sent: io::Result<R>) -> io::Result<()> {
    match sent {
        Err(error) if number(&error) != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

/// Whether a process with this pid exists, of any user.
pub fn is_alive(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| {
        !matches!(
            rustix::process::test_kill_process(pid),
            Err(rustix::io::Errno::SRCH)
        )
    })
}

/// Takes over a descriptor that was kept open for this process over execve(2). It is closed at the next exec. `EBADF`
/// if no descriptor has that number.
pub fn inherited_fd(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes any number and gives a new descriptor or an error.
    let copy = checked("fcntl", unsafe {
        libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3)
    })?;
    // Keep the number of a standard stream taken: otherwise the next file that is opened would get it.
    if fd > libc::STDERR_FILENO {
        // SAFETY: the process that started us left the descriptor there for this call, and no code of ours has used its
        // number so far. It cannot be closed twice, because the copy is what we keep.
        unsafe { libc::close(fd) };
    }
    // SAFETY: the call above has just made `copy`, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Keeps descriptors open over execve(2).
pub fn keep_over_exec<'f>(fds: impl IntoIterator<Item = BorrowedFd<'f>>) -> io::Result<()> {
    for fd in fds {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).in_call("fcntl")?;
    }
    Ok(())
}

/// Whether we run in the foreground of a terminal (tcgetpgrp(3)).
pub fn is_in_terminal() -> bool {
    // SAFETY: getpgrp(2) only returns a number. rustix takes it for one above 0, and it is 0 where the group lies outside our
    // pid namespace (pid_namespaces(7)).
    let group = unsafe { libc::getpgrp() };
    let is_in_front = |pid: rustix::process::Pid| pid.as_raw_nonzero().get() == group;
    [rustix::stdio::stdin(), rustix::stdio::stderr()]
        .into_iter()
        .any(|stream| rustix::termios::tcgetpgrp(stream).is_ok_and(is_in_front))
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// The kernel killed it because no memory was left; the limit in bytes, if its control group has one.
    OutOfMemory(Option<u64>),
    /// Other code in this process, such as a hook, has collected it, so its status is unknown here.
    Unseen,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::OutOfMemory(Some(bytes)) => write!(
                f,
                "was killed by SIGKILL: out of memory: {} MiB is the limit",
                bytes >> 20
            ),
            // In a container without /sys/fs/cgroup the limit cannot be read.
            Self::OutOfMemory(None) => f.write_str(
                "was killed by SIGKILL: out of memory: the machine had none left, or a container whose limit cannot be read",
            ),
            Self::Signal(libc::SIGKILL) => f.write_str("was killed by SIGKILL"),
            Self::Signal(libc::SIGSEGV) => f.write_str("was killed by SIGSEGV"),
            Self::Signal(libc::SIGABRT) => f.write_str("was killed by SIGABRT"),
            Self::Signal(libc::SIGSYS) => f.write_str(
                "was killed by SIGSYS: it asked the kernel for what it may not have (seccomp(2))",
            ),
            Self::Signal(libc::SIGTERM) => f.write_str("was killed by SIGTERM"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::Unseen => f.write_str("ended, and other code in the master took its exit status"),
        }
    }
}

impl Exit {
    /// `None` for a process that was stopped or continued.
    fn of(status: WaitStatus) -> Option<Self> {
        let signal = || status.terminating_signal().map(Self::Signal);
        status.exit_status().map(Self::Code).or_else(signal)
    }
}

/// Waits for the end of a child, and collects it. [`Exit::Unseen`] if it was collected already: the kernel does so if the
/// app ignores SIGCHLD, and then answers ECHILD once the child is gone (wait(2), notes).
pub fn wait_for(child: i32) -> io::Result<Exit> {
    let child = Pid::from_raw(child).expect("fork(2) gives positive pids");
    let wait = || rustix::process::waitpid(Some(child), WaitOptions::empty());
    let exit = match retry("waitpid", wait) {
        Ok(ended) => ended.and_then(|(_, status)| Exit::of(status)),
        Err(error) if number(&error) == Some(libc::ECHILD) => None,
        Err(error) => return Err(error),
    };
    Ok(exit.unwrap_or(Exit::Unseen))
}

/// Collects one child that has ended, if any (waitpid(2) with `WNOHANG`).
pub fn reap() -> io::Result<Option<(i32, Exit)>> {
    loop {
        let (pid, status) = match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
            Ok(Some(ended)) => ended,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(named("waitpid", error)),
        };
        if let Some(exit) = Exit::of(status) {
            return Ok(Some((pid.as_raw_nonzero().get(), exit)));
        }
    }
}

/// The limit of open files that this process had before [`OpenFiles::allow`] (getrlimit(2)).
#[derive(Clone, Copy, Debug)]
pub struct OpenFiles(Rlimit);

impl OpenFiles {
    /// Raises the limit to `count` open files, as far as the hard limit allows. Children inherit the limit, and a child
    /// that uses select(2) would break with a high one, so children should [`restore`](Self::restore) it.
    pub fn allow(count: u64) -> io::Result<Self> {
        let before = open_files_limit()?;
        let wanted = before.maximum.map_or(count, |most| count.min(most));
        if before.current.is_some_and(|current| current < wanted) {
            let raised = Rlimit {
                current: Some(wanted),
                maximum: before.maximum,
            };
            // If this fails, the call that opens one file too many fails and reports it.
            let _ = rustix::process::setrlimit(Resource::Nofile, raised);
        }
        Ok(Self(before))
    }

    /// Sets the limit that the process had before.
    pub fn restore(self) -> io::Result<()> {
        rustix::process::setrlimit(Resource::Nofile, self.0).in_call("setrlimit")
    }
}

/// Raises the soft limit of open files to the hard one and returns the result (getrlimit(2)). Code in a worker that
/// uses select(2) would break with a high limit, so only the acceptor calls this.
pub fn raise_open_files() -> io::Result<u64> {
    let limit = open_files_limit()?;
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let in_force = match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    Ok(in_force.unwrap_or(u64::MAX))
}

/// rustix's own function assumes that the kernel answers, and panics if a filter of system calls refuses.
fn open_files_limit() -> io::Result<Rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: getrlimit(2) fills the structure that it is given.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    checked("prlimit64", asked)?;
    let limited = |files: u64| (files != libc::RLIM_INFINITY).then_some(files);
    Ok(Rlimit {
        current: limited(limit.rlim_cur),
        maximum: limited(limit.rlim_max),
    })
}

/// Makes room in the table of open files for `count` of them, while this process has one thread. Later, with threads,
/// the kernel lets the table grow only after an RCU grace period: the accept(2) that needs the 65th descriptor then
/// takes 8 ms and more (`expand_fdtable` in fs/file.c), and so does the one that needs the 257th, the 513th and so on.
pub fn reserve_descriptors(count: usize) -> io::Result<()> {
    let any =
        rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).in_call("eventfd2")?;
    let last = RawFd::try_from(count.saturating_sub(1)).unwrap_or(RawFd::MAX);
    // The table never shrinks.
    drop(rustix::io::fcntl_dupfd_cloexec(any, last).in_call("fcntl")?);
    Ok(())
}

/// Puts `file` in the place of `old`, whose number stays open at every moment (dup3(2)). A thread that writes to it
/// meanwhile writes to one or the other.
pub fn replace_file(old: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    replace(old, file, libc::O_CLOEXEC)
}

/// As [`replace_file`], for a descriptor that programs which this process executes should have as well.
pub(crate) fn replace_file_for_all(old: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    replace(old, file, 0)
}

fn replace(old: BorrowedFd<'_>, file: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<()> {
    loop {
        // SAFETY: both descriptors are open; the replaced number stays open, so a borrower of it still holds an open
        // file.
        let replaced = unsafe { libc::dup3(file.as_raw_fd(), old.as_raw_fd(), flags) };
        match checked("dup3", replaced) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

/// Makes the allocator keep freed memory, up to `kept_bytes`, instead of giving it back to the kernel and faulting it
/// in again, page by page, for the next buffer. A buffer of `mapped_bytes` or more has a mapping of its own, so the
/// kernel moves its pages when it grows (mremap(2)), and copies no byte (mallopt(3)).
pub fn keep_freed_memory(kept_bytes: i32, mapped_bytes: i32) {
    // SAFETY: mallopt(3) only sets parameters of the allocator; it has no preconditions.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, mapped_bytes);
        libc::mallopt(libc::M_TRIM_THRESHOLD, kept_bytes);
    }
}

/// Names the process as `ps -o comm` shows it; cut to 15 bytes by the kernel.
pub fn set_name(name: &std::ffi::CStr) {
    let _only_cosmetic = rustix::thread::set_name(name);
}

/// The state of a process's main thread, by its letter in /proc/PID/stat (proc(5)); `None` if it is unknown.
pub fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process's name comes before it, and may contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_open_files_has_room_for_those_that_are_reserved() {
        reserve_descriptors(1_000).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        assert!(size.unwrap().trim().parse::<usize>().unwrap() >= 1_000);
    }
}
