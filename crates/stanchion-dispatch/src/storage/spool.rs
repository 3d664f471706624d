//! The part of bodies and answers that is on disk, and how much of it there may be.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use stanchion_sys::charge;

use super::clients::{Client, Share, Shares};
use super::disk::{self, Disk, FileSystem, Job};
use super::woken::Woken;
use stanchion_generation::spool::NamedFile;

/// The spool of one acceptor.
pub struct Spool {
    directory: PathBuf,
    /// Most bytes in all files together.
    bytes_max: u64,
    bytes: Cell<u64>,
    /// Each client's share of these bytes.
    shares: Rc<Shares>,
    next_file: Cell<u64>,
    /// Connections that wait for room, and are woken when there is some again.
    waiting: RefCell<BTreeSet<u32>>,
    woken: Rc<Woken>,
}

/// Why something cannot be spooled.
#[derive(Debug)]
pub enum SpoolError {
    /// `max_spool` is reached.
    Full,
    /// The client has as much as it may while others need room too.
    ShareFull,
    /// The disk has no room, or fails.
    Disk(io::Error),
}

/// Whether a process can find a file by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    /// A worker opens the file by its name.
    Named,
    /// The file has no name: nothing is left of it once it is closed, even by SIGKILL.
    Unnamed,
}

impl Spool {
    /// Makes the spool. If `bytes_max` is 0 the disk alone is the limit.
    pub fn new(directory: &Path, bytes_max: u64, woken: &Rc<Woken>) -> Rc<Self> {
        Rc::new(Self {
            directory: directory.to_owned(),
            bytes_max: if bytes_max == 0 { u64::MAX } else { bytes_max },
            bytes: Cell::new(0),
            shares: Rc::default(),
            next_file: Cell::new(0),
            waiting: RefCell::default(),
            woken: Rc::clone(woken),
        })
    }

    /// A file that has a name, for a worker to open. It is made when it is first written to.
    pub fn file(self: &Rc<Self>, disk: &Disk, owner: Option<Client>) -> SpoolFile {
        self.file_of(Naming::Named, disk, owner)
    }

    /// A file without a name. It is made when it is first written to, too.
    pub fn unnamed_file(self: &Rc<Self>, disk: &Disk, owner: Option<Client>) -> SpoolFile {
        self.file_of(Naming::Unnamed, disk, owner)
    }

    fn file_of(self: &Rc<Self>, naming: Naming, disk: &Disk, owner: Option<Client>) -> SpoolFile {
        SpoolFile {
            naming,
            len: 0,
            room: SpoolReservation {
                bytes: 0,
                spool: Rc::clone(self),
                share: owner.map(|owner| self.shares.none_yet(owner)),
            },
            kept: BackingFile {
                name: None,
                file: None,
                appending: None,
                disk: disk.clone(),
            },
        }
    }

    /// Has the connection woken when there is room again.
    pub fn wait_for_room(&self, connection: u32) {
        // The table is for all clients, so no single one pays for it.
        let _charged = charge::to_nobody();
        self.waiting.borrow_mut().insert(connection);
    }

    fn next_number(&self) -> u64 {
        let number = self.next_file.get();
        self.next_file.set(number + 1);
        number
    }
}

/// Bytes that count as spooled until this is dropped.
struct SpoolReservation {
    bytes: u64,
    spool: Rc<Spool>,
    /// The same bytes in the share of their owner, if the owner is known.
    share: Option<Share>,
}

impl SpoolReservation {
    fn add(&mut self, bytes: u64) -> Result<(), SpoolError> {
        let all = self.spool.bytes.get().saturating_add(bytes);
        if all > self.spool.bytes_max {
            return Err(SpoolError::Full);
        }
        // No client may have more than is left for all others (the dynamic threshold of Choudhury and Hahne, 1998): one
        // alone has half of it, two have a third each, and there is always something left.
        let left = self.spool.bytes_max - all;
        if let Some(share) = &mut self.share {
            share.grow(bytes, left).map_err(|_| SpoolError::ShareFull)?;
        }
        self.spool.bytes.set(all);
        self.bytes += bytes;
        Ok(())
    }

    fn take_back(&mut self, bytes: u64) {
        self.spool.bytes.set(self.spool.bytes.get() - bytes);
        self.bytes -= bytes;
        if let Some(share) = &mut self.share {
            share.shrink(bytes);
        }
        if bytes > 0 {
            let waiting = std::mem::take(&mut *self.spool.waiting.borrow_mut());
            for number in waiting {
                self.spool.woken.add(number);
            }
        }
    }
}

