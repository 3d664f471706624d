//! The users that processes run as, and what each process gives up before it sees a byte of a client's or of the app's. A master that is root stays
//! root, to listen and to start other processes again: children lack what their parent has given up, so the master can give up only what no app ever
//! needs.
//!
//! Children become `--user` as the first thing after their fork: before they tie themselves to the master, since a
//! change of credentials clears `PR_SET_PDEATHSIG`, and before a byte of a client's or of the app's reaches them. The
//! master looks names up, so that a child makes system calls only.

use std::io;
use std::path::{Path, PathBuf};

use stanchion_sys::identity::{self, Identity};
use stanchion_sys::landlock::{self, Enforced, Needs};
use stanchion_sys::signal::orphan;
use stanchion_sys::{capabilities, seccomp};
use tracing::{error, info, warn};

use stanchion_generation::common::Common;
use stanchion_generation::identities::{Identities, find};
use stanchion_log as log;
use stanchion_log::cure;
use stanchion_log::exit_code;
use stanchion_settings::{Collector, Settings};

/// The port of name servers, which are asked by TCP where an answer is long (RFC 7766).
const DNS_PORT: u16 = 53;

/// The directories that an acceptor may read, with all that is in them.
const READ: [&str; 9] = [
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/share",
    "/usr/local/lib",
    "/proc",
];

/// Logs which processes are root, as none is root in silence.
pub(crate) fn say_what_is_root(who: &Identities) {
    if identity::effective_uid() != 0 {
        return;
    }
    match who.app.as_ref().map(Identity::uid) {
        None | Some(0) => warn!(
            "the app runs as root: an attacker who breaks into it owns this host or container. Set `user`, \
             or start the server as another user"
        ),
        Some(uid) => info!(
            "only the master is root, to listen, to open logs and to start the others as user {uid}"
        ),
    }
}

/// For a newborn acceptor, before anything else, and before it has threads. The error is an exit code;
/// why is in the log.
pub(crate) fn confine_acceptor(common: &Common) -> Result<(), i32> {
    let given_up = || -> io::Result<u32> {
        // If it cannot be emptied, no_new_privs below keeps back all that it would let through.
        capabilities::empty_bounding_set()?;
        become_who(common.identities.acceptor.as_ref())?;
        let kept = capabilities::keep_those_of_acceptor()?;
        capabilities::set_no_new_privs()?;
        // After the change of users, which would undo it.
        capabilities::hide_memory()?;
        // The end of its channel shows that the master has ended, but a stopped acceptor would not read that.
        orphan::go_on_after(common.master_pid)?;
        Ok(kept)
    };
    let kept = given_up().map_err(|error| cannot("the acceptor", &error))?;
    // Restrictions that not every kernel has. The filter is last: it forbids to make rules for files.
    let files = landlock::confine(&needs_of_acceptor(common));
    let calls = seccomp::confine_acceptor();
    // Once, not at each reload.
    if common.generation == 1 {
        say_what_is_in_force(kept, files, calls);
    }
    Ok(())
}

fn say_what_is_in_force(kept: u32, files: io::Result<Enforced>, calls: io::Result<()>) {
    let own = of_acceptor(identity::effective_uid(), kept);
    let (held, missing) = of_kernel(files, calls);
    info!("acceptor confined: {own}{held}{missing}");
}

fn of_acceptor(uid: u32, kept: u32) -> String {
    let kept = if kept == 0 {
        "no".to_owned()
    } else {
        kept.to_string()
    };
    format!("user {uid}, {kept} capabilities, no_new_privs, not dumpable")
}

/// The restrictions that the kernel holds an acceptor to, and those that it lacks.
fn of_kernel(files: io::Result<Enforced>, calls: io::Result<()>) -> (String, String) {
    let (mut held, mut missing) = (Vec::new(), Vec::new());
    match calls {
        Ok(()) => held.push(", seccomp"),
        Err(error) => missing.push(format!("; without seccomp: {error}")),
    }
    match files {
        Ok(Enforced::All) => held.push(", Landlock"),
        Ok(Enforced::Partly) => held.push(", Landlock as far as this kernel has it"),
        Ok(Enforced::Nothing) => {
            missing.push("; without Landlock, which this kernel does not have".to_owned());
        }
        Err(error) => missing.push(format!("; without Landlock: {error}")),
    }
    (held.concat(), missing.concat())
}

