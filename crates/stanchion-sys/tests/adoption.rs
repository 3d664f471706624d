//! The process that borrows our memory to fork. It is a program of its own, because the processes forked here hold on
//! to every descriptor that other tests have open.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, WaitOptions, waitpid};
use stanchion_sys::adoption::{Between, fork_for_subreaper};
use stanchion_sys::process::{Fork, become_subreaper, exit_now, fork, parent_pid, pid};

/// The library's private module: `fork_for_subreaper` would hide a failure of it by going the long way.
#[path = "../src/errand.rs"]
mod errand;
/// The modules that it uses.
mod call {
    pub(crate) use stanchion_sys::call::{last_error, named};
}
mod process {
    pub(crate) use stanchion_sys::process::Fork;
}

/// Checks the child's state. It must not allocate, since other tests run in other threads.
fn look_around(ours: i32, mask_before: u64, stale: &mut u64) -> u8 {
    *stale = 2;
    let is_another = pid() != ours;
    // SAFETY: gettid(2) has no preconditions.
    let knows_itself = unsafe { libc::gettid() } == pid();
    let mask_kept = errand::blocked() == mask_before;
    u8::from(is_another)
        | u8::from(knows_itself) << 1
        | u8::from(mask_kept) << 2
        | u8::from(errand::knows_rseq()) << 3
}

#[test]
fn the_worker_is_whole_and_is_adopted_at_once() {
    become_subreaper().expect("a subreaper");
    let (ours, mask_before) = (pid(), errand::blocked());
    for _ in 0..20 {
        let mut stale = 1_u64;
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let (read_leave, write_leave) = rustix::pipe::pipe().expect("a pipe");
        // SAFETY: the child makes system calls only.
        let (fork, between) = unsafe { errand::fork_by_another() }.expect("forked");
        match fork {
            Fork::Child => {
                let found = look_around(ours, mask_before, &mut stale);
                let _ = rustix::io::write(&write, &[found]);
                // The child also ends if the test fails.
                drop(write_leave);
                let _ = rustix::io::read(&read_leave, &mut [0]);
                exit_now(if parent_pid() == ours { 7 } else { 8 });
            }
            Fork::Parent(worker) => {
                waitpid(Pid::from_raw(between), WaitOptions::empty()).expect("it has left");
                let mut found = [0];
                rustix::io::read(&read, &mut found).expect("told");
                assert_eq!(found, [0b1111]);
                assert_eq!(
                    (stale, errand::blocked()),
                    (1, mask_before),
                    "what is ours stays so"
                );
                rustix::io::write(&write_leave, b"!").expect("told to leave");
                let end = waitpid(Pid::from_raw(worker), WaitOptions::empty());
                let (_, status) = end.expect("it is our child").expect("it has ended");
                assert_eq!(status.exit_status(), Some(7));
            }
        }
    }
}

#[test]
fn a_refused_fork_is_an_error_and_leaves_nothing_behind() {
    // In a child, because the limit concerns the whole process.
    // SAFETY: the child makes system calls only, until it leaves.
    let Fork::Parent(child) = unsafe { fork() }.expect("forked") else {
        // The limit has room for this process and the process in between, not for its child.
        let limit = libc::rlimit {
            rlim_cur: 2,
            rlim_max: 2,
        };
        // SAFETY: `limit` lives through the call. The kernel exempts root from the limit, so the child changes its
        // user.
        let limited = unsafe {
            libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) == 0
                && libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) == 0
        };
        // SAFETY: as above.
        let refused = limited
            && unsafe { errand::fork_by_another() }
                .is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN));
        let none_left = matches!(
            waitpid(None, WaitOptions::NOHANG),
            Err(rustix::io::Errno::CHILD)
        );
        exit_now(match (limited, refused && none_left) {
            (false, _) => 5,
            (true, true) => 7,
            (true, false) => 8,
        });
    };
    let end = waitpid(Pid::from_raw(child), WaitOptions::empty());
    let (_, status) = end.expect("it is our child").expect("it has ended");
    // 5 if the process may not change its user.
    assert!(matches!(status.exit_status(), Some(7 | 5)), "{status:?}");
}

/// The next process that has forked is killed.
static IS_KILLED: AtomicBool = AtomicBool::new(false);

/// Runs in the process that has forked (`pthread_atfork(3)`).
extern "C" fn kill_who_has_forked() {
    if IS_KILLED.swap(false, Ordering::Relaxed) {
        // SAFETY: kill(2) has no preconditions.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

#[test]
fn a_worker_whose_process_in_between_is_killed_has_no_twin() {
    // In a child, because the handlers run at each fork of the process.
    // SAFETY: the child makes system calls only, until it leaves.
    let Fork::Parent(child) = unsafe { fork() }.expect("forked") else {
        let (read, write) = rustix::pipe::pipe().unwrap_or_else(|_| exit_now(5));
        // SAFETY: the handler may be called at any fork.
        unsafe { libc::pthread_atfork(None, Some(kill_who_has_forked), None) };
        IS_KILLED.store(true, Ordering::Relaxed);
        // SAFETY: as above.
        let forked = unsafe { fork_for_subreaper(Between::Borrowing) };
        if let Ok(Fork::Child) = forked {
            let _ = rustix::io::write(&write, b"!");
            exit_now(0);
        }
        drop(write);
        let mut workers = 0;
        while rustix::io::read(&read, &mut [0]) == Ok(1) {
            workers += 1;
        }
        exit_now(if forked.is_err() {
            workers
        } else {
            10 + workers
        });
    };
    let end = waitpid(Pid::from_raw(child), WaitOptions::empty());
    let (_, status) = end.expect("it is our child").expect("it has ended");
    assert_eq!(
        status.exit_status(),
        Some(1),
        "one worker, and the caller gets an error"
    );
}
