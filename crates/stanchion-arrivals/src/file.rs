//! A file of a recording, as a reader sees it.

use std::collections::HashMap;

use crate::header::{ArrivalHeader, NotARecording};
use crate::record::{ArrivalRecord, RECORD_BYTES};

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrivalFile {
    /// Its header.
    pub header: ArrivalHeader,
    /// Its records, in the order in which requests were over. A reader that wants the order of arrival sorts them.
    pub records: Vec<ArrivalRecord>,
    /// How many records are unreadable, as the host went down while they were written.
    pub unreadable: u64,
}

impl ArrivalFile {
    /// Reads the bytes of a file, which a server may still be writing.
    pub fn read(bytes: &[u8]) -> Result<Self, NotARecording> {
        let (header, bytes) = ArrivalHeader::decode(bytes)?;
        let (whole, torn) = bytes.as_chunks::<RECORD_BYTES>();
        let records: Vec<_> = whole
            .iter()
            .filter_map(|bytes| ArrivalRecord::decode(bytes).ok())
            .collect();
        let unreadable = whole.len() - records.len() + usize::from(!torn.is_empty());
        Ok(Self {
            header,
            records,
            unreadable: unreadable as u64,
        })
    }
}

/// How many records are missing from these files: between the first and the last number that a writer has in them. A file that was removed for its age
/// took the first numbers along, and these do not count.
pub fn lost(files: &[ArrivalFile]) -> u64 {
    let mut writers: HashMap<u64, (u64, u64, u64)> = HashMap::new();
    for file in files {
        for record in &file.records {
            let number = record.number;
            let seen = writers.entry(file.header.writer);
            let (first, last, count) = seen.or_insert((number, number, 0));
            *first = number.min(*first);
            *last = number.max(*last);
            *count += 1;
        }
    }
    let missing = |(first, last, count): &(u64, u64, u64)| (last - first).saturating_sub(count - 1);
    writers.values().map(missing).fold(0, u64::saturating_add)
}
