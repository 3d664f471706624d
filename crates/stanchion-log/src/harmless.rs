//! Text that other programs wrote, an app's exception or a worker's stacks, as it may stand in a log that people
//! read in a terminal.

use std::fmt::Write as _;

/// The text with everything escaped that a terminal would obey, or that would reorder or hide what stands on a line. It
/// keeps its lines.
pub(super) fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push(&mut out, text, true);
    out
}

/// Appends the text as [`lines`] has it. A line feed stays only where the text may have several lines.
pub(super) fn push(out: &mut String, text: &str, may_have_lines: bool) {
    let mut rest = text;
    while let Some(at) = rest.find(is_obeyed) {
        out.push_str(&rest[..at]);
        let mut after = rest[at..].chars();
        if let Some(char) = after.next() {
            push_char(out, char, may_have_lines);
        }
        rest = after.as_str();
    }
    out.push_str(rest);
}

fn push_char(out: &mut String, char: char, may_have_lines: bool) {
    if char == '\n' && may_have_lines {
        out.push(char);
        return;
    }
    let code = u32::from(char);
    // Writing to a String cannot fail.
    let _ = match code {
        0..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// C0, DEL and C1; and of Unicode's format characters and separators what has a direction, no width, or ends a line
/// (Unicode Standard Annexes 9 and 14).
pub fn is_obeyed(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        for (text, expected) in [
            (
                "plain \\ \"text\" \u{e9}\u{4e2d}",
                "plain \\ \"text\" \u{e9}\u{4e2d}",
            ),
            ("\x1b]0;mine\x07", "\\x1b]0;mine\\x07"),
            ("\u{9b}2J\x7f\r\t\0", "\\x9b2J\\x7f\\x0d\\x09\\x00"),
            ("a\u{202e}b\u{2028}c", "a\\u202eb\\u2028c"),
            ("\u{e0041}", "\\U000e0041"),
        ] {
            assert_eq!(lines(text), expected);
        }
    }

    #[test]
    fn lines_stay_where_there_may_be_some() {
        assert_eq!(lines("one\ntwo"), "one\ntwo");
        let mut one = String::new();
        push(&mut one, "one\ntwo", false);
        assert_eq!(one, "one\\x0atwo");
    }
}
