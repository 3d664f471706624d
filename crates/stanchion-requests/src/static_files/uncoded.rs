//! Remembers files that were there in no coding a moment ago.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

/// The server does not look again for so long, as each look costs a system call for each coding. A coded file that an
/// operator puts beside such a file is served so much later; until then all clients get the file itself, which is as
/// right.
const KEPT_US: u64 = 1_000_000;
/// The server remembers so many files of a directory, each with a path that the kernel takes (`PATH_MAX`, 4 KiB). At
/// one more it forgets all.
const FILES_MAX: usize = 1024;

/// The files of one directory that are there in no coding.
#[derive(Default)]
pub(super) struct Uncoded {
    /// Until when the server remembers each file, by path.
    until_us: HashMap<CString, u64>,
}

impl Uncoded {
    /// Whether the file was there in no coding at the last look.
    pub(super) fn has(&self, path: &CStr, now_us: u64) -> bool {
        let until_us = self.until_us.get(path);
        until_us.is_some_and(|&until_us| now_us < until_us)
    }

    /// Remembers a file that is there in no coding, as a look has just found.
    pub(super) fn add(&mut self, path: &CStr, now_us: u64) {
        let until_us = now_us + KEPT_US;
        if let Some(kept) = self.until_us.get_mut(path) {
            *kept = until_us;
            return;
        }
        if self.until_us.len() >= FILES_MAX {
            self.until_us.clear();
        }
        self.until_us.insert(path.to_owned(), until_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_kept_for_a_second_from_when_it_was_looked_for() {
        let mut uncoded = Uncoded::default();
        uncoded.add(c"a.css", 5);
        assert!(uncoded.has(c"a.css", KEPT_US + 4) && !uncoded.has(c"b.css", 5));
        assert!(!uncoded.has(c"a.css", KEPT_US + 5));
        uncoded.add(c"a.css", KEPT_US + 5);
        assert!(uncoded.has(c"a.css", 2 * KEPT_US));
    }

    #[test]
    fn no_more_are_kept_than_a_limit() {
        let mut uncoded = Uncoded::default();
        for number in 0..=2 * FILES_MAX {
            let path = CString::new(format!("{number}.css")).unwrap();
            uncoded.add(&path, 0);
            assert!(uncoded.has(&path, 1) && uncoded.until_us.len() <= FILES_MAX);
        }
    }
}
