//! Anonymous memory and files of a whole process tree.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::fs::{
    FileType, FlockOperation, MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals,
    fcntl_getfl, fcntl_lock, fcntl_setfl, fstat, ftruncate, memfd_create, sendfile,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::call::{InCall, named, retry};
use crate::process::inherited_fd;

/// Nothing can change the size of a file with these seals, nor take them away (`F_ADD_SEALS` in fcntl(2)).
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A shared mapping that every later child inherits at the same address.
///
/// The pages come into being when they are first touched, so a generous length costs nothing.
/// The memory starts as zeroes (`memfd_create(2)`, ftruncate(2)). It is in no core dump.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory that outlives every reference handed out by its owner; it
// is up to that owner (stanchion-exchange) to synchronise what it stores there.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; `SharedMemory` itself offers no access, only the address.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps `len` bytes (rounded up to whole pages by the kernel) of a new memfd called `name`,
    /// which shows in /proc/PID/maps.
    ///
    /// Errors are the kernel's: out of memory, of descriptors, or of address space.
    pub fn create(name: &str, len: usize) -> io::Result<Self> {
        Self::map(&Self::file(name, len)?, len)
    }

    /// A file for such memory, with which another program can map it too, if it [inherits](Self::inherit) the descriptor. Its size is sealed: a
    /// mapping beyond the end of its file kills the process that reads there (SIGBUS in mmap(2)).
    ///
    /// # Errors
    /// The kernel's: out of memory or of descriptors.
    pub fn file(name: &str, len: usize) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(name, flags).in_call("memfd_create")?;
        ftruncate(&file, len as u64).in_call("ftruncate")?;
        fcntl_add_seals(&file, SEALS).in_call("fcntl")?;
        Ok(file)
    }

    /// Takes over such a file that an old master has left open.
    ///
    /// # Errors
    /// No descriptor has this number, or it is not such a file of `len` bytes.
    pub fn inherit(fd: RawFd, len: usize) -> io::Result<OwnedFd> {
        let file = inherited_fd(fd)?;
        let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
        if !is_sealed || u64::try_from(fstat(&file)?.st_size) != Ok(len as u64) {
            return Err(io::Error::other("it is no sealed file of that size"));
        }
        Ok(file)
    }

    /// Maps the first `len` bytes of such a file.
    ///
    /// # Errors
    /// The kernel's: out of memory or of address space.
    pub fn map(file: &OwnedFd, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
            .in_call("mmap")?
        };
        // Make this first, so that dropping it unmaps the memory if the rest fails.
        let base = NonNull::new(base.cast::<u8>()).expect("mmap(2) never returns a null mapping");
        let memory = Self { base, len };
        // A core dump would touch every page, so a crash could take more memory than there is.
        // SAFETY: the range is that of the mapping; only what core(5) does with it changes.
        unsafe { madvise(memory.base.as_ptr().cast(), len, Advice::LinuxDontDump) }
            .in_call("madvise")?;
        Ok(memory)
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Gives the whole pages among the `len` bytes from `offset` back to the kernel; they then read as zeroes, as if
    /// they had never been touched (madvise(2), `MADV_REMOVE`). Returns the range of these pages.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// The range is within the mapping, and no code in this process has a reference into it.
    pub unsafe fn give_back(&self, offset: usize, len: usize) -> io::Result<Range<usize>> {
        let page = rustix::param::page_size();
        let pages = offset.next_multiple_of(page)..(offset + len) / page * page;
        if !pages.is_empty() {
            // SAFETY: the caller has promised as much.
            unsafe {
                let start = self.base.as_ptr().add(pages.start);
                madvise(start.cast(), pages.len(), Advice::LinuxRemove).in_call("madvise")?;
            }
        }
        Ok(pages)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping made in `create`, unmapped once.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping cannot fail");
    }
}

