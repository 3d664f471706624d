//! Signals that come faster than the process takes them. It is a program of its own, because handlers belong to the
//! process.

use stanchion_sys::signal::{SIGUSR1, SIGUSR2, SignalPipe};

#[test]
fn a_flood_of_one_signal_loses_no_other() {
    let pipe = SignalPipe::install(&[SIGUSR1, SIGUSR2]).expect("caught");
    // More signals than a pipe has room for, 64 KiB (pipe(7)).
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

/// Raises a signal for this thread; its handler has run when this returns.
fn raise(signal: i32) {
    // SAFETY: raise(3) has no preconditions.
    unsafe { libc::raise(signal) };
}
