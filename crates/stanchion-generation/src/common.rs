//! The memory, descriptors and settings that all processes of a generation share from their birth.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use stanchion_exchange::Exchange;
use stanchion_log::{LogChannels, take_dropped};
use stanchion_settings::Settings;
use stanchion_sys::channel::Channel;
use stanchion_sys::memory::AppendFile;

use crate::credentials::KeyFiles;
use crate::figures::Figures;
use crate::identities::Identities;
use crate::tally::{Event, Tally, Total};
use crate::ticket_keys::TicketKeys;

/// The part of a generation that all its processes share from their birth.
pub struct Common {
    /// The number of this generation, from 1.
    pub generation: u32,
    /// The settings in force.
    pub settings: Settings,
    /// The cores of this server, which the master counts: the acceptor is confined and cannot read its quota.
    pub cores: u32,
    /// The memory in which acceptor and workers meet.
    pub exchange: Exchange,
    /// Counts of the requests of this generation.
    pub tally: Arc<Tally>,
    /// Counts of the requests of all generations.
    pub total: Total,
    /// Latencies and bytes.
    pub figures: Arc<Figures>,
    /// The process id of the master.
    pub master_pid: i32,
    /// The way of files from workers to the acceptor.
    pub files: Files,
    /// Certificates and keys, which the acceptor takes.
    pub key_files: KeyFiles,
    /// Keys of session tickets, which the acceptor takes.
    pub ticket_keys: Arc<TicketKeys>,
    /// The directory of bodies on disk.
    pub spool: PathBuf,
    /// The users that acceptor, template and workers become, if they change.
    pub identities: Identities,
    /// Where workers write their stacks.
    pub dumps: AppendFile,
    /// The ways to the scribe, if there is to be one.
    pub log_channels: Option<LogChannels>,
}

impl Common {
    /// Counts the lines that logs of this process did not take.
    pub fn count_dropped_lines(&self) {
        let dropped = take_dropped();
        if dropped > 0 {
            self.tally.happened_times(Event::LogLineDropped, dropped);
        }
    }

    /// In a process that is not the acceptor: it has no use for what only that is to have.
    pub fn leave_to_acceptor(&self) {
        drop(self.files.take_acceptor_end());
        drop(self.key_files.take());
        drop(self.ticket_keys.take());
        self.figures.demand.drop_file();
    }
}

/// Descriptors of files on their way from workers to the acceptor.
pub struct Files {
    /// The acceptor's end, until the acceptor takes it, or a process that is not the acceptor drops it: a process that has it can read what others
    /// have sent.
    pub acceptor_end: Mutex<Option<Channel>>,
    /// The end of all workers.
    pub worker_end: Channel,
}

impl Files {
    /// Takes the acceptor's end; `None` if it was taken.
    pub fn take_acceptor_end(&self) -> Option<Channel> {
        let mut end = self
            .acceptor_end
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        end.take()
    }
}
