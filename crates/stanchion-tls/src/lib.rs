//! The server's side of TLS, between a socket's bytes and plaintext: no I/O, no unsafe, and no clock except the one by which rustls judges clients'
//! certificates and tickets. rustls implements the protocol, and only this crate uses it. This crate explains to operators why a certificate is
//! unusable, chooses the certificate that a client gets, and bounds the memory of a connection.

#![forbid(unsafe_code)]

mod certificate;
#[cfg(fuzzing)]
pub mod client;
mod config;
mod credentials;
mod der;
mod hybrid;
mod pem;
mod remembering;
mod suites;
mod tickets;
mod tls;

pub use certificate::Certificate;
pub use config::{ClientAuth, Config, Options, Version};
pub use credentials::{Credentials, Flaw, certificates};
pub use pem::pem;
pub use suites::{check_suites, suite_names};
pub use tickets::{TICKET_KEY_BYTES, TICKET_KEYS_MAX, TicketKey};
pub use tls::{CIPHERTEXT_BYTES_MAX, Fault, Tls};
