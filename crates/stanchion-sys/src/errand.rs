//! A process that borrows our memory to fork once, and leaves: the one between template and worker.
//!
//! fork(2) copies the page tables of the caller: 2 ms for every 100 MB, and as long again to take
//! them down when the copy leaves. A process in between that is made by vfork(2)'s means shares our
//! memory while we are held up (`CLONE_VM` and `CLONE_VFORK` in clone(2)), so that only the worker's
//! copy is made, and its end, for which the worker waits to be adopted, takes microseconds.
//!
//! vfork(2) itself is not enough: what it returns to would run on our stack while we are to return
//! over it too. So the child never returns in there: it calls [`run`] below our frame, which leaves
//! by _exit(2). Only its own child, which has a copy of everything, returns.
//!
//! That leans on how kernel, C library and processor work together, so it is tried before it is
//! relied on (`trial`).

use std::io;

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::call::named;
use crate::process::Fork;

/// Why there may be a child, or none.
pub(crate) const KILLED: &str = "the process between template and worker died";

/// What the process in between is sent for, and what it brings back.
#[repr(C)]
struct Errand {
    rseq: rseq::Area,
    /// The pid of its child, or a negated errno.
    told: i32,
}

/// Forks by a process in between, whose pid is given too: it has left or is about to, and is to be
/// waited for. `Unsupported` where that cannot be done, as on other processors. An error that is no errno if that process
/// was killed: nobody knows whether it had forked.
///
/// # Safety
///
/// As for [`crate::process::fork`].
pub(crate) unsafe fn fork_by_another() -> io::Result<(Fork, i32)> {
    let mut errand = Errand {
        rseq: rseq::Area::of_this_thread(),
        told: -libc::EIO,
    };
    // A handler of ours that ran over there would change our memory behind our back, with another
    // process's pid. Not by pthread_sigmask(3), which keeps the signals of the C library open.
    let ours = mask::replace(mask::ALL)?;
    // SAFETY: the caller keeps fork's contract; `errand` lives on our stack until we go on.
    let between = unsafe { send(&raw mut errand) };
    let restored = mask::replace(ours);
    match between {
        // The worker: its memory is a copy, made while that process was in `run`.
        0 => restored.map(|_| (Fork::Child, 0)),
        between if between > 0 => match errand.told {
            told if told > 0 => Ok((Fork::Parent(told), between as i32)),
            told => {
                // It has left already, as we were held up until then.
                let left = waitpid(Pid::from_raw(between as i32), WaitOptions::empty());
                match left {
                    Ok(Some((_, status))) if status.signaled() => Err(io::Error::other(KILLED)),
                    _ => Err(named("fork", io::Error::from_raw_os_error(-told))),
                }
            }
        },
        error => Err(named("clone", io::Error::from_raw_os_error(-error as i32))),
    }
}

/// Runs in the process in between, in our memory, on our stack below the frame of [`send`]; and
/// returns in its child, which has a copy of both.
///
/// # Safety
///
/// `errand` is valid, and all signals are blocked.
unsafe extern "C" fn run(errand: *mut Errand) {
    // SAFETY: by the contract. The thread whose memory this is does not run, so what is written
    // here is as if it had written it: `fork` runs the handlers of pthread_atfork(3), and those of
    // the allocator, on the very thread structure and locks that it would have used there. In the
    // child `fork` sets up the thread structure of the copy, as it does in any child.
    unsafe {
        // Should the one whose memory this is be killed meanwhile, nobody would wait for us any more.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let registered = (*errand).rseq.register();
        (*errand).told = match registered {
            Ok(()) => match libc::fork() {
                0 => return,
                -1 => -*libc::__errno_location(),
                pid => pid,
            },
            Err(errno) => -errno,
        };
        libc::_exit(0);
    }
}

