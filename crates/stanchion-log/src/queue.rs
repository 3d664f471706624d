//! Lines on their way to an outlet that may be slow, blocked or full: the acceptor puts them into a
//! buffer of bounded size, and a thread writes them.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use stanchion_sys::call;
use stanchion_sys::clock::monotonic_us;
use tracing::{Level, error, info};

use super::count_dropped;
use super::log_kind::Of;
use super::outlet::Outlet;
use super::trouble::{self, FailingLog, Trouble};
use stanchion_sys::process;

use crate::caught::caught;
use crate::exit_code;

/// Bytes that may wait for one outlet; what comes when it is full is dropped.
const BYTES_MAX: usize = 1 << 20;
/// How often an outlet that takes nothing is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// How long the thread may write what is left when the process ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// The name of the thread.
pub const THREAD_NAME: &str = "stanchion-log";

/// All queues of this process, for `/status`.
static QUEUES: Mutex<Vec<Weak<QueueShared>>> = Mutex::new(Vec::new());

/// The logs that take nothing at present.
pub(super) fn failing_logs() -> Vec<FailingLog> {
    let queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    let queues: Vec<_> = queues.iter().filter_map(Weak::upgrade).collect();
    let failing = queues.iter().filter_map(|queue| {
        let state = queue.lock();
        let waiting_bytes = state.waiting.len() + state.writing;
        drop(state);
        let (of, outlet) = (queue.of.name(), &queue.outlet);
        queue.trouble.failing(of, outlet, waiting_bytes)
    });
    failing.collect()
}

/// The end into which lines are put.
#[derive(Debug)]
pub struct LogQueue(Arc<QueueShared>);

#[derive(Debug)]
struct QueueShared {
    of: Of,
    outlet: Arc<Outlet>,
    trouble: Arc<Trouble>,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Vec<u8>,
    /// Bytes that the thread has in hand.
    writing: usize,
    /// The thread sleeps until something comes.
    asleep: bool,
    /// It is to reopen the outlet once what has come so far is written.
    reopen: bool,
    /// It has this long to finish.
    deadline: Option<Instant>,
    finished: bool,
    /// Why the outlet takes nothing at present.
    stuck: Option<String>,
    /// Lines dropped since it took everything.
    dropped: u64,
}

impl LogQueue {
    /// Starts the thread of an outlet that this process has not written to before. To be called only in a process that does not
    /// fork any more.
    pub fn start(of: Of, outlet: Arc<Outlet>) -> io::Result<Self> {
        Self::go_on(of, outlet, Arc::default())
    }

    /// The same for an outlet whose trouble is known.
    pub(super) fn go_on(of: Of, outlet: Arc<Outlet>, trouble: Arc<Trouble>) -> io::Result<Self> {
        let shared = Arc::new(QueueShared {
            of,
            outlet,
            trouble,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let writer = QueueWriter {
            shared: Arc::clone(&shared),
            lines: Vec::new(),
            written: 0,
            was_told: false,
        };
        let builder = thread::Builder::new().name(THREAD_NAME.to_owned());
        builder.spawn(move || {
            // The process is of no use without its log: the thread that writes it cannot say why it ends.
            if caught(|| writer.run()).is_none() {
                process::exit_now(exit_code::INTERNAL);
            }
        })?;
        let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&shared));
        Ok(Self(shared))
    }

    /// Where it leads.
    pub fn outlet(&self) -> &Outlet {
        &self.0.outlet
    }

    /// Puts whole lines in, or drops them if they do not fit. Never waits for the outlet.
    pub fn push(&self, lines: &[u8]) {
        let mut state = self.0.lock();
        if state.waiting.len() + state.writing + lines.len() <= BYTES_MAX {
            state.waiting.extend_from_slice(lines);
            if std::mem::take(&mut state.asleep) {
                self.0.changed.notify_all();
            }
            return;
        }
        let is_first = state.dropped == 0;
        let count = self.0.outlet.lines(lines);
        state.dropped += count;
        count_dropped(count);
        let why = state.stuck.clone();
        drop(state);
        // The error log cannot say it of itself before it goes on.
        if is_first && self.0.of != Of::ErrorLog {
            let why =
                why.unwrap_or_else(|| "lines arrive faster than they can be written".to_owned());
            error!(
                "{} does not take its lines, they are dropped: {}: {why}",
                self.0.of.name(),
                self.0.outlet.shown()
            );
        }
    }

