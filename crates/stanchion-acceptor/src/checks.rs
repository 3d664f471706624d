//! Settings that only the acceptor understands.

use stanchion_settings::{Protocol, Settings};

/// Checks the settings that only the acceptor understands.
pub fn check_settings(settings: &Settings) -> Result<(), String> {
    if let Some(admin) = &settings.monitoring.admin
        && settings
            .listen
            .bind
            .iter()
            .any(|bind| bind.address == admin.address)
    {
        return Err(format!(
            "`admin` is {admin}, which is an address of `bind` too: it needs one of its own"
        ));
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
