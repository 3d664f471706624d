//! Scripts that have each broken something once, and a fixed number of scripts like those that the fuzzer has kept.

use stanchion_sys::charge::{self, Charging};

use super::play;
use stanchion_dispatch::storage::payers::IN_TURN;

#[path = "../../../../fuzz/kept.rs"]
mod kept;

/// The allocator of the product, so that memory counts here as it does there.
#[global_allocator]
static ALLOCATOR: Charging = Charging;

#[test]
fn scripts_like_those_of_the_fuzzer_add_up() {
    let _in_turn = IN_TURN.lock();
    kept::try_target("conversation", 800, |script| {
        // Once a script has left debts behind, no other script can be judged.
        if charge::all() == 0 {
            play(script);
        }
    });
}

#[test]
fn scripts_add_up() {
    let _in_turn = IN_TURN.lock();
    let scripts: [&[u8]; 6] = [
        // Answers: the date, heads and buffers that the server keeps, and the table of slots.
        b"\x06\x00\x0e\x00\x02\x01\x06\x00\x0e\x00\x02\x01\x09",
        // Clients that leave.
        b"\x06\x00\x09\x26\x00\x26\x00",
        // A refusal, which the log counts.
        b"\x00\x04GET\n\x09",
        // A worker that writes nonsense on a WebSocket, so that the acceptor has it replaced.
        b"\x06\x04\x15\x96\x2c\x1b\x16\xff\x01\x06\x18\xff\xff\xbf\x09\x1b\x09",
        // A body that helper threads store.
        b"\x06\x03\x1b\x00\x02x N\x0d\x18\x1b\x01\x18\x0e\x00\x05\x01",
        // Several clients, hints, trailers, and a worker that dies.
        b"\x06\x00\x26\x01\x46\x07\x0d\x14\x0f\x00\x04\x00\x11\x02\x06\x02\x10\x02\x12\x19\x1b\x05",
    ];
    // The first request of a server finds the table of free slots empty: its stream is broken, and it is withdrawn.
    play(b"\x21\x06\x03\x1b\x00\x02x N\x09");
    for script in scripts {
        for opening in 0..0x80 {
            play(&[&[opening], script].concat());
        }
    }
}

/// The app begins its answer, and takes nothing of a body that it has no room for. The server cannot send the answer from the
/// worker's memory.
#[test]
fn a_stream_whose_body_waits_for_its_worker_comes_to_rest() {
    const HTTP2_ASGI: u8 = 0x11;
    let _in_turn = IN_TURN.lock();
    let says = |payload: &[u8]| {
        let [high, low] = (payload.len() as u16).to_be_bytes();
        let frame = [&[0, high, low, 0, 0, 0, 0, 0, 1], payload].concat();
        [&[1], &(frame.len() as u16).to_le_bytes()[..], &frame].concat()
    };
    // These are three quarters of a stream's window, and more than half of the room that the worker has for a body.
    let much = says(&[b'a'; 0x4000]).repeat(3);
    let (asks, passes, takes, begins) = (b"\x06\x01", b"\x1b\x01", b"\x0d", b"\x0f\0\x02\0");
    let script = [
        &[HTTP2_ASGI],
        &asks[..],
        &says(b"a"),
        passes,
        takes,
        &much,
        begins,
    ]
    .concat();
    play(&script);
}
