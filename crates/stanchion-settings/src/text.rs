//! Values that are written as one text, and the checks of texts that stay texts.

use std::path::PathBuf;

use stanchion_http::CompressRules;
use stanchion_http::rules::{is_field_text, is_token};

use super::{
    AllowedPeers, Bind, Collector, ControlAddress, HttpsPort, Lane, StaticDir, StatsdAddress,
    SyslogAddress, WarmUp,
};

/// A value that a text stands for.
pub(super) trait FromText: Sized + 'static {
    /// Reads it. The error says what is wrong, without naming the setting.
    fn read(text: &str) -> Result<Self, String>;
}

macro_rules! read_by_parse {
    ($($type:ty),*) => {
        $(impl FromText for $type {
            fn read(text: &str) -> Result<Self, String> {
                Self::parse(text)
            }
        })*
    };
}

read_by_parse!(
    AllowedPeers,
    Bind,
    Collector,
    ControlAddress,
    HttpsPort,
    Lane,
    StaticDir,
    StatsdAddress,
    SyslogAddress,
    WarmUp
);

impl FromText for String {
    fn read(text: &str) -> Result<Self, String> {
        without_nul(text).map(|()| text.to_owned())
    }
}

impl FromText for PathBuf {
    fn read(text: &str) -> Result<Self, String> {
        without_nul(text).map(|()| text.into())
    }
}

/// Whether the text stands for a value.
pub(super) fn check<T: FromText>(text: &str) -> Result<(), String> {
    T::read(text).map(drop)
}

fn refused_unless(will_do: bool, reason: &str) -> Result<(), String> {
    will_do.then_some(()).ok_or_else(|| reason.to_owned())
}

/// The kernel takes a text as a path that ends at a NUL.
fn without_nul(text: &str) -> Result<(), String> {
    refused_unless(!text.contains('\0'), "it holds no NUL byte")
}

/// A text that names a file or '-'.
pub(super) fn file_name(text: &str) -> Result<(), String> {
    refused_unless(!text.is_empty(), "expected a file name or '-'")?;
    without_nul(text)
}

/// `KEY=VALUE` as setenv(3) takes it.
pub(super) fn assignment(text: &str) -> Result<(), String> {
    let has_key = text.find('=').is_some_and(|at| at > 0);
    refused_unless(has_key, "it is written KEY=VALUE")?;
    without_nul(text)
}

/// `KEY=VALUE`, as gunicorn takes it apart: at the first `=` without a backslash before it.
pub(super) fn variable(text: &str) -> Result<(), String> {
    let mut places = text.match_indices('=');
    let is_taken_apart = places.any(|(at, _)| !text[..at].ends_with('\\'));
    refused_unless(is_taken_apart, "it is written KEY=VALUE")?;
    without_nul(text)
}

/// A name without a port, or `*`.
pub(super) fn host_name(text: &str) -> Result<(), String> {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = text == "*" || (!text.is_empty() && text.bytes().all(is_of_names));
    refused_unless(is_name, "it is a name alone, as metrics.example, or *")
}

/// The beginning of a path.
pub(super) fn path_prefix(text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'?' && byte != b'#';
    let is_path = text.starts_with('/') && !text.ends_with('/');
    let will_do = is_path && text.bytes().all(is_plain);
    refused_unless(will_do, "it begins with / and does not end with it, as /-")
}

/// Empty, or a path that others can be put behind.
pub(super) fn mount_point(text: &str) -> Result<(), String> {
    let is_path = text.is_empty() || text.starts_with('/') && !text.ends_with('/');
    let will_do = is_path && !text.contains(['?', '#', '\r', '\n']);
    refused_unless(will_do, "it is written /PATH, with no slash at its end")?;
    without_nul(text)
}

/// A name of a field (RFC 9110 section 5.1).
pub(super) fn field_name(text: &str) -> Result<(), String> {
    let is_name = http::HeaderName::try_from(text).is_ok();
    refused_unless(is_name, "it is not a name of a field")
}

/// Names of fields with commas between, or `*`, which is a token too.
pub(super) fn field_names(text: &str) -> Result<(), String> {
    let mut names = text.split(',').map(str::trim);
    let wrong = names.find(|name| !name.is_empty() && !is_token(name.as_bytes()));
    wrong.map_or(Ok(()), |name| {
        Err(format!("'{name}' is not a name of a field"))
    })
}

/// A field of `secure_scheme_headers`, and what it says.
pub(super) fn scheme_field(name: &str, value: &str) -> Result<(), String> {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    refused_unless(is_token(name), "a name in it is not a name of a field")?;
    let can_be = is_field_text(value);
    refused_unless(can_be, "a value in it is none that a field can have")
}

/// Versions of HTTP, each once.
pub(super) fn protocols(text: &str) -> Result<(), String> {
    let mut seen = Vec::new();
    for word in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        if !matches!(&*word, "h1" | "h2") {
            return Err("expected h1 or h2 with commas between".to_owned());
        }
        if seen.contains(&word) {
            return Err(format!("{word} stands there twice"));
        }
        seen.push(word);
    }
    Ok(())
}

/// Names of codings in which answers are compressed.
pub(super) fn codings(text: &str) -> Result<(), String> {
    CompressRules::new(text, "", 0).map(drop)
}

/// Types of answers that are compressed.
pub(super) fn content_types(text: &str) -> Result<(), String> {
    CompressRules::new("", text, 0).map(drop)
}

/// A text before the name of a metric, where it must not end the name.
pub(super) fn metric_prefix(text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b":|@#".contains(&byte);
    let will_do = text.bytes().all(is_plain);
    refused_unless(will_do, "it holds only visible ASCII, and none of : | @ #")
}

/// Tags behind a metric, which ends with the line.
pub(super) fn metric_tags(text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'|';
    let will_do = text.bytes().all(is_plain);
    refused_unless(will_do, "they hold only ASCII, no | and no line break")
}

#[cfg(test)]
mod tests {
    use super::super::kind::Check;
    use super::*;

    #[test]
    fn each_check_takes_the_good_and_refuses_the_bad() {
        let table: [(Check, &[&str], &[&str]); 3] = [
            (
                variable,
                &["a=b", "a=", "a\\=b=c", "=b"],
                &["", "a", "a\\=b", "a=\0"],
            ),
            (
                metric_prefix,
                &["", "shop", "shop.eu-1.", "a/b"],
                &["a b", "a:1", "a|c", "a@b", "a#b", "a\nb", "\u{e9}"],
            ),
            (
                metric_tags,
                &["", "env:prod,service:shop", "name:my shop#1"],
                &["a|b", "a\nb", "env:\u{e9}"],
            ),
        ];
        for (check, good, bad) in table {
            for text in good {
                assert_eq!(check(text), Ok(()), "{text:?}");
            }
            for text in bad {
                assert!(check(text).is_err(), "{text:?}");
            }
        }
    }
}
