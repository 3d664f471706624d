//! The acceptor's filter, in force in real processes: the result of each call, and that an acceptor's work goes on.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use libc::c_long;
use stanchion_sys::call;
use stanchion_sys::process::{self, Exit, Fork};
use stanchion_sys::{random, scheduling, seccomp};

/// A child returns this for a call that was let through.
const LET_THROUGH: i32 = 77;

/// Runs `work` in a process of its own that has the filter, and returns how it ended; the result of `work` is its exit
/// code. Tests have threads, of which the child has one: it makes system calls and allocates, as glibc's fork(3) lets
/// it.
fn confined(work: impl FnOnce() -> i32) -> Exit {
    // SAFETY: see above; the child leaves by _exit(2).
    match unsafe { process::fork() }.expect("forked") {
        Fork::Child => {
            let code = match seccomp::confine_acceptor() {
                Ok(()) => work(),
                Err(_) => 99,
            };
            process::exit_now(code)
        }
        Fork::Parent(pid) => process::wait_for(pid).expect("our child"),
    }
}

/// The errno of a call, or [`LET_THROUGH`].
fn errno_of(number: c_long, arguments: [c_long; 4]) -> i32 {
    let [a, b, c, d] = arguments;
    // SAFETY: the arguments of each caller make the call fail or harmless without a filter: null pointers, descriptors
    // that are not open, and flags without effect.
    match unsafe { libc::syscall(number, a, b, c, d, 0, 0) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => LET_THROUGH,
    }
}

