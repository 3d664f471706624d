//! The header of a file, little endian: who wrote the records behind it, and by which settings the server ran then.
//!
//! | at | | |
//! |---|---|---|
//! | 0 | 8 bytes | `STNCHARR` |
//! | 8 | u32 | version of the format |
//! | 12 | u32 | bytes of the header, after which the records begin: a multiple of 4096 |
//! | 16 | u32 | bytes of a record |
//! | 20 | u32 | bytes of the JSON |
//! | 24 | u64 | writer: a random number. Records of one writer, in all of its files, are numbered on, and have one key |
//! | 32 | u64 | when the file was begun, in microseconds since 1970 |
//! | 40 | | the settings, as JSON; then zeros |

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::RECORD_BYTES;

/// The first bytes of a file.
pub const MAGIC: &[u8; 8] = b"STNCHARR";

/// The version of the format. A reader refuses others.
pub const VERSION: u32 = 1;

/// Where the JSON is.
const JSON_AT: usize = 40;
/// A header fills whole pages, so that no record lies in two: the kernel writes a page whole (filemap.c), even for a
/// process that is killed meanwhile.
const PAGE_BYTES: usize = 4096;

/// A header.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrivalHeader {
    /// A random number: the records of one writer are numbered on from file to file.
    pub writer: u64,
    /// When the file was begun, in microseconds since 1970.
    pub begun_us: u64,
    /// The settings of the server.
    pub settings: RecordedSettings,
}

/// The settings that decide how requests wait and are served. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedSettings {
    /// The version of the server.
    pub server: String,
    /// The fewest workers.
    pub workers_min: u32,
    /// The most workers.
    pub workers_max: u32,
    /// How long a worker beyond the fewest stays after it was last needed.
    pub workers_keep_us: u64,
    /// How many requests a worker runs at once.
    pub seats_per_worker: u32,
    /// Whether workers run an event loop, and not threads.
    pub event_loop: bool,
    /// How many cores the server may use.
    pub cores: u32,
    /// The most requests in the line.
    pub waiting_max: u32,
    /// The most requests of one client in the line; 0 = any number.
    pub waiting_max_per_client: u32,
    /// How long a request may wait; 0 = no limit.
    pub queue_timeout_us: u64,
    /// How long the oldest may wait before the line is over its target; `None` = the order is that of arrival.
    pub queue_target_us: Option<u64>,
    /// How long a request may run; 0 = no limit.
    pub timeout_us: u64,
    /// The lanes, by the numbers that records have; the default lane first.
    pub lanes: Vec<RecordedLane>,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedLane {
    /// Its name.
    pub name: String,
    /// The smaller goes first.
    pub priority: u32,
    /// Seats that the other lanes together cannot take.
    pub seats: u32,
    /// The seats that it takes at most.
    pub seats_max: Option<u32>,
    /// How many may wait in it, apart from `waiting_max`.
    pub waiting_max: Option<u32>,
    /// Whether one client may have all of its room.
    pub is_for_all: bool,
}

/// Why a file is no recording that this version reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotARecording {
    /// It does not begin as a recording does.
    Foreign,
    /// It is of another version.
    Version(u32),
    /// It ends within its header.
    CutShort,
    /// Its header makes no sense.
    Settings,
}

impl fmt::Display for NotARecording {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => out.write_str("it is no recording of arrivals"),
            Self::Version(version) => write!(
                out,
                "it has version {version} of the format, and this program reads version {VERSION}"
            ),
            Self::CutShort => out.write_str("it ends within its header"),
            Self::Settings => out.write_str("its header makes no sense"),
        }
    }
}

impl std::error::Error for NotARecording {}

impl ArrivalHeader {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_vec(&self.settings).expect("numbers and texts are JSON");
        let len = (JSON_AT + json.len()).next_multiple_of(PAGE_BYTES);
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(MAGIC);
        for field in [VERSION, len as u32, RECORD_BYTES as u32, json.len() as u32] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for field in [self.writer, self.begun_us] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&json);
        bytes.resize(len, 0);
        bytes
    }

    /// Reads the header of a file, and gives the records behind it.
    pub(crate) fn decode(file: &[u8]) -> Result<(Self, &[u8]), NotARecording> {
        let rest = file.strip_prefix(MAGIC).ok_or(NotARecording::Foreign)?;
        let mut fields = Rest(rest);
        let version = fields.u32()?;
        if version != VERSION {
            return Err(NotARecording::Version(version));
        }
        let (len, record_bytes, json_bytes) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (writer, begun_us) = (fields.u64()?, fields.u64()?);
        let (len, json_bytes) = (len as usize, json_bytes as usize);
        let json = fields.0.get(..json_bytes).ok_or(NotARecording::CutShort)?;
        let settings = serde_json::from_slice(json).map_err(|_| NotARecording::Settings)?;
        if record_bytes as usize != RECORD_BYTES || len < JSON_AT + json_bytes {
            return Err(NotARecording::Settings);
        }
        let records = file.get(len..).ok_or(NotARecording::CutShort)?;
        let header = Self {
            writer,
            begun_us,
            settings,
        };
        Ok((header, records))
    }
}

/// The bytes that are not read yet.
struct Rest<'b>(&'b [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], NotARecording> {
        let (field, rest) = self.0.split_first_chunk().ok_or(NotARecording::CutShort)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, NotARecording> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, NotARecording> {
        self.take().map(u64::from_le_bytes)
    }
}
