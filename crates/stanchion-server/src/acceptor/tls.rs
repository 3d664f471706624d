//! The certificates of this acceptor, and the keys of its session tickets.

use stanchion_tls::{Config, TICKET_KEY_BYTES, Tickets};

use crate::tree::Common;

/// How long a client may resume a session without another handshake (RFC 8446 section 4.6.1 allows for a week).
const TICKET_LIFETIME_S: u32 = 24 * 3600;

/// How TLS is served; `None` if it is not.
///
/// # Errors
/// The operator's.
pub(super) fn config(common: &Common) -> Result<Option<Config>, String> {
    let tickets = Tickets::new(TICKET_LIFETIME_S);
    let mut key = [0; TICKET_KEY_BYTES];
    stanchion_sys::random::fill(&mut key)
        .map_err(|error| format!("there is no randomness: {error}"))?;
    tickets.set_keys(&[key]);
    let copies = common.key_files.take();
    let config = copies.config(&common.settings, tickets)?;
    Ok(config.map(|(config, _)| config))
}
