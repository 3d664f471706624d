//! Text of clients in the logs.

use std::fmt::Write as _;

/// Appends what a client sent so that it stays on its line and harmless to a terminal: anything
/// but visible ASCII, and what quotes or escapes, is escaped.
pub fn escape_into(line: &mut String, text: &[u8]) {
    let mut rest = text;
    while !rest.is_empty() {
        // Nearly always all of it.
        let plain = rest.iter().take_while(|byte| is_plain(**byte)).count();
        let (run, after) = rest.split_at(plain);
        line.push_str(std::str::from_utf8(run).unwrap_or_default());
        let Some((&byte, after)) = after.split_first() else {
            return;
        };
        match byte {
            b'"' | b'\\' => {
                line.push('\\');
                line.push(char::from(byte));
            }
            // Writing to a String cannot fail.
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
        rest = after;
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\')
}

/// A request in the logs: `GET /path request_id=…`, without the last if it has no name.
pub fn describe(method: &str, target: &[u8], request_id: &str) -> String {
    let mut text = String::with_capacity(method.len() + target.len() + request_id.len() + 16);
    text.push_str(method);
    text.push(' ');
    escape_into(&mut text, target);
    if !request_id.is_empty() {
        text.push_str(" request_id=");
        text.push_str(request_id);
    }
    text
}