/// An anonymous file to which processes of the tree append, and which one of them reads and clears.
///
/// It is for a signal handler that knows nothing but a descriptor: stack dumps ([`crate::signal::dump`]). The master
/// uses it like this, for one worker at a time:
///
/// 1. [`clear`](Self::clear);
/// 2. [`kill`](crate::process::kill) the worker with [`DUMP`](crate::signal::DUMP);
/// 3. wait for the worker's report that it has written, for a bounded time: a stopped process, or one in an
///    uninterruptible system call, sends none;
/// 4. [`read`](Self::read), with or without a report, and log it.
///
/// The open file description appends (`O_APPEND` in open(2)), and forks share it. So no process has to seek, and after
/// a clear the next write begins at the start.
#[derive(Debug)]
pub struct AppendFile(OwnedFd);

impl AppendFile {
    /// Makes an empty file called `name`, which shows in /proc/PID/fd.
    ///
    /// Errors are the kernel's: out of memory or of descriptors.
    pub fn create(name: &str) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC).in_call("memfd_create")?;
        let flags = fcntl_getfl(&file).in_call("fcntl")?;
        fcntl_setfl(&file, flags | OFlags::APPEND).in_call("fcntl")?;
        Ok(Self(file))
    }

    /// Empties it.
    pub fn clear(&self) -> io::Result<()> {
        ftruncate(&self.0, 0).in_call("ftruncate")
    }

    /// The content, at most the first `bytes_max`; bytes that are not UTF-8 become U+FFFD.
    pub fn read(&self, bytes_max: usize) -> io::Result<String> {
        let bytes = read_from_start(&self.0, bytes_max)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A copy of a file, in the kernel's memory. The process that makes it never has the content in its own memory, so the
/// processes that it forks do not either. A child has the copy only until it drops it.
#[derive(Debug)]
pub struct CopiedFile {
    copy: OwnedFd,
    len: usize,
}

impl CopiedFile {
    /// Copies a regular file of at most so many bytes.
    ///
    /// Errors are the operator's (not a regular file, or too large), or the kernel's.
    pub fn of(file: &File, bytes_max: u64) -> io::Result<Self> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        if found.len() > bytes_max {
            let why = format!("it has {} bytes, and the limit is {bytes_max}", found.len());
            return Err(io::Error::other(why));
        }
        let copy = memfd_create("stanchion-copy", MemfdFlags::CLOEXEC).in_call("memfd_create")?;
        let (mut from, mut len) = (0, 0);
        while from < found.len() {
            let left = (found.len() - from) as usize;
            match retry("sendfile", || sendfile(&copy, file, Some(&mut from), left))? {
                0 => break,
                count => len += count,
            }
        }
        Ok(Self { copy, len })
    }

    /// The content.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        read_from_start(&self.copy, self.len)
    }
}

/// A small anonymous file that some processes of a tree read and write, always as a whole.
#[derive(Debug)]
pub struct KeptFile(OwnedFd);

impl KeptFile {
    /// Makes an empty file called `name`, which shows in /proc/PID/fd.
    ///
    /// # Errors
    /// The kernel's: out of memory or of descriptors.
    pub fn create(name: &str) -> io::Result<Self> {
        memfd_create(name, MemfdFlags::CLOEXEC)
            .in_call("memfd_create")
            .map(Self)
    }

    /// Takes over a file that an old master has left open.
    ///
    /// # Errors
    /// No descriptor has this number, or it is not a regular file.
    pub fn inherit(fd: RawFd) -> io::Result<Self> {
        let file = inherited_fd(fd)?;
        let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
        if kind != FileType::RegularFile {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(Self(file))
    }

    /// Another descriptor of the same file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// The content, at most the first `bytes_max`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        read_from_start(&self.0, bytes_max)
    }

    /// Replaces the content by `bytes`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut len = 0;
        while len < bytes.len() {
            len += retry("pwrite64", || {
                rustix::io::pwrite(&self.0, &bytes[len..], len as u64)
            })?;
        }
        ftruncate(&self.0, bytes.len() as u64).in_call("ftruncate")
    }

    /// Locks the file against other processes that lock it (`F_SETLK` in fcntl(2)); false if another process has locked
    /// it. Does not wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_lock(&self) -> io::Result<bool> {
        match fcntl_lock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(false),
            Err(error) => Err(named("fcntl", error)),
        }
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unlock(&self) -> io::Result<()> {
        fcntl_lock(&self.0, FlockOperation::NonBlockingUnlock).in_call("fcntl")
    }
}

