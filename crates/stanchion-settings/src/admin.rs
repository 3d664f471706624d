//! The listeners that are not for clients of the app: `admin`, where the server shows its state to operators, and `agent`, where
//! it tells balancers.

use stanchion_sys::listener::Listener;

use super::{Bind, Settings};

impl Settings {
    /// Whether this is the listener of `admin`.
    pub fn is_admin(&self, listener: &Listener) -> bool {
        is_of(self.monitoring.admin.as_ref(), listener)
    }

    /// Whether this is the listener of `agent`.
    pub fn is_agent(&self, listener: &Listener) -> bool {
        is_of(self.monitoring.agent.as_ref(), listener)
    }

    /// Whether clients of the app come in by this listener.
    pub fn is_for_clients(&self, listener: &Listener) -> bool {
        !self.is_admin(listener) && !self.is_agent(listener)
    }

    /// The addresses of the listeners that are not for clients of the app, by the names of their settings.
    pub fn private_binds(&self) -> impl Iterator<Item = (&'static str, &Bind)> {
        let monitoring = &self.monitoring;
        let binds = [("admin", &monitoring.admin), ("agent", &monitoring.agent)];
        let binds = binds.into_iter();
        binds.filter_map(|(name, bind)| Some((name, bind.as_ref()?)))
    }

    /// The backlog that was asked for of a listener.
    pub fn backlog_of(&self, listener: &Listener) -> u32 {
        let asked = &listener.provenance().asked;
        let private = self.private_binds().map(|(_, bind)| bind);
        let mut binds = self.listen.bind.iter().chain(private);
        binds
            .find(|bind| bind.address.to_string() == *asked)
            .and_then(|bind| bind.options.backlog)
            .unwrap_or(self.listen.backlog.cast_unsigned())
    }
}

fn is_of(bind: Option<&Bind>, listener: &Listener) -> bool {
    bind.is_some_and(|bind| listener.provenance().asked == bind.address.to_string())
}
