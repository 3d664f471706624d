//! A record: one request that came to the line, or one event of workers, in [`RECORD_BYTES`], little endian.
//!
//! | at | | |
//! |---|---|---|
//! | 0 | u64 | number, from 1, without holes |
//! | 8 | u64 | when the request came, or when it happened, in microseconds since 1970 |
//! | 16 | u32 | microseconds at the proxies in front; 0 = unknown |
//! | 20 | u32 | microseconds in the line, until a worker began with it |
//! | 24 | u32 | microseconds at its seat |
//! | 28 | u32 | of these, on a core; 2³² - 1 = not measured, as in the next two |
//! | 32 | u32 | waiting for a core |
//! | 36 | u32 | waiting for the interpreter's lock |
//! | 40 | u32 | hash of the client; 0 = unknown |
//! | 44 | u16 | seats taken when it left the line, its own among them; of an event, workers after it |
//! | 46 | u16 | requests in the line when it came, itself not among them |
//! | 48 | u16 | number of its worker, plus 1; 0 = none |
//! | 50 | u16 | status of the answer; 0 = none |
//! | 52 | u8 | lane, an index into the header's list |
//! | 53 | u8 | kind: 0 = request, else [`EventKind`] |
//! | 54 | u8 | end of a request ([`RequestEnd`]) |
//! | 55 | u8 | flags; 1 = it gave its seat back before it ended, as a WebSocket |
//! | 56 | u32 | 0 |
//! | 60 | u32 | CRC-32 of the 60 bytes before |
//!
//! A value that does not fit its field is recorded as the largest that does.

use crate::checksum::crc32;

/// The size of a record.
pub const RECORD_BYTES: usize = 64;

/// Where the checksum is.
const CHECKED_BYTES: usize = RECORD_BYTES - 4;
/// A time that was not measured.
const UNMEASURED: u32 = u32::MAX;
/// The request gave its seat back before it ended.
const LEFT_SEAT: u8 = 1;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalRecord {
    /// Its number, from 1, without holes: a number that is missing is a record that was lost.
    pub number: u64,
    /// When the request came to the line, or when it happened, in microseconds since 1970.
    pub at_us: u64,
    /// The request or the event.
    pub what: Recorded,
}

/// The subject of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// A request that came to the line, once it was over.
    Request(RecordedRequest),
    /// An event of workers.
    Event(RecordedEvent),
}

/// A request. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// How long proxies in front had it, if they say so and are believed; 0 = unknown.
    pub front_us: u32,
    /// How long it was in the line, until a worker began with it or it was over.
    pub wait_us: u32,
    /// How long it was at its seat; 0 if it had none.
    pub service_us: u32,
    /// The part of that on a core.
    pub cpu_us: Option<u32>,
    /// The part of that in which it waited for a core.
    pub core_us: Option<u32>,
    /// The part of that in which it waited for the interpreter's lock.
    pub gil_us: Option<u32>,
    /// A hash of the client's address, or of its network of IPv6, under a key of its writer's; 0 = unknown.
    pub client: u32,
    /// How many seats were taken when it left the line, its own among them; 0 if it had none.
    pub busy: u16,
    /// How many requests were in the line when it came, itself not among them.
    pub waiting: u16,
    /// The number of the worker that had it.
    pub worker: Option<u16>,
    /// The status of the answer; 0 = there was none.
    pub status: u16,
    /// Its lane, an index into the header's list.
    pub lane: u8,
    /// How it ended.
    pub end: RequestEnd,
    /// It gave its seat back before it ended, as a WebSocket does once it is accepted.
    pub left_seat: bool,
}

/// An event of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The kind of event.
    pub kind: EventKind,
    /// The number of the worker that it is about, if it is about one.
    pub worker: Option<u16>,
    /// How many workers there are after it, or are wanted.
    pub workers: u16,
    /// How many requests were in the line.
    pub waiting: u16,
}

/// An enum that is one byte of a record.
macro_rules! byte {
    ($(#[$about:meta])* $kind:ident { $($(#[$what:meta])* $one:ident = $byte:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $kind { $($(#[$what])* $one = $byte,)* }

        impl $kind {
            /// All there are, by their bytes.
            pub const ALL: &[Self] = &[$(Self::$one,)*];

            fn of(byte: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| *one as u8 == byte)
            }
        }
    };
}

