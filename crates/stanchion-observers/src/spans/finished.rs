//! The acceptor keeps facts about a request that is over, until the exporter makes spans of them.

use stanchion_http::{HTTP2, Head};

use crate::traceparent::TRACESTATE;
use stanchion_dispatch::over::Over;
use stanchion_dispatch::sessions::SessionFacts;
use stanchion_dispatch::trace::Trace;
use stanchion_generation::tally::Outcome;

/// The longest text that is kept of a request, in bytes: a collector may be away for long, and
/// clients choose what they send.
const TEXT_BYTES_MAX: usize = 1024;
const TRACESTATE_BYTES_MAX: usize = 512;

/// A request that is over. Times are in microseconds of the monotonic clock.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) trace_id: [u8; 16],
    pub(super) parent_id: Option<[u8; 8]>,
    pub(super) flags: u8,
    pub(super) server_id: [u8; 8],
    pub(super) run_id: [u8; 8],
    pub(super) trace_state: Box<str>,
    pub(super) times: RequestTimes,
    pub(super) method: Box<str>,
    pub(super) path: Box<str>,
    pub(super) scheme: &'static str,
    pub(super) host: Box<str>,
    pub(super) client_address: Box<str>,
    pub(super) client_port: u16,
    pub(super) user_agent: Option<Box<str>>,
    /// The version of HTTP.
    pub(super) version: &'static str,
    pub(super) status: u16,
    pub(super) outcome: Outcome,
    /// Its lane's number.
    pub(super) lane: usize,
    pub(super) worker_pid: Option<u64>,
    /// Its time on a core, waiting for one, and waiting for the interpreter's lock, as far as its seat measured them.
    pub(super) measured_us: [Option<u64>; 3],
    pub(super) request_id: Option<Box<str>>,
    /// The facts about its session, if it became one.
    pub(super) session: Option<Box<SessionFacts>>,
}

/// The times at which a request came from one place to the next, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestTimes {
    /// The acceptor had read its head.
    pub(super) started_us: u64,
    /// The acceptor had read all of it, and it joined the line.
    pub(super) arrived_us: u64,
    /// It left the line; `None` if it was never in it.
    pub(super) left_us: Option<u64>,
    /// A seat was done with it, or lost it; `None` if no seat had it.
    pub(super) run_until_us: Option<u64>,
    /// Its answer was out, or its client had gone.
    pub(super) ended_us: u64,
}

impl RequestTimes {
    /// Puts the times in order: when a seat took the request and was done is in memory that its worker writes, so the
    /// app may spoil it. 0 stands for a time that has not come.
    fn new(
        [started_us, arrived_us, ended_us]: [u64; 3],
        has_waited: bool,
        [taken_us, done_us, answered_us]: [u64; 3],
    ) -> Self {
        let ended_us = ended_us.max(arrived_us);
        let between = |us: u64, from_us: u64| match us {
            0 => ended_us,
            us => us.clamp(from_us, ended_us),
        };
        let answered_us = between(answered_us, arrived_us);
        let (left_us, run_until_us) = match taken_us {
            0 => (answered_us, None),
            _ => {
                let taken_us = between(taken_us, arrived_us);
                let until_us = match done_us {
                    0 => answered_us.max(taken_us),
                    _ => between(done_us, taken_us),
                };
                (taken_us, Some(until_us))
            }
        };
        Self {
            started_us: started_us.min(arrived_us),
            arrived_us,
            left_us: has_waited.then_some(left_us),
            run_until_us: run_until_us.filter(|_| has_waited),
            ended_us,
        }
    }
}

impl Finished {
    pub(super) fn new(trace: &Trace, over: &Over, has_waited: bool) -> Self {
        let ticket = &over.ticket;
        let (request, head) = (&ticket.request, &ticket.request.head);
        let (taken_us, done_us) = (ticket.taken_us(), ticket.done_us());
        let measured = ticket.measured();
        Self {
            trace_id: trace.trace_id,
            parent_id: trace.parent_id,
            flags: trace.flags,
            server_id: trace.server_id,
            run_id: trace.run_id,
            trace_state: trace_state(head),
            times: RequestTimes::new(
                [trace.started_us, request.arrived_us, over.now_us],
                has_waited,
                [taken_us, done_us, trace.answered_us.get()],
            ),
            method: kept(head.method().as_bytes()),
            path: kept(head.path()),
            scheme: request.scheme,
            host: field(head, "host").unwrap_or_default(),
            client_address: kept(request.peer.address.as_bytes()),
            client_port: request.peer.port,
            user_agent: field(head, "user-agent"),
            version: version(head),
            status: over.status,
            outcome: over.outcome,
            lane: ticket.lane.get().index(),
            worker_pid: ticket.worker_pid(),
            measured_us: [measured.cpu_us, measured.core_us, measured.gil_us],
            request_id: request.id().map(Box::from),
            session: ticket.session.get().cloned(),
        }
    }

