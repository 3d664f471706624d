//! Operators set values by texts of the command line, of variables and of config files, and by native values of config files:
//! each value is refused in one line or taken, and what was taken is taken again as it is.

use serde_json::{Map, Value};
use stanchion_settings::{Layer, Settings, resolve, settings};

/// Between two settings of the input.
const BETWEEN: u8 = 0xff;
/// An error shows a refused value cut off, and the setting's own words.
const ERROR_CHARS_MAX: usize = 2_000;

pub(crate) fn look(bytes: &[u8]) {
    let names: Vec<_> = settings().map(|setting| setting.name).collect();
    let mut values = Map::new();
    for part in bytes.split(|&byte| byte == BETWEEN) {
        let [number, form, text @ ..] = part else {
            continue;
        };
        let text = String::from_utf8_lossy(text);
        let value = match form % 2 {
            0 => Value::from(text),
            _ => match serde_json::from_str(&text) {
                Ok(value) => value,
                Err(_) => continue,
            },
        };
        let name = names.get(usize::from(*number)).copied();
        values.insert(name.unwrap_or("no_such_setting").to_owned(), value);
    }
    let layer = |values| {
        [Layer {
            origin: "config file".to_owned(),
            values,
        }]
    };
    let first = resolve(&layer(values.clone()));
    assert_eq!(first.values.len(), names.len());
    for error in first.errors.iter().chain(&first.warnings) {
        assert!(
            !error.is_empty() && error.chars().count() < ERROR_CHARS_MAX && !error.contains('\n'),
            "{error:?}"
        );
    }
    let settings = Settings::from_json(&Value::Object(values).to_string());
    assert_eq!(
        settings.is_ok(),
        first.errors.is_empty() && first.unknown.is_empty()
    );
    if let Ok(settings) = &settings {
        // Titles and messages are made of them.
        let _ = (settings.name(), settings.is_event_loop());
    }
    let taken = first
        .values
        .iter()
        .filter(|(_, one)| one.origin != "default");
    let taken = taken.map(|(name, one)| ((*name).to_owned(), one.value.clone()));
    let again = resolve(&layer(taken.collect()));
    if first.errors.is_empty() {
        assert!(again.errors.is_empty(), "{:?}", again.errors);
        for (name, one) in &first.values {
            assert_eq!(again.values[name].value, one.value, "{name}");
        }
    }
}
