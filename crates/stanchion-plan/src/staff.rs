//! The workers of a simulated server: those that are there, those that boot, and those that leave.

use std::collections::VecDeque;

use stanchion_line::{Curve, Elastic, Headroom, Seen};

use crate::scenario::{SEATS_MAX, Scenario};
use crate::spread::Course;

/// How often the acceptor decides about workers while no request waits, in microseconds.
const LOOK_US: u64 = 250_000;
/// A worker that leaves keeps its number until its last request is over, and there may be so many beyond the most workers.
const LEAVING_MAX: u16 = 32;

/// The workers by their numbers, counted from 0.
#[derive(Debug)]
pub(crate) struct Staff {
    elastic: Option<Elastic>,
    curve: Curve,
    presence: Vec<Presence>,
    /// When each worker that boots is ready, in this order.
    boots: VecDeque<(u64, u16)>,
    boot_us: u64,
    ready: u16,
    /// Workers that are ready, boot or leave.
    there: u16,
    look_us: u64,
    forks: u64,
    counted_to_us: u64,
    /// The times of all workers that are there, and of those that are ready, in all.
    worker_us: u64,
    ready_us: u64,
    course: Course,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Absent,
    Booting,
    Ready,
    Leaving,
}

/// How many workers there were, over the whole time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attendance {
    pub(crate) worker_us: u64,
    pub(crate) ready_us: u64,
    pub(crate) forks: u64,
    pub(crate) points: Vec<(u64, u64)>,
}

impl Staff {
    /// The fewest workers are ready. The simulation lasts for about so long.
    pub(crate) fn new(scenario: &Scenario, span_us: u64) -> Self {
        let (fewest, _) = scenario.workers.bounds();
        let numbers = Self::numbers(scenario);
        let mut presence = vec![Presence::Absent; usize::from(numbers)];
        presence[..usize::from(fewest)].fill(Presence::Ready);
        let mut elastic = scenario.elastic_limits().map(Elastic::new);
        if let Some(elastic) = &mut elastic {
            elastic.note(0, 0, fewest);
        }
        let mut course = Course::over(span_us);
        course.note(0, fewest.into());
        Self {
            look_us: elastic.as_ref().map_or(u64::MAX, |_| LOOK_US),
            elastic,
            curve: Curve::default(),
            presence,
            boots: VecDeque::with_capacity(usize::from(numbers)),
            boot_us: scenario.boot_us,
            ready: fewest,
            there: fewest,
            forks: 0,
            counted_to_us: 0,
            worker_us: 0,
            ready_us: 0,
            course,
        }
    }

    /// How many numbers workers may have.
    pub(crate) fn numbers(scenario: &Scenario) -> u16 {
        match scenario.workers.bounds() {
            (fewest, most) if fewest < most => {
                // A timer has 16 bits for the number of a seat.
                let named = u16::try_from(SEATS_MAX / scenario.seats_each()).unwrap_or(u16::MAX);
                most.saturating_add(LEAVING_MAX).min(named)
            }
            (_, most) => most,
        }
    }

    /// Whether the number follows the line.
    pub(crate) fn is_elastic(&self) -> bool {
        self.elastic.is_some()
    }

    /// How many workers are at their seats.
    pub(crate) fn ready(&self) -> u16 {
        self.ready
    }

    /// Whether this worker takes no more requests.
    pub(crate) fn is_leaving(&self, worker: u16) -> bool {
        self.presence[usize::from(worker)] == Presence::Leaving
    }

    fn count_to(&mut self, now_us: u64) {
        let elapsed_us = now_us - self.counted_to_us;
        self.worker_us += elapsed_us * u64::from(self.there);
        self.ready_us += elapsed_us * u64::from(self.ready);
        self.counted_to_us = now_us;
    }

    fn change(&mut self, now_us: u64, worker: u16, presence: Presence) {
        self.count_to(now_us);
        self.presence[usize::from(worker)] = presence;
        match presence {
            Presence::Absent => self.there -= 1,
            Presence::Booting => self.there += 1,
            Presence::Ready => self.ready += 1,
            Presence::Leaving => self.ready -= 1,
        }
        self.course.note(now_us, self.there.into());
    }

