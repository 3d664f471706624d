//! Code that a process has let go of. Without the harness, which has threads.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use stanchion_sys::code;

/// Of the mapping of this program's code: where it is, its size, and how much of it is resident (smaps in proc(5)).
fn own_code() -> (u64, usize, usize) {
    let program = std::env::current_exe().unwrap();
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines();
    let mapping = lines
        .find(|line| line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap()))
        .unwrap();
    let start = u64::from_str_radix(mapping.split_once('-').unwrap().0, 16).unwrap();
    let mut bytes = |name| {
        let line = lines.find_map(|line| line.strip_prefix(name)).unwrap();
        1024 * line
            .trim()
            .strip_suffix(" kB")
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    (start, bytes("Size:"), bytes("Rss:"))
}

fn main() {
    let (start, size, _) = own_code();
    let mut all = vec![0; size];
    // Whoever reads it there has it mapped.
    let memory = File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut all, start).unwrap();
    assert_eq!(own_code().2, size);
    code::let_go();
    let (_, _, resident) = own_code();
    // This test runs on, so not all of it is gone.
    assert!(resident < size, "all {size} bytes are still mapped");
    let mut again = vec![0; size];
    memory.read_exact_at(&mut again, start).unwrap();
    assert_eq!(again, all);
}
