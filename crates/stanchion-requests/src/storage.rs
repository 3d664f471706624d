//! Where bodies and answers are kept on their way: in memory, as far as the accounts have room, and else in files, which
//! helper threads write and read.

use std::io;
use std::rc::Rc;

use stanchion_http::Framing;
use tracing::error;

use super::body::{Means, Noted, Sink, SinkState};
use super::spooler::{Spooler, SpoolerStep};
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::outflow::Limits;
use stanchion_dispatch::storage::clients::Client;
use stanchion_dispatch::storage::disk::Disk;
use stanchion_dispatch::storage::memory::Memory;
use stanchion_dispatch::storage::message_memory::MessageMemory;
use stanchion_dispatch::storage::shortage::Shortage;
use stanchion_dispatch::storage::spool::Spool;
use stanchion_dispatch::storage::woken::Woken;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::common::Common;
use stanchion_generation::tally::{Event, Tally};
use stanchion_settings::Believed;

/// The memory and the files for bodies, answers and messages, with their accounts.
pub struct Storage {
    /// The threads that wait for files.
    pub disk: Disk,
    /// The files of bodies that are too large for memory.
    spool: Rc<Spool>,
    /// The limits of bodies that clients have not taken.
    pub answers: Rc<Limits>,
    /// The memory of messages of sessions.
    pub messages: MessageMemory,
    bodies: Rc<Memory>,
    /// Most bytes of one body in memory: `body_memory`.
    body_bytes_max: usize,
    /// Bodies that the spool has no room for.
    unspooled: Shortage,
    /// The disk has failed since [`Self::take_trouble`] was last called.
    has_trouble: bool,
    tally: &'static Tally,
}

impl Storage {
    /// Starts the threads that wait for files. Connections for which the spool has room again are noted in `woken`.
    pub(crate) fn open(common: &'static Common, woken: &Rc<Woken>) -> io::Result<Self> {
        let settings = &common.settings;
        Ok(Self {
            disk: Disk::new(settings.limits.max_connections as usize)?,
            spool: Spool::new(&common.spool, settings.buffers.max_spool, woken),
            answers: Rc::new(Limits {
                buffer_bytes: settings.buffers.response_buffer,
                memory: Memory::new(settings.buffers.max_response_memory),
                spool_bytes: settings.buffers.response_spool,
            }),
            messages: MessageMemory::new(settings.event_loop.max_ws_memory),
            bodies: Memory::new(settings.buffers.max_body_memory),
            body_bytes_max: settings.buffers.body_memory,
            unspooled: Shortage::of(
                "bodies and answers cannot be written to the spool directory (disk full? open files? see --tmp-upload-dir)",
            ),
            has_trouble: false,
            tally: &common.tally,
        })
    }

    /// Makes the sink for a body that is about to come from `owner`.
    pub fn sink(&self, owner: Option<Client>, framing: Framing, connection: u32) -> Sink {
        Sink::new(&self.bodies, owner, framing, connection)
    }

    /// Goes on with a body that is being kept.
    pub fn advance(&mut self, sink: &mut Sink, now_us: u64) -> SinkState {
        let means = Means {
            disk: &self.disk,
            spool: &self.spool,
            own_bytes_max: self.body_bytes_max,
        };
        let (state, noted) = sink.advance(&means);
        match noted {
            Noted::Nothing => {}
            Noted::Spooled => self.tally.happened(Event::BodySpooled),
            Noted::Failed(error) => self.cannot_spool(&error, now_us),
        }
        state
    }

    /// Goes on with an answer that goes to a file; true if something came of it for the client.
    pub fn spool(
        &mut self,
        spooler: &mut Spooler,
        ticket: &Ticket,
        dispatch: &mut Dispatch,
        believed: &Believed,
        now_us: u64,
    ) -> bool {
        let request = &ticket.request;
        let owner = || request.peer.client(&request.head, believed);
        let (mut changed, mut looked) = (false, false);
        loop {
            let advance =
                |outflow: &mut _| spooler.advance(outflow, &self.spool, &self.disk, owner);
            match ticket.outflow(advance).unwrap_or(SpoolerStep::Over) {
                SpoolerStep::Busy => return changed,
                SpoolerStep::Idle if looked => return changed,
                SpoolerStep::Idle => {
                    dispatch.look_for(ticket, now_us);
                    looked = true;
                }
                SpoolerStep::Written { is_first } => {
                    if is_first {
                        self.tally.happened(Event::AnswerSpooled);
                    }
                    dispatch.refill(ticket, now_us);
                    changed = true;
                }
                SpoolerStep::Read => changed = true,
                SpoolerStep::Full | SpoolerStep::Over => {
                    dispatch.look_for(ticket, now_us);
                    return true;
                }
                SpoolerStep::DiskFailed(error) => {
                    self.cannot_spool(&error, now_us);
                    changed = true;
                }
                SpoolerStep::Lost(error) => {
                    error!(
                        "{}: the answer breaks off, as it cannot be read back from the spool directory: {error}",
                        ticket.request.describe()
                    );
                    dispatch.abandon(ticket, now_us);
                    changed = true;
                }
            }
        }
    }

    /// Logs and counts that a body or an answer could not be spooled.
    fn cannot_spool(&mut self, error: &io::Error, now_us: u64) {
        self.unspooled.failed(now_us, error);
        self.tally.happened(Event::Paused);
        self.has_trouble = true;
    }

    /// Whether the disk has failed since this was last asked: then the clients that are here come first.
    pub fn take_trouble(&mut self) -> bool {
        std::mem::take(&mut self.has_trouble)
    }

    /// Looks whether shortages are over, and logs that.
    pub(crate) fn settle(&self, now_us: u64) {
        self.unspooled.settle(now_us);
        self.messages.settle(now_us);
    }

    /// Memory that is counted as in use for requests: of bodies, of answers and of messages.
    #[cfg(debug_assertions)]
    pub fn counted_bytes(&self) -> [usize; 3] {
        [
            self.bodies.bytes(),
            self.answers.memory.bytes(),
            self.messages.bytes(),
        ]
    }
}