    /// When a worker is ready, or the number is to be decided.
    pub(crate) fn due_us(&self) -> u64 {
        let Some(elastic) = &self.elastic else {
            return u64::MAX;
        };
        let booted_us = self.boots.front().map(|(ready_us, _)| *ready_us);
        let due_us = booted_us.into_iter().chain(elastic.due_us());
        due_us.fold(self.look_us, u64::min)
    }

    /// Gives a worker that is ready now.
    pub(crate) fn booted(&mut self, now_us: u64) -> Option<u16> {
        let (_, worker) = *self
            .boots
            .front()
            .filter(|(ready_us, _)| *ready_us <= now_us)?;
        self.boots.pop_front();
        self.change(now_us, worker, Presence::Ready);
        Some(worker)
    }

    /// Notes how many requests want seats, as the acceptor does: those that have one or were handed out (`has`), and those that wait for one.
    pub(crate) fn note(&mut self, now_us: u64, has: usize, waiting: usize) {
        if let Some(elastic) = &mut self.elastic {
            // While requests wait in the line, seats that are free are not for them.
            let seats = usize::from(self.ready) * elastic.limits().seats_each;
            let has = if waiting > 0 { has.max(seats) } else { has };
            elastic.note(now_us, has + waiting, self.ready);
        }
    }

    /// Notes a request that left its seat.
    pub(crate) fn served(&mut self, now_us: u64, busy: usize, service_us: u64, nth: u64) {
        if let Some(elastic) = &mut self.elastic {
            self.curve.served(now_us, busy, service_us, nth);
            elastic.served(now_us, service_us);
        }
    }

    /// Decides how many workers there should be, and forks those that are missing. `busy_rank`: the highest number of a worker that has a request,
    /// counted from 1.
    pub(crate) fn decide(&mut self, now_us: u64, oldest_us: u64, busy_rank: u16) {
        let Some(elastic) = &mut self.elastic else {
            return;
        };
        self.look_us = now_us + LOOK_US;
        let seen = Seen {
            oldest_us,
            busy_rank,
            cpu_share: None,
            // Memory and processes have no limit here.
            headroom: Some(Headroom::default()),
        };
        elastic.step(now_us, &seen, &mut self.curve);
        let wanted = usize::from(elastic.wanted());
        while usize::from(self.ready) + self.boots.len() < wanted {
            let absent = self
                .presence
                .iter()
                .position(|one| *one == Presence::Absent);
            let Some(worker) = absent else {
                return; // all other numbers belong to workers that still leave
            };
            // The template forks one after the other.
            let after_us = self.boots.back().map_or(now_us, |(ready_us, _)| *ready_us);
            self.boots
                .push_back((after_us.max(now_us) + self.boot_us, worker as u16));
            self.change(now_us, worker as u16, Presence::Booting);
            self.forks += 1;
        }
    }

    /// The next worker that is to leave, the highest number first: it takes no more requests.
    pub(crate) fn next_leaver(&mut self, now_us: u64) -> Option<u16> {
        let wanted = self.elastic.as_ref()?.wanted();
        if self.ready <= wanted {
            return None;
        }
        let highest = self
            .presence
            .iter()
            .rposition(|one| *one == Presence::Ready)?;
        self.change(now_us, highest as u16, Presence::Leaving);
        Some(highest as u16)
    }

    /// A worker that was to leave has no request any more.
    pub(crate) fn gone(&mut self, now_us: u64, worker: u16) {
        self.change(now_us, worker, Presence::Absent);
    }

    /// The workers of the whole time, which ends.
    pub(crate) fn into_attendance(mut self, now_us: u64) -> Attendance {
        self.count_to(now_us);
        self.course.end(now_us);
        Attendance {
            worker_us: self.worker_us,
            ready_us: self.ready_us,
            forks: self.forks,
            points: self.course.points(),
        }
    }
}
