//! The acceptor sends a file itself: one that a worker has handed over, so that the worker is free at once, or a static
//! one.
//!
//! The acceptor sends a file half a MiB at a time. sendfile(2) does not wait for the disk if the pages are in the page
//! cache. So the acceptor first asks with preadv2(2) and `RWF_NOWAIT` whether the first and the last bytes of that part
//! are in the page cache. If not, a helper thread reads the part first, so that a slow disk does not stop the loop. If
//! pages in the middle are missing, or the kernel drops some in between, sendfile(2) waits for the disk after all; this
//! is rare.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::warn;

use stanchion_dispatch::storage::disk::{self, Disk, FileSystem, Job, OpenFile};
use stanchion_dispatch::ticket::BodySection;

/// How long a look for a file, or the reading of a stretch of it, may take. A file system that works is faster, also one of
/// a network.
pub const FILE_TIMEOUT: Duration = Duration::from_secs(30);

/// The acceptor looks for so much of a file in the page cache, and sends it, at a time.
const STRETCH_BYTES: u64 = 512 << 10;

/// A helper thread reads so much of a foreign file, which is kept here until it is sent: the kernel may have to ask
/// another host even for what it has in the page cache.
const FOREIGN_STRETCH_BYTES: u64 = 128 << 10;

/// So many bytes count as in the page cache if the first of them is: the kernel reads ahead by more.
const PROBE_BYTES: usize = 32 << 10;

/// The part of a file that is still to be sent.
pub struct FileBody {
    file: OpenFile,
    offset: u64,
    left: u64,
    /// The sections behind `left`.
    behind: VecDeque<BodySection>,
    /// The file was in the page cache up to here at the last look.
    warm_until: u64,
    /// A helper thread fetches the next stretch from the disk, which must not hold up the event loop. The result is
    /// what the thread has read of a foreign file, and empty for other files.
    warming: Option<Job<Vec<u8>>>,
    /// When the helper thread was asked.
    asked_us: u64,
}

/// The next part of a file that can be sent at once.
pub enum Stretch<'f> {
    /// Bytes of the file.
    Bytes {
        /// The file.
        file: &'f File,
        /// Where in the file they begin.
        offset: u64,
        /// How many there are.
        len: usize,
    },
    /// Bytes that are in memory: text between parts of the file, or what a helper thread has read of a foreign one. To
    /// be sent before anything else.
    Text(Bytes),
    /// A helper thread fetches the next part.
    Waits,
    /// The client has got all of the body.
    Over,
    /// The file cannot be read, and the answer is not whole.
    Broken,
}

impl FileBody {
    /// The body that these sections of a file are.
    pub fn new(file: OpenFile, mut sections: Vec<BodySection>) -> Self {
        sections.retain(|section| section.len() > 0);
        Self {
            file,
            offset: 0,
            left: 0,
            behind: sections.into(),
            warm_until: 0,
            warming: None,
            asked_us: 0,
        }
    }

    /// Whether nothing is left to be sent.
    pub fn is_over(&self) -> bool {
        self.left == 0 && self.behind.is_empty()
    }

    /// Since when the answer waits for a helper thread, if it does.
    pub fn waits_since_us(&self) -> Option<u64> {
        self.warming.as_ref().map(|_| self.asked_us)
    }

    /// The next part that can be sent now.
    pub fn next(&mut self, disk: &Disk, connection: u32, now_us: u64) -> Stretch<'_> {
        while self.left == 0 {
            match self.behind.pop_front() {
                None => return Stretch::Over,
                Some(BodySection::Text(bytes)) => return Stretch::Text(bytes),
                Some(BodySection::Part(part)) => {
                    (self.offset, self.left, self.warm_until) =
                        (part.offset, part.len, part.offset);
                }
            }
        }
        let file_system = self.file.file_system();
        let stretch_bytes = match file_system {
            FileSystem::Own => STRETCH_BYTES,
            FileSystem::Foreign => FOREIGN_STRETCH_BYTES,
        };
        let end = self.offset + self.left.min(stretch_bytes);
        if let Some(job) = &mut self.warming {
            let fetched = match job.take() {
                None => return Stretch::Waits,
                Some(Ok(bytes)) => bytes,
                Some(Err(error)) => {
                    warn!("an answer breaks off, as its file cannot be read to the end: {error}");
                    return Stretch::Broken;
                }
            };
            self.warming = None;
            if file_system == FileSystem::Foreign {
                self.sent(fetched.len());
                return Stretch::Text(fetched.into());
            }
            self.warm_until = end;
        }
        if self.offset >= self.warm_until {
            if !self.is_cached(end) {
                let (file, offset) = (Arc::clone(&self.file), self.offset);
                let read = move || match file_system {
                    FileSystem::Own => fetch(&file, offset, end).map(|()| Vec::new()),
                    FileSystem::Foreign => {
                        disk::read_some_at(&file, offset, (end - offset) as usize)
                    }
                };
                self.warming = Some(disk.start(file_system, connection, read));
                self.asked_us = now_us;
                return Stretch::Waits;
            }
            self.warm_until = end;
        }
        Stretch::Bytes {
            file: &self.file,
            offset: self.offset,
            len: (self.warm_until - self.offset) as usize,
        }
    }

    /// Whether the next stretch, up to `end`, is in the page cache, from where it is sent at once.
    fn is_cached(&self, end: u64) -> bool {
        if self.file.file_system() == FileSystem::Foreign {
            return false;
        }
        let is_cached = |at| disk::read_cached(&self.file, at, 1).is_some();
        let probes = (self.offset..end).step_by(PROBE_BYTES).chain([end - 1]);
        probes.into_iter().all(is_cached)
    }

    /// Notes that so many bytes were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.left -= bytes as u64;
    }
}

