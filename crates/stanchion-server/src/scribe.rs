//! The scribe: runs the host's own logging, which may wait for anything, on the lines of the other processes. No process waits for it.
//!
//! A generation has one only if the settings ask for Python's logging. It is forked before the template, since it finds
//! out whether the settings of logging work, and leaves after all others. If it dies, the master starts another one,
//! which finds the lines sent meanwhile. The master writes the lines that it has not read by its end to the error log.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use stanchion_sys::channel::{Channel, ChannelMessage, Received, poll_readable};
use stanchion_sys::process;
use stanchion_sys::signal::orphan;
use tracing::{debug, error, warn};

use crate::host::{Host, Logging};
use crate::title;
use stanchion_generation::common::Common;
use stanchion_generation::messages::{self, FromScribe, Incoming, ToScribe};
use stanchion_log::cure;
use stanchion_log::exit_code;
use stanchion_log::{self as log, ErrorEntry, Readers, lines_of};

/// Messages that are read from one channel in a turn.
const MESSAGES_PER_TURN_MAX: usize = 64;
/// The longest sleep without a message.
const IDLE: Duration = Duration::from_secs(60);
/// How often it looks whether it is to leave, once its master is gone.
const ORPHANED: Duration = Duration::from_millis(100);
/// Processes that outlive the master get so long beyond `graceful_timeout`.
const MARGIN: Duration = Duration::from_secs(2);
/// The scribe itself gets so long beyond that, before it is killed.
const ORPHAN_MARGIN: Duration = Duration::from_secs(2);
/// How often refused lines are logged.
const REFUSED_EVERY: Duration = Duration::from_secs(10);

/// The life of a scribe process; gives its exit code.
pub(crate) fn run(common: &'static Common, master: Channel, host: &mut dyn Host) -> i32 {
    process::set_name(c"stanchion-scrb");
    title::show("scribe", &common.settings);
    let channels = common.log_channels.as_ref();
    let Some(Readers {
        accesses,
        of_server,
        of_app,
    }) = channels.and_then(log::LogChannels::take_readers)
    else {
        error!("the scribe has nothing to read");
        return exit_code::INTERNAL;
    };
    let grace = common.settings.workers.graceful_timeout.duration() + MARGIN;
    // Handlers may hang, so that it would never see that it is alone.
    match orphan::die_after(common.master_pid, grace + ORPHAN_MARGIN) {
        Ok(false) => {}
        Ok(true) => return exit_code::FINE,
        Err(error) => {
            error!(
                "the scribe cannot tie itself to the master: {}",
                cure::told(&error)
            );
            return exit_code::INTERNAL;
        }
    }
    let logging = match set_up(&master, host) {
        Ok(logging) => logging,
        Err(code) => return code,
    };
    let mut scribe = ScribeLoop {
        logging,
        // Lines of the error log are read before lines of the access log.
        sources: [
            LineSource::new(of_server, false),
            LineSource::new(of_app, false),
            LineSource::new(accesses, true),
        ],
        master: Some(master),
        grace,
        until: None,
        is_to_finish: false,
        refused: 0,
        told: None,
    };
    let code = match scribe.serve() {
        Ok(()) => exit_code::FINE,
        Err(error) => {
            error!("the scribe cannot go on: {}", cure::told(&error));
            exit_code::INTERNAL
        }
    };
    scribe.logging.finish();
    debug!("the scribe leaves");
    code
}

/// Sets logging up by the operator's settings, and reports to the master. Gives the exit code if it cannot.
fn set_up(master: &Channel, host: &mut dyn Host) -> Result<Box<dyn Logging>, i32> {
    let (logging, said) = match host.set_up_logging() {
        Ok(logging) => (Ok(logging), FromScribe::Ready),
        Err(error) => {
            error!("{}", error.report);
            let reason = error.line();
            (Err(exit_code::USAGE), FromScribe::CannotSetUp { reason })
        }
    };
    if let Err(error) = messages::report(master, &said) {
        error!("the scribe cannot report to the master: {error}");
        return Err(logging.err().unwrap_or(exit_code::INTERNAL));
    }
    logging
}

