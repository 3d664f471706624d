//! Takes an answer to a slow client out of its worker's hands: into a file, and back as the client takes it.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use stanchion_dispatch::outflow::{FileAction, Outflow};
use stanchion_dispatch::storage::clients::Client;
use stanchion_dispatch::storage::disk::{self, Disk};
use stanchion_dispatch::storage::spool::{Reading, Spool, SpoolError, SpoolFile};

/// Works for one answer for as long as the answer needs a file. The sender of the answer owns it.
pub struct Spooler {
    connection: u32,
    file: Option<SpoolFile>,
    doing: SpoolerState,
    is_needed: bool,
}

enum SpoolerState {
    Nothing,
    Writing,
    Reading(disk::Job<Vec<u8>>),
}

/// The result of a spooler's step.
#[derive(Debug)]
pub(crate) enum SpoolerStep {
    /// The disk has something to do; the connection is woken when it is done.
    Busy,
    /// There is nothing to do for now: more of the answer should be looked for.
    Idle,
    /// Something was written, and the worker has room.
    Written {
        /// It was the first of this answer.
        is_first: bool,
    },
    /// Something was read back for the client.
    Read,
    /// There is no room in the spool. The connection is woken when there is again; meanwhile the client gets what is
    /// in memory.
    Full,
    /// The disk has no room, or fails: the worker has to wait for the client.
    DiskFailed(io::Error),
    /// The file cannot be read: the answer is not whole.
    Lost(io::Error),
    /// The file is not needed any more.
    Over,
}

impl Spooler {
    /// The spooler of an answer, which goes to this connection.
    pub fn new(connection: u32) -> Self {
        Self {
            connection,
            file: None,
            doing: SpoolerState::Nothing,
            is_needed: true,
        }
    }

    /// Whether the answer still needs its file.
    pub fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// Does the next thing, for an answer to a request of `owner`. To be called again unless it was [`SpoolerStep::Busy`],
    /// [`SpoolerStep::Full`], [`SpoolerStep::Over`], or twice [`SpoolerStep::Idle`].
    pub(crate) fn advance(
        &mut self,
        outflow: &mut Outflow,
        spool: &Rc<Spool>,
        disk: &Disk,
        owner: impl FnOnce() -> Option<Client>,
    ) -> SpoolerStep {
        match std::mem::replace(&mut self.doing, SpoolerState::Nothing) {
            SpoolerState::Nothing => self.begin(outflow, spool, disk, owner),
            SpoolerState::Writing => self.wrote(outflow),
            SpoolerState::Reading(mut job) => match job.take() {
                Some(read) => Self::read(read, outflow),
                None => {
                    self.doing = SpoolerState::Reading(job);
                    SpoolerStep::Busy
                }
            },
        }
    }

    fn begin(
        &mut self,
        outflow: &mut Outflow,
        spool: &Rc<Spool>,
        disk: &Disk,
        owner: impl FnOnce() -> Option<Client>,
    ) -> SpoolerStep {
        match outflow.next_job() {
            FileAction::Leave => {
                self.file = None;
                self.is_needed = false;
                SpoolerStep::Over
            }
            FileAction::Wait => SpoolerStep::Idle,
            FileAction::Write(pieces) => {
                let file = self
                    .file
                    .get_or_insert_with(|| spool.unnamed_file(disk, owner()));
                match file.append(self.connection, pieces) {
                    Ok(()) => {
                        self.doing = SpoolerState::Writing;
                        SpoolerStep::Busy
                    }
                    Err(error) => self.not_written(error, outflow, spool),
                }
            }
            FileAction::Read { offset, len } => {
                let file = self.file.as_ref();
                match file.map(|file| file.read(self.connection, offset, len)) {
                    Some(Reading::Done(bytes)) => Self::read(Ok(bytes), outflow),
                    Some(Reading::Asked(job)) => {
                        self.doing = SpoolerState::Reading(job);
                        SpoolerStep::Busy
                    }
                    None => Self::read(Ok(Vec::new()), outflow),
                }
            }
        }
    }

    fn wrote(&mut self, outflow: &mut Outflow) -> SpoolerStep {
        let Some(file) = &mut self.file else {
            return SpoolerStep::Idle;
        };
        let is_first = !file.is_made();
        match file.appended() {
            None => {
                self.doing = SpoolerState::Writing;
                SpoolerStep::Busy
            }
            Some(Ok(())) => {
                outflow.written(true);
                SpoolerStep::Written { is_first }
            }
            Some(Err(error)) => {
                outflow.disk_failed();
                SpoolerStep::DiskFailed(error)
            }
        }
    }

    fn not_written(&self, error: SpoolError, outflow: &mut Outflow, spool: &Spool) -> SpoolerStep {
        match error {
            SpoolError::Full | SpoolError::ShareFull => {
                spool.wait_for_room(self.connection);
                outflow.written(false);
                SpoolerStep::Full
            }
            SpoolError::Disk(error) => {
                outflow.disk_failed();
                SpoolerStep::DiskFailed(error)
            }
        }
    }

    fn read(read: io::Result<Vec<u8>>, outflow: &mut Outflow) -> SpoolerStep {
        let error = match read {
            Ok(bytes) if !bytes.is_empty() => {
                outflow.read(Bytes::from(bytes));
                return SpoolerStep::Read;
            }
            Ok(_) => io::ErrorKind::UnexpectedEof.into(),
            Err(error) => error,
        };
        outflow.lost();
        SpoolerStep::Lost(error)
    }
}

#[cfg(test)]
mod tests;
