//! Making the listeners that are missing.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use stanchion_sys::call;
use stanchion_sys::held_signals::HeldSignals;
use stanchion_sys::identity::{self, Identity};
use stanchion_sys::listener::{
    FileOptions, Listener, ListenerAddress, SocketOptions, SocketOrigin, TcpOptions,
};

use super::patience::BindRetry;
use super::{ListenError, WantedListener};
use stanchion_log::cure;
use stanchion_settings::{Bind, BindAddress, Settings, UMASK};

/// Permissions of a socket file before the umask; to connect takes the right to write (unix(7)).
const FILE_MODE: u32 = 0o777;
/// The umask of the admin listener, where its address says nothing else: operators are not the users that connect as clients.
const ADMIN_UMASK: u32 = 0o177;

/// The options of the listener of `bind`.
pub(super) fn options(settings: &Settings, bind: &Bind) -> Result<SocketOptions, String> {
    let own = &bind.options;
    let defaults = TcpOptions::default();
    let refused = |problem| format!("cannot listen on {bind}: {problem}");
    Ok(SocketOptions {
        backlog: Some(
            own.backlog
                .unwrap_or(settings.listen.backlog.cast_unsigned()),
        ),
        receive_bytes: own.rcvbuf,
        send_bytes: own.sndbuf,
        tcp: TcpOptions {
            nodelay: own.tcp_nodelay.unwrap_or(defaults.nodelay),
            keepalive: own.keepalive.unwrap_or(defaults.keepalive),
            defer_accept_s: own.defer_accept.unwrap_or(defaults.defer_accept_s),
            reuse_port: own.reuseport.unwrap_or(settings.listen.reuse_port),
            only_v6: own.ipv6only.unwrap_or(defaults.only_v6),
        },
        file: file_options(settings, bind).map_err(refused)?,
    })
}

/// As in gunicorn, the file belongs to the user that the app runs as.
fn file_options(settings: &Settings, bind: &Bind) -> Result<FileOptions, String> {
    if !matches!(bind.address, BindAddress::Unix(_)) {
        return Ok(FileOptions::default());
    }
    let own = &bind.options;
    let is_admin = settings.monitoring.admin.as_ref() == Some(bind);
    let umask = own.umask.unwrap_or(if is_admin {
        ADMIN_UMASK
    } else {
        settings.process.umask
    });
    let (user, group) = (
        settings.process.user.as_deref(),
        settings.process.group.as_deref(),
    );
    let identity = Identity::find(user, group, false)?;
    let owner = own.owner.as_deref().map(identity::uid_of).transpose()?;
    let group = own.group.as_deref().map(identity::gid_of).transpose()?;
    Ok(FileOptions {
        mode: own.mode.unwrap_or(FILE_MODE & !umask),
        uid: owner.or(identity.as_ref().map(Identity::uid)),
        gid: group.or(identity.as_ref().map(Identity::gid)),
    })
}

/// Describes which users the file of a new unix socket lets in, if its mode is our default.
pub(super) fn let_in(settings: &Settings, bind: &Bind, options: &SocketOptions) -> Option<String> {
    let own = &bind.options;
    let is_asked = own.mode.or(own.umask).is_some() || settings.process.umask != UMASK;
    if is_asked || !matches!(bind.address, BindAddress::Unix(_)) {
        return None;
    }
    let mode = options.file.mode;
    let who = match mode & 0o020 {
        0 => "its owner",
        _ => "its owner and its group",
    };
    let connects = format!("{who} and root may connect to {bind} (mode {mode:04o})");
    Some(if settings.monitoring.admin.as_ref() == Some(bind) {
        // A proxy does not connect to it, and its answers are for operators only.
        format!("{connects}; for other operators add ?mode=0660&group=GROUP to the address")
    } else {
        format!(
            "{connects}; for a proxy that runs as another user add ?mode=0660&group=GROUP to the address, \
             or ?mode=0666 for every user"
        )
    })
}

/// Makes what is missing. `others` are listeners of ours that are wanted no more but still there. Only a server that starts
/// has `held` signals, one of which may call a wait off.
pub(super) fn missing(
    wanted: &mut [WantedListener],
    others: &[Listener],
    held: Option<&HeldSignals>,
) -> Result<(), ListenError> {
    // Descriptors that were left open for us come first: a socket made here might get the number
    // of one that is not there, and would be taken for it.
    let (passed, made): (Vec<_>, Vec<_>) = wanted
        .iter_mut()
        .filter(|one| !one.is_kept)
        .partition(|one| matches!(one.bind.address, BindAddress::Fd(_)));
    for one in passed.into_iter().chain(made) {
        let listener = patiently(one, others, held)?;
        one.listener = Some(listener.asked_as(one.bind.address.to_string()));
    }
    Ok(())
}

