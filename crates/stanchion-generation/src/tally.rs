//! The accounting: every request that arrived ends in exactly one outcome.
//!
//! The counts of a generation are in memory that its processes share. Its acceptor writes them; they
//! outlive one that is killed, and the master reads them for `stanchion ctl status`.
//!
//! A request is answered by the app; answered by the server, with one outcome for each reason; abandoned by the client,
//! with the stage it was at; or lost with an acceptor that was killed. Counting is a load and a store, since only the
//! acceptor writes. The master logs the requests that were lost with an acceptor, and carries the counts over a reload.
//! When the acceptor leaves it logs the counts, and an error if they do not add up.

use std::io;
use std::ops::AddAssign;
use std::sync::Arc;

use stanchion_sys::counts::SharedCounts;
use stanchion_sys::signal::spin::{self, WatchedLoop};

/// An enum of things that are counted, each with the name that operators see. Names stay as they
/// are once released: dashboards are made of them.
macro_rules! counted {
    ($(#[$about:meta])* $kind:ident { $($(#[$what:meta])* $one:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($(#[$what])* $one,)* }

        impl $kind {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$one,)*];

            /// Its name in logs, in `stanchion ctl status` and in metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$one => $name,)* }
            }
        }
    };
}
pub(crate) use counted;

counted! {
    /// How a request ended. docs/reference/admin.md says whose fault each is.
    Outcome {
        /// The app's answer went to the connection whole.
        Answered = "answered",
        /// A probe was answered by us (`health_path`).
        Probed = "probed",
        /// Was sent on to https by us (`redirect_to_https`).
        Redirected = "redirected",
        /// A static file was answered by us (`static_files`), or that there is none, or that it is not to be read.
        Static = "static",
        /// The app's answer had begun and was not whole: the app failed, its worker died, or the
        /// file to send became shorter.
        BrokenOff = "broken_off",
        /// The app's answer had begun, and the server left before it was whole.
        CutAtShutdown = "cut_at_shutdown",
        /// The client left while its body was being read.
        AbandonedReading = "abandoned_reading",
        /// The client left while the request was in the line.
        AbandonedWaiting = "abandoned_waiting",
        /// The client left when the request had been handed out and no seat had taken it.
        AbandonedHandedOut = "abandoned_handed_out",
        /// The client left while the app ran.
        AbandonedRunning = "abandoned_running",
        /// The client left before it had taken the whole answer.
        AbandonedAnswering = "abandoned_answering",
        /// The acceptor that was to answer was killed.
        Lost = "lost_with_acceptor",
        // Answered by the server: one for each refusal of the acceptor, and one for static files.
        /// Something in the head is not HTTP.
        BadRequest = "refused_bad_request",
        /// Something of HTTP that we do not have.
        Unimplemented = "refused_unimplemented",
        /// The head is larger than there is room for.
        HeadTooLarge = "refused_head_too_large",
        /// The head did not come in time.
        HeadTimeout = "refused_head_timeout",
        /// An expectation that we cannot fulfil.
        UnknownExpectation = "refused_unknown_expectation",
        /// The request line is too long.
        LineTooLong = "refused_line_too_long",
        /// A field is too large.
        FieldTooLarge = "refused_field_too_large",
        /// The body is too large.
        BodyTooLarge = "refused_body_too_large",
        /// The body did not come in time.
        BodyTimeout = "refused_body_timeout",
        /// The body came too slowly.
        BodyTooSlow = "refused_body_too_slow",
        /// The client had as many connections as it may.
        TooManyConnections = "refused_too_many_connections",
        /// The line is full.
        LineFull = "refused_line_full",
        /// There were as many sessions as may be.
        SessionsFull = "refused_sessions_full",
        /// It waited too long.
        WaitedTooLong = "refused_waited_too_long",
        /// The line was over its target, and it was the oldest.
        Shed = "refused_shed",
        /// As many of its client waited as may.
        TooManyOfClient = "refused_too_many_of_client",
        /// The one worker it was for was not there.
        WorkerAbsent = "refused_worker_absent",
        /// The server was leaving.
        ShuttingDown = "refused_shutting_down",
        /// The app could not be started.
        AppNotStarted = "refused_app_not_started",
        /// Its worker died before it had answered.
        WorkerDied = "refused_worker_died",
        /// It ran into its deadline.
        WorkerTimedOut = "refused_worker_timed_out",
        /// Its worker gave no answer, or one that makes no sense.
        NoAnswer = "refused_no_answer",
        /// Its body could not be stored.
        SpoolFailed = "refused_spool_failed",
        /// The static file that it asked for could not be read, or not in time.
        FileFailed = "refused_file_failed",
        /// There was no room for its body under `max_spool`.
        SpoolFull = "refused_spool_full",
        /// As much of its client was in the spool as may be.
        SpoolShareFull = "refused_spool_share_full",
    }
}

