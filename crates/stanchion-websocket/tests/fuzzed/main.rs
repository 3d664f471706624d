//! The fuzzer's target, with a fixed number of inputs that resemble those that the fuzzer has kept.

mod frames;
#[path = "../../../../fuzz/kept.rs"]
mod kept;

#[test]
fn frames_of_clients() {
    kept::try_target("frames", 80_000, frames::look);
}
