//! The view of a network namespace from outside of any server, for `stanchion doctor` and `stanchion top --any`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use stanchion_sys::listener::ListenerAddress;
use stanchion_sys::network_namespace;
use stanchion_sys::sock_diag::{self, ListeningSocket};

/// Its sockets, and the files asked for as they read in there.
#[derive(Serialize)]
struct View<'a> {
    listening: Vec<ListedSocket>,
    /// Local address -> connections that are half open there.
    half_open: BTreeMap<String, u32>,
    /// `None` for what cannot be read.
    files: BTreeMap<&'a str, Option<String>>,
}

#[derive(Serialize)]
struct ListedSocket {
    family: &'static str,
    /// `None` for one that was never bound.
    address: Option<String>,
    inode: u64,
    waiting: u32,
    backlog: u32,
    drops: Option<u32>,
}

/// The view as JSON: of our own network namespace, or of the one that `namespace` links to.
/// To find those that are half open the kernel walks its whole table of connections, which takes milliseconds.
pub fn view_json(namespace: Option<&Path>, files: &[String]) -> io::Result<String> {
    let look = || view(files);
    let view = match namespace {
        Some(link) => network_namespace::inside(link, look),
        None => look(),
    }?;
    serde_json::to_string(&view).map_err(io::Error::other)
}

fn view(files: &[String]) -> io::Result<View<'_>> {
    let mut half_open = BTreeMap::new();
    for address in sock_diag::half_open()? {
        *half_open.entry(address.to_string()).or_default() += 1;
    }
    Ok(View {
        listening: sock_diag::listening()?
            .into_iter()
            .map(ListedSocket::from)
            .collect(),
        half_open,
        files: files
            .iter()
            .map(|path| (path.as_str(), fs::read_to_string(path).ok()))
            .collect(),
    })
}

impl From<ListeningSocket> for ListedSocket {
    fn from(socket: ListeningSocket) -> Self {
        let (family, address) = match socket.address {
            Some(ListenerAddress::Tcp(address)) => ("tcp", Some(address.to_string())),
            Some(ListenerAddress::Unix(path)) => ("unix", Some(path.display().to_string())),
            Some(ListenerAddress::Abstract(name)) => ("unix", Some(format!("@{name}"))),
            None => ("unix", None),
        };
        Self {
            family,
            address,
            inode: socket.inode,
            waiting: socket.queue.waiting,
            backlog: socket.queue.backlog,
            drops: socket.queue.drops,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is a failed test
mod tests {
    use serde_json::{Value, json};
    use stanchion_sys::listener::{Listener, SocketOptions};

    use super::*;

    #[test]
    fn the_view_has_sockets_and_the_files_that_can_be_read() {
        let listener = Listener::unix_abstract(
            &format!("view-{}", std::process::id()),
            &SocketOptions::with_backlog(3),
        )
        .unwrap();
        let files = ["/proc/sys/net/core/somaxconn", "/proc/none"].map(str::to_owned);
        let view: Value = serde_json::from_str(&view_json(None, &files).unwrap()).unwrap();
        let name = listener.address().to_string();
        let name = name.strip_prefix("unix:").unwrap();
        let listening = view["listening"].as_array().unwrap();
        let found = listening.iter().find(|one| one["address"] == name).unwrap();
        assert_eq!(found["family"], "unix");
        assert_eq!(found["waiting"], 0);
        assert_eq!(found["backlog"], 3);
        assert_eq!(found["drops"], Value::Null);
        let somaxconn = view["files"][&files[0]].as_str().unwrap();
        assert!(somaxconn.trim().parse::<u32>().is_ok(), "{somaxconn}");
        assert_eq!(view["files"][&files[1]], json!(null));
    }
}