byte! {
    /// How a request ended.
    RequestEnd {
        /// The app's answer, or the session, was whole.
        Served = 0,
        /// It was refused at once: the line, or its lane, was full.
        LineFull = 1,
        /// It was refused after it had waited as long as a request may.
        TimedOut = 2,
        /// Its client left while it waited.
        LeftWaiting = 3,
        /// Its client left when a seat had it, or before it had taken all of the answer.
        LeftSeated = 4,
        /// Its seat brought no whole answer: the worker died, ran into its deadline, or failed.
        Failed = 5,
        /// The server refused it for another reason.
        Refused = 6,
        /// It was refused at once: as many of its client waited as may.
        ClientFull = 7,
        /// It was refused as the oldest of a line over its target.
        Shed = 8,
    }
}

byte! {
    /// A kind of event in the life of workers.
    EventKind {
        /// A worker is at its seats.
        Ready = 1,
        /// A worker is gone.
        Gone = 2,
        /// Another number of workers is wanted.
        Wanted = 3,
        /// The acceptor leaves: it accepts no more connections.
        Leaves = 4,
    }
}

/// The bytes are no record: they were half written, or a later version has put something else there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// A time as a record has it.
pub fn recorded_us(us: u64) -> u32 {
    u32::try_from(us).unwrap_or(u32::MAX)
}

impl ArrivalRecord {
    /// Its bytes.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.number.to_le_bytes());
        put(8, &self.at_us.to_le_bytes());
        match &self.what {
            Recorded::Request(request) => request.put(&mut put),
            Recorded::Event(event) => event.put(&mut put),
        }
        let check = crc32(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads one.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Self, Unreadable> {
        let fields = Fields(bytes);
        if fields.u32(CHECKED_BYTES) != crc32(&bytes[..CHECKED_BYTES]) {
            return Err(Unreadable);
        }
        let what = match bytes[53] {
            0 => Recorded::Request(RecordedRequest::get(&fields)?),
            kind => Recorded::Event(RecordedEvent {
                kind: EventKind::of(kind).ok_or(Unreadable)?,
                worker: fields.u16(48).checked_sub(1),
                workers: fields.u16(44),
                waiting: fields.u16(46),
            }),
        };
        Ok(Self {
            number: fields.u64(0),
            at_us: fields.u64(8),
            what,
        })
    }
}

impl RecordedRequest {
    fn put(&self, put: &mut impl FnMut(usize, &[u8])) {
        let measured = |us: Option<u32>| us.map_or(UNMEASURED, |us| us.min(UNMEASURED - 1));
        for (at, field) in [
            (16, self.front_us),
            (20, self.wait_us),
            (24, self.service_us),
            (28, measured(self.cpu_us)),
            (32, measured(self.core_us)),
            (36, measured(self.gil_us)),
            (40, self.client),
        ] {
            put(at, &field.to_le_bytes());
        }
        for (at, field) in [
            (44, self.busy),
            (46, self.waiting),
            (48, plus_one(self.worker)),
            (50, self.status),
        ] {
            put(at, &field.to_le_bytes());
        }
        let flags = if self.left_seat { LEFT_SEAT } else { 0 };
        put(52, &[self.lane, 0, self.end as u8, flags]);
    }

    fn get(fields: &Fields<'_>) -> Result<Self, Unreadable> {
        let measured = |at| Some(fields.u32(at)).filter(|us| *us != UNMEASURED);
        Ok(Self {
            front_us: fields.u32(16),
            wait_us: fields.u32(20),
            service_us: fields.u32(24),
            cpu_us: measured(28),
            core_us: measured(32),
            gil_us: measured(36),
            client: fields.u32(40),
            busy: fields.u16(44),
            waiting: fields.u16(46),
            worker: fields.u16(48).checked_sub(1),
            status: fields.u16(50),
            lane: fields.0[52],
            end: RequestEnd::of(fields.0[54]).ok_or(Unreadable)?,
            left_seat: fields.0[55] & LEFT_SEAT != 0,
        })
    }
}

impl RecordedEvent {
    fn put(&self, put: &mut impl FnMut(usize, &[u8])) {
        put(44, &self.workers.to_le_bytes());
        put(46, &self.waiting.to_le_bytes());
        put(48, &plus_one(self.worker).to_le_bytes());
        put(53, &[self.kind as u8]);
    }
}

fn plus_one(worker: Option<u16>) -> u16 {
    worker.map_or(0, |number| number.saturating_add(1))
}

/// The fields of a record.
struct Fields<'b>(&'b [u8; RECORD_BYTES]);

impl Fields<'_> {
    fn at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.0[at..at + N]);
        field
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.at(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.at(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.at(at))
    }
}
