//! Prints `docs/reference/settings.md`; with the argument `json` the table itself, for what else is made from it.

use std::io::Write;

use stanchion_server::settings;

fn main() -> std::io::Result<()> {
    let text = match std::env::args().nth(1).as_deref() {
        Some("json") => settings::schema_json(),
        _ => settings::reference_markdown(),
    };
    std::io::stdout().write_all(text.as_bytes())
}
