//! What of bodies and answers is on disk, and how much of it there may be.

use std::cell::Cell;
use std::fs::File;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::clients::{Client, Share, Shares};
use super::disk;
use crate::spool::NamedFile;

/// The spool of one acceptor.
pub(super) struct Spool {
    directory: PathBuf,
    /// Most bytes in all files together.
    bytes_max: u64,
    bytes: Cell<u64>,
    /// Of these, what is each client's.
    shares: Rc<Shares>,
    next_file: Cell<u64>,
    /// Notified when there is room again.
    freed: Notify,
}

/// Why something cannot be spooled.
#[derive(Debug)]
pub(super) enum SpoolError {
    /// `max_spool` is reached.
    Full,
    /// The client has as much as it may while others need room too.
    ShareFull,
    /// The disk has no room, or fails.
    Disk(io::Error),
}

impl Spool {
    /// With 0 the disk alone is the limit.
    pub(super) fn new(directory: &Path, bytes_max: u64) -> Rc<Self> {
        Rc::new(Self {
            directory: directory.to_owned(),
            bytes_max: if bytes_max == 0 { u64::MAX } else { bytes_max },
            bytes: Cell::new(0),
            shares: Rc::default(),
            next_file: Cell::new(0),
            freed: Notify::new(),
        })
    }

    /// Makes an empty file that has a name, for a worker to open.
    pub(super) async fn create(
        self: &Rc<Self>,
        owner: Option<Client>,
    ) -> Result<SpoolFile, SpoolError> {
        self.make(owner, Some).await
    }

    /// Makes an empty file without a name: nothing is left of it once it is closed, even by
    /// SIGKILL.
    pub(super) async fn create_unnamed(
        self: &Rc<Self>,
        owner: Option<Client>,
    ) -> Result<SpoolFile, SpoolError> {
        self.make(owner, |name| {
            drop(name);
            None
        })
        .await
    }

    async fn make(
        self: &Rc<Self>,
        owner: Option<Client>,
        keep: impl FnOnce(NamedFile) -> Option<NamedFile> + Send + 'static,
    ) -> Result<SpoolFile, SpoolError> {
        let number = self.next_file.get();
        self.next_file.set(number + 1);
        let directory = self.directory.clone();
        let made = disk::aside(move || {
            let (name, file) = NamedFile::create(&directory, number)?;
            Ok((keep(name), file))
        });
        let (name, file) = made.await.map_err(SpoolError::Disk)?;
        Ok(SpoolFile {
            file: Arc::new(file),
            len: 0,
            room: Room {
                bytes: 0,
                spool: Rc::clone(self),
                share: owner.map(|owner| self.shares.none_yet(owner)),
            },
            name: Name(name),
        })
    }

    /// Resolves when a file has gone that was there when this was called.
    pub(super) fn freed(&self) -> impl Future<Output = ()> {
        self.freed.notified()
    }
}

/// Bytes that count as spooled until this is dropped.
struct Room {
    bytes: u64,
    spool: Rc<Spool>,
    /// The same as a part of all that its owner has, where that is known.
    share: Option<Share>,
}

impl Room {
    fn add(&mut self, bytes: u64) -> Result<(), SpoolError> {
        let all = self.spool.bytes.get().saturating_add(bytes);
        if all > self.spool.bytes_max {
            return Err(SpoolError::Full);
        }
        // Nobody may have more than is left for everybody else (the dynamic threshold of Choudhury and Hahne,
        // 1998): one alone has half of it, two have a third each, and there is always something left.
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
        self.spool.freed.notify_waiters();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.take_back(self.bytes);
    }
}

/// A file of the spool that is being filled.
pub(super) struct SpoolFile {
    file: Arc<File>,
    len: u64,
    room: Room,
    name: Name,
}

impl SpoolFile {
    /// Appends `pieces`, all or none of them.
    pub(super) async fn append(&mut self, pieces: Vec<Bytes>) -> Result<(), SpoolError> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.room.add(len)?;
        match disk::write(&self.file, self.len, pieces).await {
            Ok(()) => {
                self.len += len;
                Ok(())
            }
            Err(error) => {
                // The next attempt starts at the same place.
                self.room.take_back(len);
                Err(SpoolError::Disk(error))
            }
        }
    }

    /// Up to `len` bytes from `offset` on.
    pub(super) async fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        disk::read(&self.file, offset, len).await
    }

    /// It is whole: only its name is needed, and no descriptor. `None` if it has none.
    pub(super) fn close(self) -> Option<SpooledBody> {
        let Self {
            len, room, name, ..
        } = self;
        name.0.is_some().then_some(SpooledBody {
            name,
            len,
            _room: room,
        })
    }

    /// Nobody needs it any more.
    pub(super) fn discard(self) {
        disk::discard(self.file);
    }
}

/// A body in the spool; its file goes when this does.
pub(super) struct SpooledBody {
    name: Name,
    pub(super) len: u64,
    _room: Room,
}

impl SpooledBody {
    pub(super) fn path(&self) -> Option<&Path> {
        self.name.0.as_ref().map(NamedFile::path)
    }
}

/// The name of a file, which goes when this does.
struct Name(Option<NamedFile>);

impl Drop for Name {
    fn drop(&mut self) {
        if let Some(name) = self.0.take() {
            disk::discard(name);
        }
    }
}

#[cfg(test)]
mod tests;
