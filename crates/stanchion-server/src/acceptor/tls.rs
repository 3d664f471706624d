//! The certificates of this acceptor, and the keys of its session tickets.

use std::io;
use std::time::Duration;

use stanchion_sys::clock::wall_s;
use stanchion_tls::{Config, TICKET_KEY_BYTES, Tickets};
use tracing::warn;

use super::Acceptor;
use super::poller::Source;
use super::requests::tls::TlsService;
use crate::expiry::ServedCertificate;
use crate::tree::Common;

/// How long a client may resume a session without another handshake (RFC 8446 section 4.6.1 allows for a week).
const TICKET_LIFETIME_S: u32 = 24 * 3600;
/// How often it is said of a certificate that it is to be renewed.
const REMINDER: Duration = Duration::from_secs(24 * 3600);

/// What clients are shown, for as long as this acceptor lives.
#[derive(Default)]
pub(super) struct Certificates {
    pub(super) served: Vec<ServedCertificate>,
    /// When they are looked at again.
    look_at_us: u64,
}

impl Certificates {
    /// Says which are to be renewed: at first, and once a day.
    pub(super) fn look(&mut self, now_us: u64) {
        if !self.served.is_empty() && now_us >= self.look_at_us {
            self.look_at_us = now_us + REMINDER.as_micros() as u64;
            self.warn_of_those_to_be_renewed();
        }
    }

    fn warn_of_those_to_be_renewed(&self) {
        let now_s = wall_s();
        for concern in self.served.iter().filter_map(|one| one.concern(now_s)) {
            warn!("{concern}");
        }
    }
}

/// How TLS is served, and with which certificates; `None` if it is not.
///
/// # Errors
/// The operator's.
pub(super) fn config(common: &Common) -> Result<Option<(Config, Vec<ServedCertificate>)>, String> {
    let tickets = Tickets::new(TICKET_LIFETIME_S);
    let mut key = [0; TICKET_KEY_BYTES];
    stanchion_sys::random::fill(&mut key)
        .map_err(|error| format!("there is no randomness: {error}"))?;
    tickets.set_keys(&[key]);
    let copies = common.key_files.take();
    copies.config(&common.settings, tickets)
}

impl Acceptor {
    /// Doors that are for TLS speak it with this.
    pub(super) fn serve_tls(
        &mut self,
        (config, served): (Config, Vec<ServedCertificate>),
    ) -> io::Result<()> {
        let connections_max = self.common.settings.max_connections as usize;
        let tls = TlsService::new(config, connections_max, &self.requests.woken)?;
        self.poller.watch(Source::Bell, tls.bell())?;
        self.requests.tls = Some(tls);
        self.certificates.served = served;
        Ok(())
    }
}
