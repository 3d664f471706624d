//! The system calls that a process may make from now on (seccomp(2)): the filter of the acceptor, which reads every
//! client's bytes and needs few of the kernel's calls.
//!
//! There are two filters, and the kernel follows the sterner one. The first lists the calls that an acceptor uses; any
//! other call does not exist for it (`ENOSYS`). A newer library then does without, as on an older kernel, and no
//! process dies for asking. The second lists the calls that only an intruder makes: they kill the process (`SIGSYS`),
//! so that the attempt shows, since no honest code makes them.
//!
//! A call that is let through whatever its arguments costs some 40 ns more from Linux 5.11 on, where the kernel keeps
//! the numbers of such calls in a bitmap; a call whose arguments the filter reads costs some 95 ns (getppid: 167 and
//! 209, ioctl: 274 and 368, on 6.18). So the filter reads the arguments of rare calls only, and of ioctl(2).

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

use crate::call::named;
use crate::process;

/// Files, directories and descriptors.
const FILES: &[c_long] = &[
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Sockets, and waiting for them. [`allowed`] limits the kinds of sockets.
const SOCKETS: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
];

/// Memory, threads, the process's own signals, clocks, and its ids.
const ITSELF: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    // The timer of its own CPU time (`signal::spin`).
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_umask,
    libc::SYS_uname,
];

/// Calls that are allowed about this process only.
const OF_ITSELF: &[c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
];

/// Calls that C libraries still use on processors that have them beside their successors.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

/// Calls that only an intruder makes: other programs, other processes' memory, other views of the system, and the parts
/// of the kernel with which exploits begin.
const FATAL: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];
#[cfg(target_arch = "x86_64")]
const FATAL_OLD: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const FATAL_OLD: &[c_long] = &[];

/// `PR_SET_VMA` of prctl(2), by which the C library names its memory.
const PR_SET_VMA: u64 = 0x5356_4d41;
/// Protocols of netlink(7): the host's addresses, for getaddrinfo(3), and the state of listeners.
const NETLINK: [i32; 2] = [libc::NETLINK_ROUTE, libc::NETLINK_SOCK_DIAG];

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Limits this process, and the threads that it starts, to the calls of an acceptor. Sets `no_new_privs`, without which
/// only root may do this. The error says what the kernel or the processor lacks.
pub fn confine_acceptor() -> io::Result<()> {
    // Make both before the first is in force.
    let fatal = program(
        fatal().map_err(of_us)?,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
    )?;
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let allowed = program(allowed().map_err(of_us)?, SeccompAction::Allow, missing)?;
    // In this order: the filter of allowed calls forbids to add another.
    apply(&fatal)?;
    apply(&allowed)
}

/// Whether the kernel has such filters (seccomp(2), `SECCOMP_GET_ACTION_AVAIL`).
pub fn is_available() -> bool {
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the call reads one number, which lives through it, and changes nothing.
    let status = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    status == 0
}

/// The calls that are let through.
fn allowed() -> Result<SyscallRules, Error> {
    let mut rules = in_any_case(&[FILES, SOCKETS, ITSELF, OLD]);
    // The process's own threads, and nothing that shares less than they do. A filter cannot read the flags of
    // clone3(2); the C library does without that call.
    let thread = flag(libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, vec![rule(&[masked(thread, thread)?])?]);
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6].map(flag);
    let mut sockets = one_of(0, families)?;
    for protocol in NETLINK {
        let family = equal(0, flag(libc::AF_NETLINK))?;
        sockets.push(rule(&[family, equal(2, flag(protocol))?])?);
    }
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_socketpair, one_of(0, [flag(libc::AF_UNIX)])?);
    // Not `PR_SET_DUMPABLE`: hidden memory stays hidden.
    let names = [flag(libc::PR_SET_NAME), flag(libc::PR_GET_NAME), PR_SET_VMA];
    rules.insert(libc::SYS_prctl, one_of(0, names)?);
    let own = flag(process::pid());
    for &number in OF_ITSELF {
        rules.insert(number, one_of(0, [0, own])?);
    }
    // abort(3) needs it; no other process may be signalled.
    rules.insert(libc::SYS_tgkill, one_of(0, [own])?);
    Ok(rules)
}

/// The calls that kill.
fn fatal() -> Result<SyscallRules, Error> {
    let mut rules = in_any_case(&[FATAL, FATAL_OLD]);
    // Another process, or a namespace.
    let mut clones = vec![rule(&[masked(flag(libc::CLONE_THREAD), 0)?])?];
    for namespace in [
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUTS,
    ] {
        let namespace = flag(namespace);
        clones.push(rule(&[masked(namespace, namespace)?])?);
    }
    rules.insert(libc::SYS_clone, clones);
    // Typing into a terminal, for the user who sits there.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX];
    rules.insert(libc::SYS_ioctl, one_of(1, typing)?);
    Ok(rules)
}

/// Flags and numbers of the C library are positive.
fn flag(number: i32) -> u64 {
    u64::from(number.cast_unsigned())
}

/// Rules for these calls, with any arguments.
fn in_any_case(calls: &[&[c_long]]) -> SyscallRules {
    let calls = calls.concat().into_iter();
    calls.map(|number| (number, Vec::new())).collect()
}

/// The rules for a call of which this argument has one of these values.
fn one_of<const N: usize>(index: u8, values: [u64; N]) -> Result<Vec<SeccompRule>, Error> {
    let rules = values.map(|value| rule(&[equal(index, value)?]));
    rules.into_iter().collect()
}

/// A rule that applies when all conditions hold.
fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule, Error> {
    Ok(SeccompRule::new(conditions.to_vec())?)
}

/// An argument, of 32 bits, has this value.
fn equal(index: u8, value: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(index, Dword, Eq, value)?)
}

/// Among the flags in the first argument, those of `mask` are `set`.
fn masked(mask: u64, set: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(0, Qword, MaskedEq(mask), set)?)
}

fn program(
    rules: SyscallRules,
    listed: SeccompAction,
    others: SeccompAction,
) -> io::Result<BpfProgram> {
    let processor = std::env::consts::ARCH.try_into().map_err(|_| {
        let problem = "stanchion has no filter for this kind of processor";
        io::Error::new(io::ErrorKind::Unsupported, problem)
    })?;
    let filter = SeccompFilter::new(rules, others, listed, processor);
    filter
        .and_then(TryInto::try_into)
        .map_err(|error| of_us(error.into()))
}

fn apply(program: &BpfProgram) -> io::Result<()> {
    apply_filter(program).map_err(|error| match error {
        Error::Prctl(error) => named("prctl", error),
        Error::Seccomp(error) => named("seccomp", error),
        other => of_us(other),
    })
}

fn of_us(error: Error) -> io::Error {
    io::Error::other(error)
}