struct ScribeLoop {
    logging: Box<dyn Logging>,
    sources: [LineSource; 3],
    /// `None` once it is gone.
    master: Option<Channel>,
    /// How long processes that outlive the master may go on.
    grace: Duration,
    /// When it leaves in any case, without a master.
    until: Option<Instant>,
    /// No process sends anything more.
    is_to_finish: bool,
    /// Refused lines that are not logged yet.
    refused: u64,
    /// When refused lines were logged last.
    told: Option<Instant>,
}

/// A channel to read from.
struct LineSource {
    channel: Channel,
    /// Whether lines of the access log come by it, or lines for the error log.
    is_of_accesses: bool,
    has_ended: bool,
}

impl LineSource {
    fn new(channel: Channel, is_of_accesses: bool) -> Self {
        Self {
            channel,
            is_of_accesses,
            has_ended: false,
        }
    }
}

impl ScribeLoop {
    /// Serves until it is to leave.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            // Lines that were sent before the order to finish are read after it.
            let was_last = self.is_to_finish;
            let mut has_more = false;
            for source in 0..self.sources.len() {
                has_more |= self.read(source);
            }
            self.tell_refused();
            self.hear()?;
            let has_ended = self.sources.iter().all(|source| source.has_ended);
            let is_late = self.until.is_some_and(|until| Instant::now() >= until);
            if is_late || !has_more && (was_last || has_ended) {
                return Ok(());
            }
            if !has_more && !self.is_to_finish {
                self.wait()?;
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let open = self.sources.iter().filter(|source| !source.has_ended);
        let mut fds: Vec<_> = open.map(|source| source.channel.as_fd()).collect();
        fds.extend(self.master.as_ref().map(AsFd::as_fd));
        let timeout = match self.master {
            Some(_) => IDLE,
            None => ORPHANED,
        };
        let mut waited = Ok(());
        self.logging
            .wait(&mut || waited = poll_readable(&fds, timeout).map(drop));
        waited
    }

    /// Takes the master's orders.
    fn hear(&mut self) -> io::Result<()> {
        let Some(master) = &self.master else {
            return Ok(());
        };
        match messages::receive(master)? {
            Incoming::Message(ToScribe::Reopen) => {
                log::reopen();
                self.logging.reopen();
            }
            Incoming::Message(ToScribe::Finish) => self.is_to_finish = true,
            Incoming::Nothing => {}
            Incoming::Closed => {
                // Acceptor and workers still answer the clients that are here, and log that.
                self.master = None;
                self.until = Some(Instant::now() + self.grace);
            }
        }
        Ok(())
    }

    /// Writes what has come by one of the channels; true if there may be more.
    fn read(&mut self, source: usize) -> bool {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let source = &mut self.sources[source];
            if source.has_ended {
                return false;
            }
            match source.channel.receive() {
                Ok(Received::Message(message)) if source.is_of_accesses => self.accesses(&message),
                Ok(Received::Message(message)) => self.said(&message),
                Ok(Received::Nothing) => return false,
                Ok(Received::Closed) => {
                    source.has_ended = true;
                    return false;
                }
                // A message that was too long is dropped.
                Err(_) => self.refused += 1,
            }
        }
        true
    }

    /// Only the acceptor has the other end of this channel.
    fn accesses(&mut self, message: &ChannelMessage) {
        for line in lines_of(&message.bytes) {
            let makes_sense = std::str::from_utf8(line).is_ok_and(|line| self.logging.access(line));
            self.refused += u64::from(!makes_sense);
        }
    }

    fn said(&mut self, message: &ChannelMessage) {
        for line in lines_of(&message.bytes) {
            match ErrorEntry::parse(line) {
                Ok(ErrorEntry {
                    time_us,
                    level,
                    text,
                }) => self.logging.error(message.sender, time_us, level, &text),
                Err(_) => self.refused += 1,
            }
        }
    }

    fn tell_refused(&mut self) {
        let is_time = self.told.is_none_or(|told| told.elapsed() >= REFUSED_EVERY);
        if self.refused > 0 && is_time {
            self.told = Some(Instant::now());
            let refused = std::mem::take(&mut self.refused);
            warn!(
                "the scribe has refused lines: a worker or the template sent them, and has no right to, or they \
                 make no sense refused={refused}"
            );
        }
    }
}