    /// Has the outlet reopened, once what was put in so far is written.
    pub fn reopen(&self) {
        self.0.lock().reopen = true;
        self.0.changed.notify_all();
    }

    /// Writes what is left and ends the thread, within a bound.
    pub fn finish(&self) {
        let deadline = Instant::now() + FAREWELL;
        let mut state = self.0.lock();
        state.deadline = Some(deadline);
        self.0.changed.notify_all();
        // The thread looks at the deadline this often, unless a disk holds it up: then it is left behind.
        let last = deadline + 2 * TRY_AGAIN;
        while !state.finished {
            let left = last.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.0.wait(state, left);
        }
    }
}

impl QueueShared {
    /// Nothing that holds the lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, for at most so long.
    fn wait<'s>(
        &'s self,
        state: MutexGuard<'s, QueueState>,
        limit: Duration,
    ) -> MutexGuard<'s, QueueState> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The end that writes.
struct QueueWriter {
    shared: Arc<QueueShared>,
    lines: Vec<u8>,
    written: usize,
    /// The error log itself has heard that the scribe takes too little at present.
    was_told: bool,
}

/// The next task of the thread.
enum Task {
    Write,
    Reopen,
    Finish,
}

impl QueueWriter {
    fn run(mut self) {
        loop {
            match self.next() {
                Task::Write => self.write(),
                Task::Reopen => self.reopen(),
                Task::Finish => break,
            }
        }
        let state = self.shared.lock();
        let mut lost = state.dropped;
        for left in [&self.lines[self.written..], &state.waiting] {
            if !left.is_empty() {
                let count = self.shared.outlet.lines(left);
                lost += count;
                count_dropped(count);
            }
        }
        drop(state);
        self.say_dropped(lost);
        self.shared.lock().finished = true;
        self.shared.changed.notify_all();
    }