#[test]
fn what_only_an_intruder_asks_for_kills() {
    let newnet = c_long::from(libc::CLONE_NEWNET);
    let thread = c_long::from(libc::CLONE_THREAD);
    for (name, number, arguments) in [
        ("execve", libc::SYS_execve, [0; 4]),
        ("execveat", libc::SYS_execveat, [-1, 0, 0, 0]),
        (
            "ptrace",
            libc::SYS_ptrace,
            [c_long::from(libc::PTRACE_TRACEME), 0, 0, 0],
        ),
        ("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0]),
        (
            "process_vm_writev",
            libc::SYS_process_vm_writev,
            [1, 0, 0, 0],
        ),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, [-1, 0, 0, 0]),
        ("mount", libc::SYS_mount, [0; 4]),
        ("umount2", libc::SYS_umount2, [0; 4]),
        ("move_mount", libc::SYS_move_mount, [-1, 0, -1, 0]),
        ("open_tree", libc::SYS_open_tree, [-1, 0, 0, 0]),
        ("fsopen", libc::SYS_fsopen, [0; 4]),
        ("pivot_root", libc::SYS_pivot_root, [0; 4]),
        ("chroot", libc::SYS_chroot, [0; 4]),
        ("bpf", libc::SYS_bpf, [-1, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [-1, 0, 0, 0]),
        ("add_key", libc::SYS_add_key, [0; 4]),
        ("request_key", libc::SYS_request_key, [0; 4]),
        ("unshare", libc::SYS_unshare, [0; 4]),
        ("setns", libc::SYS_setns, [-1, 0, 0, 0]),
        ("kexec_load", libc::SYS_kexec_load, [0, 17, 0, -1]),
        ("init_module", libc::SYS_init_module, [0; 4]),
        ("finit_module", libc::SYS_finit_module, [-1, 0, 0, 0]),
        ("delete_module", libc::SYS_delete_module, [0; 4]),
        ("perf_event_open", libc::SYS_perf_event_open, [0; 4]),
        ("userfaultfd", libc::SYS_userfaultfd, [-1, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0; 4]),
        (
            "clone of a process",
            libc::SYS_clone,
            [c_long::from(libc::SIGCHLD), 0, 0, 0],
        ),
        ("clone of a namespace", libc::SYS_clone, [newnet, 0, 0, 0]),
        (
            "clone of a thread in one",
            libc::SYS_clone,
            [newnet | thread, 0, 0, 0],
        ),
        (
            "typing",
            libc::SYS_ioctl,
            [-1, libc::TIOCSTI.cast_signed(), 0, 0],
        ),
    ] {
        let exit = confined(|| errno_of(number, arguments));
        assert_eq!(exit, Exit::Signal(libc::SIGSYS), "{name}");
    }
}

#[test]
fn what_an_acceptor_does_not_use_is_not_there() {
    let domain = c_long::from(libc::AF_PACKET);
    let netfilter = c_long::from(libc::NETLINK_NETFILTER);
    let own = c_long::from(process::pid());
    for (name, number, arguments) in [
        ("kill", libc::SYS_kill, [own, 0, 0, 0]),
        ("tgkill", libc::SYS_tgkill, [own, own, 0, 0]),
        ("pidfd_open", libc::SYS_pidfd_open, [own, 0, 0, 0]),
        ("setuid", libc::SYS_setuid, [-1, 0, 0, 0]),
        ("capset", libc::SYS_capset, [0; 4]),
        ("clone3", libc::SYS_clone3, [0; 4]),
        ("memfd_create", libc::SYS_memfd_create, [0; 4]),
        ("prlimit64", libc::SYS_prlimit64, [own, 0, 0, 0]),
        ("packets", libc::SYS_socket, [domain, 3, 0, 0]),
        (
            "firewall",
            libc::SYS_socket,
            [c_long::from(libc::AF_NETLINK), 3, netfilter, 0],
        ),
        (
            "dumpable",
            libc::SYS_prctl,
            [c_long::from(libc::PR_SET_DUMPABLE), 1, 0, 0],
        ),
        ("another filter", libc::SYS_seccomp, [1, 0, 0, 0]),
    ] {
        let exit = confined(|| errno_of(number, arguments));
        assert_eq!(exit, Exit::Code(libc::ENOSYS), "{name}");
    }
}

#[test]
fn threads_inherit_it() {
    let exit = confined(|| {
        let tried = std::thread::spawn(|| errno_of(libc::SYS_unshare, [0; 4]));
        tried.join().unwrap_or(98)
    });
    assert_eq!(exit, Exit::Signal(libc::SIGSYS));
}

#[test]
fn an_acceptors_work_goes_on() {
    let path = std::env::temp_dir().join(format!("stanchion-seccomp-{}", process::pid()));
    let work = || -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // Looking up a name takes netlink sockets and files of the C library.
        let mut client = TcpStream::connect(("localhost", listener.local_addr()?.port()))?;
        let (mut served, _) = listener.accept()?;
        served.set_nonblocking(true)?;
        served.set_nodelay(true)?;
        client.write_all(b"hello")?;
        client.shutdown(std::net::Shutdown::Write)?;
        served.set_nonblocking(false)?;
        let mut heard = String::new();
        served.read_to_string(&mut heard)?;
        UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", listener.local_addr()?)?;
        UnixStream::pair()?.0.write_all(b"x")?;
        std::fs::create_dir(&path)?;
        let file = std::fs::File::create_new(path.join("spooled"))?;
        // More than one thread, and much memory.
        let helpers: Vec<_> = (0..4_u64)
            .map(|number| {
                let file = file.try_clone();
                std::thread::Builder::new()
                    .name("helper".to_owned())
                    .spawn(move || file?.write_all_at(&vec![1; 4 << 20], number))
            })
            .collect();
        for helper in helpers {
            helper?.join().map_err(|_| io::Error::other("panicked"))??;
        }
        let _ = std::fs::read_dir(&path)?.count();
        std::fs::remove_dir_all(&path)?;
        process::set_name(c"renamed");
        scheduling::never_preempt()?;
        process::raise_open_files()?;
        process::reserve_descriptors(100)?;
        std::thread::sleep(std::time::Duration::from_millis(1));
        random::fill(&mut [0; 8])?;
        if heard == "hello" {
            Ok(())
        } else {
            Err(io::Error::other(heard))
        }
    };
    let exit = confined(|| work().map_or_else(|error| call::number(&error).unwrap_or(97), |()| 0));
    assert_eq!(exit, Exit::Code(0));
}

#[test]
fn it_can_abort() {
    let exit = confined(|| std::process::abort());
    assert_eq!(exit, Exit::Signal(libc::SIGABRT));
}

#[test]
fn this_kernel_has_filters() {
    assert!(seccomp::is_available());
}
