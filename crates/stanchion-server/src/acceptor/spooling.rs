//! Takes answers to slow clients out of their workers' hands: into files, and back as the clients
//! take them.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tracing::error;

use super::clients::Client;
use super::outflow::{Job, Outflow, PATIENCE_US};
use super::spool::{SpoolError, SpoolFile};
use super::ticket::Ticket;
use super::{Shared, first_of};
use crate::tally::Event;

/// Looks after workers that wait for clients.
pub(super) async fn relieve(shared: Rc<Shared>) {
    loop {
        shared.relief.notified().await;
        tokio::time::sleep(Duration::from_micros(PATIENCE_US)).await;
        let slow = shared.dispatch.borrow_mut().slow_clients();
        for ticket in slow {
            ticket.outflow(Outflow::spool);
            let spooled = spool(Rc::clone(&shared), ticket);
            shared.vital.spawn("spools an answer", spooled);
        }
    }
}

/// Works for one answer for as long as it needs a file.
async fn spool(shared: Rc<Shared>, ticket: Rc<Ticket>) {
    shared.dispatch.borrow_mut().refill(&ticket);
    let mut file = None;
    loop {
        match ticket.outflow(Outflow::next_job).unwrap_or(Job::Leave) {
            Job::Leave => break,
            Job::Wait => {
                shared.dispatch.borrow_mut().look_for(&ticket);
                changed(&shared, &ticket).await;
            }
            Job::Write(pieces) => match write(&shared, &ticket, &mut file, pieces).await {
                Ok(()) => {
                    ticket.outflow(|outflow| outflow.written(true));
                    shared.dispatch.borrow_mut().refill(&ticket);
                }
                Err(SpoolError::Disk(error)) => {
                    shared.cannot_spool(&error);
                    ticket.outflow(Outflow::disk_failed);
                    ticket.wake();
                }
                Err(SpoolError::Full | SpoolError::ShareFull) => {
                    ticket.outflow(|outflow| outflow.written(false));
                    ticket.wake();
                    shared.dispatch.borrow_mut().look_for(&ticket);
                    changed(&shared, &ticket).await;
                }
            },
            Job::Read { offset, len } => {
                match read(file.as_ref(), offset, len).await {
                    Ok(bytes) => drop(ticket.outflow(|outflow| outflow.read(bytes))),
                    Err(error) => {
                        error!("an answer cannot be read back from the spool: {error}");
                        ticket.outflow(Outflow::lost);
                        shared.dispatch.borrow_mut().abandon(&ticket);
                    }
                }
                ticket.wake();
            }
        }
    }
    if let Some(file) = file {
        file.discard();
    }
    shared.dispatch.borrow_mut().look_for(&ticket);
}

/// Something was pushed, popped or given up, or there is room in the spool again.
async fn changed(shared: &Shared, ticket: &Ticket) {
    first_of(ticket.spooler.notified(), shared.spool.freed()).await;
}

async fn write(
    shared: &Shared,
    ticket: &Ticket,
    file: &mut Option<SpoolFile>,
    pieces: Vec<Bytes>,
) -> Result<(), SpoolError> {
    let file = match file {
        Some(file) => file,
        None => {
            let owner = Client::behind_proxies(
                &ticket.request.peer,
                &ticket.request.head.headers,
                &shared.common.settings.forwarded_allow_ips,
            );
            let created = shared.spool.create_unnamed(owner).await?;
            shared.common.tally.happened(Event::AnswerSpooled);
            file.insert(created)
        }
    };
    file.append(pieces).await
}

async fn read(file: Option<&SpoolFile>, offset: u64, len: usize) -> io::Result<Bytes> {
    let bytes = match file {
        Some(file) => file.read(offset, len).await?,
        None => Bytes::new(),
    };
    if bytes.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
