//! Makes a value of the setting's kind from the value that an operator wrote.

use serde_json::{Map, Number, Value};

use super::kind::{Check, FromMap, Kind, Preset, Range};

/// Longest part of a refused value that is shown back, in characters.
const SHOWN_CHARS_MAX: usize = 60;

/// Turns a raw value (a text of the command line, or whatever a config file held) into the value
/// that stands for it. The error reads "expected …, got …".
pub(super) fn coerce(kind: &Kind, raw: &Value) -> Result<Value, String> {
    let value = match kind {
        Kind::Int(range) => integer(raw).filter(|n| range.holds(*n)).map(Value::from),
        Kind::Bytes(range) => bytes(raw).filter(|n| range.holds(*n)).map(Value::from),
        Kind::Seconds(range) => seconds(raw)
            .filter(|s| range.holds_seconds(*s))
            .map(plain_number),
        Kind::Octal(range) => octal(raw).filter(|n| range.holds(*n)).map(Value::from),
        Kind::Bool => boolean(raw).map(Value::from),
        Kind::Account => account(raw),
        Kind::Choice(words) => choice(words, raw).map(Value::from),
        Kind::Text { nullable, check } => return text(*nullable, *check, raw),
        Kind::List {
            may_be_empty,
            check,
            from_map,
        } => return list(*may_be_empty, *check, *from_map, raw),
        Kind::Map { check } => return map(*check, raw),
    };
    value.ok_or_else(|| unlike(&expected(kind), raw) + &forgotten_unit(kind, raw))
}

/// Advice for a size so small that its unit was most likely forgotten.
fn forgotten_unit(kind: &Kind, raw: &Value) -> String {
    match (kind, integer(raw)) {
        (Kind::Bytes(range), Some(number)) if range.or_zero && !range.holds(number) => {
            format!(", which is {number} bytes; {number}M is {number} MiB")
        }
        _ => String::new(),
    }
}

/// The values that a setting takes, in words that follow "expected".
pub(super) fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Int(range) => format!("a whole number {range}"),
        Kind::Bytes(range) => size_expected(*range),
        Kind::Seconds(range) => format!("a number of seconds {range}"),
        Kind::Octal(Range { min, max, .. }) => match max {
            Some(max) => format!("a number from 0o{min:o} to 0o{max:o}"),
            None => format!("a number >= 0o{min:o}"),
        },
        Kind::Bool => "true or false".into(),
        Kind::Account => "a name or a number".into(),
        Kind::Choice(words) => format!("one of {}", words.join(", ")),
        Kind::Text { nullable: true, .. } => "a string or None".into(),
        Kind::Text {
            nullable: false, ..
        } => "a string".into(),
        Kind::List { .. } => "a list of strings".into(),
        Kind::Map { .. } => "a mapping of strings to strings".into(),
    }
}

fn unlike(expected: &str, raw: &Value) -> String {
    format!("expected {expected}, got {}", shown(raw))
}

