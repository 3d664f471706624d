//! The body of this target is a Rust test, too.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stanchion-http/tests/fuzzed/body.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::look(bytes));
