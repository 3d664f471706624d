//! The server's side of TLS, between a socket's bytes and plaintext. rustls implements the protocol, and only this
//! crate uses it. This crate explains to operators why a certificate is unusable, chooses the certificate that a client
//! gets, and bounds the memory of a connection.
//!
//! It may not do I/O, read a clock, have threads or use unsafe code, and it names no other crate of ours. The one clock
//! below it is the clock by which rustls judges clients' certificates and tickets.

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
pub use config::{ClientAuth, Config, TlsOptions, Version};
pub use credentials::{Credentials, Flaw, certificates};
pub use pem::pem;
pub use suites::check_suites;
pub use tickets::{TICKET_KEY_BYTES, TICKET_KEYS_MAX, TicketKey};
pub use tls::{CIPHERTEXT_BYTES_MAX, Tls, TlsFault};
