//! The body of this target is a Rust test, too.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stanchion-http/tests/fuzzed/proxy_protocol.rs"]
mod proxy_protocol;

fuzz_target!(|bytes: &[u8]| proxy_protocol::look(bytes));
