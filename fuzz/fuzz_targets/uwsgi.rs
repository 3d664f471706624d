//! The body of this target is a Rust test, too.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stanchion-http/tests/fuzzed/uwsgi.rs"]
mod uwsgi;

fuzz_target!(|bytes: &[u8]| uwsgi::look(bytes));
