//! STUB until merged.
use crate::settings::{BindAddress, Settings};
use stanchion_sys::listener::Listener;
use std::io;
use tracing::{info, warn};

pub(crate) fn inherited() -> Result<Vec<Listener>, String> {
    Ok(Vec::new())
}

pub(crate) fn clones(listeners: &[Listener]) -> io::Result<Vec<Listener>> {
    listeners.iter().map(Listener::try_clone).collect()
}

pub(crate) fn open(
    settings: &Settings,
    mut inherited: Vec<Listener>,
) -> Result<Vec<Listener>, String> {
    let backlog = settings.backlog.cast_unsigned();
    let mut listeners = Vec::new();
    for bind in &settings.listen_at() {
        let shown = match bind {
            BindAddress::Tcp { host, port } => format!("http://{host}:{port}"),
            BindAddress::Unix(path) => format!("unix:{}", path.display()),
            BindAddress::Abstract(name) => format!("unix:@{name}"),
            BindAddress::Fd(fd) => format!("fd://{fd}"),
        };
        let found = inherited
            .iter()
            .position(|one| one.address().to_string() == shown || shown.ends_with(":0"));
        let listener = match found {
            Some(index) => Ok(inherited.remove(index)),
            None => match bind {
                BindAddress::Tcp { host, port } => Listener::tcp(host, *port, backlog),
                BindAddress::Unix(path) => Listener::unix(path, backlog),
                BindAddress::Abstract(name) => Listener::unix_abstract(name, backlog),
                BindAddress::Fd(fd) => Listener::adopt(*fd, backlog),
            },
        };
        match listener {
            Ok(listener) => listeners.push(listener),
            Err(error) => {
                remove_files(&listeners);
                let advice = match error.kind() {
                    io::ErrorKind::AddrInUse => " (another server listens there; see `ss -lntxp`)",
                    io::ErrorKind::PermissionDenied => {
                        " (a port below 1024, or a directory that is not yours?)"
                    }
                    _ => "",
                };
                return Err(format!("cannot listen on {bind}: {error}{advice}"));
            }
        }
    }
    for listener in &listeners {
        info!("listening at {}", listener.address());
    }
    Ok(listeners)
}

pub(crate) fn remove_files(listeners: &[Listener]) {
    for listener in listeners {
        if let Err(error) = listener.remove_file() {
            warn!("the socket file of {} stays: {error}", listener.address());
        }
    }
}
