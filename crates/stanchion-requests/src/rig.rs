//! For tests and for the fuzzer: the part of a server below its connections, without a worker. Builds without debug assertions, as of
//! the wheel that people install, have none of it; the tests of all crates and the wheel under test share one build that has.

use std::rc::Rc;

use stanchion_exchange::Geometry;
use stanchion_http::check;
use stanchion_sys::channel::Channel;

use crate::Requests;
use stanchion_dispatch::ticket::{Answer, AppAnswer, Start};
use stanchion_generation::common::Common;
use stanchion_record::{REQUEST_HEAD_BYTES_MAX, REQUEST_RECORD_EXTRA_BYTES, response_ring_bytes};
use stanchion_settings::Settings;

/// A second, in microseconds.
pub const S: u64 = 1_000_000;

/// The bytes of a slot for bodies that are still coming, under event loops.
const INFLOW_BYTES: usize = 64 << 10;

/// The shared state of a generation with these settings. It stays until the tests end, as in a server it
/// stays until the process ends.
pub fn common(settings: &str) -> &'static Common {
    common_of_seats(settings, 1, 0)
}

/// The same for a generation whose worker has so many seats, and slots for so many sessions besides.
pub fn common_of_seats(settings: &str, seats: usize, sessions: usize) -> &'static Common {
    let settings = Settings::from_json(settings).expect("settings");
    let event_loops = settings.is_event_loop();
    let geometry = Geometry {
        seats,
        seats_per_worker: seats,
        ahead_per_seat: 1,
        spare_per_worker: 0,
        sessions_per_worker: sessions,
        event_loops,
        inflow_bytes: if event_loops { INFLOW_BYTES } else { 0 },
        request_bytes: REQUEST_HEAD_BYTES_MAX
            + REQUEST_RECORD_EXTRA_BYTES
            + settings.buffers.body_memory,
        response_bytes: response_ring_bytes(event_loops),
    };
    stanchion_generation::rig::common(settings, geometry)
}

/// The requests of such a generation, a second after the clock began. No master reads its messages.
pub fn requests(settings: &str) -> Requests {
    requests_of(common(settings))
}

/// The same for a generation that exists already.
pub fn requests_of(common: &'static Common) -> Requests {
    let (ours, _) = Channel::pair().expect("a channel");
    Requests::new(common, &Rc::new(ours), S).expect("what requests need")
}

/// The app's answer: a head in wire form, and the body as far as it is there.
pub fn answer(head: &str, body: &[u8], is_head: bool, start: Start) -> Answer {
    let facts = check(head.as_bytes(), is_head).expect("an answer's head");
    Answer::App(AppAnswer {
        bytes: [head.as_bytes(), body].concat(),
        head: 0..head.len(),
        facts,
        closes: false,
        body: start,
    })
}

/// The bytes that were sent, without the `Date` field.
pub fn undated(sent: &[u8]) -> String {
    let text = String::from_utf8_lossy(sent);
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("Date: ")).collect()
}
