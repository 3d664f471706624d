//! The command line that a process shows, by a real process: the test program itself has threads.

use std::fs;
use std::io::{Read, Write};

use stanchion_sys::process::{self, Fork, title};

/// Runs `life` in a child, and returns the bytes that it wrote.
fn told_by_child(life: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child calls only the code below and the allocator, which fork(3) of glibc leaves in order.
    match unsafe { process::fork() }.expect("forked") {
        Fork::Child => {
            let told = writer.write_all(&life());
            process::exit_now(i32::from(told.is_err()))
        }
        Fork::Parent(_) => {
            drop(writer);
            let mut told = Vec::new();
            reader.read_to_end(&mut told).expect("read");
            told
        }
    }
}

#[test]
fn a_title_is_shown_and_the_environment_stays() {
    let before = fs::read("/proc/self/environ").expect("read");
    let told = told_by_child(|| {
        let long = "x".repeat(5_000);
        let shown = title::show(&["a: b [c]", &long, ""]);
        let command = fs::read("/proc/self/cmdline").unwrap_or_default();
        let again = title::show(&["short"]);
        let after = fs::read("/proc/self/cmdline").unwrap_or_default();
        // The heap is still where it was, so it can grow.
        let grown = vec![7_u8; 100_000];
        let same = fs::read("/proc/self/environ").is_ok_and(|environ| environ == before);
        let expected = format!("a: b [c]\0{long}\0\0");
        let all = [
            shown.is_ok(),
            again.is_ok(),
            command == expected.as_bytes(),
            after == b"short\0",
            same,
            grown.iter().all(|&byte| byte == 7),
        ];
        format!("{all:?}").into_bytes()
    });
    assert_eq!(String::from_utf8_lossy(&told), format!("{:?}", [true; 6]));
}

#[test]
fn a_process_with_threads_is_refused() {
    let told = told_by_child(|| {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let refused = title::show(&["never"]).is_err();
        drop(done);
        let _ = thread.join();
        let command = fs::read("/proc/self/cmdline").unwrap_or_default();
        format!("{refused} {}", command.starts_with(b"never")).into_bytes()
    });
    assert_eq!(String::from_utf8_lossy(&told), "true false");
}
