//! The signal at which a worker writes where its threads are.
//!
//! A worker may be stuck in C, with the interpreter's lock, so no code may ask its runtime for anything. A handler of
//! the runtime that can do so within a signal writes the stacks (Python: `faulthandler.register`). Our handler stands
//! in front of it: it calls it, adds the table of threads and seats, and reports to the master by one send(2) of a
//! message made beforehand.
//!
//! Our handler stands in front and not behind, as `chain=True` of `faulthandler.register` would have it: that one drops
//! `SA_RESTART`, and a worker that is only looked at would give its app an `EINTR`. Python before 3.14 does not show
//! which thread has which seat. All workers write to one memfd, opened for appending, so the master has one worker
//! write at a time.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use super::{DUMP, call_behind, is_owner, keeping_errno, put_in_front, send_at_once, unblock};

/// How many seats' threads the table names; Python's handler shows no more than 100 threads.
const SEATS_NAMED_MAX: usize = 100;
/// Room for one line of the table of seats.
const LINE_BYTES_MAX: usize = 64;

/// The data that the handler needs, made before the handler is set.
struct Prepared {
    dumps: RawFd,
    reports: RawFd,
    message: Box<[u8]>,
}

static PREPARED: AtomicPtr<Prepared> = AtomicPtr::new(std::ptr::null_mut());
static OWNER: AtomicI32 = AtomicI32::new(0);
/// `pthread_self(3)` of the thread at each seat, as Python shows it; 0 = no thread.
static THREADS: [AtomicU64; SEATS_NAMED_MAX] = [const { AtomicU64::new(0) }; SEATS_NAMED_MAX];
/// A handler runs: another one, in another thread, would mix its dump with that of the first.
static AT_WORK: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(signal: libc::c_int) {
    if !is_owner(&OWNER, signal) {
        return;
    }
    // SAFETY: `answer` stored a leaked box, which is never changed.
    let prepared = unsafe { PREPARED.load(Ordering::Acquire).as_ref() };
    if let Some(prepared) = prepared
        && !AT_WORK.swap(true, Ordering::AcqRel)
    {
        keeping_errno(|| {
            call_behind(signal);
            write_seats(prepared.dumps);
            // If the master has closed the channel, or is far behind, it goes on without the report: it waits for a bounded
            // time only.
            send_at_once(prepared.reports, &prepared.message);
        });
        AT_WORK.store(false, Ordering::Release);
    }
}

/// Answers [`DUMP`] from now on: calls the present handler, which writes the stacks to `dumps`, adds the table of
/// seats, and sends `message` on `reports`. Both descriptors must stay open for the life of the process.
///
/// Children of a later fork get the default action, which ends them.
pub fn answer(
    dumps: BorrowedFd<'static>,
    reports: BorrowedFd<'static>,
    message: &[u8],
) -> io::Result<()> {
    let prepared = Box::new(Prepared {
        dumps: dumps.as_raw_fd(),
        reports: reports.as_raw_fd(),
        message: message.into(),
    });
    OWNER.store(crate::process::pid(), Ordering::Release);
    PREPARED.store(Box::leak(prepared), Ordering::Release);
    // With SA_RESTART, since a worker that an operator dumps out of curiosity goes on afterwards; and on the stack that
    // Python's handler set aside, if there is one.
    let handler = on_signal as *const () as libc::sighandler_t;
    put_in_front(DUMP, handler, libc::SA_RESTART | libc::SA_ONSTACK)?;
    unblock(&[DUMP]).map(drop)
}

/// Notes that the calling thread has `seat`, counted from 0 within this worker, so that a dump can name the seat of
/// each stack.
pub fn sit_down(seat: usize) {
    if let Some(thread) = THREADS.get(seat) {
        // SAFETY: pthread_self(3) has no preconditions.
        let this = unsafe { libc::pthread_self() };
        thread.store(this as u64, Ordering::Release);
    }
}

/// Writes lines such as `seat 3 is thread 0x00007f5a1c9fe6c0`, one for each seat. Async-signal-safe: it does not
/// allocate.
fn write_seats(dumps: RawFd) {
    for (seat, thread) in THREADS.iter().enumerate() {
        let thread = thread.load(Ordering::Acquire);
        if thread == 0 {
            continue;
        }
        let mut line = DumpLine::default();
        line.text(b"seat ");
        if seat >= 10 {
            line.byte(b'0' + (seat / 10) as u8);
        }
        line.byte(b'0' + (seat % 10) as u8);
        line.text(b" is thread 0x");
        for shift in (0..16).rev() {
            let digit = (thread >> (shift * 4) & 0xf) as usize;
            line.byte(b"0123456789abcdef"[digit]);
        }
        line.byte(b'\n');
        // SAFETY: write(2) is async-signal-safe and only reads the line. If the write fails, the line is missing in the
        // dump; a signal handler has no other way to report it.
        unsafe { libc::write(dumps, line.bytes.as_ptr().cast(), line.len) };
    }
}

/// Bytes on the stack; text that does not fit is cut.
struct DumpLine {
    bytes: [u8; LINE_BYTES_MAX],
    len: usize,
}

impl Default for DumpLine {
    fn default() -> Self {
        Self {
            bytes: [0; LINE_BYTES_MAX],
            len: 0,
        }
    }
}

impl DumpLine {
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    fn text(&mut self, text: &[u8]) {
        for &byte in text {
            self.byte(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::channel::{Channel, Received};
    use crate::memory::AppendFile;

    /// Stands in for a runtime's handler.
    extern "C" fn write_stacks(_signal: libc::c_int) {
        // SAFETY: as in `on_signal`.
        let prepared = unsafe { PREPARED.load(Ordering::Acquire).as_ref() };
        let dumps = prepared.expect("prepared before the signal").dumps;
        // SAFETY: write(2) only reads the bytes.
        unsafe { libc::write(dumps, b"stacks\n".as_ptr().cast(), 7) };
    }

    #[test]
    fn the_handler_behind_writes_the_seats_are_named_and_the_message_comes_last() {
        let dumps: &'static _ = Box::leak(Box::new(AppendFile::create("test").expect("a memfd")));
        let (ours, theirs) = Channel::pair().expect("a pair");
        let theirs: &'static _ = Box::leak(Box::new(theirs));
        let handler = write_stacks as *const () as libc::sighandler_t;
        super::super::set_action(DUMP, handler, 0).expect("set");
        answer(dumps.as_fd(), theirs.as_fd(), b"done").expect("in front");
        sit_down(12);
        sit_down(SEATS_NAMED_MAX);
        for _ in 0..2 {
            dumps.clear().expect("cleared");
            // SAFETY: raise(3) has no preconditions; the handler has run when it returns.
            unsafe { libc::raise(DUMP) };
            // SAFETY: as in `sit_down`.
            let this = unsafe { libc::pthread_self() };
            let expected = format!("stacks\nseat 12 is thread {this:#018x}\n");
            assert_eq!(dumps.read(1_000).expect("read"), expected);
            assert!(matches!(ours.receive(), Ok(Received::Message(m)) if m.bytes == b"done"));
        }
        assert!(matches!(ours.receive(), Ok(Received::Nothing)));
    }
}
