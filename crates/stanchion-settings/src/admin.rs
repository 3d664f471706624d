//! The listener at which the server shows its state (`admin`).

use stanchion_sys::listener::Listener;

use super::Settings;

impl Settings {
    /// Whether this is the listener of `admin`.
    pub fn is_admin(&self, listener: &Listener) -> bool {
        let admin = self.monitoring.admin.as_ref();
        admin.is_some_and(|bind| listener.provenance().asked == bind.address.to_string())
    }

    /// The backlog that was asked for of a listener.
    pub fn backlog_of(&self, listener: &Listener) -> u32 {
        let asked = &listener.provenance().asked;
        let mut binds = self.listen.bind.iter().chain(&self.monitoring.admin);
        binds
            .find(|bind| bind.address.to_string() == *asked)
            .and_then(|bind| bind.options.backlog)
            .unwrap_or(self.listen.backlog.cast_unsigned())
    }
}
