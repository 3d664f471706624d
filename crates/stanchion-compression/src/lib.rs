//! Compresses bodies of answers piece by piece as they come. zlib-rs, brotli and zstd compress; this crate gives them
//! one interface, and bounds the memory of an encoder.
//!
//! It may not do I/O, read a clock, have threads or use unsafe code. `stanchion_http` decides which answers are
//! compressed, and the crate of requests has the threads that do it.
//!
//! ```
//! use stanchion_compression::{After, Encoder};
//! use stanchion_http::Coding;
//!
//! let mut compressed = Vec::new();
//! let mut encoder = Encoder::new(Coding::Gzip);
//! encoder.encode(b"what can be read ", After::Flush, &mut compressed)?;
//! encoder.encode(b"before the rest comes", After::End, &mut compressed)?;
//! # Ok::<(), stanchion_compression::Failed>(())
//! ```

#![forbid(unsafe_code)]

mod brotli;
mod encoder;
mod gzip;
mod piece;
mod zstandard;

pub use encoder::Encoder;
pub use piece::{After, Failed};
