//! The ports of single workers (`worker_port_base`): where they are, and which worker each belongs to.

use std::net::{IpAddr, Ipv4Addr};

use stanchion_sys::listener::ListenerAddress;

use super::{Bind, BindAddress, Settings};

/// Only from this machine: these ports are for operators, and pass by the line.
const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

impl Settings {
    /// How many ports there are that one worker serves alone: one for each, or none.
    pub fn worker_ports(&self) -> u16 {
        if self.listen.worker_port_base == 0 {
            return 0;
        }
        // The table's checks see to it that there is a port for each.
        u16::try_from(self.workers.workers.max).unwrap_or(u16::MAX)
    }

    /// The addresses at which single workers listen; beside `bind`.
    pub fn worker_binds(&self) -> impl Iterator<Item = Bind> {
        let port = |worker| self.listen.worker_port_base.saturating_add(worker);
        (0..self.worker_ports()).map(move |worker| {
            Bind::from(BindAddress::Tcp {
                host: HOST.to_string(),
                port: port(worker),
            })
        })
    }

    /// The number of the worker that alone serves the clients of this address; `None` if all do.
    pub fn worker_of(&self, address: &ListenerAddress) -> Option<u16> {
        let ListenerAddress::Tcp(address) = address else {
            return None;
        };
        let worker = address.port().checked_sub(self.listen.worker_port_base)?;
        (address.ip() == IpAddr::V4(HOST) && worker < self.worker_ports()).then_some(worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(workers: u32, base: u16) -> Settings {
        let text = format!("{{\"workers\": {workers}, \"worker_port_base\": {base}}}");
        Settings::from_json(&text).unwrap()
    }

    fn at(text: &str) -> ListenerAddress {
        ListenerAddress::Tcp(text.parse().unwrap())
    }

    #[test]
    fn a_port_for_each_worker_and_a_worker_for_each_port() {
        let off = settings(4, 0);
        assert_eq!(off.worker_binds().count(), 0);
        assert_eq!(off.worker_of(&at("127.0.0.1:0")), None);

        let on = settings(2, 9293);
        let shown: Vec<_> = on.worker_binds().map(|bind| bind.to_string()).collect();
        assert_eq!(shown, ["127.0.0.1:9293", "127.0.0.1:9294"]);
        let table = [
            ("127.0.0.1:9292", None),
            ("127.0.0.1:9293", Some(0)),
            ("127.0.0.1:9294", Some(1)),
            ("127.0.0.1:9295", None),
            ("127.0.0.2:9293", None),
            ("[::1]:9293", None),
        ];
        for (address, worker) in table {
            assert_eq!(on.worker_of(&at(address)), worker, "{address}");
        }
    }
}
