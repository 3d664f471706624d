//! The body of this target is a Rust test, too.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stanchion-websocket/tests/fuzzed/frames.rs"]
mod frames;

fuzz_target!(|bytes: &[u8]| frames::look(bytes));
