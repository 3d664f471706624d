//! The files of a recording of arrivals, in a directory of bounded size. Several servers may write to one directory, each
//! to files of its own, and so may two acceptors during a reload.
//!
//! A writer holds a lock on the file that it writes (flock(2)), and the kernel releases it when the writer ends, however it
//! ends. A file without that lock is finished, and the oldest finished files make room for new ones.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::{Errno, retry_on_intr};
use stanchion_arrivals::{
    ArrivalHeader, DIRECTORY_BYTES, FILE_BYTES, FILE_NAME, RECORD_BYTES, is_file_name,
};
use stanchion_sys::call::InCall;
use stanchion_sys::clock::wall_us;
use stanchion_sys::identity::effective_uid;
use stanchion_sys::pinned_path::PinnedPath;

use crate::cure;
use crate::file::FileOwner;

/// The file by whose lock one writer at a time makes and removes files.
const LOCK_NAME: &str = "lock";
/// A writer has the lock for a few calls. A process that has it for longer is stopped, or means harm: any reader of the file can take it.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How often the lock is tried meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The name of a file that is being made.
const NEW_NAME: &str = "new";
/// A block of [`MetadataExt::blocks`].
const BLOCK_BYTES: u64 = 512;
/// A file may take so much more than its size for the file system's own records; more is reserved room.
const SPARE_BYTES: u64 = 64 << 10;

/// The files of one writer.
#[derive(Debug)]
pub struct RecordingFiles {
    directory: PathBuf,
    lock: File,
    header: ArrivalHeader,
    current: Mutex<RecordingFile>,
}

/// The file that is written.
#[derive(Debug)]
struct RecordingFile {
    file: File,
    len: u64,
}

/// A file that is in the directory.
struct ListedFile {
    path: PathBuf,
    bytes: u64,
    is_finished: bool,
}

impl RecordingFiles {
    /// Begins the first file of a writer, with this header but for the time. The directory is there.
    pub fn open(directory: &Path, header: ArrivalHeader) -> io::Result<Self> {
        let open = || {
            let directory = std::path::absolute(directory)?;
            let lock = directory.join(LOCK_NAME);
            let lock = options()
                .create(true)
                .open(&lock)
                .map_err(|error| io::Error::new(error.kind(), cure::told_of_file(&lock, &error)))?;
            let current = Mutex::new(begin(&directory, &lock, &header)?);
            Ok(Self {
                directory,
                lock,
                header,
                current,
            })
        };
        open().map_err(|error| in_directory(directory, &error))
    }

    /// Writes whole records, as many as go at once: the start of `records`, and how many bytes.
    pub(super) fn write(&self, records: &[u8]) -> io::Result<usize> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.len >= FILE_BYTES {
            // A full file is finished: it goes too if no other one can.
            release(&current.file)?;
            *current = begin(&self.directory, &self.lock, &self.header)?;
        }
        let room = usize::try_from(FILE_BYTES - current.len).unwrap_or(usize::MAX);
        let some = &records[..records.len().min(room)];
        let written = current.file.write_at(some, current.len)?;
        // The next call writes a record from its beginning that was half written.
        let whole = written - written % RECORD_BYTES;
        current.len += whole as u64;
        Ok(whole)
    }

    /// Begins the next file, so that the one before is finished and can be taken away.
    pub(super) fn begin_next(&self) -> io::Result<()> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = begin(&self.directory, &self.lock, &self.header)?;
        Ok(())
    }

    /// For messages.
    pub(super) fn shown(&self) -> String {
        self.directory.display().to_string()
    }
}

/// Makes the directory of a recording, unless it is there, for the process that is going to write it.
pub fn create_directory(path: &Path, owner: Option<FileOwner>) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let make = || {
        let made = PinnedPath::of(path)?.make_directory(0o750)?;
        match owner.filter(|_| effective_uid() == 0) {
            Some(owner) => made.give_to(Some(owner.uid), Some(owner.gid)),
            None => Ok(()),
        }
    };
    match make() {
        // Another server has made it in this moment.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(|error| in_directory(path, &error)),
    }
}

/// The error, with the setting and the operator's next step.
fn in_directory(path: &Path, error: &io::Error) -> io::Error {
    let problem = format!(
        "setting `record_arrivals`: {}",
        cure::told_of_file(path, error)
    );
    io::Error::new(error.kind(), problem)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // No link of another user's leads out of the directory.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.write(true).custom_flags(flags.bits().cast_signed());
    options
}