counted! {
    /// Events that are not the end of a request.
    Event {
        /// A client was let in.
        Accepted = "connections_accepted",
        /// A client and the server have agreed on how they encrypt.
        Handshaken = "tls_handshakes",
        /// The client and the server have also exchanged keys in a way that withstands quantum computers.
        HandshakenPostQuantum = "tls_handshakes_post_quantum",
        /// A handshake failed, by the client's fault.
        HandshakeFailed = "tls_handshakes_failed",
        /// A connection came to its end, by either side.
        Closed = "connections_closed",
        /// A connection was lost with an acceptor that was killed.
        Cut = "connections_lost",
        /// A connection that idled, or kept busy with next to nothing, was closed to make room.
        Shed = "connections_shed",
        /// A connection was cut off, whose client took nothing of its answer.
        CutOff = "connections_cut_off",
        /// A connection was cut off, whose client took its answer too slowly.
        TooSlow = "connections_too_slow",
        /// A connection was cut off, since clients held more memory than they may and its client held most.
        CutForMemory = "connections_cut_for_memory",
        /// A client that had been let in waited for a place.
        Waited = "connections_waited",
        /// A stream of HTTP/2 was refused: its client has as many as it may, or all have.
        StreamRefused = "streams_refused",
        /// Accepting paused, for want of descriptors, memory or disk.
        Paused = "accept_pauses",
        /// An answer was compressed.
        Compressed = "answers_compressed",
        /// An answer would have been compressed, but as many were being compressed as may be at once.
        Uncompressed = "answers_not_compressed",
        /// A request's body went to a file.
        BodySpooled = "bodies_spooled",
        /// The client was slow, and what it had not taken of its answer went to a file.
        AnswerSpooled = "answers_spooled",
        /// The client was slow, and its worker had to wait for it.
        WorkerHeld = "workers_held",
        /// A line of a log was dropped, because the log did not take it.
        LogLineDropped = "log_lines_dropped",
        /// A metric was dropped, because the statsd server did not take it.
        MetricDropped = "metrics_dropped",
        /// A request whose worker died was given to another worker.
        Retried = "requests_retried",
        /// A request became a session, a WebSocket. Each ends in one of the next four ways.
        SessionBegun = "sessions_begun",
        /// The app closed it, or its call of the app ended.
        SessionClosedByApp = "sessions_closed_by_app",
        /// The client closed it.
        SessionClosedByClient = "sessions_closed_by_client",
        /// The server closed it, and told the client why.
        SessionClosedByServer = "sessions_closed_by_server",
        /// The connection ended without a close frame, or in the middle of a message.
        SessionCut = "sessions_cut",
        /// A session's client has sent a message, whole.
        SessionReceived = "session_messages_received",
        /// A session's client was sent a message, whole.
        SessionSent = "session_messages_sent",
        /// A span was dropped, because the collector did not take it.
        SpanDropped = "spans_dropped",
        /// A proxy's `X-Request-Start` was dropped: by this host's clock it lay in the future, or long ago.
        ProxyTimeDropped = "proxy_times_dropped",
    }
}

