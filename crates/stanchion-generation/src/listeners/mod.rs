//! Where the server listens: sockets taken over where they are wanted still, and made where they
//! are missing.

mod activated;
mod make;
pub mod of_worker;
pub mod patience;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;

use stanchion_sys::held_signals::HeldSignals;
use stanchion_sys::listener::{Listener, ListenerAddress, SocketOptions, SocketOrigin};
use stanchion_sys::signal;
use stanchion_sys::sock_diag;
use tracing::{debug, info, warn};

use stanchion_settings::{Bind, BindAddress, Settings};

/// Why there are no listeners.
#[derive(Debug, PartialEq, Eq)]
pub enum ListenError {
    /// A listener could not be made; mostly the operator's fault.
    Failed(String),
    /// This signal came while an address was waited for.
    Interrupted(i32),
}

/// Opens the listeners of a server that has just started: the sockets that a service manager has passed, or else the addresses of `bind`. An address
/// in use is tried again as its `tries` say, until one of TERM, INT and QUIT comes.
pub fn boot(settings: &Settings) -> Result<Vec<Listener>, ListenError> {
    let passed = activated::take(settings).map_err(ListenError::Failed)?;
    let held = HeldSignals::hold(&[signal::SIGTERM, signal::SIGINT, signal::SIGQUIT])
        .map_err(|error| ListenError::Failed(format!("signals cannot be held back: {error}")))?;
    opened(settings, passed, Some(&held))
}

/// Opens the listeners of a server that serves already, or that takes over from another master: `inherited` are the listeners there are. Listeners
/// that are still wanted are kept, with options and backlog applied again; missing ones are made, in one attempt each; the others are let go, and
/// their files stay until [`remove_files`].
///
/// Sockets of a service manager are all kept, whatever `bind` says.
///
/// After an error everything is as it was, but for options that were applied again already.
pub fn open(settings: &Settings, inherited: Vec<Listener>) -> Result<Vec<Listener>, String> {
    opened(settings, inherited, None).map_err(|error| match error {
        ListenError::Failed(problem) => problem,
        ListenError::Interrupted(signal) => format!("signal {signal} came"),
    })
}

/// The same sockets a second time.
pub fn clones(listeners: &[Listener]) -> io::Result<Vec<Listener>> {
    listeners.iter().map(Listener::try_clone).collect()
}

/// The listeners that listen where none of `kept` does.
pub fn not_among(listeners: Vec<Listener>, kept: &[Listener]) -> Vec<Listener> {
    let kept: Vec<_> = kept.iter().map(|one| one.address().clone()).collect();
    not_at(listeners, &kept)
}

/// The listeners at none of these addresses.
pub fn not_at(mut listeners: Vec<Listener>, addresses: &[ListenerAddress]) -> Vec<Listener> {
    listeners.retain(|one| !addresses.contains(one.address()));
    listeners
}

/// Removes the files of unix sockets that are ours: not of a socket that another process has passed to us, nor a file that another server has put in
/// the place of ours.
pub fn remove_files(listeners: &[Listener]) {
    for listener in listeners {
        if let Err(error) = listener.remove_file() {
            warn!("the socket file of {} stays: {error}", listener.address());
        }
    }
}

/// The address as clients would write it.
fn shown(settings: &Settings, listener: &Listener) -> String {
    let address = listener.address().to_string();
    if settings.speaks_tls(listener) {
        address.replacen("http://", "https://", 1)
    } else {
        address
    }
}

/// The side to which a listener is open, if that is not clients of the app.
fn for_whom(settings: &Settings, listener: &Listener) -> &'static str {
    match (settings.is_admin(listener), settings.is_agent(listener)) {
        (true, _) => " for operators (admin)",
        (_, true) => " for balancers (agent)",
        _ => "",
    }
}

/// A listener that is wanted, and what becomes of it.
struct WantedListener {
    bind: Bind,
    options: SocketOptions,
    listener: Option<Listener>,
    /// It was there before.
    is_kept: bool,
}

