//! The rules for files, ports and signals, in force in real processes.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use stanchion_sys::call;
use stanchion_sys::capabilities;
use stanchion_sys::landlock::{self, Enforced, Needs};
use stanchion_sys::process::{self, Exit, Fork};

/// A directory of the test's own, removed when it is dropped.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stanchion-{name}-{}", process::pid()));
        fs::create_dir_all(path.join("own")).expect("made");
        fs::create_dir(path.join("logs")).expect("made");
        fs::create_dir(path.join("rotated")).expect("made");
        fs::write(path.join("rotated/old"), "x").expect("written");
        fs::write(path.join("secret"), "x").expect("written");
        fs::write(path.join("logs/old"), "x").expect("written");
        Self(path)
    }

    fn needs(&self, connect: Vec<u16>) -> Needs {
        Needs {
            read: vec![PathBuf::from("/etc"), self.0.join("not there")],
            append: vec![self.0.join("logs")],
            own: vec![self.0.join("own")],
            rotated: vec![self.0.join("rotated")],
            connect,
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removed");
    }
}

/// Runs `work` in a process of its own that is limited to these needs, and returns its result. Tests have threads, of
/// which the child has one: it makes system calls and allocates, as glibc's fork(3) lets it.
fn confined(needs: &Needs, work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: see above; the child leaves by _exit(2).
    match unsafe { process::fork() }.expect("forked") {
        Fork::Child => {
            // With `CAP_PERFMON` the kernel lets root look into other processes without asking Landlock
            // (`may_access_mm` in kernel/fork.c).
            let code = match capabilities::keep_those_of_acceptor()
                .and_then(|_| landlock::confine(needs))
            {
                Ok(Enforced::All) => work(),
                Ok(_) => 98,
                Err(_) => 99,
            };
            process::exit_now(code)
        }
        Fork::Parent(pid) => match process::wait_for(pid).expect("our child") {
            Exit::Code(code) => code,
            exit => panic!("it {exit}"),
        },
    }
}

fn errno<T>(done: io::Result<T>) -> i32 {
    done.map_or_else(|error| call::number(&error).unwrap_or(97), |_| 0)
}

/// Whether this kernel enforces all of the limits; otherwise the tests would see nothing.
fn is_whole() -> bool {
    landlock::available() == Enforced::All
}

#[test]
fn files_are_reached_where_they_are_needed_and_nowhere_else() {
    if !is_whole() {
        return;
    }
    let home = Home::new("landlock");
    let needs = home.needs(Vec::new());
    let append = |path: &Path| fs::File::options().append(true).create(true).open(path);
    let at = |name: &str| home.0.join(name);
    let denied = libc::EACCES;
    for (name, expected, work) in [
        (
            "to read what others own",
            denied,
            &(|| fs::read(at("secret")).map(drop)) as &dyn Fn() -> _,
        ),
        ("to list it", denied, &|| fs::read_dir(at("")).map(drop)),
        ("to make files there", denied, &|| fs::write(at("new"), "x")),
        ("to remove files there", denied, &|| {
            fs::remove_file(at("secret"))
        }),
        ("to read what is needed", 0, &|| {
            fs::read("/etc/passwd").map(drop)
        }),
        ("to make a log", 0, &|| append(&at("logs/new")).map(drop)),
        ("to append to a log", 0, &|| {
            append(&at("logs/old")).map(drop)
        }),
        ("to cut a log", denied, &|| {
            fs::File::create(at("logs/old")).map(drop)
        }),
        ("to read a log", denied, &|| {
            fs::read(at("logs/old")).map(drop)
        }),
        ("to remove a log", denied, &|| {
            fs::remove_file(at("logs/old"))
        }),
        ("to spool", 0, &|| {
            fs::File::create_new(at("own/body")).map(drop)
        }),
        ("to read what is spooled", 0, &|| {
            fs::read(at("own/body")).map(drop)
        }),
        ("to remove it", 0, &|| fs::remove_file(at("own/body"))),
        ("to link out of it", denied, &|| {
            std::os::unix::fs::symlink("/", at("own/link"))
        }),
        ("to leave", 0, &|| fs::remove_dir(at("own"))),
        ("to shorten what is rotated", 0, &|| {
            fs::File::create(at("rotated/old")).map(drop)
        }),
        ("to read it", denied, &|| {
            fs::read(at("rotated/old")).map(drop)
        }),
        ("to remove it", 0, &|| fs::remove_file(at("rotated/old"))),
    ] {
        assert_eq!(confined(&needs, || errno(work())), expected, "{name}");
    }
}

#[test]
fn only_the_ports_that_are_needed_are_connected_to() {
    if !is_whole() {
        return;
    }
    let home = Home::new("landlock-tcp");
    let [collector, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("bound"));
    let [collector_at, other_at] = [&collector, &other].map(|one| one.local_addr().expect("bound"));
    let needs = home.needs(vec![collector_at.port()]);
    assert_eq!(
        confined(&needs, || errno(TcpStream::connect(collector_at))),
        0
    );
    assert_eq!(
        confined(&needs, || errno(TcpStream::connect(other_at))),
        libc::EACCES
    );
    // Binding a port, for a worker that asks for it, is not limited.
    assert_eq!(
        confined(&needs, || errno(TcpListener::bind("127.0.0.1:0"))),
        0
    );
}

#[test]
fn no_other_process_is_signalled_or_looked_into() {
    if !is_whole() {
        return;
    }
    let home = Home::new("landlock-signals");
    let mut needs = home.needs(Vec::new());
    needs.read.push("/proc".into());
    let parent = process::pid();
    let signalled = confined(&needs, || errno(process::kill(parent, libc::SIGCONT)));
    assert_eq!(signalled, libc::EPERM);
    let environment = format!("/proc/{parent}/environ");
    assert_eq!(
        confined(&needs, || errno(fs::read(&environment))),
        libc::EACCES
    );
    let memory = format!("/proc/{parent}/statm");
    assert_eq!(confined(&needs, || errno(fs::read(&memory))), 0);
}