counted! {
    /// The code by which a session was closed (RFC 6455 section 7.4.1), by either side. Codes that applications choose for themselves are counted as
    /// a class, so that clients cannot make names without end.
    CloseCode {
        /// The session had done its work.
        Normal = "1000",
        /// The side that closed it leaves.
        GoingAway = "1001",
        /// The protocol was broken.
        Protocol = "1002",
        /// A kind of message that is not taken.
        Unsupported = "1003",
        /// Closed without a code.
        Unsaid = "1005",
        /// A text was not UTF-8.
        NotUtf8 = "1007",
        /// A message against a policy.
        Policy = "1008",
        /// A message was too long.
        TooBig = "1009",
        /// An extension was missing.
        Extension = "1010",
        /// The server, or its app, has failed.
        Failed = "1011",
        /// The server restarts.
        Restart = "1012",
        /// The client is to try again later.
        TryLater = "1013",
        /// A gateway had a bad answer.
        Gateway = "1014",
        /// Registered for libraries.
        Registered = "3xxx",
        /// An application's own.
        Private = "4xxx",
        /// Any other.
        Other = "other",
        /// The connection ended without a close frame.
        Cut = "none",
    }
}

impl CloseCode {
    /// The name under which a code is counted; `None`: there was no close frame.
    pub fn of(code: Option<u16>) -> Self {
        let class = match code {
            None => Self::Cut,
            Some(3000..=3999) => Self::Registered,
            Some(4000..=4999) => Self::Private,
            Some(_) => Self::Other,
        };
        let is_named = |one: &&Self| code.is_some() && one.name().parse().ok() == code;
        Self::ALL.iter().find(is_named).copied().unwrap_or(class)
    }
}

counted! {
    /// Bytes on the connections of clients, with everything that HTTP puts around bodies.
    Traffic {
        /// Read from them, also what was then thrown away.
        Received = "received",
        /// Taken by the kernel to be sent.
        Sent = "sent",
    }
}

/// Where the count of requests that arrived is; then come the outcomes, the events, the bytes, the codes, the turns of the
/// acceptor's loop, and where it was when one did not end.
const ARRIVED: usize = 0;
const OUTCOMES: usize = ARRIVED + 1;
const EVENTS: usize = OUTCOMES + Outcome::ALL.len();
const TRAFFIC: usize = EVENTS + Event::ALL.len();
const CODES: usize = TRAFFIC + Traffic::ALL.len();
const TURNS: usize = CODES + CloseCode::ALL.len();
const STACK: usize = TURNS + 1;
/// The words before it are counts, which are added up.
const COUNTS: usize = TURNS;
const WORDS: usize = STACK + spin::FRAMES_MAX;

/// The counts of a generation.
#[derive(Debug)]
pub struct Tally(SharedCounts);

impl Tally {
    /// All 0. Errors are the kernel's.
    pub fn create() -> io::Result<Self> {
        Ok(Self(SharedCounts::create("stanchion-tally", WORDS)?))
    }

    /// In the acceptor: a request has arrived. It is in flight until it [`ended`](Self::ended).
    pub fn arrived(&self) {
        self.0.add(ARRIVED, 1);
    }

    /// In the acceptor: a request that had arrived has ended.
    pub fn ended(&self, outcome: Outcome) {
        self.0.add(OUTCOMES + outcome as usize, 1);
    }

    /// In the acceptor: this happened.
    pub fn happened(&self, event: Event) {
        self.happened_times(event, 1);
    }

    /// In the acceptor, or in the master when there is none any more: this happened so often.
    pub fn happened_times(&self, event: Event, times: u64) {
        self.0.add(EVENTS + event as usize, times);
    }

    /// In the acceptor: its loop has made one turn more, or one connection has had its own within it.
    pub fn turned(&self) {
        spin::turned();
        self.0.add(TURNS, 1);
    }

    /// The loop of the acceptor, which exits with this code if it spins.
    pub fn watched(&'static self, exit_code: i32) -> WatchedLoop {
        WatchedLoop {
            stack: &self.0.atomics()[STACK..],
            exit_code,
        }
    }

    /// How many turns the loops of acceptors have made, and connections within them.
    pub fn turns(&self) -> u64 {
        self.0.get(TURNS)
    }

    /// Where the last acceptor was that spun: addresses of code.
    pub fn stack(&self) -> Vec<u64> {
        (STACK..WORDS).map(|index| self.0.get(index)).collect()
    }

    /// In the acceptor: so many bytes were moved.
    pub fn moved(&self, traffic: Traffic, bytes: usize) {
        self.0.add(TRAFFIC + traffic as usize, bytes as u64);
    }

    /// In the acceptor: a session has ended, by this code.
    pub fn ended_by(&self, code: CloseCode) {
        self.0.add(CODES + code as usize, 1);
    }

