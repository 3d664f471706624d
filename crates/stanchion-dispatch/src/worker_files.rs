//! Files that workers send for their answers. A file comes by a channel of its own, before the answer that names it.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use stanchion_exchange::Submitted;
use stanchion_sys::channel::{Channel, ChannelMessage, Received};
use tracing::error;

/// One look receives at most so many files. The kernel has buffers for no more on their way.
const FILES_MAX: usize = 1024;

/// The files that have come for answers that have not.
pub(crate) struct WorkerFiles {
    /// By slot, each with the turn of the slot.
    by_slot: HashMap<u32, (u32, OwnedFd)>,
    channel: Option<Channel>,
    /// Messages that were longer than the limit, since the log last gave their number.
    cut: u64,
}

impl WorkerFiles {
    /// Receives files by this channel.
    pub(crate) fn new(channel: Option<Channel>) -> Self {
        Self {
            by_slot: HashMap::new(),
            channel,
            cut: 0,
        }
    }

    /// Receives the files that have come. It keeps one for each slot, if the worker that sent it `has_in_hand` the request, so
    /// that no worker can answer for another one, or make the acceptor keep more files. It closes the others.
    pub(crate) fn receive(&mut self, has_in_hand: impl Fn(i32, Submitted) -> bool) {
        // The look ends, even if workers send files without a pause.
        for _ in 0..FILES_MAX {
            let received = match &self.channel {
                Some(channel) => channel.receive(),
                None => return,
            };
            match received {
                Ok(Received::Message(message)) => {
                    let sender = message.sender;
                    if let Some((submitted, fd)) = named(message)
                        && has_in_hand(sender, submitted)
                    {
                        self.by_slot.insert(submitted.slot, (submitted.turn, fd));
                    }
                }
                Ok(Received::Nothing | Received::Closed) => return,
                // A message that is too long must not hold up the messages of other workers behind it.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => self.cut += 1,
                Err(error) => {
                    error!("the acceptor cannot receive the descriptor of a file: {error}");
                    return;
                }
            }
        }
    }

    /// Gives the file that came for this request.
    pub(crate) fn take(&mut self, submitted: Submitted) -> Option<OwnedFd> {
        let (turn, fd) = self.by_slot.remove(&submitted.slot)?;
        (turn == submitted.turn).then_some(fd)
    }

    /// Closes the file for a slot whose request is over. A worker may have died between its file and the answer that names
    /// the file.
    pub(crate) fn forget(&mut self, slot: u32) {
        if !self.by_slot.is_empty() {
            self.by_slot.remove(&slot);
        }
    }

    /// Logs how many messages were too long. Called now and then only: a worker that sends such messages could else
    /// fill the log.
    pub(crate) fn log_cut(&mut self) {
        let cut = std::mem::take(&mut self.cut);
        if cut > 0 {
            error!(
                "the acceptor dropped {cut} messages of workers, which were too long to name a file"
            );
        }
    }
}

/// The request that a message names, and the file for its answer.
fn named(message: ChannelMessage) -> Option<(Submitted, OwnedFd)> {
    let name = <[u8; 8]>::try_from(message.bytes.as_slice()).ok()?;
    let [s0, s1, s2, s3, t0, t1, t2, t3] = name;
    let submitted = Submitted {
        slot: u32::from_le_bytes([s0, s1, s2, s3]),
        turn: u32::from_le_bytes([t0, t1, t2, t3]),
    };
    Some((submitted, message.fd?))
}
