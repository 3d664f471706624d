//! The table as JSON, for the command line.

use serde_json::{Value, json};

use super::help::{Help, HelpSection, sections};
use super::kind::ValueKind;

/// The table as a JSON list of settings, in order:
///
/// ```json
/// {"name": "workers", "section": "Workers", "flags": ["-w", "--workers"], "off_flags": [],
///  "metavar": "N", "env": "WEB_CONCURRENCY", "env_format": "{}", "kind": "workers",
///  "range": {"min": 1, "max": null}, "choices": null, "default": 1, "gunicorn": true,
///  "help": "…", "long_help": "…"}
/// ```
///
/// `kind` is one of int, workers, tries, bytes, seconds, octal, bool, account, str, list, map, choice. `off_flags` are those that
/// switch a bool off. `env_format` has `{}` where the variable's text goes.
pub fn schema_json() -> String {
    let all = sections().flat_map(|HelpSection { title, settings }| {
        settings.into_iter().map(move |help| describe(title, &help))
    });
    all.collect::<Value>().to_string()
}

fn describe(section: &str, help: &Help) -> Value {
    let setting = help.setting;
    let is_off = |flag: &&str| matches!(setting.kind, ValueKind::Bool) && flag.starts_with("--no-");
    let (off_flags, flags): (Vec<_>, Vec<_>) = setting.flags().partition(is_off);
    let (kind, range, choices) = match setting.kind {
        ValueKind::Int(range) => ("int", Some(range), None),
        ValueKind::Workers(range) => ("workers", Some(range), None),
        ValueKind::Tries => ("tries", None, None),
        ValueKind::Bytes(range) => ("bytes", Some(range), None),
        ValueKind::Seconds(range) => ("seconds", Some(range), None),
        ValueKind::Octal(range) => ("octal", Some(range), None),
        ValueKind::Account => ("account", None, None),
        ValueKind::Bool => ("bool", None, None),
        ValueKind::Text { .. } => ("str", None, None),
        ValueKind::List(_) => ("list", None, None),
        ValueKind::Map { .. } => ("map", None, None),
        ValueKind::Choice(words) => ("choice", None, Some(words())),
    };
    json!({
        "name": setting.name,
        "section": section,
        "flags": flags,
        "off_flags": off_flags,
        "metavar": setting.metavar(),
        "env": setting.env.as_ref().map(|env| env.name),
        "env_format": setting.env.as_ref().map(|env| env.format),
        "kind": kind,
        "range": range.map(|range| json!({"min": range.min, "max": range.max})),
        "choices": choices,
        "default": Value::from(setting.default),
        "gunicorn": setting.gunicorn,
        "help": help.summary,
        "long_help": help.paragraphs.join("\n\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(name: &str) -> Value {
        let schema: Vec<Value> = serde_json::from_str(&schema_json()).unwrap();
        schema
            .into_iter()
            .find(|setting| setting["name"] == name)
            .unwrap()
    }

    #[test]
    fn a_setting_is_described_whole() {
        let workers = described("workers");
        assert_eq!(workers["section"], "Workers");
        assert_eq!(workers["flags"], json!(["-w", "--workers"]));
        assert_eq!(workers["env"], "WEB_CONCURRENCY");
        assert_eq!(workers["range"], json!({"min": 1, "max": null}));
        assert_eq!(workers["default"], 1);
    }

    #[test]
    fn flags_that_switch_off_stand_apart() {
        let preload = described("preload_app");
        assert_eq!(preload["flags"], json!(["--preload"]));
        assert_eq!(preload["off_flags"], json!(["--no-preload"]));
    }
}
