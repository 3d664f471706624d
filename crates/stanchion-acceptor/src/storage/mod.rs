//! Storage for requests and answers: memory that connections share, files, and each client's share of both.

mod behind;
pub(crate) mod clients;
pub(crate) mod connection_shares;
pub(crate) mod disk;
pub(crate) mod memory;
pub(crate) mod message_memory;
pub(crate) mod payers;
#[cfg(test)]
pub(crate) mod scratch;
pub(crate) mod shortage;
pub(crate) mod spool;
pub(crate) mod woken;