/// Makes room, and then the next file of a writer.
fn begin(directory: &Path, lock: &File, header: &ArrivalHeader) -> io::Result<RecordingFile> {
    lock_within(lock, LOCK_WAIT)?;
    let begun = make_room(directory).and_then(|()| make(directory, header));
    release(lock)?;
    begun
}

fn release(locked: &File) -> io::Result<()> {
    retry_on_intr(|| flock(locked, FlockOperation::Unlock)).in_call("flock")
}

/// Waits for other writers, which have the lock for a few calls each.
fn lock_within(lock: &File, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    while !try_lock(lock)? {
        if Instant::now() >= until {
            let problem = format!(
                "another process has held the lock of its file `{LOCK_NAME}` for {} s: end that process (fuser(1) names it), or name another directory",
                patience.as_secs()
            );
            return Err(io::Error::new(ErrorKind::TimedOut, problem));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// True if this process has the lock now; false if another one has it.
fn try_lock(file: &File) -> io::Result<bool> {
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error).in_call("flock"),
    }
}

/// A file has another name until its header is there, and its lock, so that neither readers nor other writers see one without.
fn make(directory: &Path, header: &ArrivalHeader) -> io::Result<RecordingFile> {
    let header = ArrivalHeader {
        begun_us: wall_us(),
        ..header.clone()
    };
    let (begin, end) = FILE_NAME;
    let name = format!("{begin}{:016}-{:016x}{end}", header.begun_us, header.writer);
    let header = header.encode();
    let new = directory.join(NEW_NAME);
    // A writer that was killed here has left one.
    unless_gone(std::fs::remove_file(&new))?;
    let file = options().create_new(true).open(&new)?;
    let made = reserve(&file)
        .and_then(|()| try_lock(&file))
        .and_then(|_| file.write_all_at(&header, 0))
        .and_then(|()| std::fs::rename(&new, directory.join(name)).in_call("rename"));
    if let Err(error) = made {
        unless_gone(std::fs::remove_file(&new))?;
        return Err(error);
    }
    let len = header.len() as u64;
    Ok(RecordingFile { file, len })
}

/// Reserves the room of a file, so that a disk that fills up later does not end the recording. Some file systems cannot.
fn reserve(file: &File) -> io::Result<()> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, FILE_BYTES)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => reserved.in_call("fallocate"),
    }
}

/// Removes the oldest finished files until there is room for one more.
fn make_room(directory: &Path) -> io::Result<()> {
    let kept = listed_files(directory)?;
    let mut bytes: u64 = kept.iter().map(|file| file.bytes).sum();
    for file in kept.iter().filter(|file| file.is_finished) {
        if bytes + FILE_BYTES <= DIRECTORY_BYTES {
            break;
        }
        unless_gone(std::fs::remove_file(&file.path))?;
        bytes -= file.bytes;
    }
    if bytes + FILE_BYTES > DIRECTORY_BYTES {
        let problem = format!(
            "it has {} MiB of recordings that other servers still write, or that are another user's and for the operator to remove, and no room for one more below {} MiB",
            bytes >> 20,
            DIRECTORY_BYTES >> 20
        );
        return Err(io::Error::other(problem));
    }
    Ok(())
}

/// The files of all writers, the oldest first.
fn listed_files(directory: &Path) -> io::Result<Vec<ListedFile>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(is_file_name) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    let mut kept = Vec::new();
    for path in paths {
        kept.extend(listed_file(path)?);
    }
    Ok(kept)
}

