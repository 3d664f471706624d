//! Room for connections: how many there may be.

use std::io;

use stanchion_sys::process;
use tracing::{info, warn};

use stanchion_settings::Settings;

/// Descriptors kept for other things than connections: logs, listeners.
const DESCRIPTORS_SPARE: usize = 64;
/// A connection's socket, and the file it sends or the spool file it fills.
const DESCRIPTORS_EACH: usize = 2;

/// An operator hardly wants fewer connections than this: one browser may open six.
const CONNECTIONS_FEW: usize = 300;

/// Returns how many connections there may be at a time. Makes room for their descriptors, so that no connection has to wait
/// for one; the caller does so before it starts threads.
pub(crate) fn connections_max(settings: &Settings, is_first: bool) -> io::Result<usize> {
    let limit = process::raise_open_files()?;
    let descriptors = usize::try_from(limit).unwrap_or(usize::MAX);
    let wanted = settings.limits.max_connections as usize;
    let connections_max = wanted
        .min(descriptors.saturating_sub(DESCRIPTORS_SPARE) / DESCRIPTORS_EACH)
        // With no connection at all the server would be up and serve no client.
        .max(1);
    // The log gets this once, not at each reload.
    if connections_max < wanted && is_first {
        let told = format!(
            "at most {connections_max} connections: the limit of open files is {limit} (ulimit -Hn)"
        );
        if connections_max < CONNECTIONS_FEW {
            warn!(
                "{told}: clients beyond that wait. Raise it: LimitNOFILE= of the unit, --ulimit nofile= of a container, \
                 limits.conf"
            );
        } else {
            info!("{told}");
        }
    }
    let needed = connections_max * DESCRIPTORS_EACH + DESCRIPTORS_SPARE;
    if let Err(error) = process::reserve_descriptors(needed.min(descriptors)) {
        warn!(
            "accepting will sometimes pause for about 10 ms until {needed} files have been open once: {error}"
        );
    }
    Ok(connections_max)
}
