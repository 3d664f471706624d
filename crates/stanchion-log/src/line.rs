//! A line of the error log, as its file has it.

use std::fmt::Write as _;

use stanchion_sys::clock::LocalTime;
use stanchion_sys::process;
use tracing::Level;

use super::{levels, syslog};

/// The whole line. `for_journal`: journald keeps time and process by itself, and shows them.
pub(super) fn line_of(
    for_journal: bool,
    (level, target): (Level, &str),
    at: LocalTime,
    pid: i32,
    text: &str,
) -> String {
    if for_journal {
        return with_levels(&format!("{text}\n"), level);
    }
    let mut line = String::with_capacity(64 + text.len());
    event_head(&mut line, level, target, at, pid);
    line.push_str(text);
    line.push('\n');
    line
}

/// Appends how a line of this process begins that is written now.
pub(super) fn own_head(line: &mut String, level: Level, target: &str) {
    event_head(line, level, target, LocalTime::now(), process::pid());
}

/// Appends how a line begins, as gunicorn's: `[2026-11-21 05:26:41 +0000] [1234] [INFO] `.
fn event_head(line: &mut String, level: Level, target: &str, at: LocalTime, pid: i32) {
    let level = levels::shown(level, target);
    // Writing to a String cannot fail.
    let _ = write!(
        line,
        "[{:04}-{:02}-{:02} {:02}:{:02}:{:02} {}] [{}] [{level}] ",
        at.year,
        at.month,
        at.day,
        at.hour,
        at.minute,
        at.second,
        at.offset(),
        pid,
    );
}

/// Has every line begin with a level that journald reads (sd-daemon(3)); it takes each line of a
/// message for a message of its own.
fn with_levels(text: &str, level: Level) -> String {
    let severity = syslog::severity(level);
    let mut lines = String::with_capacity(text.len() + 8);
    for line in text.lines() {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "<{severity}>{line}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journald_is_told_the_level_of_each_line() {
        let text = "[head] it failed\n  at a\n  at b\n";
        let expected = "<3>[head] it failed\n<3>  at a\n<3>  at b\n";
        assert_eq!(with_levels(text, Level::ERROR), expected);
    }
}
