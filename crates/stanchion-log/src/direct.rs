//! How a process writes to an outlet for which it may not wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stanchion_sys::clock::monotonic_us;
use tracing::Level;

use super::count_dropped;
use super::entry::ErrorEntry;
use super::line::own_head;
use super::log_kind::Of;
use super::outlet::Outlet;
use super::trouble::{self, Trouble};

/// How often the error log itself gets a line that the scribe does not take lines.
const BESIDE_EVERY_US: u64 = 10_000_000;

/// An outlet for processes that write by themselves: master, template and workers. None of them is
/// ever held up for long; what does not go is dropped, counted, and said when it goes again.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) outlet: Arc<Outlet>,
    dropped: AtomicU64,
    /// A queue before the outlet in the acceptor has the same.
    pub(super) trouble: Arc<Trouble>,
    /// The last write broke off within its line.
    torn: AtomicBool,
    /// When the error log itself last got a line that the scribe does not take lines, on the monotonic clock; 0 = never.
    told_us: AtomicU64,
}

impl Direct {
    pub(super) fn new(outlet: Outlet) -> Self {
        Self {
            outlet: Arc::new(outlet),
            dropped: AtomicU64::new(0),
            trouble: Arc::default(),
            torn: AtomicBool::new(false),
            told_us: AtomicU64::new(0),
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) {
        // The thread that takes the number reports it: threads of an app's write here at the same time.
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let patience = if dropped == 0 {
            self.outlet.patience()
        } else {
            if self.write_for(&self.note(dropped), Duration::ZERO).is_err() {
                self.dropped.fetch_add(dropped, Ordering::Relaxed);
                self.drop_lines(self.outlet.lines(bytes));
                return;
            }
            Duration::ZERO
        };
        match self.write_for(bytes, patience) {
            Ok(()) => self.goes_again(dropped),
            Err(written) => self.drop_lines(self.outlet.lines(&bytes[written..])),
        }
    }

    /// Says that the outlet takes nothing, where it can be read.
    fn fails(&self, error: &io::Error) {
        if let Outlet::Scribe(_) = *self.outlet {
            return;
        }
        if let Some(for_long) = self.trouble.begin_or_go_on(monotonic_us(), error) {
            let what = trouble::sentence(Of::ErrorLog.name(), &self.outlet, error, for_long);
            let text = format!(
                "{what}; the lines of this process are lost there: {}",
                trouble::cure(error)
            );
            trouble::tell_elsewhere(&self.outlet, Level::ERROR, &text);
        }
    }

    /// Logs that it takes lines again, if it was logged that it does not.
    fn goes_again(&self, dropped: u64) {
        if let Some(lasted) = self.trouble.end(monotonic_us()) {
            let text = format!(
                "the error log takes lines again after {} s, {dropped} of this process were dropped: {}",
                lasted.as_secs(),
                self.outlet.shown()
            );
            trouble::tell_elsewhere(&self.outlet, Level::WARN, &text);
        }
    }

    /// Says how many lines were dropped, as nothing more will be written that could.
    pub(super) fn finish(&self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 && self.write_for(&self.note(dropped), Duration::ZERO).is_err() {
            self.tell_beside_scribe(dropped);
        }
    }

    /// In a newborn process: forgets the lines that the parent has dropped, since the parent reports them.
    pub(super) fn begin_anew(&self) {
        self.dropped.store(0, Ordering::Relaxed);
        self.trouble.forget();
        self.told_us.store(0, Ordering::Relaxed);
    }

    fn drop_lines(&self, lines: u64) {
        count_dropped(lines);
        let dropped = self.dropped.fetch_add(lines, Ordering::Relaxed) + lines;
        let (now_us, told_us) = (monotonic_us(), self.told_us.load(Ordering::Relaxed));
        if told_us == 0 || now_us >= told_us + BESIDE_EVERY_US {
            self.told_us.store(now_us, Ordering::Relaxed);
            self.tell_beside_scribe(dropped);
        }
    }

    /// The scribe may never read a line about this, so that the error log itself gets it.
    fn tell_beside_scribe(&self, dropped: u64) {
        if let Outlet::Scribe(_) = *self.outlet {
            let text = format!(
                "the scribe does not take the lines of this process: {dropped} lines were dropped"
            );
            super::tell_beside_scribe(Level::WARN, &text);
        }
    }

    fn note(&self, dropped: u64) -> Vec<u8> {
        let text = format!("{dropped} lines were dropped: the log did not take them");
        let mut note = String::new();
        match &*self.outlet {
            Outlet::File(_) | Outlet::Recording(_) => {
                if self.torn.swap(false, Ordering::Relaxed) {
                    note.push('\n');
                }
                own_head(&mut note, Level::WARN, "");
                note.push_str(&text);
                note.push('\n');
            }
            Outlet::Syslog(syslog) => syslog.frame(&mut note, Level::WARN, &text),
            Outlet::Scribe(_) => return ErrorEntry::now(Level::WARN, "", &text).into_line(),
        }
        note.into_bytes()
    }

    /// Gives what was written if that was not all.
    fn write_for(&self, bytes: &[u8], patience: Duration) -> Result<(), usize> {
        let mut written = 0;
        let mut since = None;
        while written < bytes.len() {
            match self.outlet.write(&bytes[written..]) {
                Ok(more) if more > 0 => {
                    written += more;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let since = since.get_or_insert_with(Instant::now);
                    let left = patience.saturating_sub(since.elapsed());
                    if !left.is_zero() && self.outlet.wait(left).is_ok() {
                        continue;
                    }
                }
                Ok(_) => self.fails(&io::ErrorKind::WriteZero.into()),
                Err(error) => self.fails(&error),
            }
            if written > 0 && Some(bytes[written - 1]) != self.outlet.terminator() {
                self.torn.store(true, Ordering::Relaxed);
            }
            return Err(written);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::path::Path;

    use stanchion_sys::channel::{Channel, Received};

    use super::*;
    use crate::LogFile;

    /// The messages that have come by a channel.
    fn messages(channel: &Channel) -> Vec<String> {
        let mut texts = Vec::new();
        while let Ok(Received::Message(message)) = channel.receive() {
            texts.push(String::from_utf8(message.bytes).expect("text"));
        }
        texts
    }

    #[test]
    fn what_a_scribe_did_not_take_is_said_at_the_end_by_who_dropped_it() {
        let (writer, reader) = Channel::pair().expect("a pair");
        let direct = Direct::new(Outlet::Scribe(writer));
        let line = format!("{}\n", "a".repeat(1023));
        while direct.dropped.load(Ordering::Relaxed) < 3 {
            direct.write(line.as_bytes());
        }
        assert!(!messages(&reader).is_empty());
        direct.finish();
        let said = messages(&reader);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("\"3 lines were dropped: the log did not take them\""));
        direct.finish();
        assert!(messages(&reader).is_empty(), "once");

        while direct.dropped.load(Ordering::Relaxed) < 3 {
            direct.write(line.as_bytes());
        }
        messages(&reader);
        direct.begin_anew();
        direct.finish();
        assert!(messages(&reader).is_empty(), "it was the parent's");
    }

    #[test]
    fn what_a_full_pipe_did_not_take_is_said_when_it_takes_something_again() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let file = LogFile::open(Path::new("-"), writer.as_fd()).expect("a copy");
        let direct = Direct::new(Outlet::File(file));
        let line = format!("{}\n", "a".repeat(1023));
        for _ in 0..70 {
            direct.write(line.as_bytes());
        }
        // A pipe holds 64 KiB (pipe(7)).
        let mut all = vec![0; 64 << 10];
        reader.read_exact(&mut all).expect("it was full");
        direct.write(b"again\n");
        drop((direct, writer));
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("text");
        let (note, again) = rest.split_once('\n').expect("two lines");
        assert!(
            note.ends_with("[WARNING] 6 lines were dropped: the log did not take them"),
            "{note}"
        );
        assert_eq!(again, "again\n");
    }
}
