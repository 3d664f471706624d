//! For the fuzzer: a client built on rustls, and a server that the client trusts.
//!
//! Handshakes differ from run to run, because ring draws the keys of each from the kernel and takes no seed. Clients and servers send the same
//! messages in each run, and only their ciphertext differs.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;

use crate::config::{Config, TlsOptions, Version};
use crate::credentials::{Credentials, certificates};

const ROOT: &[u8] = include_bytes!("../tests/keys/root.pem");
const ONE: &[u8] = include_bytes!("../tests/keys/one.pem");
const ONE_KEY: &[u8] = include_bytes!("../tests/keys/one.key");

/// The client's side of a connection.
pub struct TlsClient(ClientConnection);

/// The settings of all clients.
pub struct ClientOptions(Arc<ClientConfig>);

/// A server that speaks these protocols above TLS.
pub fn server(alpn: &[&[u8]]) -> Config {
    let credentials = Credentials::read(ONE, ONE_KEY).expect("a certificate");
    let options = TlsOptions {
        credentials: vec![credentials],
        oldest: Version::Tls12,
        suites: None,
        alpn: alpn.iter().map(|name| name.to_vec()).collect(),
        clients: None,
        ticket_lifetime_s: 60,
    };
    Config::new(options).expect("a config")
}

/// The settings of clients that speak this protocol. No client resumes the session of another one.
pub fn options(alpn: &[u8]) -> ClientOptions {
    let mut roots = RootCertStore::empty();
    for root in certificates(ROOT).expect("a certificate") {
        roots.add(root).expect("a root");
    }
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    ClientOptions(Arc::new(config))
}

impl TlsClient {
    /// A client before its handshake.
    pub fn new(options: &ClientOptions) -> Self {
        let name = ServerName::try_from("one.test").expect("a name");
        let client = ClientConnection::new(Arc::clone(&options.0), name);
        let mut client = client.expect("a client");
        client.set_buffer_limit(None);
        Self(client)
    }

    /// Whether it cannot send plaintext yet.
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Sends this plaintext.
    pub fn say(&mut self, plaintext: &[u8]) {
        // Writing fails once the server has closed the connection.
        let _ = self.0.writer().write_all(plaintext);
    }

    /// Announces that it sends no more (`close_notify`).
    pub fn close(&mut self) {
        self.0.send_close_notify();
    }

    /// Appends the ciphertext that it has to send.
    pub fn send(&mut self, out: &mut Vec<u8>) {
        while self.0.wants_write() {
            self.0.write_tls(out).expect("room");
        }
    }

    /// Takes in ciphertext, and appends the plaintext in it. False if the ciphertext is faulty.
    pub fn hear(&mut self, mut bytes: &[u8], into: &mut Vec<u8>) -> bool {
        while !bytes.is_empty() {
            let before = bytes.len();
            if self.0.read_tls(&mut bytes).is_err() || self.0.process_new_packets().is_err() {
                return false;
            }
            // Reading fails if there is nothing to read for now.
            let _ = self.0.reader().read_to_end(into);
            if bytes.len() == before {
                // After the server's `close_notify` rustls takes nothing more.
                return true;
            }
        }
        true
    }
}