    /// In the master, when there is no acceptor (any more): what the last one had in hand is lost.
    /// Gives how many requests that were, with those that had become sessions.
    pub fn settle(&self) -> u64 {
        let counts = self.read();
        let (requests, connections) = (counts.in_flight(), counts.connections());
        self.0.add(OUTCOMES + Outcome::Lost as usize, requests);
        self.happened_times(Event::Cut, connections);
        self.happened_times(Event::SessionCut, counts.sessions());
        self.0
            .add(CODES + CloseCode::Cut as usize, counts.sessions());
        requests
    }

    /// Their present values. The ends are read before the beginnings, so that an acceptor which goes on counting meanwhile does not make it more ends
    /// than beginnings.
    pub fn read(&self) -> Counts {
        let mut counts = Counts::default();
        for index in (0..COUNTS).rev() {
            counts.0[index] = self.0.get(index);
        }
        counts
    }
}

/// Counts of all requests since the master started, as far as one generation can know.
#[derive(Debug)]
pub struct Total {
    /// Counts of generations that were gone when this one was made.
    pub departed: Counts,
    /// The tallies of generations that were there then.
    pub others: Vec<Arc<Tally>>,
    /// Its own.
    pub own: Arc<Tally>,
}

impl Total {
    /// Their present values.
    pub fn read(&self) -> Counts {
        let mut counts = self.departed;
        for tally in self.others.iter().chain([&self.own]) {
            counts += tally.read();
        }
        counts
    }
}

/// Counts as they were at some moment; those of several generations can be added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts([u64; COUNTS]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; COUNTS])
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

impl Counts {
    /// Requests that arrived.
    pub fn arrived(&self) -> u64 {
        self.0[ARRIVED]
    }

    /// Requests that ended so.
    pub fn ended(&self, outcome: Outcome) -> u64 {
        self.0[OUTCOMES + outcome as usize]
    }

    /// How often this happened.
    pub fn happened(&self, event: Event) -> u64 {
        self.0[EVENTS + event as usize]
    }

    /// How many bytes were moved so.
    pub fn moved(&self, traffic: Traffic) -> u64 {
        self.0[TRAFFIC + traffic as usize]
    }

    /// Sessions that ended by this code.
    pub fn ended_by(&self, code: CloseCode) -> u64 {
        self.0[CODES + code as usize]
    }

    /// Requests that arrived and have not ended.
    pub fn in_flight(&self) -> u64 {
        let ended: u64 = self.0[OUTCOMES..EVENTS].iter().sum();
        self.arrived().saturating_sub(ended)
    }

    /// Connections there are.
    pub fn connections(&self) -> u64 {
        let gone = [Event::Closed, Event::Cut];
        let gone: u64 = gone.map(|event| self.happened(event)).iter().sum();
        self.happened(Event::Accepted).saturating_sub(gone)
    }

    /// Sessions there are.
    pub fn sessions(&self) -> u64 {
        let over = [
            Event::SessionClosedByApp,
            Event::SessionClosedByClient,
            Event::SessionClosedByServer,
            Event::SessionCut,
        ];
        let over: u64 = over.map(|event| self.happened(event)).iter().sum();
        self.happened(Event::SessionBegun).saturating_sub(over)
    }
}

