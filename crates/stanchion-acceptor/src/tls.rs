//! The certificates of this acceptor, and the keys of its session tickets.

use std::io;
use std::time::Duration;

use stanchion_sys::clock::wall_s;
use stanchion_tls::Config;
use tracing::{error, warn};

use super::Acceptor;
use stanchion_connections::poller::Token;
use stanchion_generation::common::Common;
use stanchion_generation::expiry::ServedCertificate;
use stanchion_generation::ticket_keys::TicketKeyFile;
use stanchion_requests::tls::TlsService;

/// How often the acceptor reads the file of ticket keys, which acceptors share, and makes a new key if one is due.
const KEYS_LOOK: Duration = Duration::from_secs(60);
/// How often the log repeats that a certificate is to be renewed.
const REMINDER: Duration = Duration::from_secs(24 * 3600);

/// The certificates that clients get, for as long as this acceptor lives.
#[derive(Default)]
pub(super) struct Certificates {
    pub(super) served: Vec<ServedCertificate>,
    /// When the acceptor looks at them again.
    look_at_us: u64,
}

impl Certificates {
    /// Logs which are to be renewed: at first, and once a day.
    pub(super) fn look(&mut self, now_us: u64) {
        if !self.served.is_empty() && now_us >= self.look_at_us {
            self.look_at_us = now_us + REMINDER.as_micros() as u64;
            let now_s = wall_s();
            for concern in self.served.iter().filter_map(|one| one.concern(now_s)) {
                warn!("{concern}");
            }
        }
    }
}

/// The keys of tickets of this acceptor.
pub(super) struct TicketKeeper {
    config: Config,
    file: TicketKeyFile,
    /// When the acceptor looks at them again.
    look_at_us: u64,
}

impl TicketKeeper {
    /// Takes the keys that the file has: at first, and every [`KEYS_LOOK`].
    pub(super) fn look(&mut self, now_us: u64) {
        if now_us < self.look_at_us {
            return;
        }
        self.look_at_us = now_us + KEYS_LOOK.as_micros() as u64;
        match self.file.keys() {
            Ok(keys) => self.config.set_ticket_keys(&keys),
            Err(error) => error!(
                "session ticket keys cannot be read or renewed, so the acceptor goes on with those it has: {error}"
            ),
        }
    }
}

/// The TLS configuration and its certificates; `None` without TLS.
///
/// # Errors
/// A mistake of the operator's: the file that cannot be used, and why.
pub(super) fn config(common: &Common) -> Result<Option<(Config, Vec<ServedCertificate>)>, String> {
    common.key_files.take().config(&common.settings)
}

impl Acceptor {
    /// Does what is due for TLS every now and then.
    pub(super) fn look_at_tls(&mut self, now_us: u64) {
        self.certificates.look(now_us);
        if let Some(keeper) = &mut self.ticket_keeper {
            keeper.look(now_us);
        }
    }

    /// The listeners for TLS speak it with this configuration.
    pub(super) fn serve_tls(
        &mut self,
        (config, served): (Config, Vec<ServedCertificate>),
    ) -> io::Result<()> {
        let file = self.common.ticket_keys.take();
        self.ticket_keeper = file.map(|file| TicketKeeper {
            config: config.clone(),
            file,
            look_at_us: 0,
        });
        self.certificates.served = served;
        // The keys are there before the first client comes.
        self.look_at_tls(self.requests.now_us);
        let connections_max = self.common.settings.limits.max_connections as usize;
        let tls = TlsService::new(config, connections_max, &self.requests.wakes.clients)?;
        self.poller.watch(Token::Bell, tls.bell())?;
        self.requests.tls = Some(tls);
        Ok(())
    }
}
