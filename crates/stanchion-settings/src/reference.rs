//! The table as a page for people: `docs/reference/settings.md`.

use std::fmt::Write as _;

use serde_json::Value;

use super::coerce::{expected, in_units, size_range};
use super::help::{Help, sections};
use super::kind::ValueKind;
use super::row::{OnReload, Setting};
use super::without_effect::WITHOUT_EFFECT;

/// Columns that prose on the page is filled to.
const COLUMNS: usize = 72;

const HEAD: &str = "\
# Settings

<!-- Written by `make docs` from src/table.rs and help/ in
     crates/stanchion-settings. -->

`stanchion check` prints the effective value of each setting, and where it
came from; [config-file.md](config-file.md) says which place wins.
[gunicorn-settings.md](gunicorn-settings.md) lists what works as in
gunicorn. Times are in seconds, up to 1000000000, and may have fractions;
ranges are of whole numbers. Sizes are in bytes, or have a unit in any
case: K, KB and KiB are 1024 bytes, M, MB and MiB 1024 of those, G, GB and
GiB 1024 of these.
";

/// The whole page, in Markdown.
pub fn reference_markdown() -> String {
    let mut page = HEAD.to_owned();
    for section in sections() {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {}\n", section.title);
        for help in section.settings {
            describe(&mut page, &help);
        }
    }
    page
}

fn describe(page: &mut String, help: &Help) {
    let (name, facts) = (help.setting.name, facts(help.setting));
    let _ = write!(page, "\n### `{name}`\n\n{}.\n\n{facts}\n", help.summary);
    for paragraph in &help.paragraphs {
        let words: Vec<_> = escaped(paragraph).split_whitespace().map(linked).collect();
        let _ = write!(page, "\n{}\n", filled(&words.join(" ")));
    }
}

/// Flags, values, default and environment variable, and where it has no effect, in one line.
fn facts(setting: &Setting) -> String {
    let mut facts = match setting.flags().count() {
        0 => "In the config file alone: ".to_owned(),
        _ => format!("{}: ", flags(setting)),
    };
    if let Some(takes) = takes(&setting.kind) {
        let _ = write!(facts, "{takes}, ");
    }
    let _ = write!(facts, "default {}", default(setting));
    if let Some(env) = &setting.env {
        let _ = write!(facts, "; environment `{}`", env.name);
        if env.format != "{}" {
            let value = env.format.replace("{}", &format!("${}", env.name));
            let _ = write!(facts, ", as `{value}`");
        }
    }
    facts.push_str(match setting.on_reload {
        OnReload::Applies => "",
        OnReload::Stays => "; a change needs a restart",
        OnReload::StaysInErrorLog(_) => "; a change needs a restart for the error log alone",
    });
    for row in WITHOUT_EFFECT {
        if row.setting.name == setting.name {
            let _ = write!(facts, "; no effect with {}", row.words());
        }
    }
    facts
}

/// The values that a setting takes, unless its flag and its default say it. The head of the page explains times, ranges and units.
fn takes(kind: &ValueKind) -> Option<String> {
    match kind {
        ValueKind::Bool | ValueKind::Seconds(_) | ValueKind::Text { .. } => None,
        ValueKind::Int(range) => Some(range.to_string()),
        ValueKind::Bytes(range) => Some(size_range(*range)),
        ValueKind::List(_) => Some("a list".to_owned()),
        other => Some(expected(other)),
    }
}

fn flags(setting: &Setting) -> String {
    let with_metavar = |flag: &str| match setting.metavar() {
        "" => format!("`{flag}`"),
        metavar => format!("`{flag} {metavar}`"),
    };
    let flags: Vec<_> = setting.flags().map(with_metavar).collect();
    flags.join(", ")
}

fn default(setting: &Setting) -> String {
    match Value::from(setting.default) {
        Value::Null => "none".into(),
        Value::Array(items) if items.is_empty() => "none".into(),
        Value::Array(items) => {
            let texts = items.iter().filter_map(Value::as_str);
            texts
                .map(|text| format!("`{text}`"))
                .collect::<Vec<_>>()
                .join(", ")
        }
        Value::String(text) if text.is_empty() => "none".into(),
        Value::String(text) => format!("`{text}`"),
        Value::Number(number) if matches!(setting.kind, ValueKind::Bytes(_)) => sized(&number),
        Value::Number(number) if matches!(setting.kind, ValueKind::Octal(_)) => {
            format!("`{:#o}`", number.as_u64().unwrap_or_default())
        }
        other => format!("`{other}`"),
    }
}

/// A size with its round form beside it: `` `1048576` (1 MiB) ``.
fn sized(number: &serde_json::Number) -> String {
    let bytes = number.as_u64().unwrap_or_default();
    match in_units(bytes) {
        Some((count, letter)) => format!("`{bytes}` ({count} {letter}iB)"),
        None => format!("`{bytes}`"),
    }
}

/// The two characters of the table's prose that Markdown would take for its own.
fn escaped(text: &str) -> String {
    text.replace('*', "\\*").replace('[', "\\[")
}

/// The word, as a link if it is the path of a page, such as `docs/limits.md`.
fn linked(word: &str) -> String {
    let path = word.strip_prefix("docs/");
    match path.and_then(|path| path.split_once(".md")) {
        Some((page, rest)) => format!("[docs/{page}.md](../{page}.md){rest}"),
        None => word.to_owned(),
    }
}

/// The words of a paragraph, in lines of at most [`COLUMNS`].
fn filled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut columns = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if columns > 0 && columns + 1 + width > COLUMNS {
            out.push('\n');
            columns = 0;
        } else if columns > 0 {
            out.push(' ');
            columns += 1;
        }
        out.push_str(word);
        columns += width;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_current() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/settings.md"
        );
        let committed = std::fs::read_to_string(page).unwrap_or_default();
        assert!(
            committed == reference_markdown(),
            "docs/reference/settings.md is not what the table says; write it again with:\n  \
             cargo run -p stanchion-settings --example settings_reference > \
             docs/reference/settings.md"
        );
    }

    #[test]
    fn lines_are_filled_to_the_column() {
        let text = "word ".repeat(100);
        let filled = filled(&text);
        assert!(filled.lines().all(|line| line.len() <= COLUMNS));
        assert_eq!(
            filled.lines().next().map(str::len),
            Some(69),
            "14 words and 13 spaces"
        );
        assert_eq!(filled.split_whitespace().count(), 100);
    }
}
