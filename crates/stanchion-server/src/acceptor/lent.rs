//! Doors that single workers ask for (`worker.listen`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use stanchion_sys::listener::Listener;
use tracing::{error, info, warn};

use super::Shared;
use super::dispatch::{PortNumber, Who};
use super::listen::{self, Closing};
use crate::listeners::of_worker::{self, Failure, Patience};
use crate::messages::{self, FromAcceptor};
use crate::settings::Bind;

impl Shared {
    /// A worker is to serve, alone, who comes in by this door, once no other that has asked for it
    /// does. Without a listener somebody else has the address still.
    pub(super) fn lend(
        self: &Rc<Self>,
        port: PortNumber,
        who: Who,
        bind: &str,
        fd: Option<OwnedFd>,
    ) {
        let done = Bind::parse(bind)
            .map_err(io::Error::other)
            .and_then(|bind| {
                let name = bind.address.to_string();
                self.dispatch.borrow_mut().claim_port(port, who, &name);
                match fd {
                    Some(fd) => self.open_lent(port, who, &bind, fd),
                    None => {
                        self.seek(port, &bind);
                        Ok(())
                    }
                }
            });
        if let Err(error) = done {
            error!(
                "{bind}, which is worker {}'s, is not served: {error}",
                who.0
            );
        }
    }

    fn open_lent(
        self: &Rc<Self>,
        port: PortNumber,
        (worker, _): Who,
        bind: &Bind,
        fd: OwnedFd,
    ) -> io::Result<()> {
        let listener = Listener::received(fd)?;
        of_worker::apply(&self.common.settings, bind, &listener)?;
        let is_open = |door: &listen::OpenDoor| door.port == Some(port);
        if self.doors.borrow().iter().any(is_open) || self.draining.get() {
            return Ok(());
        }
        listen::open(self, &listener, Some(port))?;
        let address = listener.address();
        info!("worker {worker} alone listens at {address}");
        Ok(())
    }

    /// Tries the address again as often as its `tries` say, and tells the master when it is had.
    fn seek(self: &Rc<Self>, port: PortNumber, bind: &Bind) {
        let mut sought = self.sought.borrow_mut();
        if sought.get(&port).is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (shared, bind) = (Rc::clone(self), bind.clone());
        let seeking = async move {
            if let Err(error) = shared.bind_patiently(port, &bind).await {
                warn!("{bind} is not served by a worker alone: {error}");
            }
        };
        let seeking = self.vital.spawn("tries the address of a worker", seeking);
        sought.insert(port, seeking);
    }

    async fn bind_patiently(&self, port: PortNumber, bind: &Bind) -> io::Result<()> {
        let mut patience = Patience::after_one(bind);
        loop {
            let Some(delay) = patience.next(bind) else {
                let advice = "another server listens there, see `ss -lntxp`";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, advice));
            };
            tokio::time::sleep(delay).await;
            let listener = match of_worker::open(&self.common.settings, bind) {
                Ok((_, listener)) => listener,
                Err(Failure::InUse(_)) => continue,
                Err(Failure::Failed(error)) => return Err(error),
            };
            let Some((worker, tenure)) = self.dispatch.borrow().claimant(port) else {
                // Whoever comes next asks for it again.
                return Ok(());
            };
            let bind = bind.to_string();
            let had = FromAcceptor::Listen {
                worker,
                tenure,
                bind,
            };
            return messages::send_with(&self.master, &had, Some(listener.as_fd()));
        }
    }

    /// A door is no worker's any more.
    pub(super) fn take_back(&self, port: PortNumber, is_shared: bool) {
        if let Some(task) = self.sought.borrow_mut().remove(&port) {
            task.abort();
        }
        self.dispatch.borrow_mut().give_up_port(port);
        let is_it = |door: &mut listen::OpenDoor| door.port == Some(port);
        for door in self.doors.borrow_mut().extract_if(.., is_it) {
            info!("listening no more at {}", door.listener.address());
            door.close(if is_shared {
                Closing::AtOnce
            } else {
                Closing::AfterTheLast
            });
        }
        self.door.notify_waiters();
    }
}
