//! Prints `docs/reference/settings.md`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    let page = stanchion_server::settings::reference_markdown();
    std::io::stdout().write_all(page.as_bytes())
}
