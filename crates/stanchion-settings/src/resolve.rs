//! Merging layers of values, the lowest first, into one checked value for each setting.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::checks::check_together;
use super::coerce::coerce;
use super::row::Setting;
use super::table::{find, rows, settings};
use super::values::{Resolved, Values};
use super::warnings::warnings;
use super::words::{EventLoop, Interface};
use super::{Settings, SettingsError};

/// The longest error of a value.
const ERROR_CHARS_MAX: usize = 1_000;

/// Values from one place.
#[derive(Debug, Deserialize)]
pub struct Layer {
    /// The place, as people know it: "command line", "environment PORT", "config file PATH".
    pub origin: String,
    /// Raw values by name of setting: texts from the outside, native ones from a config file.
    pub values: Map<String, Value>,
}

/// The effective values, and all that was wrong with those given.
#[derive(Debug, Serialize)]
pub struct Resolution {
    /// One value for each setting of the table, by name. A refused one is left out of it: the
    /// next lower stands.
    pub values: Values,
    /// One line for each refused value.
    pub errors: Vec<String>,
    /// Names that are no settings.
    pub unknown: Vec<Unknown>,
    /// One line for each value that an operator may regret, or has given in vain.
    pub warnings: Vec<String>,
}

/// A name that is no setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// The name.
    pub name: String,
    /// The [`Layer::origin`].
    pub origin: String,
}

/// Merges `layers`, lowest first, over the defaults. A higher layer replaces a value whole, lists
/// too, as in gunicorn. Every value is checked, also one that a higher layer replaces.
pub fn resolve(layers: &[Layer]) -> Resolution {
    let mut resolution = Resolution::of_defaults();
    for layer in layers {
        for (name, raw) in &layer.values {
            resolution.put(name, raw, &layer.origin);
        }
        resolution.let_the_later_interface_win(layer);
    }
    let settings = Settings::of(&resolution.values);
    for (setting, reason) in check_together(&settings, &resolution.values) {
        let origin = resolution.values[setting.name].origin.clone();
        resolution.refuse(setting.name, &origin, &reason);
    }
    resolution.warnings = warnings(&settings, &resolution.values);
    resolution
}

/// [`resolve`] for a caller who speaks JSON: a list of [`Layer`]s in, a [`Resolution`] out.
pub fn resolve_json(layers: &str) -> Result<String, SettingsError> {
    let layers: Vec<Layer> = serde_json::from_str(layers)?;
    Ok(serde_json::to_string(&resolve(&layers))?)
}

impl Resolution {
    fn of_defaults() -> Self {
        let default = |setting: &'static Setting| {
            let value = Value::from(setting.default);
            (setting.name, Resolved::default(value))
        };
        Self {
            values: settings().map(default).collect(),
            errors: Vec::new(),
            unknown: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn put(&mut self, name: &str, raw: &Value, origin: &str) {
        let origin = origin.to_owned();
        let Some(setting) = find(name) else {
            let name = name.to_owned();
            self.unknown.push(Unknown { name, origin });
            return;
        };
        match coerce(&setting.kind, raw) {
            Ok(value) => {
                self.values.insert(setting.name, Resolved { value, origin });
            }
            Err(reason) => self.refuse(name, &origin, &reason),
        }
    }

    /// A layer that asks for an asynchronous app has no use for the gevent of a layer below it, as where gunicorn's `-k` takes the place of a
    /// `worker_class`.
    fn let_the_later_interface_win(&mut self, layer: &Layer) {
        let (interface, event_loop) = (&rows::interface, &rows::event_loop);
        let gives = |setting: &Setting| layer.values.contains_key(setting.name);
        let is_asked = gives(&interface.setting) && !gives(&event_loop.setting);
        let is_gevent = event_loop.of(&self.values) == EventLoop::Gevent;
        if is_asked && is_gevent && interface.of(&self.values) == Interface::Asgi {
            self.put(event_loop.setting.name, &Value::from("auto"), &layer.origin);
        }
    }

    fn refuse(&mut self, name: &str, origin: &str, reason: &str) {
        self.errors
            .push(line(&format!("setting `{name}` from {origin}: {reason}")));
    }
}

impl Settings {
    /// Reads `{name: value}`, the values that are set, over the defaults, with every check of the table.
    pub fn from_json(text: &str) -> Result<Self, SettingsError> {
        Self::from_values(serde_json::from_str(text)?)
    }

