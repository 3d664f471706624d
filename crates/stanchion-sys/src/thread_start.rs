//! The file that contains the start routine of a thread of this process.
//!
//! proc(5) does not show it. The C library knows it, and describes its own record of a thread to debuggers:
//! `libthread_db` reads the offsets of fields from symbols of the library (`nptl_db/structs.def` of glibc). This module
//! finds the record by the list of robust mutexes, whose head is in it (`get_robust_list(2)`). It checks the thread's
//! id, which is in the record too, and makes every read by `process_vm_readv(2)`, which fails at a wrong address: a
//! thread may end at any moment.

use std::array;
use std::ffi::CStr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::maps::MapLine;

/// A field as structs.def describes it: its size in bits, its number of elements, and its offset in bytes.
type FieldDescriptor = [u32; 3];

const WORD_BYTES: usize = size_of::<usize>();

/// The fields before the head: the thread's id, a field of four bytes that is not used, and a pointer (`nptl/descr.h`).
const ID_BEFORE_HEAD_BYTES: usize = WORD_BYTES + 8;

/// The most bytes of this process's map that are read.
const MAPS_BYTES_MAX: u64 = 16 << 20;

/// The C library's record of threads, and the map of this process. Make it after the threads have started.
#[derive(Debug)]
pub struct Origins {
    layout: Option<ThreadLayout>,
    /// The addresses and the file of each mapping that has one.
    mappings: Vec<(Range<usize>, PathBuf)>,
}

/// The offsets of the fields that we need in the C library's record of a thread.
#[derive(Clone, Copy, Debug)]
struct ThreadLayout {
    id: usize,
    start_routine: usize,
}

impl Origins {
    /// Reads the map as it is now.
    pub fn now() -> Self {
        Self {
            layout: ThreadLayout::of_c_library(),
            mappings: mappings(),
        }
    }

    /// The file with the code for which a thread of this process was started; `None` if that cannot be found, as with
    /// another C library. A thread of C++ starts in the runtime of that language, and this looks behind that.
    pub fn of(&self, thread: i32) -> Option<&Path> {
        let layout = self.layout?;
        let head = robust_list_head(thread)?;
        let id_at = head.checked_sub(ID_BEFORE_HEAD_BYTES)?;
        let [id] = read_words::<1>(id_at)?;
        if id as u32 != thread.cast_unsigned() {
            return None;
        }
        let record = id_at.checked_sub(layout.id)?;
        let [start, argument] = read_words::<2>(record.checked_add(layout.start_routine)?)?;
        let file = self.file_at(start)?;
        if !is_runtime_of_cpp(file) {
            return Some(file);
        }
        // The argument of std::thread's routine is a `_State` with virtual functions, whose table is in the file that
        // has made the thread.
        let made_by = read_words::<1>(argument).and_then(|[table]| self.file_at(table));
        Some(made_by.unwrap_or(file))
    }

    fn file_at(&self, address: usize) -> Option<&Path> {
        let mut mappings = self.mappings.iter();
        let (_, file) = mappings.find(|(range, _)| range.contains(&address))?;
        Some(file)
    }
}

impl ThreadLayout {
    fn of_c_library() -> Option<Self> {
        let id = field(c"_thread_db_pthread_tid")?;
        let start_routine = field(c"_thread_db_pthread_start_routine")?;
        let is_known = id[..2] == [32, 1] && start_routine[..2] == [WORD_BYTES as u32 * 8, 1];
        is_known.then_some(Self {
            id: id[2] as usize,
            start_routine: start_routine[2] as usize,
        })
    }
}

fn field(symbol: &CStr) -> Option<FieldDescriptor> {
    // SAFETY: dlsym(3) looks up a name among the loaded libraries; the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    let mut bytes = [0; size_of::<FieldDescriptor>()];
    let is_read = read(found as usize, &mut bytes);
    let (numbers, _) = bytes.as_chunks();
    is_read.then(|| array::from_fn(|index| u32::from_ne_bytes(numbers[index])))
}

/// The head of this thread's list of robust mutexes.
fn robust_list_head(thread: i32) -> Option<usize> {
    let (mut head, mut bytes) = (0_usize, 0_usize);
    // SAFETY: get_robust_list(2) writes an address and a size to the two places that it is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            libc::c_long::from(thread),
            &raw mut head,
            &raw mut bytes,
        )
    };
    (done == 0 && head != 0).then_some(head)
}

fn read_words<const COUNT: usize>(address: usize) -> Option<[usize; COUNT]> {
    let mut words = [[0; WORD_BYTES]; COUNT];
    read(address, words.as_flattened_mut()).then(|| words.map(usize::from_ne_bytes))
}

/// Copies memory of this process that may not be mapped; false if it is not, or if the kernel refuses.
fn read(address: usize, into: &mut [u8]) -> bool {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: the kernel writes to `into` only, no more bytes than it has, and checks the other address.
    let count = unsafe {
        libc::process_vm_readv(
            crate::process::pid(),
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    usize::try_from(count).is_ok_and(|count| count == into.len())
}

fn is_runtime_of_cpp(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("libstdc++") || name.starts_with("libc++"))
}

fn mappings() -> Vec<(Range<usize>, PathBuf)> {
    let mut text = Vec::new();
    let maps = std::fs::File::open("/proc/self/maps");
    let read = maps.and_then(|maps| {
        std::io::Read::read_to_end(&mut std::io::Read::take(maps, MAPS_BYTES_MAX), &mut text)
    });
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text);
    let mappings = text.lines().filter_map(MapLine::read);
    let of_files = mappings.filter(|mapping| mapping.path.starts_with('/'));
    of_files
        .map(|mapping| (mapping.range, mapping.path.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_is_not_there_is_not_read() {
        assert_eq!(read_words::<1>(8), None);
        let here = 7_usize;
        assert_eq!(read_words::<1>(&raw const here as usize), Some([7]));
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn a_thread_of_ours_starts_in_our_program() {
        let (report, reports) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            report.send(id).unwrap();
            // Until the other end is dropped.
            let _ = ended.recv();
        });
        let id = reports.recv().unwrap();
        let origins = Origins::now();
        assert_eq!(origins.of(id), Some(&*std::env::current_exe().unwrap()));
        drop(end);
        thread.join().unwrap();
        assert_eq!(origins.of(id), None, "it has ended");
    }
}