/// Looks at a file, and gives the room back that its writer had reserved, if it is finished. `None` if it is gone.
fn listed_file(path: PathBuf) -> io::Result<Option<ListedFile>> {
    let file = match options().open(&path) {
        Ok(file) => file,
        // Another user's, which this process can neither lock nor remove, or no file at all.
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Ok(Some(ListedFile {
                path,
                bytes: FILE_BYTES,
                is_finished: false,
            }));
        }
        Err(_) => return Ok(None),
    };
    let is_finished = try_lock(&file)?;
    let mut bytes = FILE_BYTES;
    if is_finished {
        let size = || {
            let metadata = file.metadata()?;
            io::Result::Ok((metadata.len(), metadata.blocks() * BLOCK_BYTES))
        };
        let (len, mut taken) = size()?;
        if taken > len + SPARE_BYTES {
            // To truncate a file to its size frees what is reserved behind its end (fallocate(2)).
            file.set_len(len)?;
            taken = size()?.1;
        }
        bytes = len.max(taken);
    }
    Ok(Some(ListedFile {
        path,
        bytes,
        is_finished,
    }))
}

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use stanchion_arrivals::{
        ArrivalFile, ArrivalRecord, EventKind, Recorded, RecordedEvent, RecordedSettings,
    };
    use stanchion_sys::process;

    use super::*;
    use crate::Outlet;

    /// A directory of one test, gone when the test is.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("stanchion-recording-{name}-{}", process::pid());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).expect("a directory");
            Self(path)
        }

        fn paths(&self) -> Vec<PathBuf> {
            let kept = listed_files(&self.0).expect("listed");
            kept.into_iter().map(|file| file.path).collect()
        }

        fn files(&self) -> Vec<ArrivalFile> {
            self.paths().iter().map(read).collect()
        }

        fn bytes(&self) -> u64 {
            let len = |path: &PathBuf| std::fs::metadata(path).expect("there").len();
            self.paths().iter().map(len).sum()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).expect("removed");
        }
    }

    fn header(writer: u64) -> ArrivalHeader {
        ArrivalHeader {
            writer,
            begun_us: 0,
            settings: RecordedSettings {
                server: "1".to_owned(),
                workers_min: 1,
                workers_max: 1,
                workers_keep_us: 0,
                seats_per_worker: 1,
                event_loop: false,
                cores: 1,
                waiting_max: 1,
                waiting_max_per_client: 0,
                queue_timeout_us: 0,
                queue_target_us: None,
                timeout_us: 0,
                lanes: Vec::new(),
            },
        }
    }

    fn records(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
        let encode = |number| {
            let what = Recorded::Event(RecordedEvent {
                kind: EventKind::Ready,
                worker: None,
                workers: 1,
                waiting: 0,
            });
            let record = ArrivalRecord {
                number,
                at_us: number,
                what,
            };
            record.encode()
        };
        numbers.flat_map(encode).collect()
    }

    fn read(path: &PathBuf) -> ArrivalFile {
        let bytes = std::fs::read(path).expect("read");
        ArrivalFile::read(&bytes).expect("a recording")
    }

    fn numbers(file: &ArrivalFile) -> Vec<u64> {
        file.records.iter().map(|record| record.number).collect()
    }

    fn write_all(files: &RecordingFiles, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = &bytes[files.write(bytes).expect("written")..];
        }
    }

    /// Records that fill a file, but for its header.
    const PER_FILE: u64 = (FILE_BYTES - 4096) / RECORD_BYTES as u64;

    /// So many records whose content does not matter.
    fn blanks(count: u64) -> Vec<u8> {
        vec![0; count as usize * RECORD_BYTES]
    }

    #[test]
    fn records_go_on_in_the_next_file_and_the_oldest_file_goes() {
        let directory = Directory::new("rotates");
        let files = RecordingFiles::open(&directory.0, header(1)).expect("opened");
        let all = DIRECTORY_BYTES / FILE_BYTES * PER_FILE;
        write_all(&files, &blanks(all - 10));
        write_all(&files, &records(1..=10));
        assert_eq!(directory.bytes(), DIRECTORY_BYTES);
        let oldest = directory.paths().remove(0);
        write_all(&files, &records(11..=13));
        let paths = directory.paths();
        assert!(directory.bytes() <= DIRECTORY_BYTES && !paths.contains(&oldest));
        let [.., before, last] = &paths[..] else {
            panic!("few files: {paths:?}");
        };
        let [before, last] = [before, last].map(read);
        assert_eq!(numbers(&before), (1..=10).collect::<Vec<_>>());
        assert_eq!(numbers(&last), [11, 12, 13]);
        assert!(last.header.begun_us > before.header.begun_us && last.unreadable == 0);
    }

    #[test]
    fn a_writer_leaves_files_alone_that_another_one_writes() {
        let directory = Directory::new("shared");
        let first = RecordingFiles::open(&directory.0, header(1)).expect("opened");
        let [path] = &directory.paths()[..] else {
            panic!("one file");
        };
        write_all(&first, &records(1..=2));
        let second = RecordingFiles::open(&directory.0, header(2)).expect("opened");
        write_all(&second, &blanks(DIRECTORY_BYTES / FILE_BYTES * PER_FILE));
        write_all(&first, &records(3..=3));
        assert_eq!(numbers(&read(path)), [1, 2, 3]);
        assert!(directory.bytes() <= DIRECTORY_BYTES);
    }

    #[test]
    fn a_lock_that_another_process_keeps_is_an_error() {
        let directory = Directory::new("locked");
        let files = RecordingFiles::open(&directory.0, header(1)).expect("opened");
        let other = File::open(directory.0.join(LOCK_NAME)).expect("a file");
        assert!(try_lock(&other).expect("locked"));
        let error = lock_within(&files.lock, Duration::ZERO).expect_err("locked");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("file `lock` for 0 s"), "{error}");
        release(&other).expect("released");
        lock_within(&files.lock, Duration::ZERO).expect("locked");
    }

    #[test]
    fn a_directory_that_servers_fill_takes_no_more_and_a_finished_file_makes_room() {
        let directory = Directory::new("full");
        let open = |writer| RecordingFiles::open(&directory.0, header(writer));
        let mut servers: Vec<_> = (0..DIRECTORY_BYTES / FILE_BYTES)
            .map(|writer| open(writer).expect("opened"))
            .collect();
        let error = open(99).expect_err("no room").to_string();
        assert!(
            error.contains("64 MiB of recordings that other servers still write"),
            "{error}"
        );
        // A server whose file is full begins the next one in its place.
        let one = &servers[3];
        write_all(one, &blanks(PER_FILE + 1));
        assert_eq!(directory.paths().len(), servers.len());
        drop(servers.remove(0));
        open(99).expect("opened");
        assert_eq!(directory.paths().len(), servers.len() + 1);
    }

    #[test]
    fn what_a_writer_has_reserved_is_given_back_when_it_is_gone() {
        let directory = Directory::new("reserved");
        drop(RecordingFiles::open(&directory.0, header(1)).expect("opened"));
        let blocks = || {
            let path = &directory.paths()[0];
            std::fs::metadata(path).expect("there").blocks() * BLOCK_BYTES
        };
        // The listing has looked at it.
        assert!(blocks() <= 2 * 4096, "{}", blocks());
        assert_eq!(directory.bytes(), 4096);
    }

    #[test]
    fn a_writer_that_was_killed_while_it_made_a_file_is_in_no_ones_way() {
        let directory = Directory::new("killed");
        let new = directory.0.join(NEW_NAME);
        std::fs::write(&new, "half a header").expect("written");
        let files = RecordingFiles::open(&directory.0, header(1)).expect("opened");
        write_all(&files, &records(1..=1));
        assert_eq!(directory.files().len(), 1);
        assert!(!new.exists());
    }

    #[test]
    fn reopened_a_recording_goes_on_in_another_file() {
        let directory = Directory::new("reopened");
        let files = RecordingFiles::open(&directory.0, header(1)).expect("opened");
        let outlet = Outlet::Recording(files);
        let records = [records(1..=2), records(3..=5)];
        assert_eq!(
            outlet.write(&records[0]).expect("written"),
            2 * RECORD_BYTES
        );
        assert!(outlet.reopen().expect("reopened"));
        assert_eq!(
            outlet.write(&records[1]).expect("written"),
            3 * RECORD_BYTES
        );
        let read = directory.files();
        assert_eq!(
            read.iter().map(numbers).collect::<Vec<_>>(),
            [vec![1, 2], vec![3, 4, 5]]
        );
        assert_eq!(outlet.lines(&records[1]), 3);
    }

    #[test]
    fn a_directory_that_is_not_there_or_not_ours_is_an_error() {
        let directory = Directory::new("missing");
        let missing = RecordingFiles::open(&directory.0.join("none"), header(1));
        assert_eq!(missing.expect_err("none").kind(), ErrorKind::NotFound);
        // A link in place of the lock would have a file made wherever another user likes.
        std::os::unix::fs::symlink(directory.0.join("elsewhere"), directory.0.join(LOCK_NAME))
            .expect("linked");
        assert!(RecordingFiles::open(&directory.0, header(1)).is_err());
        assert!(!directory.0.join("elsewhere").exists());
    }
}