impl From<OwnedFd> for KeptFile {
    fn from(file: OwnedFd) -> Self {
        Self(file)
    }
}

/// The first bytes of a file, whatever its offset, which forks share (pread(2)).
fn read_from_start(file: &OwnedFd, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let mut len = 0;
    while len < bytes_max {
        let read = || rustix::io::pread(file, &mut bytes[len..], len as u64);
        match retry("pread64", read)? {
            0 => break,
            count => len += count,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// How much memory a process has, its own and shared (`VmRSS`); `None` if the process is gone.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// How much memory a process has, counting its share of each shared page (`Pss` in `proc_pid_smaps(5)`); `None` if the
/// process is gone, or this one may not look at it.
pub fn proportional_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// How much memory a process has that no other process shares (`Private_Clean` and `Private_Dirty` in `proc_pid_smaps(5)`); `None` as above. The kernel walks
/// all pages of the process for it.
pub fn private_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    let kibibytes =
        lines.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    Some(kibibytes.sum::<u64>() * 1024)
}

impl AsFd for AppendFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_in_no_core_dump() {
        let _memory = SharedMemory::create("stanchion-undumped", 1 << 20).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (_, ours) = maps.split_once("stanchion-undumped").unwrap();
        let flags = ours.lines().find(|line| line.starts_with("VmFlags:"));
        // "do not include area into core dump" (proc(5))
        assert!(flags.unwrap().split(' ').any(|flag| flag == "dd"));
    }

    #[test]
    fn what_is_appended_is_read_up_to_the_limit_and_begins_anew_after_a_clear() {
        let file = AppendFile::create("test").expect("a memfd");
        assert_eq!(file.read(10).expect("read"), "");
        for part in [&b"one "[..], b"two\xff"] {
            assert_eq!(rustix::io::write(&file, part), Ok(part.len()));
        }
        assert_eq!(file.read(100).expect("read"), "one two\u{fffd}");
        assert_eq!(file.read(5).expect("read"), "one t");
        file.clear().expect("cleared");
        assert_eq!(rustix::io::write(&file, b"new"), Ok(3));
        assert_eq!(file.read(100).expect("read"), "new");
    }

    #[test]
    fn what_is_kept_is_what_was_written_last() {
        let file = KeptFile::create("test").unwrap();
        assert_eq!(file.read(10).unwrap(), b"");
        file.write(b"longer").unwrap();
        file.write(b"new").unwrap();
        let other = KeptFile::from(file.try_clone_fd().unwrap());
        assert_eq!(other.read(10).unwrap(), b"new");
        assert_eq!(other.read(2).unwrap(), b"ne");
        // A lock belongs to a process, not to a descriptor.
        assert!(file.try_lock().unwrap() && other.try_lock().unwrap());
        other.unlock().unwrap();
        assert!(KeptFile::inherit(1_000_000).is_err());
    }

    #[test]
    fn a_copy_is_of_what_the_file_was_and_of_nothing_else() {
        let path = std::env::temp_dir().join(format!("stanchion-copied-{}", std::process::id()));
        std::fs::write(&path, "secret").unwrap();
        let copy = CopiedFile::of(&File::open(&path).unwrap(), 6).unwrap();
        std::fs::write(&path, "longer than that").unwrap();
        assert_eq!(copy.read().unwrap(), b"secret");
        assert_eq!(copy.read().unwrap(), b"secret", "again");
        let too_long = CopiedFile::of(&File::open(&path).unwrap(), 6).unwrap_err();
        assert!(too_long.to_string().contains("16 bytes"), "{too_long}");
        std::fs::remove_file(&path).unwrap();
        assert!(CopiedFile::of(&File::open("/").unwrap(), 6).is_err());
    }
}
