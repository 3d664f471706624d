//! Answers tell balancers the load of the server (`load_report`), in the text format of ORCA, the load reports that Envoy
//! reads: `endpoint-load-metrics: TEXT application_utilization=0.75,rps_fractional=110,eps=0`.
//!
//! A balancer gives a server a share of its requests in proportion to `rps_fractional` ÷ `application_utilization`, which
//! is what the server would do with all seats busy. So both are means of some seconds: a balancer that follows the queue of
//! the moment sends its clients to the server that *was* idle. And a server that is nearly idle keeps that quotient:
//! a balancer ignores one that says 0, and a quotient of two tiny figures would be chance.
//!
//! Pure: the caller gives the time and the counts.

use std::collections::VecDeque;
use std::fmt::Write;

use stanchion_http::put_field;

/// The field of answers.
const FIELD: &[u8] = b"endpoint-load-metrics";
/// The figures are means of so many seconds.
const SECONDS: usize = 10;
/// The least that is reported, of requests per second too.
const LEAST: f64 = 0.01;
const US_PER_S: u64 = 1_000_000;

/// The load of the last seconds, and the field that reports it.
pub(crate) struct LoadReport {
    /// The oldest first.
    seconds: VecDeque<LoadSecond>,
    /// The second that is not over yet.
    present: LoadSecond,
    /// As of the last turn.
    in_flight: u64,
    turned_us: u64,
    /// How many requests a second the server answers with all seats busy, as it was last known.
    capacity_per_s: Option<f64>,
    text: String,
    line: Vec<u8>,
}

/// A second, or longer if a turn took longer.
#[derive(Clone, Copy, Debug, Default)]
struct LoadSecond {
    us: u64,
    /// For how long requests waited or had a seat, all together; and for how long seats were there.
    in_flight_us: u64,
    seats_us: u64,
    /// Answers to requests that seats had.
    answered: u64,
    /// Answers of the server or its app that say that it failed.
    failed: u64,
}

/// What there is for requests.
pub(crate) struct SeatsNow {
    pub(crate) seats: usize,
    /// How busy event loops are, if that is more than their seats are.
    pub(crate) loops: f64,
}

/// The figures of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LoadFigures {
    utilization: f64,
    per_s: f64,
    failed_per_s: f64,
}

impl LoadReport {
    pub(crate) fn new(now_us: u64) -> Self {
        let mut report = Self {
            seconds: VecDeque::with_capacity(SECONDS),
            present: LoadSecond::default(),
            in_flight: 0,
            turned_us: now_us,
            capacity_per_s: None,
            text: String::new(),
            line: Vec::new(),
        };
        report.write(0.0);
        report
    }

