//! Settings that only the acceptor understands.

use stanchion_settings::{Protocol, Settings};

/// Checks the settings that only the acceptor understands.
pub fn check_settings(settings: &Settings) -> Result<(), String> {
    let mut taken: Vec<_> = settings
        .listen
        .bind
        .iter()
        .map(|one| ("bind", one))
        .collect();
    for (name, private) in settings.private_binds() {
        if let Some((other, _)) = taken.iter().find(|(_, one)| one.address == private.address) {
            return Err(format!(
                "`{name}` is {private}, which is an address of `{other}` too: it needs one of its own"
            ));
        }
        taken.push((name, private));
    }
    if settings.proxies.protocol == Protocol::Uwsgi && settings.proxies.proxy_protocol.is_some() {
        return Err(
            "`proxy_protocol` is for HTTP: packets of the uwsgi protocol say who the client is (`protocol`)"
                .to_owned(),
        );
    }
    settings.check_tls()?;
    stanchion_observers::check(settings)
}