/// With signals that are `held` the server is starting, and may wait until one of them comes.
fn opened(
    settings: &Settings,
    inherited: Vec<Listener>,
    held: Option<&HeldSignals>,
) -> Result<Vec<Listener>, ListenError> {
    let (mut listeners, mut inherited): (Vec<_>, Vec<_>) = inherited
        .into_iter()
        .partition(|listener| listener.provenance().origin == SocketOrigin::Activated);
    let mut wanted = wanted(settings, listeners.is_empty()).map_err(ListenError::Failed)?;
    for one in &mut wanted {
        let found = inherited
            .iter()
            .position(|listener| is_for(listener, &one.bind.address));
        // The present spelling of the address gives its options.
        let asked = one.bind.address.to_string();
        one.listener = found.map(|index| inherited.remove(index).asked_as(asked));
        one.is_kept = one.listener.is_some();
    }
    let done = make::missing(&mut wanted, &inherited, held)
        .and_then(|()| apply_again(&wanted))
        .and_then(|()| {
            let found = wanted.iter().filter_map(|one| one.listener.as_ref());
            let redirects = settings.check_redirect(listeners.iter().chain(found));
            redirects.map_err(ListenError::Failed)
        });
    if let Err(refusal) = done {
        let made = wanted.into_iter().filter(|one| !one.is_kept);
        let made: Vec<_> = made.filter_map(|one| one.listener).collect();
        remove_files(&made);
        return Err(refusal);
    }
    for listener in &inherited {
        info!("listening no more at {}", listener.address());
    }
    listeners.extend(wanted.into_iter().filter_map(|one| {
        let listener = one.listener?;
        let still = if one.is_kept { "still " } else { "" };
        let is_admin = settings.is_admin(&listener);
        let clients = for_whom(settings, &listener);
        info!("{still}listening at {}{clients}", shown(settings, &listener));
        if is_admin && !one.is_kept && listener.address().is_open_to_other_hosts() {
            warn!(
                "every client that can connect to {} sees what this server does, without a password: let only operators \
                 reach it, or listen on 127.0.0.1 or a unix socket",
                listener.address()
            );
        }
        if !one.is_kept {
            tell_if_cut(&listener, one.options.backlog);
            if let Some(words) = make::let_in(settings, &one.bind, &one.options) {
                info!("{words}");
            }
        }
        Some(listener)
    }));
    Ok(listeners)
}

/// Logs it if the kernel has cut the backlog, which listen(2) does without a word.
fn tell_if_cut(listener: &Listener, asked: Option<u32>) {
    let in_force = sock_diag::queue_of(listener).map(|queue| queue.map(|queue| queue.backlog));
    match (in_force, asked) {
        (Ok(Some(in_force)), Some(asked)) if in_force < asked => info!(
            "the backlog of {} is {in_force}, not {asked}: net.core.somaxconn cuts it. This rarely \
             matters: the server accepts connections at once, and requests wait in its line",
            listener.address()
        ),
        (Err(error), _) => debug!(
            "the backlog of {} cannot be read back: {error}",
            listener.address()
        ),
        _ => {}
    }
}

/// The addresses of `bind`, if it counts, and the ports of single workers.
fn wanted(settings: &Settings, bind_counts: bool) -> Result<Vec<WantedListener>, String> {
    let bind = if bind_counts {
        &settings.listen.bind[..]
    } else {
        &[]
    };
    let private = settings.private_binds().map(|(_, bind)| bind);
    let bind = bind.iter().chain(private).cloned();
    let wanted = bind.chain(settings.worker_binds()).map(|bind| {
        Ok(WantedListener {
            options: make::options(settings, &bind)?,
            bind,
            listener: None,
            is_kept: false,
        })
    });
    wanted.collect()
}

/// Whether a listener is what an address asks for. A port of 0 is any port that was chosen for the same words; a unix socket whose file is gone is of
/// no use.
fn is_for(listener: &Listener, wanted: &BindAddress) -> bool {
    let provenance = listener.provenance();
    let asked = provenance.asked == wanted.to_string();
    match (wanted, listener.address()) {
        (BindAddress::Fd(_), _) => asked,
        (_, _) if provenance.origin != SocketOrigin::Bound => false,
        (BindAddress::Tcp { host, port }, ListenerAddress::Tcp(address)) => {
            let is_it = host.parse::<IpAddr>().is_ok_and(|ip| ip == address.ip());
            asked || (is_it && *port == address.port())
        }
        (BindAddress::Unix(path), ListenerAddress::Unix(at)) => {
            let is_it = std::path::absolute(path).is_ok_and(|path| path == *at);
            if is_it && !listener.has_its_file() {
                warn!(
                    "the socket file of {bind} is gone or belongs to another server: this one makes it again",
                    bind = wanted
                );
                return false;
            }
            is_it
        }
        (BindAddress::Abstract(name), ListenerAddress::Abstract(at)) => name == at,
        _ => false,
    }
}

fn apply_again(wanted: &[WantedListener]) -> Result<(), ListenError> {
    for one in wanted.iter().filter(|one| one.is_kept) {
        let Some(listener) = &one.listener else {
            continue;
        };
        let failed = |error: io::Error| {
            ListenError::Failed(format!(
                "the options of {} cannot be set: {error}",
                one.bind
            ))
        };
        listener.apply(&one.options).map_err(failed)?;
        let out_of_reach = listener.out_of_reach(&one.options).map_err(failed)?;
        if !out_of_reach.is_empty() {
            warn!(
                "a change of {} of {} takes effect when the server is restarted",
                out_of_reach.join(" and "),
                one.bind
            );
        }
    }
    Ok(())
}