    /// The field, as it stands in heads.
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }

    /// Notes an answer.
    pub(crate) fn answers(&mut self, status: u16, by_seat: bool) {
        self.present.answered += u64::from(by_seat);
        self.present.failed += u64::from(status >= 500);
    }

    /// Notes how many requests are in flight at the end of a turn, as they are until the next one. Once a second asks how
    /// many seats there are, and writes the field again.
    pub(crate) fn turn(&mut self, now_us: u64, in_flight: u64, seats: impl FnOnce() -> SeatsNow) {
        let us = now_us.saturating_sub(self.turned_us);
        self.present.us += us;
        self.present.in_flight_us += self.in_flight * us;
        (self.in_flight, self.turned_us) = (in_flight, now_us);
        if self.present.us < US_PER_S {
            return;
        }
        let SeatsNow { seats, loops } = seats();
        // A server without seats is as far from what it could do as if it had one.
        self.present.seats_us = seats.max(1) as u64 * self.present.us;
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(std::mem::take(&mut self.present));
        self.write(loops);
    }

    fn write(&mut self, loops: f64) {
        let LoadFigures {
            utilization,
            per_s,
            failed_per_s,
        } = self.figures(loops);
        self.text.clear();
        let written = write!(
            self.text,
            "TEXT application_utilization={utilization:.4},rps_fractional={per_s:.3},eps={failed_per_s:.3}"
        );
        written.expect("a string takes everything");
        self.line.clear();
        put_field(&mut self.line, FIELD, self.text.as_bytes());
    }

    fn figures(&mut self, loops: f64) -> LoadFigures {
        let sum = |of: fn(&LoadSecond) -> u64| self.seconds.iter().map(of).sum::<u64>() as f64;
        let window_us = sum(|one| one.us).max(1.0);
        let in_flight_us = sum(|one| one.in_flight_us);
        let seats_us = sum(|one| one.seats_us).max(1.0);
        let per_s = |count: f64| count / window_us * US_PER_S as f64;
        let (answered, failed) = (sum(|one| one.answered), sum(|one| one.failed));
        let utilization = (in_flight_us / seats_us).max(loops);
        if answered > 0.0 && utilization > 0.0 {
            self.capacity_per_s = Some(per_s(answered) / utilization);
        }
        let answered_per_s = match self.capacity_per_s {
            Some(capacity_per_s) if utilization < LEAST => LEAST * capacity_per_s,
            _ => per_s(answered),
        };
        LoadFigures {
            utilization: utilization.max(LEAST),
            per_s: answered_per_s.max(LEAST),
            failed_per_s: per_s(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_US: u64 = 7_000_000;

    fn text(report: &LoadReport) -> String {
        String::from_utf8_lossy(report.line()).into_owned()
    }

    fn said(utilization: &str, per_s: &str, eps: &str) -> String {
        format!(
            "endpoint-load-metrics: TEXT application_utilization={utilization},rps_fractional={per_s},eps={eps}\r\n"
        )
    }

    fn threads(seats: usize) -> SeatsNow {
        SeatsNow { seats, loops: 0.0 }
    }

    /// `seconds` with so many requests of `ms` each, one after the other, on `seats`; of these, `failed` in a second fail.
    fn serve(
        report: &mut LoadReport,
        seconds: u64,
        per_s: u64,
        ms: u64,
        seats: usize,
        failed: u64,
    ) {
        for _ in 0..seconds {
            let start_us = report.turned_us;
            for number in 0..per_s {
                let begin_us = start_us + number * US_PER_S / per_s;
                report.turn(begin_us, 1, || threads(seats));
                report.answers(if number < failed { 502 } else { 200 }, true);
                report.turn(begin_us + ms * 1_000, 0, || threads(seats));
            }
            report.turn(start_us + US_PER_S, 0, || threads(seats));
        }
    }

    #[test]
    fn a_server_that_was_never_busy_is_not_0() {
        let mut report = LoadReport::new(START_US);
        assert_eq!(text(&report), said("0.0100", "0.010", "0.000"));
        serve(&mut report, 20, 0, 0, 4, 0);
        assert_eq!(text(&report), said("0.0100", "0.010", "0.000"));
    }

    #[test]
    fn the_figures_are_means_of_ten_seconds() {
        let mut report = LoadReport::new(START_US);
        serve(&mut report, 1, 10, 50, 2, 0);
        assert_eq!(text(&report), said("0.2500", "10.000", "0.000"));
        serve(&mut report, 9, 10, 50, 2, 0);
        assert_eq!(text(&report), said("0.2500", "10.000", "0.000"));
        serve(&mut report, 5, 20, 50, 2, 2);
        assert_eq!(text(&report), said("0.3750", "15.000", "1.000"));
        serve(&mut report, 5, 20, 50, 2, 0);
        assert_eq!(text(&report), said("0.5000", "20.000", "1.000"));
        // Twice as many seats: half as busy, once the old ones are forgotten.
        serve(&mut report, 10, 20, 50, 4, 0);
        assert_eq!(text(&report), said("0.2500", "20.000", "0.000"));
    }

    #[test]
    fn a_server_that_is_nearly_idle_keeps_its_quotient() {
        let mut report = LoadReport::new(START_US);
        // 40 a second if both seats were busy.
        serve(&mut report, 10, 10, 50, 2, 0);
        serve(&mut report, 30, 0, 0, 2, 0);
        assert_eq!(text(&report), said("0.0100", "0.400", "0.000"));
        // One request in ten seconds is less than a hundredth of its time.
        serve(&mut report, 1, 1, 50, 2, 0);
        serve(&mut report, 9, 0, 0, 2, 0);
        assert_eq!(text(&report), said("0.0100", "0.400", "0.000"));
        // It has become twice as slow.
        serve(&mut report, 1, 1, 100, 2, 0);
        serve(&mut report, 9, 0, 0, 2, 0);
        assert_eq!(text(&report), said("0.0100", "0.200", "0.000"));
    }

    #[test]
    fn requests_that_wait_or_hang_are_load() {
        let mut report = LoadReport::new(START_US);
        report.turn(START_US, 6, || threads(2));
        for second in 1..=10 {
            report.turn(START_US + second * US_PER_S, 6, || threads(2));
        }
        assert_eq!(text(&report), said("3.0000", "0.010", "0.000"));
        // And more so if no worker is there.
        for second in 11..=20 {
            report.turn(START_US + second * US_PER_S, 6, || threads(0));
        }
        assert_eq!(text(&report), said("6.0000", "0.010", "0.000"));
    }

    #[test]
    fn answers_without_a_seat_count_only_if_they_say_that_the_server_failed() {
        let mut report = LoadReport::new(START_US);
        for status in [200, 304, 404, 429, 503, 503] {
            report.answers(status, false);
        }
        report.turn(START_US + US_PER_S, 0, || threads(2));
        assert_eq!(text(&report), said("0.0100", "0.010", "2.000"));
    }

    #[test]
    fn event_loops_are_as_busy_as_their_threads() {
        let mut report = LoadReport::new(START_US);
        let loops = |loops| move || SeatsNow { seats: 500, loops };
        for second in 1..=10 {
            report.turn(START_US + second * US_PER_S, 5, loops(0.75));
            (0..30).for_each(|_| report.answers(200, true));
        }
        report.turn(START_US + 11 * US_PER_S, 5, loops(0.75));
        assert_eq!(text(&report), said("0.7500", "30.000", "0.000"));
    }

    #[test]
    fn a_turn_may_take_longer_than_a_second() {
        let mut report = LoadReport::new(START_US);
        report.turn(START_US, 1, || threads(2));
        report.answers(200, true);
        report.turn(START_US + 4 * US_PER_S, 0, || threads(2));
        assert_eq!(text(&report), said("0.5000", "0.250", "0.000"));
    }
}
