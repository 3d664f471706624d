//! The code of the program and its libraries, which the kernel maps into each process as it runs.
//!
//! Code that only the beginning needed is let go by the template once the app is loaded, by the acceptor once it has
//! its threads, by the master once all is ready, and by a worker that was the template as it becomes one. Other workers
//! do not: the kernel is asked for each page of the process's memory before, which takes a millisecond for each 30 MB
//! of the app, and requests might wait.

use std::ffi::{c_int, c_void};
use std::fs;
use std::ops::Range;
use std::slice;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

use crate::maps::MapLine;
use crate::process;

type AddressRanges = Vec<Range<usize>>;

/// Drops the pages of code, and of constants beside it, that this process has touched so far: code that only runs at the
/// start would otherwise stay mapped for good. Pages that are used again come back from the page cache, 64 KiB around each
/// page that is needed. A process calls this when it has started; the call takes longer the more memory the process has.
///
/// Other threads may run, and load libraries. But no thread may fork meanwhile, or change code, its own or that of a library
/// with relocations in its code (`DT_TEXTREL`). An app's threads might: see [`let_go_alone`].
///
/// Without /proc this does nothing, and pages that the kernel keeps stay, as with locked memory (mlockall(2)): that costs
/// only this memory.
pub fn let_go() {
    let mut unchanged: Option<AddressRanges> = None;
    // SAFETY: dl_iterate_phdr(3) calls back before it returns, each time with this pointer, and no other code reads or writes
    // `unchanged` meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(let_go_of), (&raw mut unchanged).cast()) };
}

/// As [`let_go`], but does nothing if the process has other threads.
pub fn let_go_alone() {
    if process::thread_count().is_ok_and(|count| count == 1) {
        let_go();
    }
}

/// Does the work of [`let_go`] for one library, or the program. `unchanged` holds the mappings, once they are known.
///
/// While this runs, no library joins or leaves the list: glibc holds a lock, for which another thread's dlopen(3) and
/// dlclose(3) wait, and other C libraries, such as musl, never unmap a library. A library that is not on the list, because a
/// thread is just mapping it, stays mapped.
unsafe extern "C" fn let_go_of(
    library: *mut libc::dl_phdr_info,
    _size: usize,
    unchanged: *mut c_void,
) -> c_int {
    // SAFETY: the loader lends us `library`, and `let_go` lends us `unchanged`, for the time of this call.
    let (library, unchanged) =
        unsafe { (&*library, &mut *unchanged.cast::<Option<AddressRanges>>()) };
    let unchanged = unchanged.get_or_insert_with(|| {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        unchanged_mappings(&smaps)
    });
    // SAFETY: the loader's table has so many headers, for as long as the library is loaded (elf(5)).
    let headers = unsafe { slice::from_raw_parts(library.dlpi_phdr, library.dlpi_phnum.into()) };
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let start = (library.dlpi_addr + header.p_vaddr) as usize;
        let end = (start + header.p_memsz as usize).next_multiple_of(page_size());
        let start = start - start % page_size();
        for range in &*unchanged {
            let (start, end) = (range.start.max(start), range.end.min(end));
            if start >= end {
                continue;
            }
            // SAFETY: the range consists of pages of a file that cannot be written to here, and according to the kernel none
            // of them was replaced by a copy of our own, in memory or in swap. So a later read finds the same bytes as now
            // (madvise(2), MADV_DONTNEED for private mappings of files). The mapping belongs to the library and stays.
            let _ = unsafe { madvise(start as *mut c_void, end - start, Advice::LinuxDontNeed) };
        }
    }
    0
}

/// The mappings of named files in the text of smaps (proc(5)) that cannot be written to and have no page of the process's
/// own. A page of code is the process's own after relocations in it, or with a debugger's breakpoint; so are pages that the
/// loader wrote before it removed the right to write.
fn unchanged_mappings(smaps: &str) -> AddressRanges {
    let mut mappings: Vec<SmapsEntry<'_>> = Vec::new();
    for line in smaps.lines() {
        if let Some(line) = MapLine::read(line) {
            mappings.push(SmapsEntry {
                line,
                copied: None,
                swapped: None,
            });
        } else if let Some(last) = mappings.last_mut() {
            last.note(line);
        }
    }
    mappings.retain(SmapsEntry::is_unchanged);
    let unchanged = mappings.into_iter().map(|mapping| mapping.line.range);
    unchanged.collect()
}

struct SmapsEntry<'s> {
    line: MapLine<'s>,
    /// Copies of pages that are the process's own: in memory, and in swap. `None` until a line about them was read.
    copied: Option<&'s str>,
    swapped: Option<&'s str>,
}

impl<'s> SmapsEntry<'s> {
    /// Reads a line about the mapping.
    fn note(&mut self, line: &'s str) {
        if let Some(kib) = line.strip_prefix("Anonymous:") {
            self.copied = Some(kib.trim());
        } else if let Some(kib) = line.strip_prefix("Swap:") {
            self.swapped = Some(kib.trim());
        }
    }

    fn is_unchanged(&self) -> bool {
        let has_own = (self.copied, self.swapped) != (Some("0 kB"), Some("0 kB"));
        // Huge pages, by which some programs replace their code, are mapped from such a file too, and smaps does not count
        // them.
        let MapLine { may, path, .. } = self.line;
        let has_name = path.starts_with('/') && !path.ends_with(" (deleted)");
        matches!(may, "r-xp" | "r--p") && has_name && !has_own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 fe:00 42                         /usr/lib/a library.so
Rss:                   8 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me sd
3000-7000 r-xp 00002000 fe:00 42                         /usr/lib/a library.so
Anonymous:             0 kB
Swap:                  0 kB
7000-8000 rw-p 00006000 fe:00 42                         /usr/lib/a library.so
Anonymous:             0 kB
Swap:                  0 kB
8000-9000 r-xp 00000000 fe:00 43                         /usr/lib/patched.so
Anonymous:             4 kB
Swap:                  0 kB
9000-a000 r--p 00000000 fe:00 44                         /srv/data
Anonymous:             0 kB
Swap:                  0 kB
a000-b000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
Swap:                  0 kB
b000-c000 r-xp 00000000 00:00 0 
Anonymous:             0 kB
Swap:                  0 kB
d000-e000 r--p 00000000 fe:00 42                         /usr/lib/a library.so
Anonymous:             0 kB
Swap:                  4 kB
e000-f000 r--p 00000000 fe:00 42                         /usr/lib/a library.so
Rss:                   4 kB
f000-10000 r-xp 00000000 00:0f 17                        /anon_hugepage (deleted)
Anonymous:             0 kB
Swap:                  0 kB
c000-d000 r-xs 00000000 fe:00 42                         /usr/lib/a library.so
Anonymous:             0 kB
Swap:                  0 kB
";

    #[test]
    fn only_a_mapping_without_writers_and_without_copies_is_unchanged() {
        let unchanged = [0x1000..0x3000, 0x3000..0x7000, 0x9000..0xa000];
        assert_eq!(unchanged_mappings(SMAPS), unchanged);
    }
}