/// Appends all sections to `out`, if the page cache has them at once; else `out` stays as it was.
pub fn put_cached(out: &mut Vec<u8>, file: &File, sections: &[BodySection]) -> bool {
    let before = out.len();
    for section in sections {
        match section {
            BodySection::Text(bytes) => out.extend_from_slice(bytes),
            BodySection::Part(part) if part.len == 0 => {}
            BodySection::Part(part) => {
                let len = part.len as usize;
                if disk::read_cached_onto(out, file, part.offset, len) != Some(len) {
                    out.truncate(before);
                    return false;
                }
            }
        }
    }
    true
}

/// Reads a stretch, so that it is in the page cache, up to its end or the end of the file.
fn fetch(file: &File, offset: u64, end: u64) -> io::Result<()> {
    let mut at = offset;
    while at < end {
        match disk::read_at(file, at, (end - at) as usize)?.len() {
            0 => break,
            len => at += len as u64,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanchion_dispatch::storage::scratch::{Scratch, bytes};
    use stanchion_record::FilePart;

    /// A file of so many bytes, which has no name any more.
    fn file(scratch: &Scratch, len: usize) -> File {
        let path = scratch.directory.join("sent");
        std::fs::write(&path, bytes(len)).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn just_the_part_that_was_named_is_sent_in_stretches() {
        let scratch = Scratch::new("file-part", 0);
        let len = STRETCH_BYTES as usize * 2 + 5_000;
        let (offset, part) = (1_000, len as u64 - 3_000);
        let mut body = FileBody::new(
            OpenFile::of_app(file(&scratch, len)),
            vec![BodySection::Part(FilePart { offset, len: part })],
        );
        let (mut at, end) = (offset, offset + part);
        let mut stretches = 0;
        loop {
            let next = scratch.until(|| match body.next(&scratch.disk, 0, 0) {
                Stretch::Waits => None,
                Stretch::Bytes { offset, len, .. } => Some(Some((offset, len))),
                Stretch::Over => Some(None),
                Stretch::Text(_) | Stretch::Broken => panic!("it can be read"),
            });
            let Some((offset, len)) = next else { break };
            assert_eq!(offset, at);
            assert!(len as u64 <= STRETCH_BYTES && offset + len as u64 <= end);
            // A socket takes what it has room for.
            let taken = len.min(300_000);
            body.sent(taken);
            at += taken as u64;
            stretches += 1;
        }
        assert_eq!(at, end);
        assert!(stretches >= 4, "{stretches}");
    }

    #[test]
    fn what_the_page_cache_has_is_put_together_or_not_at_all() {
        let scratch = Scratch::new("file-cached", 0);
        let file = file(&scratch, 5_000);
        let part = |offset, len| BodySection::Part(FilePart { offset, len });
        let text = || BodySection::Text(Bytes::from_static(b"text"));
        let mut out = b"head".to_vec();
        let all = [part(10, 2), text(), part(4_999, 1), text()];
        assert!(put_cached(&mut out, &file, &all));
        let whole = bytes(5_000);
        let expected = [b"head", &whole[10..12], b"text", &whole[4_999..], b"text"].concat();
        assert_eq!(out, expected);
        assert!(put_cached(&mut out, &file, &[part(0, 0)]));
        assert_eq!(out, expected);
        // The file is shorter than that.
        assert!(!put_cached(&mut out, &file, &[text(), part(4_990, 11)]));
        assert_eq!(out, expected);
    }

    #[test]
    fn what_cannot_be_read_whole_is_noticed() {
        let scratch = Scratch::new("file-short", 0);
        let part = || {
            vec![BodySection::Part(FilePart {
                offset: 0,
                len: 5_000,
            })]
        };
        let mut body = FileBody::new(OpenFile::of_app(file(&scratch, 5_000)), part());
        let has_bytes = scratch.until(|| match body.next(&scratch.disk, 0, 0) {
            Stretch::Waits => None,
            stretch => Some(matches!(stretch, Stretch::Bytes { .. })),
        });
        assert!(has_bytes);
        // A read behind the end of the file gives an error, and does not wait.
        body.sent(4_000);
        let behind = disk::read_some_at(&file(&scratch, 5_000), 5_000, 1);
        assert_eq!(behind.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // An empty file is over at once, and waits for nothing.
        let empty = FilePart { offset: 0, len: 0 };
        let file = File::open(&scratch.directory).unwrap();
        assert!(FileBody::new(OpenFile::of_app(file), vec![BodySection::Part(empty)]).is_over());
        // A directory opens like a file, and reads like none (EISDIR in read(2)).
        let mut body = FileBody::new(
            OpenFile::of_app(File::open(&scratch.directory).unwrap()),
            part(),
        );
        let is_broken = scratch.until(|| match body.next(&scratch.disk, 0, 0) {
            Stretch::Waits => None,
            stretch => Some(matches!(stretch, Stretch::Broken)),
        });
        assert!(is_broken);
    }
}
