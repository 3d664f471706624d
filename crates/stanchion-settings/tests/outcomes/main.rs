//! `outcomes.txt` holds values that operators give, and what comes of them.
//!
//! A line that is not indented is a layer: its origin, which is `here` if the line names none, and its values as JSON. Layers that follow each
//! other are resolved together. The lines behind them say, in this order, each error, each name that is no setting, and each warning; then the
//! values that count, with their origins unless these are `here`. `fine` stands for none of them.

use serde_json::{Map, Value};
use stanchion_settings::{Layer, Resolution, resolve};

const TABLE: &str = include_str!("outcomes.txt");
const INDENT: &str = "    ";

#[test]
fn values_have_the_outcomes_of_the_table() {
    let lines = TABLE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut cases: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for line in lines {
        match (line.strip_prefix(INDENT), cases.last_mut()) {
            (Some(outcome), Some((_, outcomes))) => outcomes.push(outcome),
            (None, Some((layers, outcomes))) if outcomes.is_empty() => layers.push(line),
            _ => cases.push((vec![line], Vec::new())),
        }
    }
    assert!(cases.len() > 150, "{}", cases.len());
    for (layers, expected) in cases {
        let resolution = resolve(&layers.iter().copied().map(layer).collect::<Vec<_>>());
        assert_eq!(outcomes(&resolution, &expected), expected, "{layers:?}");
    }
}

fn layer(line: &str) -> Layer {
    let (origin, values) = line.split_at(line.find('{').expect(line));
    let values: Map<String, Value> = serde_json::from_str(values).expect(line);
    let origin = if origin.is_empty() {
        "here"
    } else {
        origin.trim_end()
    };
    let origin = origin.to_owned();
    Layer { origin, values }
}

/// The lines for a resolution, with the values that `expected` has.
fn outcomes(resolution: &Resolution, expected: &[&str]) -> Vec<String> {
    let errors = resolution
        .errors
        .iter()
        .map(|text| format!("error: {text}"));
    let unknown = resolution
        .unknown
        .iter()
        .map(|one| format!("unknown: {}", one.name));
    let warnings = resolution
        .warnings
        .iter()
        .map(|text| format!("warning: {text}"));
    let named = expected.iter().filter_map(|line| line.split_once(" = "));
    let values = named.filter_map(|(name, _)| {
        let one = resolution.values.get(name)?;
        let from = if one.origin == "here" {
            String::new()
        } else {
            format!(" from {}", one.origin)
        };
        let value = serde_json::to_string(&one.value).ok()?;
        Some(format!("{name} = {value}{from}"))
    });
    let mut lines: Vec<_> = errors
        .chain(unknown)
        .chain(warnings)
        .chain(values)
        .collect();
    if lines.is_empty() {
        lines.push("fine".to_owned());
    }
    lines
}
