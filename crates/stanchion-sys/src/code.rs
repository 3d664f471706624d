//! The code of the program and its libraries, which the kernel maps into each process as it runs.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Has this process let go of the code, and of the constants beside it, that it has used so far: that of a beginning would
/// stay mapped for ever. What is used again comes back from the page cache, 64 KiB around each page that is needed. To be
/// called when a process has begun.
///
/// Nothing happens where the kernel does not tell (no /proc) or while there are other threads, and what the kernel holds on
/// to stays, as with locked memory (mlockall(2)): it costs nothing but this memory.
pub fn let_go() {
    // Another thread might have the loader map a library, or take one away, between the look and what follows.
    if threads() != Some(1) {
        return;
    }
    let Ok(smaps) = fs::read_to_string("/proc/self/smaps") else {
        return;
    };
    for range in unchanged_code(&smaps) {
        // SAFETY: all of it is pages of a file that cannot be written to here, and none was replaced by a copy of our own, in
        // memory or in swap, by the kernel's account: so what is read there later is what is there now (madvise(2),
        // MADV_DONTNEED for private mappings of files). The mappings are still there, as this is the only thread.
        let _ = unsafe {
            madvise(
                range.start as *mut c_void,
                range.len(),
                Advice::LinuxDontNeed,
            )
        };
    }
}

/// How many this process has.
fn threads() -> Option<usize> {
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}

/// Mappings of files that are code, by smaps in proc(5): those that cannot be written to and have no page of the process's
/// own, of files which are mapped to be executed as well. A page of code is one's own after relocations in it, or with a
/// debugger's breakpoint; so are those that the loader has written before it took the right to write away.
fn unchanged_code(smaps: &str) -> Vec<Range<usize>> {
    let mut mappings: Vec<Mapping<'_>> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::read(line) {
            mappings.push(mapping);
        } else if let Some(last) = mappings.last_mut() {
            last.hear(line);
        }
    }
    let is_code = |path: &str| {
        mappings
            .iter()
            .any(|other| other.path == path && other.may == "r-xp")
    };
    let unchanged = mappings.iter().filter(|mapping| {
        mapping.is_unchanged()
            && matches!(mapping.may, "r-xp" | "r--p")
            && mapping.path.starts_with('/')
    });
    unchanged
        .filter(|mapping| is_code(mapping.path))
        .map(|mapping| mapping.range.clone())
        .collect()
}

struct Mapping<'s> {
    range: Range<usize>,
    may: &'s str,
    path: &'s str,
    /// Copies of pages that are the process's own: in memory, and in swap. None as long as the kernel has not said so.
    copied: Option<&'s str>,
    swapped: Option<&'s str>,
}

impl<'s> Mapping<'s> {
    /// `55d0c0000000-55d0c0021000 r-xp 00001000 fe:00 4242   /usr/bin/python3.11`; other lines begin with a word and a colon.
    fn read(line: &'s str) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let (start, end) = word()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let may = word()?;
        // The offset, the device and the inode.
        let _ = (word()?, word()?, word()?);
        Some(Self {
            range,
            may,
            path: rest.trim(),
            copied: None,
            swapped: None,
        })
    }

    /// A line about it.
    fn hear(&mut self, line: &'s str) {
        if let Some(kib) = line.strip_prefix("Anonymous:") {
            self.copied = Some(kib.trim());
        } else if let Some(kib) = line.strip_prefix("Swap:") {
            self.swapped = Some(kib.trim());
        }
    }

    fn is_unchanged(&self) -> bool {
        (self.copied, self.swapped) == (Some("0 kB"), Some("0 kB"))
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
c000-d000 r-xs 00000000 fe:00 42                         /usr/lib/a library.so
Anonymous:             0 kB
Swap:                  0 kB
";

    #[test]
    fn only_what_nobody_has_changed_of_libraries_is_code() {
        assert_eq!(unchanged_code(SMAPS), [0x1000..0x3000, 0x3000..0x7000]);
        assert_eq!(unchanged_code("not smaps\n1-2\nzz-1 r-xp 0 0 0 /a"), []);
    }
}
