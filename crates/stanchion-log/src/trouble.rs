//! A log that the kernel takes no lines for (a full disk, a broken one, a pipe without a reader): the process that finds it names it at once
//! wherever something can still be written, again while that lasts, and when it is over.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use serde::Serialize;
use stanchion_sys::call;
use stanchion_sys::clock::{LocalTime, monotonic_us};
use stanchion_sys::process;
use tracing::{Level, error, info, warn};

use super::line::line_of;
use super::log_kind::Of;
use super::outlet::Outlet;
use super::{ERROR_LOG, ErrorLog};

/// How often a process names a log that takes nothing, at most: a disk that is full all night is one line a minute.
const NAMED_EVERY: Duration = Duration::from_secs(60);

/// One process's knowledge of one log. All of it is atomic: a lock could be held by a thread that a fork leaves behind.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// When writing began to fail, on the monotonic clock; 0 = it does not.
    since_us: AtomicU64,
    /// Why it fails (errno(3)); 0 = the kernel took no byte, and gave no reason.
    errno: AtomicI32,
    /// When this process named it last; 0 = never.
    named_us: AtomicU64,
    /// The process has named the trouble that there is now, and not only an earlier one.
    is_named: AtomicBool,
}

/// A log that takes nothing at present, as `/status` has it.
#[derive(Debug, Serialize)]
pub struct FailingLog {
    /// `the error log`, `the access log` or `the recording of arrivals`.
    pub log: &'static str,
    /// A file, or a syslog daemon.
    pub to: String,
    /// The error of the kernel.
    pub error: String,
    /// For how many seconds the log has taken nothing.
    pub for_s: u64,
    /// Bytes that wait until it takes lines again.
    pub waiting_bytes: usize,
}

impl Trouble {
    /// Notes that a write has failed. Gives how long writes have failed, if the process is to log it now.
    pub(super) fn begin_or_go_on(&self, now_us: u64, error: &io::Error) -> Option<Duration> {
        let errno = call::number(error).unwrap_or_default();
        self.errno.store(errno, Ordering::Relaxed);
        let now_us = now_us.max(1);
        let begun = self
            .since_us
            .compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        let since_us = begun.err().unwrap_or(now_us);
        let named_us = self.named_us.load(Ordering::Relaxed);
        if named_us != 0 && now_us < named_us + NAMED_EVERY.as_micros() as u64 {
            return None;
        }
        // If several threads come here at once, one of them names it.
        let is_mine =
            self.named_us
                .compare_exchange(named_us, now_us, Ordering::Relaxed, Ordering::Relaxed);
        is_mine.ok()?;
        self.is_named.store(true, Ordering::Relaxed);
        Some(Duration::from_micros(now_us.saturating_sub(since_us)))
    }

    /// Notes that a write has gone well. Gives how long writes have failed before, if the process has said that they do.
    pub(super) fn end(&self, now_us: u64) -> Option<Duration> {
        // Nearly always.
        if !self.is_there() {
            return None;
        }
        let since_us = self.since_us.swap(0, Ordering::Relaxed);
        let was_named = self.is_named.swap(false, Ordering::Relaxed);
        let lasted = Duration::from_micros(now_us.saturating_sub(since_us));
        (since_us != 0 && was_named).then_some(lasted)
    }

    /// In a newborn process: the parent logs the trouble that it has found.
    pub(super) fn forget(&self) {
        self.since_us.store(0, Ordering::Relaxed);
        self.named_us.store(0, Ordering::Relaxed);
        self.is_named.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_there(&self) -> bool {
        self.since_us.load(Ordering::Relaxed) != 0
    }

    /// For `/status`, while there is any.
    pub(super) fn failing(
        &self,
        log: &'static str,
        outlet: &Outlet,
        waiting_bytes: usize,
    ) -> Option<FailingLog> {
        let since_us = self.since_us.load(Ordering::Relaxed);
        let error = match self.errno.load(Ordering::Relaxed) {
            0 => io::ErrorKind::WriteZero.into(),
            errno => io::Error::from_raw_os_error(errno),
        };
        (since_us != 0).then(|| FailingLog {
            log,
            to: outlet.shown(),
            error: error.to_string(),
            for_s: monotonic_us().saturating_sub(since_us) / 1_000_000,
            waiting_bytes,
        })
    }
}

/// A sentence on a log that has not taken lines `for_long` now, without its end.
pub(super) fn sentence(
    log: &str,
    outlet: &Outlet,
    error: &io::Error,
    for_long: Duration,
) -> String {
    let since = match for_long.as_secs() {
        0 => String::new(),
        seconds => format!(" since {seconds} s"),
    };
    format!(
        "{log} cannot be written{since}: {}: {error}",
        outlet.shown()
    )
}

/// The operator's next step.
pub(super) fn cure(error: &io::Error) -> &'static str {
    match call::number(error).map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "make room on its file system",
        Some(Errno::IO) => "see what the kernel says of the disk (dmesg)",
        Some(Errno::PIPE | Errno::CONNREFUSED | Errno::NOENT | Errno::NOTCONN) => {
            "start again what reads it"
        }
        Some(Errno::FBIG) => "rotate it",
        _ => "mend that, or name another log and start the server again",
    }
}

