//! Listeners that single workers ask for (`worker.listen`): while another process has the address, the acceptor tries it
//! again.
//!
//! The loop tries again and not the worker, since the loop has a clock. A thread in the worker could do it too, but
//! would make forks by the app unsafe.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

use stanchion_sys::channel::Channel;
use tracing::warn;

use stanchion_connections::after;
use stanchion_dispatch::{Dispatch, PortNumber};
use stanchion_generation::listeners::of_worker::{self, BindFailure};
use stanchion_generation::listeners::patience::BindRetry;
use stanchion_generation::messages::{self, FromAcceptor};
use stanchion_settings::{Bind, Settings};

/// Addresses that workers have asked for and another process listens at.
#[derive(Default)]
pub(crate) struct Sought(BTreeMap<PortNumber, Seeking>);

struct Seeking {
    bind: Bind,
    patience: BindRetry,
    /// When the acceptor tries the address again.
    next_us: u64,
}

impl Sought {
    /// Tries the address again as often as its `tries` say.
    pub(crate) fn seek(&mut self, port: PortNumber, bind: Bind, now_us: u64) {
        if self.0.contains_key(&port) {
            return;
        }
        let mut patience = BindRetry::of_worker(&bind);
        match patience.next(&bind) {
            Some(delay) => {
                let next_us = after(now_us, delay);
                let seeking = Seeking {
                    bind,
                    patience,
                    next_us,
                };
                self.0.insert(port, seeking);
            }
            None => give_up(&bind, &in_use()),
        }
    }

    /// No worker wants the address any more.
    pub(crate) fn forget(&mut self, port: PortNumber) {
        self.0.remove(&port);
    }

    pub(crate) fn due_us(&self) -> Option<u64> {
        self.0.values().map(|seeking| seeking.next_us).min()
    }

    /// Tries each address that is due, and sends the master the listeners of those that were free.
    pub(crate) fn advance(
        &mut self,
        settings: &Settings,
        dispatch: &Dispatch,
        master: &Channel,
        now_us: u64,
    ) {
        self.0.retain(|port, seeking| {
            if now_us < seeking.next_us {
                return true;
            }
            match of_worker::open(settings, &seeking.bind) {
                Ok((_, listener)) => {
                    // If no worker asks for it any more, the next worker that does starts a search of its own.
                    if let Some(worker) = dispatch.claimant(*port) {
                        let bind = seeking.bind.to_string();
                        let had = FromAcceptor::Listen { worker, bind };
                        if let Err(error) =
                            messages::send_with(master, &had, Some(listener.as_fd()))
                        {
                            give_up(&seeking.bind, &error);
                        }
                    }
                    false
                }
                Err(BindFailure::InUse(_)) => match seeking.patience.next(&seeking.bind) {
                    Some(delay) => {
                        seeking.next_us = after(now_us, delay);
                        true
                    }
                    None => {
                        give_up(&seeking.bind, &in_use());
                        false
                    }
                },
                Err(BindFailure::Failed(error)) => {
                    give_up(&seeking.bind, &error);
                    false
                }
            }
        });
    }
}

fn in_use() -> io::Error {
    let advice = "another server listens there, see `ss -lntxp`";
    io::Error::new(io::ErrorKind::AddrInUse, advice)
}

fn give_up(bind: &Bind, why: &io::Error) {
    warn!("{bind} is not served: no worker listens there alone: {why}");
}