    /// Waits until there is something to do, and takes what is to be written.
    fn next(&mut self) -> Task {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            let over = state
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline);
            let in_hand = self.written < self.lines.len();
            if over || (state.deadline.is_some() && !in_hand && state.waiting.is_empty()) {
                return Task::Finish;
            }
            // A stuck outlet is reopened at once: that may be what it needs.
            if state.reopen && (state.stuck.is_some() || !in_hand && state.waiting.is_empty()) {
                state.reopen = false;
                return Task::Reopen;
            }
            if in_hand {
                return Task::Write;
            }
            if !state.waiting.is_empty() {
                self.lines.clear();
                self.written = 0;
                std::mem::swap(&mut self.lines, &mut state.waiting);
                state.writing = self.lines.len();
                return Task::Write;
            }
            state.asleep = true;
            state = shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.asleep = false;
        }
    }

    /// Writes as much as goes.
    fn write(&mut self) {
        while self.written < self.lines.len() {
            match self.shared.outlet.write(&self.lines[self.written..]) {
                Ok(0) => return self.stuck(&io::ErrorKind::WriteZero.into()),
                Ok(more) => self.written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel never takes it.
                Err(error) if call::number(&error) == Some(Errno::MSGSIZE.raw_os_error()) => {
                    self.skip();
                }
                Err(error) => return self.stuck(&error),
            }
        }
        let mut state = self.shared.lock();
        state.writing = 0;
        state.stuck = None;
        // Under load something waits after each write.
        let lasted = self.shared.trouble.end(monotonic_us());
        if lasted.is_some() || state.waiting.is_empty() {
            let dropped = std::mem::take(&mut state.dropped);
            self.was_told = false;
            drop(state);
            match lasted {
                Some(lasted) => self.say_over(lasted, dropped),
                None => self.say_dropped(dropped),
            }
            state = self.shared.lock();
        }
        let gathering = self.shared.of.gathering();
        if !gathering.is_zero() && state.deadline.is_none() && !state.reopen {
            drop(self.shared.wait(state, gathering));
        }
    }

    /// Drops what would be written next.
    fn skip(&mut self) {
        let rest = &self.lines[self.written..];
        let message = &rest[..self.shared.outlet.first_message(rest)];
        let count = self.shared.outlet.lines(message);
        self.written += message.len();
        self.shared.lock().dropped += count;
        count_dropped(count);
    }

    /// Waits a moment for an outlet that takes nothing.
    fn stuck(&mut self, error: &io::Error) {
        let is_full = error.kind() == io::ErrorKind::WouldBlock;
        if !is_full {
            self.name_trouble(error);
        }
        let mut state = self.shared.lock();
        if state.dropped > 0 && !std::mem::replace(&mut self.was_told, true) {
            drop(state);
            self.tell_beside_scribe("the scribe does not take its lines, they are dropped");
            state = self.shared.lock();
        }
        state.writing = self.lines.len() - self.written;
        state.stuck = Some(if is_full {
            "its reader takes nothing".to_owned()
        } else {
            error.to_string()
        });
        if is_full {
            drop(state);
            // Should poll(2) fail, the next write does too.
            let _ = self.shared.outlet.wait(TRY_AGAIN);
        } else if state
            .deadline
            .is_none_or(|deadline| Instant::now() < deadline)
        {
            drop(self.shared.wait(state, TRY_AGAIN));
        }
    }

    fn reopen(&mut self) {
        let (of, outlet) = (self.shared.of.name(), &self.shared.outlet);
        match outlet.reopen() {
            Ok(true) => {
                info!("{of} is reopened");
                // The start of a line that is half written went to the old one.
                if let Some(terminator) = outlet.terminator()
                    && self.written > 0
                    && self.lines[self.written - 1] != terminator
                {
                    let rest = self.lines[self.written..].iter();
                    let end = rest.take_while(|&&byte| byte != terminator).count();
                    self.written = (self.written + end + 1).min(self.lines.len());
                }
            }
            Ok(false) => {}
            Err(error) => error!(
                "{of} cannot be reopened, the old file goes on: {}: {error}",
                outlet.shown()
            ),
        }
    }

    /// Says that the kernel takes nothing, as soon as it is found and once in a while from then on.
    fn name_trouble(&self, error: &io::Error) {
        let QueueShared { of, outlet, .. } = &*self.shared;
        if let Outlet::Scribe(_) = **outlet {
            return;
        }
        let Some(for_long) = self.shared.trouble.begin_or_go_on(monotonic_us(), error) else {
            return;
        };
        let what = trouble::sentence(of.name(), outlet, error, for_long);
        let so_far = match self.shared.lock().dropped {
            0 => format!(
                "up to {} MiB of its lines wait, more are dropped",
                BYTES_MAX >> 20
            ),
            dropped => format!("{dropped} of its lines were dropped so far"),
        };
        let text = format!("{what}; {so_far}: {}", trouble::cure(error));
        trouble::tell(Level::ERROR, *of, &text);
    }

    fn say_over(&self, lasted: Duration, dropped: u64) {
        let (of, shown) = (self.shared.of, self.shared.outlet.shown());
        let (name, seconds) = (of.name(), lasted.as_secs());
        let text =
            format!("{name} takes lines again after {seconds} s, {dropped} were dropped: {shown}");
        trouble::tell(Level::WARN, of, &text);
    }

    fn say_dropped(&self, lines: u64) {
        if lines > 0 {
            let of = self.shared.of.name();
            let shown = self.shared.outlet.shown();
            let text = format!("{of}: {lines} lines were dropped: {shown}");
            trouble::tell(Level::WARN, self.shared.of, &text);
            self.tell_beside_scribe(&format!("{lines} lines were dropped: {shown}"));
        }
    }

    /// The scribe may never read a line about this, so that the error log itself gets it.
    fn tell_beside_scribe(&self, what: &str) {
        if let Outlet::Scribe(_) = *self.shared.outlet {
            let text = format!("{}: {what}", self.shared.of.name());
            super::tell_beside_scribe(Level::WARN, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::fd::AsFd;
    use std::path::Path;

    use super::*;
    use crate::LogFile;

    fn queue(writer: &io::PipeWriter) -> LogQueue {
        let file = LogFile::open(Path::new("-"), writer.as_fd()).expect("a copy");
        LogQueue::start(Of::ErrorLog, Arc::new(Outlet::File(file))).expect("a thread")
    }

    #[test]
    fn lines_come_out_in_order_and_all_of_them() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let queue = queue(&writer);
        let reading = thread::spawn(move || BufReader::new(reader).lines().count());
        // More than a pipe holds, less than the buffer.
        for number in 0..5_000 {
            queue.push(format!("{number:0100}\n").as_bytes());
        }
        queue.finish();
        drop((queue, writer));
        assert_eq!(reading.join().expect("read"), 5_000);
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let queue = queue(&writer);
        let line = [&[b'a'; 1023][..], b"\n"].concat();
        // The buffer, what the thread has in hand, and the pipe hold less than this together.
        let pushed = 3 * BYTES_MAX / line.len();
        for _ in 0..pushed {
            queue.push(&line);
        }
        let dropped = queue.0.lock().dropped;
        assert!(dropped > 0);
        // The thread ends although no process reads, and the lines that were left count too.
        let start = Instant::now();
        queue.finish();
        assert!(start.elapsed() >= FAREWELL);
        assert!(queue.0.lock().finished);
        drop((queue, writer));
        let mut taken = Vec::new();
        reader.read_to_end(&mut taken).expect("read");
        assert!(taken.len() <= 64 << 10, "a pipe holds no more");
        assert!(dropped <= (pushed - taken.len() / line.len()) as u64);
    }

    #[test]
    fn a_message_that_the_kernel_never_takes_is_dropped_and_holds_up_none() {
        use stanchion_sys::channel::{Channel, Received};

        let (writer, reader) = Channel::pair_for(64 << 10).expect("a pair");
        rustix::net::sockopt::set_socket_send_buffer_size(&writer, 8 << 10).expect("set");
        let queue =
            LogQueue::start(Of::AccessLog, Arc::new(Outlet::Scribe(writer))).expect("a thread");
        let mut too_long = vec![b'a'; 30_000];
        too_long.push(b'\n');
        queue.push(&too_long);
        let mut state = queue.0.lock();
        while !state.asleep {
            drop(queue.0.wait(state, TRY_AGAIN));
            state = queue.0.lock();
        }
        drop(state);
        queue.push(b"another\n");
        queue.finish();
        assert!(queue.0.lock().finished);
        let Ok(Received::Message(message)) = reader.receive() else {
            panic!("a message");
        };
        assert_eq!(message.bytes, b"another\n");
    }

    #[test]
    fn a_trouble_is_over_with_the_first_write_even_if_more_lines_wait() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let file = LogFile::open(Path::new("-"), writer.as_fd()).expect("a copy");
        let state = QueueState {
            waiting: b"more\n".to_vec(),
            dropped: 3,
            ..QueueState::default()
        };
        let shared = Arc::new(QueueShared {
            of: Of::ErrorLog,
            outlet: Arc::new(Outlet::File(file)),
            trouble: Arc::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let full = Errno::NOSPC.into();
        assert!(shared.trouble.begin_or_go_on(1, &full).is_some());
        let mut writer = QueueWriter {
            shared: Arc::clone(&shared),
            lines: b"in hand\n".to_vec(),
            written: 0,
            was_told: false,
        };
        writer.write();
        assert!(!shared.trouble.is_there());
        assert_eq!(shared.lock().dropped, 0, "it is said with the end");
    }

    #[test]
    fn once_all_is_taken_again_an_episode_is_over() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let queue = queue(&writer);
        while queue.0.lock().dropped == 0 {
            queue.push(b"a line\n");
        }
        let reading = thread::spawn(move || BufReader::new(reader).lines().count());
        let mut state = queue.0.lock();
        while state.dropped > 0 {
            state = queue.0.wait(state, TRY_AGAIN);
        }
        drop(state);
        queue.push(b"another\n");
        queue.finish();
        drop((queue, writer));
        assert!(reading.join().expect("read") > 0);
    }
}
