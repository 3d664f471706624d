//! Long answers, which go out from where a worker has written them.

use stanchion_exchange::{Ending, SeatSide, Taken, Tenant};

use super::*;
use crate::messages::WorkerRef;
use crate::record::{AnswerHead, RESPONSE_RING_BYTES};

const WORKER: WorkerRef = WorkerRef {
    index: 0,
    tenure: 1,
};
const LONG_BYTES: usize = 100_000;

/// The client has asked, and the only seat has taken it.
fn taken(stage: &mut Stage) -> Taken<'static> {
    let now_us = stage.requests.now_us;
    stage.requests.dispatch.worker_ready(WORKER, 1, now_us);
    stage.say(GET);
    let tenant = Tenant {
        seat: 0,
        tenure: WORKER.tenure,
    };
    let seat = SeatSide::new(&stage.requests.common.exchange, tenant, 1, None);
    let taken = seat.take().expect("the request");
    // It is still there when its seat has gone.
    std::mem::forget(seat);
    taken
}

fn write(taken: &mut Taken<'_>, length: Option<usize>, body: &[u8]) {
    let mut head = AnswerHead::default();
    head.begin(200, b"OK");
    if let Some(length) = length {
        head.field(b"Content-Length", length.to_string().as_bytes());
    }
    taken.write(head.whole(None)).expect("room");
    taken.write(body).expect("room");
}

impl Stage {
    /// A turn of the loop that begins with what seats have brought.
    fn sweep(&mut self) {
        let now_us = self.requests.now_us;
        self.requests.dispatch.sweep(now_us);
        self.turn();
    }

    /// All that the client hears, read bit by bit.
    fn all(&mut self) -> String {
        let mut all = String::new();
        loop {
            let (some, _) = self.heard();
            if some.is_empty() {
                return all;
            }
            all += &some;
            self.turn();
        }
    }
}

#[test]
fn long_answers_that_are_whole_have_their_length_and_leave_their_slots() {
    let mut stage = Stage::new("{}");
    // There are two slots.
    for length in [None, Some(LONG_BYTES), None, Some(LONG_BYTES)] {
        let mut taken = taken(&mut stage);
        write(&mut taken, length, &vec![b'x'; LONG_BYTES]);
        taken.finish(Ending::Complete);
        stage.sweep();
        let heard = stage.all();
        let (head, body) = heard.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains("Content-Length: 100000"), "{head}");
        assert_eq!(body, "x".repeat(LONG_BYTES));
    }
    assert_eq!(stage.ended(Outcome::Answered), 4);
    stage.close_books();
}

#[test]
fn one_whose_worker_is_dead_before_anybody_has_looked_is_whole() {
    let mut stage = Stage::new("{}");
    let mut taken = taken(&mut stage);
    write(&mut taken, None, &vec![b'x'; LONG_BYTES]);
    taken.finish(Ending::Complete);
    let now_us = stage.requests.now_us;
    stage.requests.dispatch.worker_gone(WORKER, now_us);
    stage.turn();
    let heard = stage.all();
    assert_eq!(heard.matches('x').count(), LONG_BYTES);
    assert_eq!(stage.ended(Outcome::Answered), 1);
    stage.close_books();
}

#[test]
fn a_client_that_is_behind_frees_the_ring_all_the_same() {
    let mut stage = Stage::new("{}");
    let mut taken = taken(&mut stage);
    let piece = vec![b'x'; RESPONSE_RING_BYTES - 1_000];
    write(&mut taken, None, &piece);
    taken.publish();
    stage.sweep();
    assert!(
        taken.has_room(piece.len()) || taken.write(&piece).is_ok(),
        "what the socket did not take is kept"
    );
    taken.publish();
    stage.sweep();
    taken.finish(Ending::Complete);
    stage.sweep();
    let heard = stage.all();
    assert_eq!(heard.matches('x').count(), 2 * piece.len());
    assert!(heard.ends_with("\r\n0\r\n\r\n"));
    stage.close_books();
}

#[test]
fn an_answer_that_turns_out_longer_than_it_says_is_broken_off_before() {
    let mut stage = Stage::new("{}");
    let mut taken = taken(&mut stage);
    write(&mut taken, Some(50_000), &vec![b'x'; 40_000]);
    taken.publish();
    stage.sweep();
    let before = stage.all().matches('x').count();
    assert_eq!(before, 40_000);
    taken.write(&vec![b'y'; 40_000]).expect("room");
    taken.publish();
    stage.sweep();
    let (heard, is_over) = stage.heard();
    assert_eq!((heard.matches('y').count(), is_over), (0, true));
    assert_eq!(stage.ended(Outcome::BrokenOff), 1);
    drop(taken);
    stage.close_books();
}
