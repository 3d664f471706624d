//! The file that contains the start routine of a thread of this process.
//!
//! proc(5) does not show it. The C library knows it, and describes its own record of a thread to debuggers:
//! `libthread_db` reads the offsets of fields from symbols of the library (`nptl_db/structs.def` of glibc). This module
//! finds the record by the list of robust mutexes, whose head is in it (`get_robust_list(2)`). It checks the thread's
//! id, which is in the record too, and makes every read by `process_vm_readv(2)`, which fails at a wrong address: a
//! thread may end at any moment.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// A field as structs.def describes it: its size in bits, its number of elements, and its offset in bytes.
type Field = [u32; 3];

const WORD_BYTES: usize = size_of::<usize>();

/// The fields before the head: the thread's id, a field of four bytes that is not used, and a pointer (`nptl/descr.h`).
const ID_BEFORE_HEAD_BYTES: usize = WORD_BYTES + 8;

/// The most bytes of this process's map that are read.
const MAPS_BYTES_MAX: u64 = 16 << 20;

/// The C library's record of threads, and the map of this process. Make it after the threads have started.
#[derive(Debug)]
pub struct Origins {
    layout: Option<Layout>,
    mappings: Vec<Mapping>,
}

/// The offsets of the fields that we need in the C library's record of a thread.
#[derive(Clone, Copy, Debug)]
struct Layout {
    id: usize,
    start_routine: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    from: usize,
    to: usize,
    file: PathBuf,
}

impl Origins {
    /// Reads the map as it is now.
    pub fn now() -> Self {
        Self {
            layout: Layout::of_c_library(),
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
        let mapping = self
            .mappings
            .iter()
            .find(|mapping| (mapping.from..mapping.to).contains(&address))?;
        Some(&mapping.file)
    }
}

impl Layout {
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

fn field(symbol: &CStr) -> Option<Field> {
    // SAFETY: dlsym(3) looks up a name among the loaded libraries; the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    let mut field: Field = [0; 3];
    // SAFETY: the bytes belong to three numbers of ours, for which any bytes are valid.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(field.as_mut_ptr().cast::<u8>(), size_of::<Field>())
    };
    read(found as usize, bytes).then_some(field)
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
    let mut words = [0_usize; COUNT];
    // SAFETY: the bytes belong to numbers of ours, for which any bytes are valid.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), COUNT * WORD_BYTES)
    };
    read(address, bytes).then_some(words)
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

/// The mapped files and their addresses (/proc/self/maps in proc(5)).
fn mappings() -> Vec<Mapping> {
    let mut text = Vec::new();
    let maps = std::fs::File::open("/proc/self/maps");
    let read = maps.and_then(|maps| {
        std::io::Read::read_to_end(&mut std::io::Read::take(maps, MAPS_BYTES_MAX), &mut text)
    });
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let file = &rest[rest.find('/')?..];
    let (from, to) = range.split_once('-')?;
    Some(Mapping {
        from: usize::from_str_radix(from, 16).ok()?,
        to: usize::from_str_radix(to, 16).ok()?,
        file: PathBuf::from(file),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_line_of_the_map_has_an_address_and_a_file() {
        let line =
            "7f00a000-7f00b000 r-xp 00001000 fe:00 123                        /usr/lib/lib so.6";
        assert_eq!(
            mapping(line),
            Some(Mapping {
                from: 0x7f00_a000,
                to: 0x7f00_b000,
                file: PathBuf::from("/usr/lib/lib so.6"),
            })
        );
        assert_eq!(
            mapping("7f00a000-7f00b000 rw-p 00000000 00:00 0 [heap]"),
            None
        );
        assert_eq!(mapping("7f00a000-7f00b000 rw-p 00000000 00:00 0"), None);
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        assert_eq!(read_words::<1>(8), None);
        let here = 7_usize;
        assert_eq!(read_words::<1>(&raw const here as usize), Some([7]));
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn a_thread_of_ours_starts_in_our_program() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(id).unwrap();
            // Until the other end is dropped.
            let _ = ended.recv();
        });
        let id = told.recv().unwrap();
        let origins = Origins::now();
        assert_eq!(origins.of(id), Some(&*std::env::current_exe().unwrap()));
        drop(end);
        thread.join().unwrap();
        assert_eq!(origins.of(id), None, "it has ended");
    }
}
