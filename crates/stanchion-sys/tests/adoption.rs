//! The fork of a process that the subreaper adopts. It is a program of its own, because the processes forked here hold on
//! to every descriptor that other tests have open.

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{WaitOptions, waitpid};
use stanchion_sys::adoption::fork_for_subreaper;
use stanchion_sys::process::{
    Exit, Fork, become_subreaper, exit_now, fork, parent_pid, pid, wait_for,
};

#[test]
fn the_worker_is_another_process_and_is_adopted_at_once() {
    become_subreaper().expect("a subreaper");
    let ours = pid();
    for _ in 0..20 {
        let (read_leave, write_leave) = rustix::pipe::pipe().expect("a pipe");
        // SAFETY: the child makes system calls only.
        match unsafe { fork_for_subreaper() }.expect("forked") {
            Fork::Child => {
                // The child also ends if the test fails.
                drop(write_leave);
                let _ = rustix::io::read(&read_leave, &mut [0]);
                exit_now(if parent_pid() == ours && pid() != ours {
                    7
                } else {
                    8
                });
            }
            Fork::Parent(worker) => {
                rustix::io::write(&write_leave, b"!").expect("written");
                assert_eq!(wait_for(worker).expect("our child"), Exit::Code(7));
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
            && unsafe { fork_for_subreaper() }
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
    let exit = wait_for(child).expect("our child");
    // 5 if the process may not change its user.
    assert!(matches!(exit, Exit::Code(7 | 5)), "{exit}");
}

/// The process that asks for a worker.
static CALLER: AtomicI32 = AtomicI32::new(0);

/// Runs in the process that has forked (`pthread_atfork(3)`): first in the caller, then in the process in between.
extern "C" fn kill_the_process_in_between() {
    let caller = CALLER.load(Ordering::Relaxed);
    if caller != 0 && parent_pid() == caller {
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
        unsafe { libc::pthread_atfork(None, Some(kill_the_process_in_between), None) };
        CALLER.store(pid(), Ordering::Relaxed);
        // SAFETY: as above.
        let forked = unsafe { fork_for_subreaper() };
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
    assert_eq!(
        wait_for(child).expect("our child"),
        Exit::Code(1),
        "one worker, and the caller gets an error"
    );
}