impl Drop for SpoolReservation {
    fn drop(&mut self) {
        self.take_back(self.bytes);
    }
}

/// A file of the spool that is being filled. It is removed when this is dropped.
pub struct SpoolFile {
    naming: Naming,
    len: u64,
    room: SpoolReservation,
    kept: BackingFile,
}

struct Appending {
    len: u64,
    job: Job<Made>,
}

/// A file that was made, and its name, if it keeps one; `None` if the file was there before.
type Made = Option<(Option<NamedFile>, File)>;

/// Bytes that are read back.
pub enum Reading {
    /// The bytes were in the page cache.
    Done(Vec<u8>),
    /// A helper thread reads the bytes from the disk.
    Asked(Job<Vec<u8>>),
}

impl SpoolFile {
    /// Begins to append `pieces`, all or none of them: [`SpoolFile::appended`] gives the result. One append at a time.
    pub fn append(&mut self, connection: u32, pieces: Vec<Bytes>) -> Result<(), SpoolError> {
        debug_assert!(self.kept.appending.is_none(), "one append at a time");
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.room.add(len)?;
        let disk = &self.kept.disk;
        let job = if let Some(file) = &self.kept.file {
            let (file, at) = (Arc::clone(file), self.len);
            disk.start(FileSystem::Own, connection, move || {
                disk::write_at(&file, at, &pieces)?;
                Ok(None)
            })
        } else {
            let number = self.room.spool.next_number();
            let (directory, naming) = (self.room.spool.directory.clone(), self.naming);
            disk.start(FileSystem::Own, connection, move || {
                let (name, file) = NamedFile::create(&directory, number)?;
                let name = (naming == Naming::Named).then_some(name);
                disk::write_at(&file, 0, &pieces)?;
                Ok(Some((name, file)))
            })
        };
        self.kept.appending = Some(Appending { len, job });
        Ok(())
    }

    /// How an append has gone, once it is done. After an append that failed, the next one starts at the same place.
    pub fn appended(&mut self) -> Option<io::Result<()>> {
        let appending = self.kept.appending.as_mut()?;
        let done = appending.job.take()?;
        let len = appending.len;
        self.kept.appending = None;
        Some(match done {
            Ok(made) => {
                self.len += len;
                if let Some((name, file)) = made {
                    self.kept.name = name;
                    self.kept.file = Some(Arc::new(file));
                }
                Ok(())
            }
            Err(error) => {
                self.room.take_back(len);
                Err(error)
            }
        })
    }

    /// Whether the file was made yet.
    pub fn is_made(&self) -> bool {
        self.kept.file.is_some()
    }

    /// Reads up to `len` bytes from `offset` on. A file that was not made has no bytes.
    pub fn read(&self, connection: u32, offset: u64, len: usize) -> Reading {
        let Some(file) = &self.kept.file else {
            return Reading::Done(Vec::new());
        };
        if let Some(bytes) = disk::read_cached(file, offset, len) {
            return Reading::Done(bytes);
        }
        let file = Arc::clone(file);
        let read = move || disk::read_at(&file, offset, len);
        Reading::Asked(self.kept.disk.start(FileSystem::Own, connection, read))
    }

    /// Closes a file that is whole: only its name is needed, and no descriptor. `None` if it has no name.
    pub fn close(self) -> Option<SpooledBody> {
        let Self {
            len,
            room,
            mut kept,
            ..
        } = self;
        kept.file = None;
        kept.name.is_some().then_some(SpooledBody {
            kept,
            len,
            _room: room,
        })
    }
}

/// A body in the spool; its file is removed when this is dropped.
pub struct SpooledBody {
    kept: BackingFile,
    /// How long it is.
    pub len: u64,
    _room: SpoolReservation,
}

impl SpooledBody {
    /// The path of the file, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.kept.name.as_ref().map(NamedFile::path)
    }
}

/// The file, as far as there is one. When this is dropped, helper threads remove it.
struct BackingFile {
    name: Option<NamedFile>,
    /// `None` until something was written, and once the file is whole.
    file: Option<Arc<File>>,
    appending: Option<Appending>,
    disk: Disk,
}

impl Drop for BackingFile {
    fn drop(&mut self) {
        // A file that an append has made since the last call of [`SpoolFile::appended`] is here already.
        let appending = self.appending.as_mut();
        let made = appending.and_then(|appending| appending.job.take());
        if self.name.is_some() || self.file.is_some() || made.is_some() {
            let made = (self.name.take(), self.file.take(), made);
            self.disk.discard(FileSystem::Own, made);
        }
    }
}

#[cfg(test)]
mod tests;
