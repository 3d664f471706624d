//! Letting go of code while another thread runs. It has no harness, since a harness has threads of its own.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{ptr, thread};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};
use rustix::param::page_size;
use stanchion_sys::code;

/// A library of the C library's that no code here calls: code that runs comes back 64 KiB at a time, or more if the
/// page cache has larger pieces.
const LIBRARY: &std::ffi::CStr = c"libresolv.so.2";

/// A mapping of code, from smaps in proc(5).
struct Mapping {
    start: u64,
    len: usize,
    resident_bytes: usize,
}

/// The executable mappings of the file whose name contains this.
fn mappings(name: &str) -> Vec<Mapping> {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found: Vec<Mapping> = Vec::new();
    let mut is_wanted = false;
    for line in smaps.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        if let Some((start, end)) = range.split_once('-') {
            is_wanted = rest.starts_with("r-xp") && rest.contains(name);
            if is_wanted {
                let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
                found.push(Mapping {
                    start,
                    len: (end - start) as usize,
                    resident_bytes: 0,
                });
            }
        } else if let Some(kib) = line.strip_prefix("Rss:").filter(|_| is_wanted) {
            let kib = kib.trim().strip_suffix(" kB").unwrap();
            found.last_mut().unwrap().resident_bytes = 1024 * kib.parse::<usize>().unwrap();
        }
    }
    found
}

/// Reads the code, which maps it.
fn read(start: u64, len: usize) -> Vec<u8> {
    let memory = File::open("/proc/self/mem").unwrap();
    let mut bytes = vec![0; len];
    memory.read_exact_at(&mut bytes, start).unwrap();
    bytes
}

fn resident_bytes(name: &str) -> Vec<usize> {
    let mappings = mappings(name).into_iter();
    mappings.map(|mapping| mapping.resident_bytes).collect()
}

fn main() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let other = thread::spawn(|| {
        while !IS_OVER.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    });

    // SAFETY: only initialisers of the C library run when it is loaded (dlopen(3)).
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    let [Mapping { start, len, .. }] = mappings("libresolv")[..] else {
        panic!("one mapping of its code");
    };
    let code = read(start, len);
    assert_eq!(resident_bytes("libresolv"), [len]);
    code::let_go();
    assert_eq!(resident_bytes("libresolv"), [0]);
    assert_eq!(read(start, len), code);

    // A page becomes the process's own; a patch by other code would look the same.
    let page = ptr::with_exposed_provenance_mut::<u8>(start as usize);
    // SAFETY: the page belongs to the library, whose code no thread runs, and holds its old protection when it becomes
    // executable again.
    unsafe {
        let writable = MprotectFlags::READ | MprotectFlags::WRITE;
        mprotect(page.cast(), page_size(), writable).unwrap();
        page.write(!code[0]);
        let executable = MprotectFlags::READ | MprotectFlags::EXEC;
        mprotect(page.cast(), page_size(), executable).unwrap();
    }
    code::let_go();
    assert_eq!(read(start, 1), [!code[0]]);

    // A mapping that is no library on the loader's list stays: its owner may unmap or replace it at any moment.
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    let len = 16 * page_size();
    let protection = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: the kernel chooses an address where nothing is mapped, and only the kernel looks at the pages.
    let mapped = unsafe {
        mmap(
            ptr::null_mut(),
            len,
            protection,
            MapFlags::PRIVATE,
            &program,
            0,
        )
    };
    let start = mapped.unwrap().addr() as u64;
    let is_resident = |len| {
        let mappings = mappings("/code-");
        let own = mappings.iter().find(|mapping| mapping.start == start);
        own.unwrap().resident_bytes == len
    };
    read(start, len);
    assert!(is_resident(len));
    code::let_go();
    assert!(is_resident(len));

    IS_OVER.store(true, Ordering::Relaxed);
    other.join().unwrap();
}