    fn from_values(values: Map<String, Value>) -> Result<Self, SettingsError> {
        let origin = "settings".into();
        let resolution = resolve(&[Layer { origin, values }]);
        let mut errors = resolution.errors;
        errors.extend(resolution.unknown.iter().map(ToString::to_string));
        if errors.is_empty() {
            Ok(Self::of(&resolution.values))
        } else {
            Err(SettingsError::Invalid(errors))
        }
    }
}

impl Default for Settings {
    /// The defaults of the table.
    fn default() -> Self {
        Self::from_values(Map::new()).expect("the table's defaults pass the table's own checks")
    }
}

/// An error in one line of bounded length, however a refused value in it was written: a terminal shows it, and a log has it. The
/// middle of a long one is left out, since a value stands before the reason.
fn line(text: &str) -> String {
    let mut chars = Vec::new();
    for char in text.chars() {
        if is_shown(char) {
            chars.push(char);
        } else {
            chars.extend(char.escape_unicode());
        }
    }
    if chars.len() <= ERROR_CHARS_MAX {
        return chars.into_iter().collect();
    }
    let (first, last) = (
        &chars[..ERROR_CHARS_MAX / 2],
        &chars[chars.len() - ERROR_CHARS_MAX / 2..],
    );
    first.iter().chain(['…'].iter()).chain(last).collect()
}

/// Whether a terminal shows the character where it stands, and in its line: not controls, separators of lines, or marks of
/// direction (Unicode Standard Annex 9).
fn is_shown(char: char) -> bool {
    let turns =
        matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !char.is_control() && !turns
}

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!(
            "setting `{}` from {}: there is no such setting",
            self.name, self.origin
        );
        out.write_str(&line(&text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn layer(origin: &str, values: &Value) -> Layer {
        serde_json::from_value(json!({"origin": origin, "values": values})).unwrap()
    }

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        let with_control = |rest: &str| {
            let control = format!("a\nb\u{1b}[2J{}", rest.repeat(10_000));
            resolve(&[layer(
                "config file c.py",
                &json!({"control": control, "no\nsuch": 1}),
            )])
        };
        for (rest, shown) in [("x", "x"), ("\u{1}", "\\u{1}"), ("\u{202e}", "\\u{202e}")] {
            let resolution = with_control(rest);
            let [error] = &resolution.errors[..] else {
                panic!("{:?}", resolution.errors);
            };
            let start = "setting `control` from config file c.py: 'a\\u{a}b\\u{1b}[2J";
            assert!(
                error.starts_with(&format!("{start}{shown}{shown}")),
                "{error}"
            );
            let reason = "is not a host (a unix socket is written unix:/path), got 'a";
            assert!(error.contains(reason), "{error}");
            assert!(error.chars().count() <= ERROR_CHARS_MAX + 1 && error.contains('…'));
        }
        assert_eq!(
            with_control("").unknown[0].to_string(),
            "setting `no\\u{a}such` from config file c.py: there is no such setting"
        );
    }

    #[test]
    fn json_in_and_out() {
        let answer = resolve_json(
            r#"[{"origin": "config file c.py", "values": {"workers": 2, "worker_class": "sync"}}]"#,
        )
        .unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            answer["values"]["workers"],
            json!({"value": 2, "origin": "config file c.py"})
        );
        assert_eq!(
            answer["unknown"],
            json!([{"name": "worker_class", "origin": "config file c.py"}])
        );
        assert_eq!(answer["errors"], json!([]));
        assert!(matches!(resolve_json("{}"), Err(SettingsError::Json(_))));
    }
}