/// Tries as often as the address says while the server starts, where a signal can call it off; once otherwise.
fn patiently(
    one: &WantedListener,
    others: &[Listener],
    held: Option<&HeldSignals>,
) -> Result<Listener, ListenError> {
    let WantedListener { bind, options, .. } = one;
    let mut patience = BindRetry::of_server(bind);
    loop {
        let error = match make(bind, options, held.is_some()) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        let held = held.filter(|_| error.kind() == io::ErrorKind::AddrInUse);
        let Some((held, delay)) = held.and_then(|held| Some((held, patience.next(bind)?))) else {
            let advice = advice(&error, bind, others);
            return Err(ListenError::Failed(format!(
                "cannot listen on {bind}: {error}{advice}"
            )));
        };
        let signal = held
            .wait(delay)
            .map_err(|error| ListenError::Failed(format!("cannot wait for {bind}: {error}")))?;
        if let Some(signal) = signal {
            return Err(ListenError::Interrupted(signal));
        }
    }
}

pub(super) fn make(bind: &Bind, options: &SocketOptions, is_start: bool) -> io::Result<Listener> {
    match &bind.address {
        BindAddress::Tcp { host, port } => Listener::tcp(host, *port, options),
        BindAddress::Unix(path) => Listener::unix(path, options),
        BindAddress::Abstract(name) => Listener::unix_abstract(name, options),
        BindAddress::Fd(fd) if is_start => Listener::adopt(*fd, options, SocketOrigin::Passed),
        // The number may by now belong to any file of ours.
        BindAddress::Fd(_) => Err(io::Error::other(
            "a descriptor is taken over only when the server starts",
        )),
    }
}

fn advice(error: &io::Error, bind: &Bind, others: &[Listener]) -> String {
    // A filter of system calls refuses with EPERM.
    let is_denied = call::number(error) == Some(Errno::ACCESS.raw_os_error());
    let is_owner = call::name(error) == Some("fchownat");
    match (error.kind(), &bind.address) {
        (io::ErrorKind::AddrInUse, BindAddress::Tcp { port, .. }) => {
            let ours = others.iter().map(Listener::address).find(
                |address| matches!(address, ListenerAddress::Tcp(tcp) if tcp.port() == *port),
            );
            match ours {
                Some(ours) => format!(
                    " (by this server, at {ours}: restart it to go from one address of a port to another)"
                ),
                None => " (another server listens there; see `ss -lntxp`)".into(),
            }
        }
        (io::ErrorKind::NotFound, BindAddress::Unix(path)) if !directory_of(path).exists() => {
            format!(
                " (the directory {} does not exist: make it, for the user that the server runs as; \
                 under systemd with RuntimeDirectory= in the service)",
                directory_of(path).display()
            )
        }
        (io::ErrorKind::NotFound, BindAddress::Unix(_)) => String::new(),
        (io::ErrorKind::AddrInUse, _) => " (another server listens there; see `ss -lntxp`)".into(),
        (io::ErrorKind::AddrNotAvailable, BindAddress::Tcp { .. }) => {
            " (no interface of this host has that address: see `ip address`)".into()
        }
        (_, BindAddress::Tcp { .. })
            if call::number(error) == Some(Errno::AFNOSUPPORT.raw_os_error()) =>
        {
            " (IPv6 is switched off on this host: listen at an IPv4 address)".into()
        }
        (io::ErrorKind::PermissionDenied, BindAddress::Tcp { .. }) if is_denied => {
            " (only root binds a port below 1024; or net.ipv4.ip_unprivileged_port_start)".into()
        }
        (io::ErrorKind::PermissionDenied, BindAddress::Unix(_)) if is_owner => {
            " (only root gives a socket file to another user or group: start the server as root, or leave them out)".into()
        }
        (io::ErrorKind::PermissionDenied, BindAddress::Unix(path)) if is_denied => format!(
            " (the user that the server runs as may not make files in {}: let it, or choose another directory)",
            directory_of(path).display()
        ),
        _ => cure::of(error).map_or_else(String::new, |cure| format!(" ({cure})")),
    }
}

/// The directory of a socket file, whose path may be relative.
fn directory_of(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.parent().unwrap_or(&path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_directory_of_a_relative_path() {
        let error = call::named("bind", Errno::ACCESS);
        let bind = Bind::parse("unix:app.sock").expect("an address");
        let here = std::env::current_dir().expect("a directory");
        let said = advice(&error, &bind, &[]);
        let named = format!("may not make files in {}: let it", Path::display(&here));
        assert!(said.contains(&named), "{said}");
    }
}