/// For the log: what is not 0.
impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "arrived={}", self.arrived())?;
        for outcome in Outcome::ALL {
            let count = self.ended(*outcome);
            if count > 0 {
                write!(f, " {}={count}", outcome.name())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<&'static str> {
        let outcomes = Outcome::ALL.iter().map(|outcome| outcome.name());
        let events = Event::ALL.iter().map(|event| event.name());
        outcomes.chain(events).collect()
    }

    #[test]
    fn each_has_a_count_of_its_own() {
        let tally = Tally::create().unwrap();
        for (number, outcome) in Outcome::ALL.iter().enumerate() {
            for _ in 0..=number {
                tally.arrived();
                tally.ended(*outcome);
            }
        }
        for (number, event) in Event::ALL.iter().enumerate() {
            (0..=number).for_each(|_| tally.happened(*event));
        }
        for (number, code) in CloseCode::ALL.iter().enumerate() {
            (0..=number).for_each(|_| tally.ended_by(*code));
        }
        tally.moved(Traffic::Received, 100);
        tally.moved(Traffic::Sent, 1);
        tally.moved(Traffic::Sent, 2);
        let counts = tally.read();
        for (number, outcome) in Outcome::ALL.iter().enumerate() {
            assert_eq!(counts.ended(*outcome), number as u64 + 1, "{outcome:?}");
        }
        for (number, event) in Event::ALL.iter().enumerate() {
            assert_eq!(counts.happened(*event), number as u64 + 1, "{event:?}");
        }
        assert_eq!(Traffic::ALL, [Traffic::Received, Traffic::Sent]);
        assert_eq!(counts.moved(Traffic::Received), 100);
        assert_eq!(counts.moved(Traffic::Sent), 3);
        for (number, code) in CloseCode::ALL.iter().enumerate() {
            assert_eq!(counts.ended_by(*code), number as u64 + 1, "{code:?}");
        }
        assert_eq!(counts.in_flight(), 0);
    }

    #[test]
    fn what_has_arrived_is_in_flight_until_it_has_ended_or_is_lost() {
        let tally = Tally::create().unwrap();
        (0..3).for_each(|_| tally.arrived());
        tally.ended(Outcome::Answered);
        (0..5).for_each(|_| tally.happened(Event::Accepted));
        tally.happened(Event::Closed);
        (0..5).for_each(|_| tally.happened(Event::SessionBegun));
        tally.happened(Event::SessionCut);
        tally.happened(Event::SessionClosedByApp);
        assert_eq!(tally.read().sessions(), 3);
        assert_eq!(
            (tally.read().in_flight(), tally.read().connections()),
            (2, 4)
        );
        assert_eq!((tally.settle(), tally.settle()), (2, 0));
        let counts = tally.read();
        assert_eq!(counts.ended(Outcome::Lost), 2);
        assert_eq!(counts.happened(Event::Cut), 4);
        assert_eq!(counts.happened(Event::SessionCut), 1 + 3);
        assert_eq!(counts.ended_by(CloseCode::Cut), 3);
        assert_eq!(counts.sessions(), 0);
        assert_eq!((counts.in_flight(), counts.connections()), (0, 0));
        assert_eq!(
            counts.to_string(),
            "arrived=3 answered=1 lost_with_acceptor=2"
        );
    }

    #[test]
    fn a_code_is_counted_by_its_number_or_as_a_class() {
        for (code, name) in [
            (Some(1000), "1000"),
            (Some(1014), "1014"),
            (Some(1004), "other"),
            (Some(1006), "other"),
            (Some(2999), "other"),
            (Some(3000), "3xxx"),
            (Some(3999), "3xxx"),
            (Some(4000), "4xxx"),
            (Some(4999), "4xxx"),
            (Some(5000), "other"),
            (None, "none"),
        ] {
            assert_eq!(CloseCode::of(code).name(), name, "{code:?}");
        }
    }

    #[test]
    fn generations_add_up() {
        let generations = [Tally::create().unwrap(), Tally::create().unwrap()];
        let mut sum = Counts::default();
        for generation in &generations {
            generation.arrived();
            generation.ended(Outcome::LineFull);
            generation.happened(Event::Accepted);
            sum += generation.read();
        }
        assert_eq!((sum.arrived(), sum.ended(Outcome::LineFull)), (2, 2));
        assert_eq!(sum.connections(), 2);
    }

    #[test]
    fn names_are_snake_case_and_none_is_taken_twice() {
        let names = names();
        for (index, name) in names.iter().enumerate() {
            let fine = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(fine), "{name}");
            assert!(!names[..index].contains(name), "{name}");
        }
    }

    #[test]
    fn operators_find_each_name_in_the_reference_and_no_other() {
        let page = include_str!("../../../docs/reference/admin.md");
        let (_, counts) = page
            .split_once("## Counts")
            .expect("a section on them, the last one");
        let rows = counts.lines().filter_map(|line| line.strip_prefix("| `"));
        let listed = rows.filter_map(|row| row.split_once('`').map(|(name, _)| name));
        let all = ["arrived", "in_flight"].into_iter().chain(names());
        assert_eq!(listed.collect::<Vec<_>>(), all.collect::<Vec<_>>());
    }
}
