//! The format of recordings of arrivals (`record_arrivals`): when each request came to the line, how long it waited and
//! ran, and when workers came and went. The server writes recordings, and a planner reads them.
//!
//! A recording is a directory of files, `arrivals-*.rec`. A file is a header ([`ArrivalHeader`]) and then records of
//! [`RECORD_BYTES`] each ([`ArrivalRecord`]). The server only appends to a file, begins the next one when a file has
//! [`FILE_BYTES`], and removes the oldest files. Each record has a number and a checksum, so a reader sees which records
//! were lost, and a half-written record is not taken for a whole one. docs/recording.md has the layout for programs in other
//! languages.
//!
//! A recording has no personal data: neither a path, nor a field, nor an address. A client is a hash under a key that is
//! random for each writer and stored nowhere.
//!
//! This crate is the layout only. It may not do I/O, read a clock, have threads or use unsafe code.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod checksum;
mod file;
mod header;
mod record;

pub use file::{ArrivalFile, lost};
pub use header::{ArrivalHeader, MAGIC, NotARecording, RecordedLane, RecordedSettings, VERSION};
pub use record::{
    ArrivalRecord, EventKind, RECORD_BYTES, Recorded, RecordedEvent, RecordedRequest, RequestEnd,
    Unreadable, recorded_us,
};

/// A file has at most so many bytes, header and records together.
pub const FILE_BYTES: u64 = 4 << 20;

/// All files of a directory together have at most so many bytes.
pub const DIRECTORY_BYTES: u64 = 64 << 20;

/// The beginning and the end of the name of a file; between them stands when the server began it, so that names are in the order of time.
pub const FILE_NAME: (&str, &str) = ("arrivals-", ".rec");

/// Whether a file of this name is one of a recording.
pub fn is_file_name(name: &str) -> bool {
    let (begin, end) = FILE_NAME;
    name.starts_with(begin) && name.ends_with(end)
}
