//! The fuzzer's target, with a fixed number of inputs that are like those that it has kept.

#[path = "../../../../fuzz/kept.rs"]
mod kept;
mod settings;

#[test]
fn settings_of_operators() {
    kept::try_target("settings", 5_000, settings::look);
}
