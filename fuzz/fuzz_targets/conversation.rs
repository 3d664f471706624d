//! Whole connections through the acceptor, from a script: however clients and the app behave, all comes to rest, each request
//! has one outcome, answers are well-formed, and no memory stays with a connection that is gone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stanchion_sys::charge::Charging;

/// The allocator of the product, which knows what each connection has.
#[global_allocator]
static ALLOCATOR: Charging = Charging;

fuzz_target!(|script: &[u8]| stanchion_connections::fuzzing::conversation(script));