    /// How many spans will be made of it.
    pub(super) fn spans(&self) -> u64 {
        let parts = [self.times.left_us, self.times.run_until_us];
        let session = usize::from(self.session.is_some());
        (1 + parts.iter().flatten().count() + session) as u64
    }
}

/// Several fields are one list (Trace Context section 3.3.1). Section 3.3.1.5 asks to pass on 512
/// characters at least. A longer list is dropped, because each span that waits for a collector holds one.
fn trace_state(head: &Head) -> Box<str> {
    let fields = head.all(TRACESTATE).filter(|value| value.is_ascii());
    let texts: Vec<&str> = fields
        .filter_map(|value| std::str::from_utf8(value).ok())
        .collect();
    let list = texts.join(",");
    if list.len() > TRACESTATE_BYTES_MAX {
        return Box::default();
    }
    list.into()
}

fn field(head: &Head, name: &str) -> Option<Box<str>> {
    head.first(name).map(kept)
}

/// The beginning of a text; bytes that are no text are replaced, since OTLP has no place for them.
fn kept(bytes: &[u8]) -> Box<str> {
    let bytes = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    String::from_utf8_lossy(bytes).into()
}

/// The version of HTTP that the client spoke.
fn version(head: &Head) -> &'static str {
    match (head.protocol(), head.minor_version()) {
        (HTTP2, _) => "2",
        (_, 0) => "1.0",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_longer_than_all_have_to_keep_is_dropped() {
        let half = "a=".to_owned() + &"x".repeat(TRACESTATE_BYTES_MAX / 2 - 3);
        for (fields, kept) in [
            (vec![half.as_str()], half.clone()),
            (vec![&half, &half], format!("{half},{half}")),
            (vec![&half, &half, "b=y"], String::new()),
        ] {
            let fields: Vec<_> = fields.iter().map(|value| (TRACESTATE, *value)).collect();
            let head = Head::of("GET", "/", &fields);
            assert_eq!(&*trace_state(&head), kept);
        }
    }

    #[test]
    fn times_are_in_order_whatever_a_worker_says() {
        const ARRIVED: [u64; 3] = [10, 20, 90];
        for (told, left_us, run_until_us) in [
            // Taken, done, answered.
            ([30, 70, 80], 30, Some(70)),
            ([30, 70, 0], 30, Some(70)),
            ([30, 0, 60], 30, Some(60)),
            ([30, 0, 0], 30, Some(90)),
            ([0, 0, 60], 60, None),
            ([0, 0, 0], 90, None),
            ([5, 7, 60], 20, Some(20)),
            ([200, 300, 60], 90, Some(90)),
            ([50, 40, 60], 50, Some(50)),
            ([u64::MAX, 0, 60], 90, Some(90)),
        ] {
            let times = RequestTimes::new(ARRIVED, true, told);
            let expected = RequestTimes {
                started_us: 10,
                arrived_us: 20,
                left_us: Some(left_us),
                run_until_us,
                ended_us: 90,
            };
            assert_eq!(times, expected, "{told:?}");
        }
        let never = RequestTimes::new(ARRIVED, false, [0, 0, 60]);
        assert_eq!((never.left_us, never.run_until_us), (None, None));
    }

    #[test]
    fn of_a_long_text_the_beginning_is_kept() {
        let long = "a".repeat(TEXT_BYTES_MAX - 1) + "\u{e9}more";
        let short = kept(long.as_bytes());
        assert_eq!(short.chars().count(), TEXT_BYTES_MAX);
        assert!(short.ends_with("a\u{fffd}"));
        assert_eq!(&*kept(b"/\xff"), "/\u{fffd}");
    }
}
