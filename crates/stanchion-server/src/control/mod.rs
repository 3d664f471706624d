//! The control socket: commands to the master, and answers, for `stanchion ctl`.
//!
//! It lives in the master's loop: no thread, no wait of its own, and bounds on everything that a
//! client can make it keep. A request is a JSON object on a line ([`CtlRequest`]), and so is its
//! answer ([`CtlReply`]); a connection may carry several, one after the other. docs/reference/command-line.md
//! is the page for users.
//!
//! Two checks decide which users may command: the mode of the file, which is 0600, and the kernel, which names the user of each connection, since
//! modes of files are changed easily.
//!
//! Dropped in a forked child it only closes its descriptors; dropped in the master it removes the
//! file too, unless another master has put its own there.

mod client;
mod reply;
mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use stanchion_master::ClientId;
use stanchion_sys::identity::effective_uid;
use stanchion_sys::peer::PeerCredentials;
use stanchion_sys::private_socket::PrivateListener;
use tracing::{debug, error, warn};

use client::{ClientTurn, ControlClient, turn_away};
pub(crate) use reply::{
    CtlReply, CtlStatus, CtlWorker, Data, SeatTotals, WorkerSeats, WorkerStacks,
};
pub(crate) use request::CtlRequest;

/// Clients there may be at a time; a further client is refused with that reason.
const CLIENTS_MAX: usize = 16;
/// Connections that are accepted in one turn of the master's loop.
const ACCEPTS_PER_TURN_MAX: usize = 16;
/// How long the listener is left alone when the kernel refuses to accept, as it does when the
/// process has too many descriptors open: it would say "readable" all the while.
const DEAF_MS: u64 = 1_000;

/// The control socket and its clients.
#[derive(Debug)]
pub(crate) struct Control {
    listener: PrivateListener,
    clients: BTreeMap<ClientId, ControlClient>,
    /// The id last given.
    ids: ClientId,
    /// When [`Self::gather`] was last called.
    now_ms: u64,
    /// Until then no client is accepted.
    deaf_until_ms: Option<u64>,
}

impl Control {
    /// Listens at `path`, if no other process does.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(PrivateListener::open(path)?))
    }

    /// Listens at `path` in place of the master that we follow. Its clients stay with it.
    pub(crate) fn take_over(path: &Path) -> io::Result<Self> {
        Ok(Self::new(PrivateListener::replace(path)?))
    }

    fn new(listener: PrivateListener) -> Self {
        Self {
            listener,
            clients: BTreeMap::new(),
            ids: 0,
            now_ms: 0,
            deaf_until_ms: None,
        }
    }

    /// The descriptors to wait for, until one is readable.
    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let listener = self.deaf_until_ms.is_none().then(|| self.listener.as_fd());
        let clients = self.clients.values().filter_map(ControlClient::fd);
        listener.into_iter().chain(clients).collect()
    }

    /// When [`Self::gather`] has something to do, whatever clients do.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let clients = self.clients.values().filter_map(ControlClient::due_ms);
        clients.chain(self.deaf_until_ms).min()
    }

    /// The new requests of clients. A client that has asked for something waits until [`Self::reply`] answers it.
    pub(crate) fn gather(&mut self, now_ms: u64) -> Vec<(ClientId, CtlRequest)> {
        self.now_ms = now_ms;
        let mut requests = Vec::new();
        self.clients
            .retain(|&id, client| keep(id, client.turn(now_ms), &mut requests));
        self.deaf_until_ms.take_if(|until_ms| now_ms >= *until_ms);
        if self.deaf_until_ms.is_none() {
            self.accept(&mut requests);
        }
        requests
    }

    /// Answers what a client asked for; one that has gone meanwhile is no error.
    pub(crate) fn reply(&mut self, id: ClientId, reply: &CtlReply) {
        let Some(client) = self.clients.get_mut(&id) else {
            debug!(
                "a client of the control socket did not wait for: {}",
                reply.message
            );
            return;
        };
        if client.reply(self.now_ms, reply) == ClientTurn::Leaves {
            self.clients.remove(&id);
        }
    }

    /// Keeps the stacks of a worker, which go with the reply to come.
    pub(crate) fn add_stacks(&mut self, id: ClientId, stacks: WorkerStacks) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.add_stacks(stacks);
        }
    }

    fn accept(&mut self, requests: &mut Vec<(ClientId, CtlRequest)>) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match self.listener.accept() {
                Ok(Some((socket, peer))) => self.welcome(socket, peer, requests),
                Ok(None) => return,
                Err(error) => {
                    error!("the control socket cannot accept, and waits {DEAF_MS} ms: {error}");
                    self.deaf_until_ms = Some(self.now_ms + DEAF_MS);
                    return;
                }
            }
        }
    }

    fn welcome(
        &mut self,
        socket: OwnedFd,
        peer: PeerCredentials,
        requests: &mut Vec<(ClientId, CtlRequest)>,
    ) {
        let refusal = if !may_command(peer.uid, effective_uid()) {
            let (uid, user) = (peer.uid, effective_uid());
            let why = format!(
                "user {uid} may not command this server: only root and its own user ({user}) may"
            );
            warn!("control: {why} peer={}", peer.pid);
            Some(why)
        } else if self.clients.len() == CLIENTS_MAX {
            Some(format!(
                "there are {CLIENTS_MAX} clients at the control socket already; try again"
            ))
        } else {
            None
        };
        if let Some(why) = refusal {
            if let Err(error) = turn_away(&socket, &why) {
                debug!("a client of the control socket did not get its refusal: {error}");
            }
            return;
        }
        self.ids += 1;
        let mut client = ControlClient::new(socket, self.now_ms);
        // Most have sent their request along with the connection.
        if keep(self.ids, client.turn(self.now_ms), requests) {
            self.clients.insert(self.ids, client);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Err(error) = self.listener.remove_file() {
            warn!(
                "the control socket {} stays: {error}",
                self.listener.path().display()
            );
        }
    }
}

fn may_command(uid: u32, user: u32) -> bool {
    uid == 0 || uid == user
}

/// Whether the client is still one.
fn keep(id: ClientId, turn: ClientTurn, requests: &mut Vec<(ClientId, CtlRequest)>) -> bool {
    match turn {
        ClientTurn::Asks(request) => requests.push((id, request)),
        ClientTurn::Stays => {}
        ClientTurn::Leaves => return false,
    }
    true
}
