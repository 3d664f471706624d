//! A process that borrows our memory to fork once, and leaves: the process between template and worker.
//!
//! fork(2) copies the page tables of the caller: 2 ms for every 100 MB, and as long again to take them down when the copy
//! leaves. A process in between that is made the way of vfork(2) shares our memory while we are stopped (`CLONE_VM` and
//! `CLONE_VFORK` in clone(2)). So the kernel makes only the worker's copy, and the end of the process in between, for which
//! the worker's adoption waits, takes microseconds.
//!
//! vfork(2) itself is not enough: the child would return from it on our stack, over which we return later too. So the child
//! never returns: it calls [`run`] below our frame, which leaves by _exit(2). Only its own child, which has a copy of
//! everything, returns.
//!
//! This depends on how kernel, C library and processor work together, so `trial` tries it before the server relies on it.
//!
//! On processors other than x86-64, and with `--no-fast-fork`, there are two ordinary forks.

use std::io;

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::call::named;
use crate::process::Fork;

/// The error when it is unknown whether there is a child.
pub(crate) const KILLED: &str = "the process between template and worker died";

/// The input and the result of the process in between.
#[repr(C)]
struct Errand {
    rseq: rseq::Area,
    /// The pid of its child, or a negated errno.
    told: i32,
}

/// Forks by a process in between, and returns its pid too: it has left or is about to, and the caller must wait for it.
/// `Unsupported` where this is impossible, as on other processors. An error that is not an errno means that the process in
/// between was killed, and it is unknown whether it had forked.
///
/// # Safety
///
/// As for [`crate::process::fork`].
pub(crate) unsafe fn fork_by_another() -> io::Result<(Fork, i32)> {
    let mut errand = Errand {
        rseq: rseq::Area::of_this_thread(),
        told: -libc::EIO,
    };
    // If one of our signal handlers ran in the process in between, it would change our memory unseen, with another process's
    // pid. Not by pthread_sigmask(3), which leaves the signals of the C library unblocked.
    let ours = mask::replace(mask::ALL)?;
    // SAFETY: the caller keeps fork's contract; `errand` lives on our stack until we go on.
    let between = unsafe { send(&raw mut errand) };
    let restored = mask::replace(ours);
    match between {
        // The worker: its memory is a copy, made while the process in between was in `run`.
        0 => restored.map(|_| (Fork::Child, 0)),
        between if between > 0 => match errand.told {
            told if told > 0 => Ok((Fork::Parent(told), between as i32)),
            told => {
                // The process in between has left already, because the kernel stopped us until then.
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

/// Runs in the process in between, in our memory, on our stack below the frame of [`send`]. Returns in the child of that
/// process, which has a copy of both.
///
/// # Safety
///
/// `errand` is valid, and all signals are blocked.
unsafe extern "C" fn run(errand: *mut Errand) {
    // SAFETY: by the contract. The thread whose memory this is does not run, so these writes are as if that thread had made
    // them: `fork` runs the handlers of pthread_atfork(3), and those of the allocator, on the very thread structure and locks
    // that it would have used there. In the child `fork` sets up the thread structure of the copy, as it does in any child.
    unsafe {
        // If the process whose memory this is gets killed meanwhile, no process waits for this one any more.
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

/// Makes the process in between. Returns its pid or a negated errno in the caller, and 0 in the child of the process in
/// between.
///
/// # Safety
///
/// As for [`fork_by_another`] and [`run`].
#[cfg(target_arch = "x86_64")]
unsafe fn send(errand: *mut Errand) -> i64 {
    let flags = i64::from(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD);
    let mut result = libc::SYS_clone;
    // SAFETY: clone(2) without a stack goes on with ours, in a process whose registers are copies of ours; the kernel stops
    // us until that process has left. `call` and what it calls use only the stack below this frame, where nothing of ours is
    // (asm! without `nostack` promises that, and that the stack is aligned for a call). Its child comes back from the call
    // with the registers that `run` preserves by the C ABI, all others being declared as clobbered, and with a stack and
    // memory that are copies. So the caller and that child leave this block once each, in a memory of its own. With a shadow
    // stack this works too: the kernel lets a `CLONE_VFORK` child use the parent's, in which it also pushes only below.
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

/// The signals that this thread blocks, a bit for each.
pub(crate) fn blocked() -> u64 {
    mask::now()
}

/// Whether the kernel knows the C library's area for restartable sequences, if the C library has one: the kernel then refuses
/// another area with EINVAL (rseq(2)). For a process that is about to end, because the kernel may accept the other area.
pub(crate) fn knows_rseq() -> bool {
    rseq::Area::of_this_thread().is_registered()
}

/// The signals that this thread blocks, according to the kernel (`rt_sigprocmask(2)`).
mod mask {
    use std::io;

    use crate::call::last_error;

    pub(super) const ALL: u64 = u64::MAX;

    pub(super) fn now() -> u64 {
        let mut now = 0_u64;
        // SAFETY: without a new mask the call only writes the present one, into a word of the size that is named.
        unsafe {
            let none = std::ptr::null::<u64>();
            let (how, size) = (libc::SIG_SETMASK, size_of::<u64>());
            libc::syscall(libc::SYS_rt_sigprocmask, how, none, &raw mut now, size);
        }
        now
    }

    /// Sets a new mask; returns the previous one.
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

/// Restartable sequences: the C library registers an area of each thread with the kernel (`__rseq_offset` in glibc's manual,
/// since 2.35), and assumes that a fork keeps it. But `CLONE_VM` drops the registration, so the process in between must
/// register the area again before it forks the worker: otherwise an allocator that relies on it would corrupt the worker's
/// memory.
mod rseq {
    /// The address of the area; `None` if the C library has none.
    #[derive(Clone, Copy)]
    pub(super) struct Area(Option<usize>);

    /// The size that every kernel takes (rseq(2)).
    const LEN: u32 = 32;
    /// The word before an abort handler (`RSEQ_SIG` of the processor in glibc's bits/rseq.h).
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

        /// Whether the area is registered for the calling process's only thread, if there is an area.
        pub(super) fn is_registered(self) -> bool {
            #[repr(align(32))]
            struct Another([u8; LEN as usize]);
            let mut another = Another([0; LEN as usize]);
            // SAFETY: if the kernel accepts the area against all expectation, it writes to this process's stack until the
            // process ends, which by `knows_rseq` it is about to do.
            self.0.is_none()
                || unsafe {
                    let area = another.0.as_mut_ptr();
                    libc::syscall(libc::SYS_rseq, area, LEN, 0, SIGNATURE) == -1
                        && *libc::__errno_location() == libc::EINVAL
                }
        }

        /// Registers the area for the calling process's only thread. The error is an errno.
        pub(super) fn register(self) -> Result<(), i32> {
            let Some(area) = self.0 else { return Ok(()) };
            // SAFETY: the area is the C library's, for this purpose, and lives as long as the thread. The thread to which it
            // belongs is stopped, so the kernel writes there for this process alone.
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

    /// Without [`super::send`], no code needs the thread pointer.
    #[cfg(not(target_arch = "x86_64"))]
    fn thread_pointer() -> usize {
        0
    }
}
