//! The body of this target is a Rust test, too.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stanchion-settings/tests/fuzzed/settings.rs"]
mod settings;

fuzz_target!(|bytes: &[u8]| settings::look(bytes));
