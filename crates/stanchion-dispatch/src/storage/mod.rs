//! Storage for requests and answers: memory that connections share, files, and each client's share of both.

mod behind;
pub mod clients;
pub mod connection_shares;
pub mod disk;
pub mod memory;
pub mod message_memory;
pub mod payers;
#[cfg(debug_assertions)]
pub mod scratch;
pub mod shortage;
pub mod spool;
pub mod woken;
