//! The number of workers where the machine says it (`workers` auto).

use stanchion_settings::{Settings, WorkerCount};
use stanchion_sys::control_group::memory_limit_bytes;
use stanchion_sys::cores::Cores;

/// How many cores this process may use: the fewest workers, where the machine says the number.
pub fn cores() -> u32 {
    Cores::read().count()
}

/// Puts the numbers that the machine says into the settings, and gives them in words, with their reasons; `None` if the settings say the number.
pub fn heed_machine(settings: &mut Settings) -> Option<String> {
    if !settings.workers.workers.is_auto {
        return None;
    }
    let cores = Cores::read();
    settings.heed_cores(cores.count());
    let WorkerCount { min, max, .. } = settings.workers.workers;
    let number = if settings.is_event_loop() {
        format!("{max}, an event loop for each core")
    } else {
        format!("{min} to {max}, as many as keep the cores busy")
    };
    let memory = match memory_limit_bytes() {
        Some(bytes) => format!("memory.max {} MiB", bytes >> 20),
        None => "no memory.max".to_owned(),
    };
    Some(format!("{number} (cores: {cores}; {memory})"))
}
