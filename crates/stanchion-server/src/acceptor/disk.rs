//! Files, read and written without holding up the event loop.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;

/// Threads that wait for the disk, at most. What else is to be read or written waits for one of
/// them: one thing at a time for each connection, so the queue is no longer than
/// `max_connections`.
pub(super) const DISK_THREADS_MAX: usize = 32;

/// Runs `work` on one of those threads.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

/// Drops what takes the disk a while to let go of: a large file takes a file system many writes.
pub(super) fn discard<T: Send + 'static>(thing: T) {
    // Without a runtime the server is leaving, and nobody is held up.
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn_blocking(move || drop(thing));
    }
}

/// Reads up to `len` bytes: at once if the page cache has them.
pub(super) async fn read(file: &Arc<File>, offset: u64, len: usize) -> io::Result<Bytes> {
    if let Some(bytes) = read_cached(file, offset, len) {
        return Ok(bytes.into());
    }
    let file = Arc::clone(file);
    let read = aside(move || read_at(&file, offset, len)).await;
    read.map(Bytes::from)
}

/// What the page cache has at once (preadv2(2), `RWF_NOWAIT`); `None` if it has nothing, or if
/// the file system cannot tell.
pub(super) fn read_cached(file: &File, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut slices = [io::IoSliceMut::new(&mut bytes)];
    let read = rustix::io::preadv2(
        file,
        &mut slices,
        offset,
        rustix::io::ReadWriteFlags::NOWAIT,
    )
    .ok()?;
    if read == 0 {
        return None;
    }
    bytes.truncate(read);
    Some(bytes)
}

pub(super) fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Writes all of `pieces`, one after the other.
pub(super) async fn write(file: &Arc<File>, offset: u64, pieces: Vec<Bytes>) -> io::Result<()> {
    let file = Arc::clone(file);
    aside(move || {
        let mut at = offset;
        for piece in &pieces {
            file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    })
    .await
}
