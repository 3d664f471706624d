//! The memory, descriptors and settings that all processes of a generation share from their birth.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use stanchion_exchange::Exchange;
use stanchion_log::LogChannels;
use stanchion_settings::Settings;
use stanchion_sys::channel::Channel;
use stanchion_sys::memory::AppendFile;

use crate::credentials::KeyFiles;
use crate::figures::Figures;
use crate::identities::Identities;
use crate::tally::{Tally, Total};
use crate::ticket_keys::TicketKeys;

/// The part of a house that all its processes share from their birth.
pub(crate) struct Common {
    pub(crate) generation: u32,
    pub(crate) settings: Settings,
    pub(crate) exchange: Exchange,
    /// Counts of the requests of this house.
    pub(crate) tally: Arc<Tally>,
    /// And of all houses.
    pub(crate) total: Total,
    pub(crate) figures: Arc<Figures>,
    pub(crate) workers_max: u16,
    pub(crate) master_pid: i32,
    pub(crate) files: Files,
    pub(crate) key_files: KeyFiles,
    pub(crate) ticket_keys: Arc<TicketKeys>,
    pub(crate) spool: PathBuf,
    /// The users that acceptor, template and workers become, if they change.
    pub(crate) identities: Identities,
    /// Where workers write their stacks.
    pub(crate) dumps: AppendFile,
    /// The ways to the scribe, if there is to be one.
    pub(crate) log_channels: Option<LogChannels>,
}

impl Common {
    /// In a process that is not the acceptor: it has no use for what only that is to have.
    pub(crate) fn leave_to_acceptor(&self) {
        drop(self.files.take_acceptor_end());
        drop(self.key_files.take());
        drop(self.ticket_keys.take());
    }
}

/// Descriptors of files on their way from workers to the acceptor.
pub(crate) struct Files {
    /// The acceptor's end, until the acceptor takes it, or a process that is not the acceptor drops it: a process that has it can read what others
    /// have sent.
    pub(crate) acceptor_end: Mutex<Option<Channel>>,
    pub(crate) worker_end: Channel,
}

impl Files {
    pub(crate) fn take_acceptor_end(&self) -> Option<Channel> {
        let mut end = self
            .acceptor_end
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        end.take()
    }
}
