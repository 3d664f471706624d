//! The two orders after a stall: the seats do nothing for five seconds, while clients keep coming and each gives up
//! silently after two.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use stanchion_line::{Discipline, LaneId, Line, LineLimits};

const SECOND_US: u64 = 1_000_000;
const SEATS: u64 = 8;
const SERVICE_US: u64 = 20_000;
/// The time between arrivals: 0.8 of the seats' capacity.
const GAP_US: u64 = SERVICE_US / SEATS * 10 / 8;
const STALL_US: std::ops::Range<u64> = 10 * SECOND_US..15 * SECOND_US;
const END_US: u64 = 60 * SECOND_US;
const PATIENCE_US: u64 = 2 * SECOND_US;

/// How the requests of some period ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ends {
    /// Answered while the client still listened.
    in_time: u64,
    /// Answered after the client had left.
    late: u64,
    /// Answered 503 by the line: shed, or it was full.
    told: u64,
}

impl Ends {
    fn all(self) -> u64 {
        self.in_time + self.late + self.told
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Freed,
    Arrival,
}

/// A number as random as needed here (xorshift64), the same every time.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Plays the whole scene. Returns how the requests ended that came before the stall, in it, and in the 15 seconds after
/// it.
fn play(discipline: Discipline) -> [Ends; 3] {
    let mut line = Line::new(LineLimits {
        waiting_max: 2_048,
        queue_timeout_us: 60 * SECOND_US,
        discipline,
    });
    let mut seed = 0x5eed;
    let mut ends = [Ends::default(); 3];
    let mut free = SEATS;
    let mut events = BinaryHeap::from([Reverse((0, Event::Arrival))]);
    let phase = |arrived_us: u64| match arrived_us {
        _ if arrived_us < STALL_US.start => Some(0),
        _ if arrived_us < STALL_US.end => Some(1),
        _ if arrived_us < STALL_US.end + 15 * SECOND_US => Some(2),
        _ => None,
    };
    while let Some(Reverse((now_us, event))) = events.pop() {
        let mut count = |arrived_us, end: fn(&mut Ends)| {
            if let Some(phase) = phase(arrived_us) {
                end(&mut ends[phase]);
            }
        };
        match event {
            Event::Arrival => {
                if line.join(now_us, LaneId::DEFAULT, now_us).is_err() {
                    count(now_us, |ends| ends.told += 1);
                }
                if now_us < END_US {
                    let gap_us = GAP_US / 2 + random(&mut seed) % GAP_US;
                    events.push(Reverse((now_us + gap_us, Event::Arrival)));
                }
            }
            Event::Freed => {
                free += 1;
                line.drained(now_us, LaneId::DEFAULT);
            }
        }
        while let Some((_, shed)) = line.expire(now_us) {
            count(shed.item, |ends| ends.told += 1);
        }
        while free > 0
            && let Some(pulled) = line.pull(now_us)
        {
            free -= 1;
            let begun_us = if STALL_US.contains(&now_us) {
                STALL_US.end
            } else {
                now_us
            };
            let done_us = begun_us + SERVICE_US / 2 + random(&mut seed) % SERVICE_US;
            if done_us - pulled.item <= PATIENCE_US {
                count(pulled.item, |ends| ends.in_time += 1);
            } else {
                count(pulled.item, |ends| ends.late += 1);
            }
            events.push(Reverse((done_us, Event::Freed)));
        }
    }
    assert!(line.is_empty());
    ends
}

#[test]
fn after_a_stall_live_clients_are_served_before_those_who_have_given_up() {
    let fifo = play(Discipline::Fifo);
    let adaptive = play(Discipline::Adaptive {
        target_us: SECOND_US,
    });
    for (before, adaptive) in fifo.iter().zip(&adaptive) {
        assert_eq!(before.all(), adaptive.all(), "the same requests came");
    }
    // Before the stall both orders are the same.
    assert_eq!(fifo[0], adaptive[0]);
    assert_eq!(fifo[0].in_time, fifo[0].all());
    // After the stall, first in first out serves clients that have left, until it has caught up; newest first serves
    // all but a few in time.
    let (fifo, adaptive) = (fifo[2], adaptive[2]);
    assert!(fifo.in_time * 2 < fifo.all(), "{fifo:?}");
    assert!(adaptive.in_time * 20 > adaptive.all() * 19, "{adaptive:?}");
}
