//! Lines from the other processes to the scribe: one JSON object on a line, several lines in a message. A line begins with the log that it is for.

use serde::{Deserialize, Serialize};
use tracing::Level;

use super::levels::CRITICAL;

/// The longest message, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The longest line, in bytes: what is longer is cut.
pub const LINE_BYTES_MAX: usize = 32 << 10;
/// How a line of the access log begins; an object and a brace follow. Its keys are in `access_log::record`.
pub const ACCESS: &[u8] = b"{\"access\":";

/// As many bytes of text fit a line, whatever they are: JSON may need six for one.
const TEXT_BYTES_MAX: usize = LINE_BYTES_MAX / 6 - 64;

/// A line for the error log. The kernel says which process wrote it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorEntry {
    /// When, in microseconds since the epoch.
    pub time_us: u64,
    /// A level of Python's: 50 is critical, 40 an error, 30 a warning, 20 an information, 10 for debugging.
    pub level: u8,
    /// The text. It may have several lines.
    pub text: String,
}

/// The entry as it is on its line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tagged<E> {
    error: E,
}

impl ErrorEntry {
    /// An entry for an event of this moment.
    pub fn now(level: Level, target: &str, text: &str) -> Self {
        Self {
            time_us: stanchion_sys::clock::wall_us(),
            level: number(level, target),
            text: text.to_owned(),
        }
    }

    /// The line as it is sent, with a line feed at its end.
    pub fn into_line(mut self) -> Vec<u8> {
        let mut line = self.encode();
        if line.len() >= LINE_BYTES_MAX {
            let mut end = TEXT_BYTES_MAX.min(self.text.len());
            while !self.text.is_char_boundary(end) {
                end -= 1;
            }
            self.text.truncate(end);
            self.text.push_str(" [cut]");
            line = self.encode();
        }
        line.push(b'\n');
        line
    }

    fn encode(&self) -> Vec<u8> {
        // Numbers and text have a form in JSON.
        serde_json::to_vec(&Tagged { error: self }).unwrap_or_default()
    }

    /// Reads a line without its end. The error says what is wrong with it. A process that runs the app's code may name any time; none is later than
    /// now.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let tagged: Result<Tagged<Self>, _> = serde_json::from_slice(line);
        let mut entry = tagged.map_err(|error| error.to_string())?.error;
        entry.time_us = entry.time_us.min(stanchion_sys::clock::wall_us());
        Ok(entry)
    }
}

/// The level of an event, and its target, for one of Python's.
pub(super) fn severity(level: i32) -> (Level, &'static str) {
    match level {
        50.. => (Level::ERROR, CRITICAL),
        40.. => (Level::ERROR, ""),
        30.. => (Level::WARN, ""),
        20.. => (Level::INFO, ""),
        _ => (Level::DEBUG, ""),
    }
}

fn number(level: Level, target: &str) -> u8 {
    match level {
        Level::ERROR if target == CRITICAL => 50,
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG | Level::TRACE => 10,
    }
}

/// The lines of a message.
pub fn lines_of(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = message.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

/// The start of `bytes` that makes one message: whole lines.
pub(crate) fn first_message(bytes: &[u8]) -> &[u8] {
    let start = &bytes[..bytes.len().min(MESSAGE_BYTES_MAX)];
    let end = start.iter().rposition(|&byte| byte == b'\n');
    end.map_or(start, |end| &start[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> ErrorEntry {
        ErrorEntry {
            time_us: 1_700_000_000_000_000,
            level: 40,
            text: text.to_owned(),
        }
    }

    #[test]
    fn what_goes_in_comes_out_on_one_line() {
        for text in ["", "a\nb\0\u{202e} \"c\"", "\u{1f600}"] {
            let line = entry(text).into_line();
            assert_eq!(lines_of(&line).count(), 1);
            assert_eq!(line.last(), Some(&b'\n'));
            let read = lines_of(&line).next().map(ErrorEntry::parse);
            assert_eq!(read, Some(Ok(entry(text))));
        }
    }

    #[test]
    fn nothing_was_said_later_than_now() {
        let line = r#"{"error":{"time_us":18446744073709551615,"level":40,"text":"a"}}"#;
        let read = ErrorEntry::parse(line.as_bytes()).expect("an entry");
        assert!(read.time_us <= stanchion_sys::clock::wall_us());
    }

    #[test]
    fn whatever_is_too_long_is_cut_to_a_line() {
        for worst in ["\u{1}", "\u{1f600}", "a", "e\u{301}"] {
            let line = entry(&worst.repeat(40_000)).into_line();
            assert!(line.len() <= LINE_BYTES_MAX, "{worst:?}: {}", line.len());
            let read = lines_of(&line).next().map(ErrorEntry::parse);
            let text = read.expect("a line").expect("an entry").text;
            assert!(text.starts_with(worst) && text.ends_with(" [cut]"));
        }
    }

    #[test]
    fn nothing_else_is_an_entry() {
        for line in [
            "",
            "{}",
            r#"{"error":{"time_us":1,"level":40}}"#,
            r#"{"error":{"time_us":1,"level":400,"text":"a"}}"#,
            r#"{"error":{"time_us":1,"level":40,"text":"a","pid":1}}"#,
            r#"{"error":{"time_us":1,"level":40,"text":"a"},"access":{}}"#,
            r#"{"access":{}}"#,
        ] {
            assert!(ErrorEntry::parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_message_is_as_many_whole_lines_as_fit() {
        let line = [&vec![b'a'; LINE_BYTES_MAX - 1][..], b"\n"].concat();
        let bytes = line.repeat(3);
        assert_eq!(first_message(&bytes).len(), 2 * LINE_BYTES_MAX);
        assert_eq!(first_message(b"a\nb\n"), b"a\nb\n");
    }
}
