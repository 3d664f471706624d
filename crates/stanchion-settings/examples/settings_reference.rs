//! Prints `docs/reference/settings.md`; with the argument `json` the table itself, for what else is made from it.

use std::io::Write;

use stanchion_settings::{reference_markdown, schema_json};

fn main() -> std::io::Result<()> {
    let text = match std::env::args().nth(1).as_deref() {
        Some("json") => schema_json(),
        _ => reference_markdown(),
    };
    std::io::stdout().write_all(text.as_bytes())
}