/// The user, the capabilities and the restrictions of each process if a server with these settings were started here, by us: a line for each kind of
/// process. The error is the operator's.
pub fn plan(settings: &Settings) -> Result<Vec<(&'static str, String)>, String> {
    let here = identity::effective_uid();
    let who = find(settings)?;
    let uid = |identity: &Option<Identity>| identity.as_ref().map_or(here, Identity::uid);
    let (acceptor, app) = (uid(&who.acceptor), uid(&who.app));
    let kept = capabilities::acceptor_would_keep(here != acceptor);
    let kept = kept.map_err(|error| format!("capabilities cannot be read: {error}"))?;
    let calls = if seccomp::is_available() {
        Ok(())
    } else {
        Err(io::Error::other("this kernel does not have it"))
    };
    let (held, missing) = of_kernel(Ok(landlock::available()), calls);
    let capabilities = if app == 0 { "root's" } else { "no" };
    let bound = if settings.process.worker_no_new_privs {
        ", no_new_privs"
    } else {
        ", may gain privileges (sudo)"
    };
    let of_app = format!("user {app}, {capabilities} capabilities{bound}");
    Ok(vec![
        ("master", format!("user {here}, as it is started")),
        ("acceptor", of_acceptor(acceptor, kept) + &held + &missing),
        ("template", of_app.clone()),
        ("workers", of_app),
    ])
}

/// The files and ports of an acceptor's life.
fn needs_of_acceptor(common: &Common) -> Needs {
    let settings = &common.settings;
    let access_log = settings.log.accesslog.as_deref();
    let access_log = access_log.filter(|log| log.as_os_str() != "-");
    let logs = [log::path(), access_log];
    let mut needs = needs_of(&common.spool, logs.into_iter().flatten());
    let collector = settings
        .monitoring
        .otlp_endpoint
        .as_ref()
        .map(Collector::port);
    needs.connect.extend(collector);
    let static_dirs = settings.answers.static_files.iter();
    needs
        .read
        .extend(static_dirs.map(|dir| dir.directory.clone()));
    needs.read.extend(settings.tls.acme_challenge_dir.clone());
    needs
        .rotated
        .extend(settings.monitoring.record_arrivals.clone());
    needs
}

fn needs_of<'log>(spool: &Path, logs: impl Iterator<Item = &'log Path>) -> Needs {
    let mut needs = Needs {
        // Names are looked up, for a collector or a port that a worker asks for, by the C library and
        // what it loads; `/status` tells how much memory workers take. Not all of `/usr`: images have
        // their apps in `/usr/src`.
        read: READ.map(PathBuf::from).into(),
        append: Vec::new(),
        own: vec![spool.to_owned()],
        rotated: Vec::new(),
        connect: vec![DNS_PORT],
    };
    let resolver = std::fs::canonicalize("/etc/resolv.conf").ok();
    needs.read.extend(
        resolver
            .as_deref()
            .and_then(Path::parent)
            .map(Path::to_owned),
    );
    // Logs are reopened by their names, and their files may be links. A file may have been renamed then, and is made; a device or pipe stays, and
    // what lies beside it is none of ours.
    for log in logs {
        let log = std::path::absolute(log).unwrap_or_else(|_| log.to_owned());
        let target = std::fs::canonicalize(&log).ok();
        if target.as_ref().is_none_or(|target| target.is_file()) {
            let parents = [Some(&log), target.as_ref()].into_iter().flatten();
            needs
                .append
                .extend(parents.filter_map(|path| path.parent()).map(Path::to_owned));
        }
        needs.append.extend(target);
    }
    // A terminal, or what else has a name: it is opened for us alone, so as not to wait for it.
    let streams = ["/proc/self/fd/1", "/proc/self/fd/2"];
    needs.append.extend(
        streams
            .into_iter()
            .filter_map(|one| std::fs::canonicalize(one).ok()),
    );
    needs
}

