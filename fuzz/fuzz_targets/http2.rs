//! The body of this target is a Rust test, too.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stanchion-http/tests/fuzzed/http2.rs"]
mod http2;

fuzz_target!(|bytes: &[u8]| http2::look(bytes));