/// The value as an error shows it: texts in quotes, everything on one short line.
fn shown(raw: &Value) -> String {
    let text = match raw {
        Value::String(text) => format!("'{}'", text.escape_debug()),
        Value::Null => "None".into(),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn integer(raw: &Value) -> Option<u64> {
    match raw {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => digits(text.trim()),
        _ => None,
    }
}

/// The units of sizes. Each has one meaning, a power of 1024, as in the files of nginx and in Docker's flags.
const UNITS: &[(&str, u32)] = &[("K", 10), ("M", 20), ("G", 30)];

/// Endings that may stand behind the letter of a unit.
const ENDINGS: &[&str] = &["", "B", "iB"];

/// A number of bytes, or a text with a unit: `64K`, `8MB`, `1GiB`.
fn bytes(raw: &Value) -> Option<u64> {
    let Value::String(text) = raw else {
        return integer(raw);
    };
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let unit = unit.trim_start();
    let number = digits(number).filter(|_| unit_at != Some(0))?;
    if unit.is_empty() || unit.eq_ignore_ascii_case("B") {
        return Some(number);
    }
    let (_, shift) = UNITS.iter().find(|(letter, _)| {
        let mut spelled = ENDINGS.iter().map(|ending| format!("{letter}{ending}"));
        spelled.any(|spelled| spelled.eq_ignore_ascii_case(unit))
    })?;
    number.checked_mul(1 << shift)
}

/// In the largest unit in which it is whole.
fn size(bytes: u64) -> String {
    let unit = UNITS
        .iter()
        .rev()
        .find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(
        || bytes.to_string(),
        |(letter, shift)| format!("{}{letter}", bytes >> shift),
    )
}

fn size_expected(range: Range) -> String {
    let zero = if range.or_zero { "0, or " } else { "" };
    let least = size(range.min);
    let limits = match range.max {
        Some(max) => format!("from {least} to {}", size(max)),
        None if range.min == 0 => {
            return "a size in bytes, or with a unit such as 64K, 8MB, 1GiB".into();
        }
        None => format!("of {least} or more"),
    };
    format!("{zero}a size {limits}, in bytes or with a unit such as 64K, 8MB, 1GiB")
}

fn digits(text: &str) -> Option<u64> {
    // from_str alone would take "+5".
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

fn seconds(raw: &Value) -> Option<f64> {
    match raw {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// 30 and not 30.0, as people write it.
fn plain_number(seconds: f64) -> Value {
    if seconds.fract() == 0.0 {
        // The range bounds it far below the 2^53 up to which f64 holds every whole number.
        #[allow(clippy::cast_sign_loss)]
        return Value::from(seconds as u64);
    }
    Number::from_f64(seconds).map_or(Value::Null, Value::Number)
}

/// `022` and `0o22` are 18, and so is `18`.
fn octal(raw: &Value) -> Option<u64> {
    let Value::String(text) = raw else {
        return integer(raw);
    };
    let text = text.trim();
    match text.strip_prefix("0o").or(text.strip_prefix('0')) {
        None | Some("") => digits(text),
        Some(octal) if octal.bytes().all(|byte| byte.is_ascii_digit()) => {
            u64::from_str_radix(octal, 8).ok()
        }
        Some(_) => None,
    }
}

/// The number of a user or group becomes its text, so that there is one form of both.
fn account(raw: &Value) -> Option<Value> {
    match raw {
        Value::Null => Some(Value::Null),
        Value::Number(number) => Some(number.as_u64()?.to_string().into()),
        Value::String(text) if text.is_empty() => Some(Value::Null),
        // passwd(5) and group(5) are lists of fields with colons between.
        Value::String(text) if !text.contains(['\0', ':', '\n']) => Some(text.as_str().into()),
        _ => None,
    }
}

fn boolean(raw: &Value) -> Option<bool> {
    match raw {
        Value::Bool(value) => Some(*value),
        Value::String(text) if text.trim().eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.trim().eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

fn choice(words: &[&'static str], raw: &Value) -> Option<&'static str> {
    // gunicorn's `proxy_protocol` and `http2_cleartext` may be True or False too.
    let is_switch = words.contains(&"off") && !words.contains(&"on");
    let on = words
        .iter()
        .find(|word| matches!(**word, "auto" | "prior-knowledge"));
    let text = match raw {
        Value::Bool(true) if is_switch => on?,
        Value::Bool(false) if is_switch => "off",
        _ => raw.as_str()?.trim(),
    };
    words
        .iter()
        .find(|word| word.eq_ignore_ascii_case(text))
        .copied()
}

fn text(nullable: bool, check: Check, raw: &Value) -> Result<Value, String> {
    match raw {
        Value::Null if nullable => Ok(Value::Null),
        Value::String(text) if nullable && text.is_empty() => Ok(Value::Null),
        Value::String(text) => checked(check, text),
        other => {
            let wanted = if nullable {
                "a string or None"
            } else {
                "a string"
            };
            Err(unlike(wanted, other))
        }
    }
}

/// One text stands for a list of one, as in gunicorn: `bind = "127.0.0.1:8000"`.
fn list(
    may_be_empty: bool,
    check: Check,
    from_map: Option<FromMap>,
    raw: &Value,
) -> Result<Value, String> {
    let items = match raw {
        Value::String(_) => std::slice::from_ref(raw),
        Value::Object(_) if from_map.is_some() => std::slice::from_ref(raw),
        Value::Array(items) => items,
        Value::Null => &[],
        other => return Err(unlike("a list of strings", other)),
    };
    if items.is_empty() && !may_be_empty {
        return Err("expected at least one, got none".into());
    }
    let checked_items = items.iter().map(|item| match (item, from_map) {
        (Value::String(text), _) => checked(check, text),
        (Value::Object(map), Some(from_map)) => from_map(map)
            .map(Value::from)
            .map_err(|reason| format!("{reason}, got {}", shown(item))),
        (other, _) => Err(unlike("a list of strings", other)),
    });
    checked_items
        .collect::<Result<Vec<_>, _>>()
        .map(Value::Array)
}

fn map(check: fn(&str, &str) -> Result<(), String>, raw: &Value) -> Result<Value, String> {
    let texts = |map: &Map<String, Value>| map.values().all(Value::is_string);
    let Some(map) = raw.as_object().filter(|map| texts(map)) else {
        return Err(unlike("a mapping of strings to strings", raw));
    };
    for (name, text) in map {
        check(name, text.as_str().unwrap_or_default())
            .map_err(|reason| format!("{reason}, got {}", shown(raw)))?;
    }
    Ok(raw.clone())
}

fn checked(check: Check, text: &str) -> Result<Value, String> {
    match check(text) {
        Ok(()) => Ok(text.into()),
        Err(reason) => Err(format!("{reason}, got {}", shown(&text.into()))),
    }
}

impl Range {
    fn holds(self, number: u64) -> bool {
        let is_zero = self.or_zero && number == 0;
        is_zero || number >= self.min && self.max.is_none_or(|max| number <= max)
    }

    /// False for what is no number at all (NaN), as every comparison with it is.
    #[allow(clippy::cast_precision_loss)] // the ends of ranges of time are small
    fn holds_seconds(self, seconds: f64) -> bool {
        seconds >= self.min as f64 && self.max.is_none_or(|max| seconds <= max as f64)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.max {
            Some(max) => write!(out, "from {} to {max}", self.min),
            None => write!(out, ">= {}", self.min),
        }
    }
}

impl From<&Preset> for Value {
    fn from(preset: &Preset) -> Self {
        match preset {
            Preset::Null => Value::Null,
            Preset::Bool(value) => (*value).into(),
            Preset::Number(number) => (*number).into(),
            Preset::Text(text) => (*text).into(),
            Preset::List(items) => items.to_vec().into(),
            Preset::Map(items) => items
                .iter()
                .map(|&(name, text)| (name, text))
                .collect::<Value>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::table;
    use super::*;

    fn of(name: &str, raw: &Value) -> Result<Value, String> {
        coerce(&table::find(name).unwrap().kind, raw)
    }

    #[test]
    fn every_default_is_a_value_of_its_own_kind() {
        for setting in table::settings() {
            let default = Value::from(&setting.default);
            assert_eq!(
                coerce(&setting.kind, &default),
                Ok(default),
                "{}",
                setting.name
            );
        }
    }

    #[test]
    fn texts_and_native_values_mean_the_same() {
        for (name, raw, value) in [
            ("workers", json!("4"), json!(4)),
            ("workers", json!(4), json!(4)),
            ("timeout", json!("0.5"), json!(0.5)),
            ("timeout", json!(30.0), json!(30)),
            ("limit_request_body", json!("64K"), json!(65536)),
            ("limit_request_body", json!("2g"), json!(2_147_483_648_u64)),
            ("limit_request_body", json!("64KB"), json!(65536)),
            ("limit_request_body", json!("64 kib"), json!(65536)),
            ("limit_request_body", json!("3MiB"), json!(3_145_728)),
            ("limit_request_body", json!("3 mb"), json!(3_145_728)),
            ("limit_request_body", json!("1GB"), json!(1_073_741_824)),
            ("limit_request_body", json!("1GiB"), json!(1_073_741_824)),
            ("limit_request_body", json!("700B"), json!(700)),
            ("max_memory", json!(0), json!(0)),
            ("max_memory", json!("1M"), json!(1_048_576)),
            ("reload", json!(" True "), json!(true)),
            ("loglevel", json!("WARNING"), json!("warning")),
            ("accesslog", json!(""), json!(null)),
            ("bind", json!(":80"), json!([":80"])),
            ("bind", json!([":80", "unix:a"]), json!([":80", "unix:a"])),
            (
                "bind",
                json!([":80", {"address": ":81", "backlog": 64}]),
                json!([":80", "0.0.0.0:81?backlog=64"]),
            ),
            (
                "bind",
                json!({"address": "unix:a", "mode": 384}),
                json!(["unix:a?mode=0o600"]),
            ),
            ("raw_env", json!(null), json!([])),
            ("umask", json!("022"), json!(18)),
            ("umask", json!("0o22"), json!(18)),
            ("umask", json!("18"), json!(18)),
            ("umask", json!(18), json!(18)),
            ("umask", json!("0"), json!(0)),
            ("user", json!(1000), json!("1000")),
            ("user", json!("www-data"), json!("www-data")),
            ("group", json!(""), json!(null)),
            ("max_memory", json!("300M"), json!(314_572_800)),
            ("raw_env", json!("A=b=c"), json!(["A=b=c"])),
        ] {
            assert_eq!(of(name, &raw), Ok(value), "{name} {raw}");
        }
    }

    #[test]
    fn every_bad_value_says_what_was_expected() {
        for (name, raw, error) in [
            (
                "workers",
                json!("x"),
                "expected a whole number >= 1, got 'x'",
            ),
            ("workers", json!(0), "expected a whole number >= 1, got 0"),
            (
                "workers",
                json!(2.5),
                "expected a whole number >= 1, got 2.5",
            ),
            (
                "workers",
                json!(true),
                "expected a whole number >= 1, got true",
            ),
            (
                "workers",
                json!("+1"),
                "expected a whole number >= 1, got '+1'",
            ),
            (
                "workers",
                json!(null),
                "expected a whole number >= 1, got None",
            ),
            (
                "body_memory",
                json!("2M"),
                "expected a size from 0 to 1M, in bytes or with a unit such as 64K, 8MB, 1GiB, got '2M'",
            ),
            (
                "timeout",
                json!("nan"),
                "expected a number of seconds from 0 to 1000000000, got 'nan'",
            ),
            (
                "timeout",
                json!(-1),
                "expected a number of seconds from 0 to 1000000000, got -1",
            ),
            ("reload", json!("yes"), "expected true or false, got 'yes'"),
            (
                "loglevel",
                json!("loud"),
                "expected one of debug, info, warning, error, critical, got 'loud'",
            ),
            ("accesslog", json!(3), "expected a string or None, got 3"),
            ("errorlog", json!(""), "expected a file name or '-', got ''"),
            ("bind", json!([]), "expected at least one, got none"),
            ("bind", json!([80]), "expected a list of strings, got 80"),
            (
                "bind",
                json!(":http"),
                "'http' is not a port (0 to 65535), got ':http'",
            ),
            ("raw_env", json!("=b"), "it is written KEY=VALUE, got '=b'"),
            (
                "limit_request_body",
                json!("G"),
                "expected 0, or a size of 512 or more, in bytes or with a unit such as 64K, 8MB, 1GiB, got 'G'",
            ),
            (
                "max_memory",
                json!("80"),
                "expected 0, or a size of 1M or more, in bytes or with a unit such as 64K, 8MB, 1GiB, got '80', which is 80 \
                 bytes; 80M is 80 MiB",
            ),
            (
                "max_memory_hard",
                json!("0.2G"),
                "expected 0, or a size of 1M or more, in bytes or with a unit such as 64K, 8MB, 1GiB, got '0.2G'",
            ),
            (
                "min_body_rate",
                json!("K"),
                "expected a size in bytes, or with a unit such as 64K, 8MB, 1GiB, got 'K'",
            ),
        ] {
            assert_eq!(of(name, &raw), Err(error.into()), "{name} {raw}");
        }
    }

    #[test]
    fn every_bad_mode_account_and_mapping_says_what_was_expected() {
        for (name, raw, error) in [
            (
                "bind",
                json!({"backlog": 1}),
                r#"it has no address, got {"backlog":1}"#,
            ),
            (
                "bind",
                json!(":80?backlog=x"),
                "backlog is a whole number from 1 to 2147483647, got ':80?backlog=x'",
            ),
            (
                "raw_env",
                json!({"a": "b"}),
                r#"expected a list of strings, got {"a":"b"}"#,
            ),
            (
                "umask",
                json!("0999"),
                "expected a number from 0o0 to 0o777, got '0999'",
            ),
            (
                "umask",
                json!("0o1000"),
                "expected a number from 0o0 to 0o777, got '0o1000'",
            ),
            (
                "user",
                json!("a:b"),
                "expected a name or a number, got 'a:b'",
            ),
            ("user", json!(-1), "expected a name or a number, got -1"),
            (
                "control",
                json!("127.0.0.1:99"),
                "expected unix:/PATH, got '127.0.0.1:99'",
            ),
        ] {
            assert_eq!(of(name, &raw), Err(error.into()), "{name} {raw}");
        }
    }

    #[test]
    fn a_refused_value_is_shown_on_one_short_line() {
        let error = of("workers", &json!("long\n".repeat(100))).unwrap_err();
        assert!(
            !error.contains('\n') && error.chars().count() < 110,
            "{error}"
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            r"[0-9]{0,20}[kMg]?|\PC{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| {
            prop::collection::vec(inner, 0..4).prop_map(Value::from)
        })
    }

    proptest! {
        #[test]
        fn coercion_never_panics_and_accepts_its_own_results(raw in any_json()) {
            for setting in table::settings() {
                if let Ok(value) = coerce(&setting.kind, &raw) {
                    prop_assert_eq!(coerce(&setting.kind, &value), Ok(value), "{}", setting.name);
                }
            }
        }
    }
}
