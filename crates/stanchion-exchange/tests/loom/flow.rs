//! The flow of an answer through its ring.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use stanchion_exchange::{Flow, Unwanted};

use crate::{FOR_EVER, explore, explore_bounded};

/// Writes `bytes` through a ring of `capacity`, as `Taken::write` does, and notes each byte's position in the ring;
/// false if the client left first.
fn produce(flow: &Flow, ring: &[AtomicU32], bytes: u64) -> bool {
    let capacity = ring.len() as u64;
    let mut room = capacity;
    for position in 0..bytes {
        if room == 0 {
            match flow.wait_for_room(position, capacity, FOR_EVER, || false) {
                Some(free) => room = free,
                None => return false,
            }
        }
        room -= 1;
        let byte = position as u32 + 1;
        ring[(position % capacity) as usize].store(byte, Ordering::Relaxed);
        flow.produced.store(position + 1, Ordering::Release);
    }
    true
}

struct Answer {
    flow: Flow,
    ring: Vec<AtomicU32>,
}

impl Answer {
    fn of_two_bytes_through_one() -> (Arc<Self>, thread::JoinHandle<bool>) {
        let answer = Arc::new(Self {
            flow: Flow::default(),
            ring: vec![AtomicU32::new(0)],
        });
        let seat = {
            let answer = Arc::clone(&answer);
            thread::spawn(move || produce(&answer.flow, &answer.ring, 2))
        };
        (answer, seat)
    }

    /// Reads up to one byte, if there is one.
    fn read(&self, consumed: u64) -> u64 {
        if self.flow.produced.load(Ordering::Acquire) == consumed {
            return consumed;
        }
        let byte = self.ring[0].load(Ordering::Relaxed);
        assert_eq!(
            u64::from(byte),
            consumed + 1,
            "read before it was written, or after the next"
        );
        self.flow.consume(consumed + 1, 1);
        consumed + 1
    }
}

#[test]
fn a_writer_goes_on_once_there_is_room() {
    explore(|| {
        let (answer, seat) = Answer::of_two_bytes_through_one();
        let mut consumed = 0;
        while consumed < 2 {
            let before = consumed;
            consumed = answer.read(before);
            if consumed == before {
                thread::yield_now();
            }
        }
        assert!(seat.join().unwrap());
    });
}

/// In a full ring of three bytes, the producer goes on once only one is unread: the second byte read wakes it.
#[test]
fn a_writer_goes_on_once_there_is_room_enough() {
    explore(|| {
        let flow = Arc::new(Flow::default());
        flow.produced.store(3, Ordering::Release);
        let seat = {
            let flow = Arc::clone(&flow);
            thread::spawn(move || flow.wait_for_room(3, 3, FOR_EVER, || false))
        };
        flow.consume(1, 3);
        flow.consume(2, 3);
        assert_eq!(seat.join().unwrap(), Some(2));
    });
}

#[test]
fn a_writer_hears_that_its_client_has_gone() {
    explore(|| {
        let (answer, seat) = Answer::of_two_bytes_through_one();
        let consumed = answer.read(0);
        answer.flow.give_up(Unwanted::ClientGone);
        assert!(answer.flow.is_gone());
        let whole = seat.join().unwrap();
        assert!(!whole || consumed == 1, "wrote over what was not read");
    });
}

/// Writes `bytes` through a ring, as `Taken::write` does, and restarts the ring whenever all bytes are read.
fn produce_anew(flow: &Flow, ring: &[AtomicU32], bytes: u64) {
    let capacity = ring.len() as u64;
    let (mut room, mut base) = (capacity, 0);
    for position in 0..bytes {
        if position != base && flow.consumed.load(Ordering::Acquire) == position {
            base = position;
            flow.base.store(base, Ordering::Relaxed);
            room = capacity;
        }
        if room == 0 {
            let free = flow.wait_for_room(position, capacity, FOR_EVER, || false);
            room = free.expect("nobody gives it up");
        }
        room -= 1;
        let byte = position as u32 + 1;
        ring[((position - base) % capacity) as usize].store(byte, Ordering::Relaxed);
        flow.produced.store(position + 1, Ordering::Release);
    }
}

#[test]
fn what_is_written_after_a_ring_was_begun_anew_is_read_where_it_stands() {
    explore_bounded(3, || {
        let flow = Arc::new(Flow::default());
        let ring: Arc<[AtomicU32; 2]> = Arc::default();
        let seat = {
            let (flow, ring) = (Arc::clone(&flow), Arc::clone(&ring));
            thread::spawn(move || produce_anew(&flow, &*ring, 3))
        };
        let mut consumed = 0;
        while consumed < 3 {
            if flow.produced.load(Ordering::Acquire) == consumed {
                thread::yield_now();
                continue;
            }
            let since = consumed - flow.base.load(Ordering::Relaxed);
            let byte = ring[(since % 2) as usize].load(Ordering::Relaxed);
            assert_eq!(u64::from(byte), consumed + 1, "read elsewhere");
            consumed += 1;
            flow.consume(consumed, 2);
        }
        seat.join().unwrap();
    });
}
