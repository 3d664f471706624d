//! For tests: the part of a generation that its processes share, without any process. Builds without debug assertions, as of the wheel
//! that people install, have none of it.

use std::sync::{Arc, Mutex};

use stanchion_exchange::{Exchange, Geometry};
use stanchion_settings::Settings;
use stanchion_sys::channel::Channel;
use stanchion_sys::memory::AppendFile;
use stanchion_sys::process;

use crate::common::{Common, Files};
use crate::credentials::KeyFiles;
use crate::demand_seconds::DemandSeconds;
use crate::figures::Figures;
use crate::identities::Identities;
use crate::tally::{Counts, Tally, Total};
use crate::ticket_keys::TicketKeys;

/// The shared part of a generation with these settings, whose exchange has this layout and one worker. It stays until the tests end, as
/// in a server it stays until the process ends.
pub fn common(settings: Settings, geometry: Geometry) -> &'static Common {
    let (acceptor_end, worker_end) = Channel::pair().expect("a channel");
    let tally = Arc::new(Tally::create().expect("memory"));
    Box::leak(Box::new(Common {
        cores: 1,
        generation: 1,
        settings,
        exchange: Exchange::create(geometry).expect("an exchange"),
        total: Total {
            departed: Counts::default(),
            others: Vec::new(),
            own: Arc::clone(&tally),
        },
        tally,
        figures: Arc::new(
            Figures::create(DemandSeconds::create().expect("a memfd")).expect("memory"),
        ),
        master_pid: process::pid(),
        files: Files {
            acceptor_end: Mutex::new(Some(acceptor_end)),
            worker_end,
        },
        key_files: KeyFiles::default(),
        ticket_keys: Arc::new(TicketKeys::create().expect("a memfd")),
        // No test spools here.
        spool: std::env::temp_dir(),
        identities: Identities {
            app: None,
            acceptor: None,
        },
        dumps: AppendFile::create("stanchion-dumps").expect("memory"),
        log_channels: None,
    }))
}