/// For a newborn template, before anything else; its workers inherit it all. And for a scribe, as it runs the
/// operator's code too. The error is an exit code; why is in the log.
pub(crate) fn confine_app(common: &Common, who: &str) -> Result<(), i32> {
    let confined = || -> io::Result<()> {
        let is_bound = common.settings.process.worker_no_new_privs;
        if is_bound {
            capabilities::empty_bounding_set()?;
        }
        become_who(common.identities.app.as_ref())?;
        capabilities::keep_none_unless_root()?;
        if is_bound {
            capabilities::set_no_new_privs()?;
        }
        Ok(())
    };
    confined().map_err(|error| cannot(who, &error))
}

/// Makes this process run as the app would, for a program that loads the app outside of a server. There is no way back. The error says why.
pub fn become_app(settings: &Settings) -> Result<(), String> {
    let who = find(settings)?;
    become_who(who.app.as_ref())
        .and_then(|()| capabilities::keep_none_unless_root())
        .map_err(|error| error.to_string())
}

fn become_who(identity: Option<&Identity>) -> io::Result<()> {
    identity.map_or(Ok(()), |identity| {
        identity.assume().map_err(|error| {
            let (uid, gid) = (identity.uid(), identity.gid());
            let problem = format!("it cannot become user {uid} and group {gid}: {error}");
            io::Error::new(error.kind(), problem)
        })
    })
}

fn cannot(who: &str, error: &io::Error) -> i32 {
    error!("{who} cannot give up its privileges: {}", cure::told(error));
    exit_code::INTERNAL
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    type Open = fn(&Path) -> io::Result<()>;

    /// Whether a thread that is held to these rules, as an acceptor is, gets through with it; None where the kernel enforces no rules.
    fn may(
        needs: Needs,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Option<Result<(), io::ErrorKind>> {
        let held = std::thread::spawn(move || match landlock::confine(&needs) {
            Ok(Enforced::Nothing) | Err(_) => None,
            Ok(_) => Some(work().map_err(|error| error.kind())),
        });
        held.join().expect("no panic")
    }

    #[test]
    fn of_the_files_beside_its_own_it_opens_none() {
        let pid = stanchion_sys::process::pid();
        let home = std::env::temp_dir().join(format!("stanchion-needs-{pid}"));
        fs::create_dir_all(home.join("spool")).expect("made");
        fs::create_dir(home.join("logs")).expect("made");
        for name in ["app.py", "logs/access.log", "logs/other"] {
            fs::write(home.join(name), "x").expect("written");
        }
        let log = home.join("logs/access.log");
        let denied = Err(io::ErrorKind::PermissionDenied);
        let append = |path: &Path| {
            File::options()
                .append(true)
                .create(true)
                .open(path)
                .map(drop)
        };
        let read = |path: &Path| File::open(path).map(drop);
        let (append, read): (Open, Open) = (append, read);
        let device = PathBuf::from("/dev/null");
        let cases = [
            ("to read the app", &log, home.join("app.py"), read, denied),
            ("to write to it", &log, home.join("app.py"), append, denied),
            (
                "to make a file beside it",
                &log,
                home.join("new"),
                append,
                denied,
            ),
            ("to read a log", &log, log.clone(), read, denied),
            ("to open it again", &log, log.clone(), append, Ok(())),
            (
                "to make it again",
                &log,
                home.join("logs/new"),
                append,
                Ok(()),
            ),
            // No rule can forbid this and allow the case before.
            (
                "to write beside a log",
                &log,
                home.join("logs/other"),
                append,
                Ok(()),
            ),
            (
                "to open a device again",
                &device,
                device.clone(),
                append,
                Ok(()),
            ),
            (
                "another device",
                &device,
                "/dev/zero".into(),
                append,
                denied,
            ),
            (
                "to make one",
                &device,
                "/dev/shm/stanchion".into(),
                append,
                denied,
            ),
            (
                "to read who there is",
                &log,
                "/etc/passwd".into(),
                read,
                Ok(()),
            ),
            (
                "to read programs",
                &log,
                "/usr/bin/env".into(),
                read,
                denied,
            ),
            ("to read sources", &log, "/usr/src".into(), read, denied),
        ];
        for (name, log, path, open, expected) in cases {
            let needs = needs_of(&home.join("spool"), [log.as_path()].into_iter());
            let found = may(needs, move || open(&path));
            assert!(
                found.is_none_or(|found| found == expected),
                "{name}: {found:?}"
            );
        }
        fs::remove_dir_all(&home).expect("removed");
    }
}
