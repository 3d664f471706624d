//! TLS of the server's side, between a socket's bytes and plaintext: no I/O, no unsafe, and no clock but the one by which
//! rustls judges clients' certificates, and tickets. rustls, which only this crate names, is the protocol; what is here says whose
//! fault it is that a certificate cannot be used, which one a client gets, and how much may be kept for a connection.

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
