//! Code that a process has let go of. Without the harness, which has threads.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap};
use stanchion_sys::code;

/// How much is resident of the mapping that begins there (smaps in proc(5)).
fn resident_bytes(start: u64) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines();
    let begins = format!("{start:x}-");
    lines.find(|line| line.starts_with(&begins)).unwrap();
    let line = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    let kib = line.trim().strip_suffix(" kB").unwrap();
    1024 * kib.parse::<usize>().unwrap()
}

fn main() {
    // Once more, as what runs comes back 64 KiB at a time, or more where the page cache has larger pieces.
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    let len = 1 << 16;
    let protection = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: it is put where nothing is, and only the kernel looks at it.
    let start = unsafe {
        mmap(
            ptr::null_mut(),
            len,
            protection,
            MapFlags::PRIVATE,
            &program,
            0,
        )
    };
    let start = start.unwrap().addr() as u64;
    let mut all = vec![0; len];
    // Whoever reads it there has it mapped.
    let memory = File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut all, start).unwrap();
    assert_eq!(resident_bytes(start), len);
    code::let_go();
    assert_eq!(resident_bytes(start), 0);
    let mut again = vec![0; len];
    memory.read_exact_at(&mut again, start).unwrap();
    assert_eq!(again, all);
}