/// An event on a log of a thread's. It goes to standard error too while the error log itself takes nothing.
pub(super) fn tell(level: Level, of: Of, text: &str) {
    match level {
        Level::ERROR => error!("{text}"),
        Level::WARN => warn!("{text}"),
        _ => info!("{text}"),
    }
    if let Some(log) = ERROR_LOG.get()
        && (of == Of::ErrorLog || log.file_is_in_trouble())
    {
        log.tell_standard_error(level, text);
    }
}

/// Says what is wrong with an outlet of the error log wherever else this process can write.
pub(super) fn tell_elsewhere(outlet: &Outlet, level: Level, text: &str) {
    let Some(log) = ERROR_LOG.get() else { return };
    log.count(level, "");
    if level > log.level {
        return;
    }
    for (index, direct) in log.outlets.iter().enumerate() {
        if !std::ptr::eq(&raw const *direct.outlet, outlet) && !direct.trouble.is_there() {
            let line = log.line_for(&direct.outlet, (level, ""), text);
            log.write(index, direct, &line);
        }
    }
    if matches!(outlet, Outlet::File(_)) || log.file_is_in_trouble() {
        log.tell_standard_error(level, text);
    }
}

impl ErrorLog {
    /// In this process.
    fn file_is_in_trouble(&self) -> bool {
        self.outlets[0].trouble.is_there()
    }

    /// Tries once: it is the last place that there is. Where standard error leads to the full disk too, that fails as well, and
    /// `/status` and the counts say it.
    fn tell_standard_error(&self, level: Level, text: &str) {
        if let Some(stream) = self.standard_error.as_ref().filter(|_| level <= self.level) {
            let line = line_of(
                stream.is_journal(),
                (level, ""),
                LocalTime::now(),
                process::pid(),
                text,
            );
            let _ = stream.write(line.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn full() -> io::Error {
        Errno::NOSPC.into()
    }

    #[test]
    fn it_is_named_at_once_then_once_a_minute_and_at_its_end() {
        let trouble = Trouble::default();
        assert_eq!(trouble.end(5), None);
        let mut named = Vec::new();
        for second in 1..=150 {
            named.extend(trouble.begin_or_go_on(second * SECOND_US, &full()));
        }
        assert_eq!(named, [0, 60, 120].map(Duration::from_secs));
        assert!(trouble.is_there());
        assert_eq!(trouble.end(151 * SECOND_US), Some(Duration::from_secs(150)));
        assert_eq!(trouble.end(152 * SECOND_US), None, "once");
        assert!(!trouble.is_there());
    }

    #[test]
    fn a_disk_that_is_full_again_and_again_is_named_once_a_minute_too() {
        let trouble = Trouble::default();
        let mut said = Vec::new();
        for second in (1..=100).step_by(2) {
            said.extend(
                trouble
                    .begin_or_go_on(second * SECOND_US, &full())
                    .map(|_| (second, "fails")),
            );
            said.extend(
                trouble
                    .end((second + 1) * SECOND_US)
                    .map(|_| (second, "goes")),
            );
        }
        assert_eq!(
            said,
            [(1, "fails"), (1, "goes"), (61, "fails"), (61, "goes")]
        );
    }

    #[test]
    fn a_child_begins_without_its_parents_trouble() {
        let trouble = Trouble::default();
        assert!(trouble.begin_or_go_on(SECOND_US, &full()).is_some());
        trouble.forget();
        assert!(!trouble.is_there());
        assert!(trouble.begin_or_go_on(2 * SECOND_US, &full()).is_some());
    }
}