/// Makes the process in between. Gives its pid or a negated errno here, and 0 in its child.
///
/// # Safety
///
/// As for [`fork_by_another`] and [`run`].
#[cfg(target_arch = "x86_64")]
unsafe fn send(errand: *mut Errand) -> i64 {
    let flags = i64::from(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD);
    let mut result = libc::SYS_clone;
    // SAFETY: clone(2) without a stack goes on with ours, in a process whose registers are copies
    // of ours; we are held up until it has left. `call` and what it calls use only the stack below
    // this frame, where nothing of ours is (asm! without `nostack` promises that, and that the
    // stack is aligned for a call). Its child comes back from the call with the registers that `run`
    // preserves by the C ABI, all others being declared as clobbered, and with a stack and memory
    // that are copies. So each of us two leaves this block once, in a memory of its own. With a
    // shadow stack all is well too: the kernel lets a `CLONE_VFORK` child use the parent's, in which
    // it also pushes only below.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r12",
            "call {run}",
            "xor eax, eax",
            "2:",
            run = sym run,
            inlateout("rax") result,
            inlateout("rdi") flags => _,
            inlateout("rsi") 0_i64 => _,
            inlateout("rdx") 0_i64 => _,
            inlateout("r10") 0_i64 => _,
            inlateout("r8") 0_i64 => _,
            in("r12") errand,
            clobber_abi("C"),
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn send(_errand: *mut Errand) -> i64 {
    let _only_there: unsafe extern "C" fn(*mut Errand) = run;
    -i64::from(libc::ENOSYS)
}

/// The signals that this thread does not take: a bit for each.
pub(crate) fn blocked() -> u64 {
    mask::now()
}

/// Whether the kernel knows the C library's restartable sequences, if there are any: it then refuses
/// another area with EINVAL (rseq(2)). For a process that is about to end, as it may be taken.
pub(crate) fn knows_rseq() -> bool {
    rseq::Area::of_this_thread().is_registered()
}

/// The signals that this thread does not take, as the kernel has them (`rt_sigprocmask(2)`).
mod mask {
    use std::io;

    use crate::call::last_error;

    pub(super) const ALL: u64 = u64::MAX;

    pub(super) fn now() -> u64 {
        let mut now = 0_u64;
        // SAFETY: without a new mask it is only read, into a word of the size that is named.
        unsafe {
            let none = std::ptr::null::<u64>();
            let (how, size) = (libc::SIG_SETMASK, size_of::<u64>());
            libc::syscall(libc::SYS_rt_sigprocmask, how, none, &raw mut now, size);
        }
        now
    }

    /// Gives those of before.
    pub(super) fn replace(new: u64) -> io::Result<u64> {
        let mut old = 0_u64;
        // SAFETY: both words live through the call, and 8 is their size: the kernel's sigset has
        // 64 signals on every processor but MIPS.
        let status = unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const new,
                &raw mut old,
                size_of::<u64>(),
            )
        };
        match status {
            0 => Ok(old),
            _ => Err(last_error("rt_sigprocmask")),
        }
    }
}

/// Restartable sequences: the C library registers an area of each thread with the kernel
/// (`__rseq_offset` in glibc's manual, since 2.35), and takes for granted that a fork keeps it. But
/// `CLONE_VM` drops it, so it has to be registered anew before the fork that makes the worker: an
/// allocator that relies on it would else corrupt the worker's memory.
mod rseq {
    /// Which area it is; `None` if there is none.
    #[derive(Clone, Copy)]
    pub(super) struct Area(Option<usize>);

    /// The size that every kernel takes (rseq(2)).
    const LEN: u32 = 32;
    /// What stands before an abort handler (`RSEQ_SIG` of the processor in glibc's bits/rseq.h).
    const SIGNATURE: u32 = 0x5305_3053;

    impl Area {
        pub(super) fn of_this_thread() -> Self {
            // SAFETY: dlsym(3) of the default scope; both are constants of the C library, of these
            // types, and it has set them before main.
            unsafe {
                let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
                let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
                if offset.is_null() || size.is_null() || *size.cast::<libc::c_uint>() == 0 {
                    return Self(None);
                }
                Self(Some(
                    thread_pointer().wrapping_add_signed(*offset.cast::<isize>()),
                ))
            }
        }

        /// Whether it is registered for the calling process's only thread, if there is one.
        pub(super) fn is_registered(self) -> bool {
            #[repr(align(32))]
            struct Another([u8; LEN as usize]);
            let mut another = Another([0; LEN as usize]);
            // SAFETY: if it is taken against all expectation, the kernel writes to this process's stack
            // until it ends, which by `knows_rseq` it is about to.
            self.0.is_none()
                || unsafe {
                    let area = another.0.as_mut_ptr();
                    libc::syscall(libc::SYS_rseq, area, LEN, 0, SIGNATURE) == -1
                        && *libc::__errno_location() == libc::EINVAL
                }
        }

        /// Registers it for the calling process's only thread. The error is an errno.
        pub(super) fn register(self) -> Result<(), i32> {
            let Some(area) = self.0 else { return Ok(()) };
            // SAFETY: the area is the C library's, for this purpose, and lives as long as the thread.
            // The thread to which it belongs is held up, so the kernel writes there for us alone.
            unsafe {
                match libc::syscall(libc::SYS_rseq, area, LEN, 0, SIGNATURE) {
                    0 => Ok(()),
                    _ => Err(*libc::__errno_location()),
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn thread_pointer() -> usize {
        let pointer: usize;
        // SAFETY: the x86-64 ABI has the thread pointer at offset 0 of the thread's own segment.
        unsafe {
            std::arch::asm!(
                "mov {}, fs:0",
                out(reg) pointer,
                options(nostack, preserves_flags, readonly)
            );
        }
        pointer
    }

    /// Nobody asks: there is no [`super::send`] either.
    #[cfg(not(target_arch = "x86_64"))]
    fn thread_pointer() -> usize {
        0
    }
}
