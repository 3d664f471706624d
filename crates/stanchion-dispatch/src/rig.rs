//! For tests and for the fuzzer: a client whose requests are dispatched. Builds without debug assertions, as of the wheel that people
//! install, have neither this nor the other test helpers of the crate.

use super::request::Peer;

/// A client on the same host.
pub fn peer() -> Peer {
    let address = "127.0.0.1";
    Peer {
        ip: address.parse().ok(),
        address: address.to_owned(),
        port: 50_000,
        server_name: "127.0.0.1".into(),
        server_port: "8000".into(),
        trusted: false,
        scheme: "http",
        speaks_tls: false,
        tls: [].into(),
        sends_proxy_header: false,
        sends_packets: false,
        only_worker: None,
    }
}
