//! Listeners of a service manager (`sd_listen_fds(3)`).

use stanchion_sys::activation::{self, Passed};
use stanchion_sys::listener::{Listener, SocketOptions, SocketOrigin};
use tracing::{info, warn};

use super::shown;
use stanchion_settings::{Bind, Settings};

/// Takes over what a service manager has passed; nothing mostly. Backlog, buffers and the mode of
/// files stay as it has set them, since the socket unit is where an operator looks for them.
pub(super) fn take(settings: &Settings) -> Result<Vec<Listener>, String> {
    let activation =
        activation::take().map_err(|problem| format!("sockets of a service manager: {problem}"))?;
    if let Some(pid) = activation.for_another {
        warn!(
            "sockets were passed to process {pid} and not to this one, and are not used (start the \
             server directly, or with exec in a shell)"
        );
    }
    let taken = activation
        .passed
        .iter()
        .map(|passed| take_one(settings, passed));
    let listeners = taken.collect::<Result<Vec<_>, _>>()?;
    // The operator has not asked for a default.
    let bind_is_set = settings.listen.bind != Settings::default().listen.bind;
    if !listeners.is_empty() && bind_is_set {
        let ignored: Vec<_> = settings.listen.bind.iter().map(Bind::to_string).collect();
        warn!(
            "bind is not used, since a service manager has passed sockets (LISTEN_FDS): {}",
            ignored.join(", ")
        );
    }
    Ok(listeners)
}

fn take_one(settings: &Settings, passed: &Passed) -> Result<Listener, String> {
    let descriptor = match &passed.name {
        Some(name) => format!("descriptor {} ({})", passed.fd, name.escape_debug()),
        None => format!("descriptor {}", passed.fd),
    };
    let mut listener = Listener::adopt(
        passed.fd,
        &SocketOptions::adopted(),
        SocketOrigin::Activated,
    )
    .map_err(|error| format!("cannot listen on {descriptor} of the service manager: {error}"))?;
    if let Some(name) = &passed.name {
        listener = listener.asked_as(name.clone());
    }
    info!(
        "listening at {} by {descriptor}",
        shown(settings, &listener)
    );
    Ok(listener)
}
