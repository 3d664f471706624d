//! How many lines of each level the error log got, for a statsd server: gunicorn's `gunicorn.log.*`.

use std::io;

use tracing::Level;

use crate::statsd::StatsdClient;
use stanchion_settings::Settings;

/// The target of an event that gunicorn calls critical: a worker had to be killed.
pub const CRITICAL: &str = "critical";
/// The target of an event that gunicorn logs as an exception: one of the app's, with its traceback.
pub const EXCEPTION: &str = "exception";

/// A level as a line shows it, in gunicorn's words.
pub(super) fn shown(level: Level, target: &str) -> &'static str {
    match level {
        Level::ERROR if target == CRITICAL => "CRITICAL",
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

/// Sends statsd a count for each line at once, from the process that wrote it: there are few of them, and some of these processes never look at a
/// clock.
#[derive(Debug)]
pub(super) struct Levels(StatsdClient);

impl Levels {
    /// The least level that is counted, whatever the log takes: as in gunicorn.
    pub(super) const LEAST: Level = Level::WARN;

    pub(super) fn open(settings: &Settings) -> io::Result<Option<Self>> {
        let statsd = StatsdClient::open(settings)?;
        Ok(statsd.map(Self))
    }

    /// Counts a line of this level.
    pub(super) fn count(&self, level: Level, target: &str) {
        let name = match (level, target) {
            (Level::ERROR, CRITICAL) => "gunicorn.log.critical",
            (Level::ERROR, EXCEPTION) => "gunicorn.log.exception",
            (Level::ERROR, _) => "gunicorn.log.error",
            (Level::WARN, _) => "gunicorn.log.warning",
            _ => return,
        };
        // A line about it in the log would be the next one to count.
        let _ = self.0.happened(name);
    }
}
