//! A worker that becomes the template, so that the workers which it forks share what its requests have brought into memory.
//!
//! It has left its seats, and its threads have ended. It may fork only if the app has left no thread, event loop, connection or listening
//! socket in it, by the check that follows an import, and no open database of `SQLite`. The check does not see a lock that a thread has left:
//! for that the app has to answer a request in the first worker that is forked.

use std::io;
use std::os::fd::AsFd;

use stanchion_sys::channel::Channel;
use stanchion_sys::{process, signal};
use tracing::{error, info};

use crate::host::Host;
use crate::leftovers::{Leftovers, OpenBefore};
use crate::signals::leave_signals_to_master;
use crate::title;
use crate::worker::Worker;
use stanchion_generation::messages::{self, FromTemplate, Incoming, REASON_CHARS_MAX, ToTemplate};
use stanchion_log::{self as log, cure};

/// Makes a process that was this worker a template. False if it cannot be one, as the master hears: it is to leave then, as any worker.
pub(crate) fn prepare(
    worker: &Worker,
    orders: &Channel,
    before: OpenBefore,
    host: &mut dyn Host,
) -> bool {
    worker.is_template_now();
    let why = match be_template(worker, orders, before, host) {
        Ok(()) => return true,
        Err(why) => why,
    };
    let reason = why.chars().take(REASON_CHARS_MAX).collect();
    match messages::report(orders, &FromTemplate::Unfit { reason }) {
        // The master has given the re-fork up, and knows why.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            error!("a worker that cannot be the template cannot report to the master: {error}");
        }
        _ => {}
    }
    false
}

/// The reason why it cannot be one begins with a verb.
fn be_template(
    worker: &Worker,
    orders: &Channel,
    mut before: OpenBefore,
    host: &mut dyn Host,
) -> Result<(), String> {
    let told = |error: io::Error| format!("cannot be a template: {}", cure::told(&error));
    let common = worker.common;
    leave_signals_to_master()
        .and_then(|()| signal::reset(&[signal::SIGABRT]))
        .map_err(told)?;
    // From here on it ends with the master as a template does, whatever it does.
    if process::die_with(common.master_pid, signal::SIGKILL).map_err(told)? {
        return Err("has lost its master".to_owned());
    }
    process::set_name(c"stanchion-tmpl");
    title::show("template", &common.settings);
    if is_given_up(orders, host).map_err(told)? {
        return Err("is wanted no more".to_owned());
    }
    info!("re-fork: the worker has ended its requests, and looks at what it would hand on");
    host.settle(&common.settings);
    before
        .add(orders.as_fd())
        .and_then(|()| before.add(worker.reports.as_fd()))
        .map_err(told)?;
    let Leftovers {
        not_for_workers,
        shared,
        databases,
    } = before.leftovers(host).map_err(told)?;
    let left = [not_for_workers, shared, databases].concat();
    if left.is_empty() {
        return Ok(());
    }
    Err(format!(
        "has {}, which its forks would lack or share: have the app end them in worker_exit (docs/what-survives-a-fork.md)",
        left.join("; ")
    ))
}

/// Whether the master has closed its end, as when the generation leaves. Its orders so far are to reopen the logs.
fn is_given_up(orders: &Channel, host: &mut dyn Host) -> io::Result<bool> {
    loop {
        match messages::receive(orders)? {
            Incoming::Message(ToTemplate::Reopen) => {
                log::reopen();
                host.reopen_logs();
            }
            Incoming::Message(_) => {}
            Incoming::Nothing => return Ok(false),
            Incoming::Closed => return Ok(true),
        }
    }
}
