//! Makes a value of the setting's kind from the value that an operator wrote.

use serde_json::{Number, Value};

use super::kind::{Check, Items, Range, ValueKind};
use super::worker_count::WorkerCount;

/// Longest part of a refused value that is shown back, in characters.
const SHOWN_CHARS_MAX: usize = 60;

/// Turns a raw value (a text of the command line, or whatever a config file held) into the value
/// that stands for it. The error reads "expected …, got …".
pub(super) fn coerce(kind: &ValueKind, raw: &Value) -> Result<Value, String> {
    let value = match kind {
        ValueKind::Int(range) => integer(raw).filter(|n| range.holds(*n)).map(Value::from),
        ValueKind::Workers(range) => match integer(raw) {
            Some(number) => Some(number).filter(|n| range.holds(*n)).map(Value::from),
            None => WorkerCount::read(raw)
                .filter(|count| count.is_within(*range))
                .map(Value::from),
        },
        ValueKind::Tries => tries(raw).map(Value::from),
        ValueKind::Bytes(range) => bytes(raw).filter(|n| range.holds(*n)).map(Value::from),
        ValueKind::Seconds(range) => seconds(raw)
            .filter(|s| range.holds_seconds(*s))
            .map(plain_number),
        ValueKind::Octal(range) => octal(raw).filter(|n| range.holds(*n)).map(Value::from),
        ValueKind::Bool => boolean(raw).map(Value::from),
        ValueKind::Account => account(raw),
        ValueKind::Choice(words) => choice(&words(), raw).map(Value::from),
        ValueKind::Text { nullable, check } => return text(*nullable, *check, raw),
        ValueKind::List(of) => return list(of, raw),
        ValueKind::Map { check } => return map(*check, raw),
    };
    value.ok_or_else(|| unlike(&expected(kind), raw) + &forgotten_unit(kind, raw))
}

/// Advice for a size so small that its unit was most likely forgotten.
fn forgotten_unit(kind: &ValueKind, raw: &Value) -> String {
    match (kind, integer(raw)) {
        (ValueKind::Bytes(range), Some(number)) if range.or_zero && !range.holds(number) => {
            format!(", which is {number} bytes; {number}M is {number} MiB")
        }
        _ => String::new(),
    }
}

/// The values that a setting takes, in words that follow "expected".
pub(super) fn expected(kind: &ValueKind) -> String {
    match kind {
        ValueKind::Int(range) => format!("a whole number {range}"),
        ValueKind::Workers(range) => format!("a whole number {range}, two such as 2..8, or auto"),
        ValueKind::Tries => "a whole number >= 1, or -1 for ever".into(),
        ValueKind::Bytes(range) => {
            let sizes = size_range(*range);
            format!("{sizes}, in bytes or with a unit such as 64K, 8MB, 1GiB")
        }
        ValueKind::Seconds(range) => format!("a number of seconds {range}"),
        ValueKind::Octal(Range { min, max, .. }) => match max {
            Some(max) => format!("a number from 0o{min:o} to 0o{max:o}"),
            None => format!("a number >= 0o{min:o}"),
        },
        ValueKind::Bool => "true or false".into(),
        ValueKind::Account => "a name or a number".into(),
        ValueKind::Choice(words) => format!("one of {}", words().join(", ")),
        ValueKind::Text { nullable: true, .. } => "a string or None".into(),
        ValueKind::Text {
            nullable: false, ..
        } => "a string".into(),
        ValueKind::List(_) => "a list of strings".into(),
        ValueKind::Map { .. } => "a mapping of strings to strings".into(),
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

/// How many of the largest unit in which it is whole, and the letter of that unit.
pub(super) fn in_units(bytes: u64) -> Option<(u64, &'static str)> {
    let mut units = UNITS.iter().rev();
    let (letter, shift) = units.find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift))?;
    Some((bytes >> shift, letter))
}

fn size(bytes: u64) -> String {
    in_units(bytes).map_or_else(
        || bytes.to_string(),
        |(count, letter)| format!("{count}{letter}"),
    )
}

/// The sizes that a setting takes, without the units in which they may be written.
pub(super) fn size_range(range: Range) -> String {
    let zero = if range.or_zero { "0, or " } else { "" };
    let least = size(range.min);
    let limits = match range.max {
        Some(max) => format!(" from {least} to {}", size(max)),
        None if range.min == 0 => String::new(),
        None => format!(" of {least} or more"),
    };
    format!("{zero}a size{limits}")
}

fn tries(raw: &Value) -> Option<i64> {
    let number = match raw {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|&tries| tries == -1 || tries >= 1)
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
        other => Err(unlike(
            &expected(&ValueKind::Text { nullable, check }),
            other,
        )),
    }
}

/// One text stands for a list of one, as in gunicorn: `bind = "127.0.0.1:8000"`.
fn list(of: &Items, raw: &Value) -> Result<Value, String> {
    let unlike = |raw| unlike(&expected(&ValueKind::List(*of)), raw);
    let items = match raw {
        Value::String(_) => std::slice::from_ref(raw),
        Value::Object(_) if of.from_map.is_some() => std::slice::from_ref(raw),
        Value::Array(items) => items,
        Value::Null => &[],
        other => return Err(unlike(other)),
    };
    if items.is_empty() && !of.may_be_empty {
        return Err("expected at least one, got none".into());
    }
    let items = items.iter().map(|item| match (item, of.from_map) {
        (Value::String(text), _) => checked(of.check, text),
        (Value::Object(map), Some(text_of)) => text_of(map)
            .map(Value::from)
            .map_err(|reason| format!("{reason}, got {}", shown(item))),
        (other, _) => Err(unlike(other)),
    });
    items.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn map(check: fn(&str, &str) -> Result<(), String>, raw: &Value) -> Result<Value, String> {
    let texts = raw.as_object().and_then(|map| {
        let texts = map.iter().map(|(name, text)| Some((name, text.as_str()?)));
        texts.collect::<Option<Vec<_>>>()
    });
    let texts = texts.ok_or_else(|| unlike(&expected(&ValueKind::Map { check }), raw))?;
    for (name, text) in texts {
        check(name, text).map_err(|reason| format!("{reason}, got {}", shown(raw)))?;
    }
    Ok(raw.clone())
}

fn checked(check: Check, text: &str) -> Result<Value, String> {
    match check(text) {
        Ok(()) => Ok(text.into()),
        Err(reason) => Err(format!("{reason}, got {}", shown(&text.into()))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::table::{find, settings};
    use super::*;

    fn of(name: &str, raw: &Value) -> Result<Value, String> {
        coerce(&find(name).unwrap().kind, raw)
    }

    #[test]
    fn every_default_is_a_value_of_its_own_kind() {
        for setting in settings() {
            let default = Value::from(setting.default);
            assert_eq!(
                coerce(&setting.kind, &default),
                Ok(default),
                "{}",
                setting.name
            );
        }
    }

    #[test]
    fn a_refused_value_is_shown_on_one_short_line() {
        let error = of("threads", &json!("long\n".repeat(100))).unwrap_err();
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
            for setting in settings() {
                if let Ok(value) = coerce(&setting.kind, &raw) {
                    prop_assert_eq!(coerce(&setting.kind, &value), Ok(value), "{}", setting.name);
                }
            }
        }
    }
}
