//! The table as JSON, for the command line.

use serde_json::{Value, json};

use super::kind::{Kind, Range};
use super::table::{GROUPS, Group, Setting};

/// The table as a JSON list of settings, in order:
///
/// ```json
/// {"name": "workers", "section": "Workers", "flags": ["-w", "--workers"], "off_flags": [],
///  "metavar": "N", "env": "WEB_CONCURRENCY", "env_format": "{}", "kind": "int",
///  "range": {"min": 1, "max": null}, "choices": null, "default": 1, "gunicorn": true,
///  "help": "…", "long_help": "…"}
/// ```
///
/// `kind` is one of int, bytes, seconds, octal, bool, account, str, list, map, choice. `off_flags` are those that
/// switch a bool off. `env_format` has `{}` where the variable's text goes.
pub fn schema_json() -> String {
    let of_group = |group: &'static Group| {
        group
            .settings
            .iter()
            .map(move |setting| describe(group.title, setting))
    };
    GROUPS
        .iter()
        .flat_map(of_group)
        .collect::<Value>()
        .to_string()
}

fn describe(section: &str, setting: &Setting) -> Value {
    let (off_flags, flags): (Vec<&str>, Vec<&str>) = setting
        .flags
        .iter()
        .partition(|flag| is_off_flag(&setting.kind, flag));
    let (kind, range, choices) = match &setting.kind {
        Kind::Int(range) => ("int", limits(*range), Value::Null),
        Kind::Bytes(range) => ("bytes", limits(*range), Value::Null),
        Kind::Seconds(range) => ("seconds", limits(*range), Value::Null),
        Kind::Octal(range) => ("octal", limits(*range), Value::Null),
        Kind::Account => ("account", Value::Null, Value::Null),
        Kind::Bool => ("bool", Value::Null, Value::Null),
        Kind::Text { .. } => ("str", Value::Null, Value::Null),
        Kind::List { .. } => ("list", Value::Null, Value::Null),
        Kind::Map { .. } => ("map", Value::Null, Value::Null),
        Kind::Choice(words) => ("choice", Value::Null, json!(words)),
    };
    json!({
        "name": setting.name,
        "section": section,
        "flags": flags,
        "off_flags": off_flags,
        "metavar": setting.metavar,
        "env": setting.env.as_ref().map(|env| env.name),
        "env_format": setting.env.as_ref().map(|env| env.format),
        "kind": kind,
        "range": range,
        "choices": choices,
        "default": Value::from(&setting.default),
        "gunicorn": setting.gunicorn,
        "help": setting.help,
        "long_help": setting.long_help,
    })
}

fn is_off_flag(kind: &Kind, flag: &str) -> bool {
    matches!(kind, Kind::Bool) && flag.starts_with("--no-")
}

fn limits(range: Range) -> Value {
    json!({"min": range.min, "max": range.max})
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
