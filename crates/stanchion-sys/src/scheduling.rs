//! How soon the kernel gives a thread a core (sched(7)).

use std::io;

/// How long the slices of a thread are that is to be prompt and may not be real-time: the least that the kernel takes.
const SHORT_SLICE_NS: u64 = 100_000;

/// How soon a thread gets a core when it wakes up while all are busy.
#[derive(Debug)]
pub enum Promptness {
    /// At once (`SCHED_RR`).
    RealTime,
    /// Mostly at once, since its slices are short. Why not always is the kernel's answer.
    ShortSlices(io::Error),
    /// As soon as anybody. Why is the kernel's answer.
    Ordinary(io::Error),
}

/// Has this thread, and those that it starts, interrupt who is at work when they wake up, as far as the kernel lets us:
/// `SCHED_RR` takes `CAP_SYS_NICE` or a limit `RLIMIT_RTPRIO`; short slices take nothing but Linux 6.12.
pub fn be_prompt() -> Promptness {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameters` lives through the call, which reads it and concerns only this thread.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) };
    if status == 0 {
        return Promptness::RealTime;
    }
    let refusal = io::Error::last_os_error();
    match shorten_slices() {
        Ok(true) => Promptness::ShortSlices(refusal),
        Ok(false) => Promptness::Ordinary(refusal),
        Err(error) => Promptness::Ordinary(error),
    }
}

/// Has this process wait for its turn when it wakes up while every core is busy, instead of
/// interrupting who runs there (`SCHED_BATCH` in sched(7)). Where a core is idle, nothing changes.
pub fn interrupt_nobody() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` lives through the call, which reads it and concerns only this thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Asks for short slices (`sched_runtime` of `sched_setattr(2)`, for `SCHED_OTHER` since Linux 6.12). False if the kernel
/// took it for nothing, as older ones do.
fn shorten_slices() -> io::Result<bool> {
    let mut attributes = attributes()?;
    attributes.sched_policy = libc::SCHED_OTHER.cast_unsigned();
    attributes.sched_runtime = SHORT_SLICE_NS;
    // SAFETY: `attributes` lives through the call, which reads as many bytes as it says it has, and concerns only this
    // thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(self::attributes()?.sched_runtime == SHORT_SLICE_NS),
    }
}

/// What is in force for this thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: `attributes` lives through the call, which writes at most `size` bytes of it.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(attributes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own: what is set stays.
    fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().unwrap()
    }

    #[test]
    fn what_is_said_of_promptness_is_in_force() {
        let (promptness, in_force) = in_a_thread(|| (be_prompt(), attributes().unwrap()));
        let policy = in_force.sched_policy.cast_signed();
        match promptness {
            Promptness::RealTime => {
                assert_eq!((policy, in_force.sched_priority), (libc::SCHED_RR, 1));
            }
            Promptness::ShortSlices(_) => {
                assert_eq!(
                    (policy, in_force.sched_runtime),
                    (libc::SCHED_OTHER, SHORT_SLICE_NS)
                );
            }
            Promptness::Ordinary(_) => {
                assert_ne!(policy, libc::SCHED_RR);
                assert_ne!(in_force.sched_runtime, SHORT_SLICE_NS);
            }
        }
    }

    #[test]
    fn a_thread_that_is_started_is_as_prompt_and_its_starter_need_not_stay_so() {
        let (starter, started) = in_a_thread(|| {
            be_prompt();
            let before = attributes().unwrap();
            let (tell, told) = std::sync::mpsc::channel();
            let (go, gone) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                gone.recv().unwrap();
                tell.send(attributes().unwrap()).unwrap();
            });
            interrupt_nobody().unwrap();
            go.send(()).unwrap();
            let started = told.recv().unwrap();
            thread.join().unwrap();
            let own = attributes().unwrap();
            assert_eq!(started.sched_policy, before.sched_policy);
            assert_eq!(started.sched_runtime, before.sched_runtime);
            (own, started)
        });
        assert_eq!(starter.sched_policy.cast_signed(), libc::SCHED_BATCH);
        assert_ne!(started.sched_policy, starter.sched_policy);
        assert_ne!(starter.sched_runtime, SHORT_SLICE_NS);
    }
}
