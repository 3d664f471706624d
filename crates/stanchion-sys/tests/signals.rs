//! Signals that come faster than they are taken. In a program of its own, as handlers are the process's.

use stanchion_sys::signal::{SIGUSR1, SIGUSR2, SignalPipe};

#[test]
fn a_flood_of_one_signal_loses_no_other() {
    let pipe = SignalPipe::install(&[SIGUSR1, SIGUSR2]).expect("caught");
    // More than a pipe has room for (pipe(7)): 64 KiB.
    for _ in 0..70_000 {
        raise(SIGUSR1);
    }
    raise(SIGUSR2);
    let mut taken = Vec::new();
    loop {
        let some = pipe.take();
        if some.is_empty() {
            break;
        }
        taken.extend(some);
    }
    let count = |signal| taken.iter().filter(|&&one| one == signal).count();
    assert_eq!(count(SIGUSR2), 1);
    assert!(count(SIGUSR1) > 60_000);
}

/// To this thread, whose handler has run when it returns.
fn raise(signal: i32) {
    // SAFETY: raise(3) has no preconditions.
    unsafe { libc::raise(signal) };
}
