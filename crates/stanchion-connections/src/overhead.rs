//! Bounds the bytes that the client of an HTTP/2 connection may send without any content: floods of PING, SETTINGS, empty
//! frames or heads that h2 refuses (RFC 9113 section 10.5).

use http::Request;

use super::head_fields::{FIELD_BYTES, HeadFields};
use super::turns::Turns;

/// How many bytes without content a client may begin with.
const FIRST_BYTES: u64 = 32 << 10;
/// How many more it may send in each second, such as the PINGs of a connection that is kept open.
const BYTES_PER_S: u64 = 1 << 10;
/// How many it may send for each byte of a body or an answer: a frame of one byte has 10, and `WINDOW_UPDATE` has 13.
const TIMES: u64 = 32;
/// How many it may send with each request, besides the request's head: PRIORITY, `WINDOW_UPDATE`, `RST_STREAM`.
const BYTES_PER_REQUEST: u64 = 256;

/// The client's first bytes are no frame (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;
/// Each frame begins with its length, its kind, flags and the number of a stream (RFC 9113 section 4.1).
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 8;

/// Sums since the connection began.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    came_bytes: u64,
    carried_bytes: u64,
    asked_bytes: u64,
}

/// Counts the bytes that a client sends on one connection.
#[derive(Debug)]
pub(super) struct Overhead {
    since_us: u64,
    /// A head that the server takes has at most so many, and as many as a list.
    head_bytes_max: u64,
    came_bytes: u64,
    body_bytes: u64,
    /// Bytes of frames that open windows.
    window_bytes: u64,
    /// Bytes that requests account for, with their heads.
    asked_bytes: u64,
    /// The head of the next frame, as far as it has come.
    head: [u8; HEAD_BYTES],
    head_len: usize,
    /// How many bytes come before that head.
    skipped: usize,
    fields: HeadFields,
    /// The sums that [`Overhead::count`] has counted already.
    counted: Counted,
}

impl Overhead {
    pub(super) fn new(head_bytes_max: u64, now_us: u64) -> Self {
        Self {
            since_us: now_us,
            head_bytes_max,
            came_bytes: 0,
            body_bytes: 0,
            window_bytes: 0,
            asked_bytes: 0,
            head: [0; HEAD_BYTES],
            head_len: 0,
            skipped: PREFACE_BYTES,
            fields: HeadFields::default(),
            counted: Counted::default(),
        }
    }

    /// Counts bytes that go to h2.
    pub(super) fn came(&mut self, mut bytes: &[u8]) {
        self.came_bytes += bytes.len() as u64;
        loop {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            let (payload, rest) = bytes.split_at(skipped);
            self.fields.came(payload);
            bytes = rest;
            let len = (HEAD_BYTES - self.head_len).min(bytes.len());
            if len == 0 {
                return;
            }
            self.head[self.head_len..self.head_len + len].copy_from_slice(&bytes[..len]);
            self.head_len += len;
            bytes = &bytes[len..];
            if self.head_len == HEAD_BYTES {
                self.frame();
            }
        }
    }

    fn frame(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.head;
        let len = u32::from_be_bytes([0, high, middle, low]);
        match kind {
            DATA => self.body_bytes += u64::from(len),
            WINDOW_UPDATE => self.window_bytes += HEAD_BYTES as u64 + u64::from(len),
            _ => {}
        }
        self.fields.frame(kind, flags, len as usize);
        self.skipped = len as usize;
        self.head_len = 0;
    }

    /// Counts a request that h2 has accepted.
    pub(super) fn asked<T>(&mut self, request: &Request<T>) {
        let fields = request.headers().iter();
        let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
        let target = request
            .uri()
            .path_and_query()
            .map_or(0, |all| all.as_str().len());
        self.asked_bytes += (target + fields.sum::<usize>()) as u64 + BYTES_PER_REQUEST;
    }

    /// The bytes that a head counts as while it is not whole, up to the longest head that the server takes.
    fn unfinished_bytes(&self) -> u64 {
        let unfinished_bytes = self.fields.unfinished_bytes(self.skipped == 0);
        unfinished_bytes.min(self.head_bytes_max)
    }

    /// Counts in `turns` what has come since the last time, and what of it carried something. A head that is not whole yet is
    /// counted when it is whole, and then by the request that it makes.
    pub(super) fn count(&mut self, turns: &mut Turns, answered_bytes: u64, now_us: u64) {
        let came_bytes = self.came_bytes.saturating_add(self.fields.extra_bytes());
        let came_bytes = came_bytes.saturating_sub(self.unfinished_bytes());
        let seen = Counted {
            came_bytes: came_bytes.max(self.counted.came_bytes),
            carried_bytes: self.body_bytes.saturating_add(answered_bytes),
            asked_bytes: self.asked_bytes,
        };
        let before = std::mem::replace(&mut self.counted, seen);
        turns.count(
            seen.came_bytes - before.came_bytes,
            seen.carried_bytes - before.carried_bytes,
            seen.asked_bytes - before.asked_bytes,
            now_us,
        );
    }

    /// Whether the client has sent more bytes, or more fields, than its requests, a head that is not whole yet, their bodies and
    /// so many bytes of answers need. A client that waits for answers may open windows for them in however small steps: if the
    /// server sent it away, it would come back, and the app would begin these answers again.
    pub(super) fn is_flood(&self, answered_bytes: u64, waits: bool, now_us: u64) -> bool {
        let age_s = now_us.saturating_sub(self.since_us) / 1_000_000;
        let carried_bytes = self.body_bytes.saturating_add(answered_bytes);
        let allowed = [
            FIRST_BYTES,
            age_s.saturating_mul(BYTES_PER_S),
            carried_bytes.saturating_mul(TIMES),
            self.asked_bytes,
            self.unfinished_bytes(),
            if waits { self.window_bytes } else { 0 },
        ];
        let came_bytes = self.came_bytes.saturating_add(self.fields.extra_bytes());
        came_bytes > allowed.into_iter().fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BORN_US: u64 = 7_000_000;
    const HEAD_BYTES_MAX: u64 = 64 << 10;
    const PING: u8 = 6;

    fn frame(kind: u8, len: usize) -> Vec<u8> {
        let [_, high, middle, low] = u32::try_from(len).unwrap().to_be_bytes();
        let mut frame = vec![high, middle, low, kind, 0, 0, 0, 0, 1];
        frame.resize(frame.len() + len, 0xff);
        frame
    }

    /// The overhead after the preface and so many bytes of frames without content.
    fn overhead(more: u64) -> Overhead {
        let mut overhead = Overhead::new(HEAD_BYTES_MAX, BORN_US);
        overhead.came(&[0xff; PREFACE_BYTES]);
        let len = usize::try_from(more).unwrap() - PREFACE_BYTES - HEAD_BYTES;
        overhead.came(&frame(PING, len));
        overhead
    }

    #[test]
    fn a_client_may_send_so_much_that_carries_nothing_and_no_more() {
        let request = Request::get("/ab").header("a", "bcd").body(()).unwrap();
        for (allowed, requests, answered_bytes, age_s) in [
            (FIRST_BYTES, 0, 0, 0),
            (FIRST_BYTES + 2 * (BYTES_PER_REQUEST + 3 + 4 + 32), 2, 0, 0),
            (FIRST_BYTES + 32_000, 0, 1_000, 0),
            (FIRST_BYTES + 60 * BYTES_PER_S, 0, 0, 60),
        ] {
            let now_us = BORN_US + age_s * 1_000_000;
            let is_flood = |came| {
                let mut overhead = overhead(came);
                (0..requests).for_each(|_| overhead.asked(&request));
                overhead.is_flood(answered_bytes, false, now_us)
            };
            assert_eq!((is_flood(allowed), is_flood(allowed + 1)), (false, true));
        }
    }

    #[test]
    fn frames_are_told_apart_in_whatever_pieces_they_come() {
        let mut bytes = vec![0; PREFACE_BYTES];
        for (kind, len) in [(PING, 8), (DATA, 0), (DATA, 300), (PING, 0), (DATA, 70_000)] {
            bytes.extend(frame(kind, len));
        }
        for piece in [1, 2, 8, 9, 10, 24, 4_096, bytes.len()] {
            let mut overhead = Overhead::new(HEAD_BYTES_MAX, BORN_US);
            bytes.chunks(piece).for_each(|piece| overhead.came(piece));
            assert_eq!(overhead.came_bytes, bytes.len() as u64);
            assert_eq!(overhead.body_bytes, 70_300, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_body_in_frames_of_a_byte_is_no_flood_and_empty_frames_are() {
        for (len, is_flood) in [(1, false), (0, true)] {
            let mut overhead = Overhead::new(HEAD_BYTES_MAX, BORN_US);
            overhead.came(&[0; PREFACE_BYTES]);
            (0..1_000_000).for_each(|_| overhead.came(&frame(DATA, len)));
            assert_eq!(overhead.is_flood(0, false, BORN_US), is_flood);
        }
    }

    #[test]
    fn windows_may_be_opened_while_the_client_waits_for_answers() {
        let mut overhead = Overhead::new(HEAD_BYTES_MAX, BORN_US);
        overhead.came(&[0; PREFACE_BYTES]);
        (0..100_000).for_each(|_| overhead.came(&frame(WINDOW_UPDATE, 4)));
        let is_flood = |waits| overhead.is_flood(0, waits, BORN_US);
        assert_eq!((is_flood(true), is_flood(false)), (false, true));
    }

    #[test]
    fn a_head_of_fields_of_a_byte_is_a_flood_before_it_is_whole_unless_it_becomes_a_request() {
        let mut overhead = Overhead::new(HEAD_BYTES_MAX, BORN_US);
        overhead.came(&[0; PREFACE_BYTES]);
        let mut head = frame(1, 15_000);
        head.truncate(HEAD_BYTES + 4_000);
        head[HEAD_BYTES..].fill(0xbe);
        overhead.came(&head);
        assert!(overhead.is_flood(0, false, BORN_US));
        let mut request = Request::get("/").body(()).unwrap();
        for _ in 0..4_000 {
            request.headers_mut().append("a", "b".parse().unwrap());
        }
        overhead.asked(&request);
        assert!(!overhead.is_flood(0, false, BORN_US));
    }

    #[test]
    fn a_long_head_in_pieces_is_not_wasteful_and_one_that_makes_no_request_is() {
        let value = "v".repeat(20_000);
        let request = Request::get("/").header("cookie", &value).body(()).unwrap();
        for (makes_request, is_wasteful) in [(true, false), (false, true)] {
            let mut overhead = Overhead::new(HEAD_BYTES_MAX, BORN_US);
            let mut turns = Turns::default();
            overhead.came(&[0; PREFACE_BYTES]);
            // A field without an index (RFC 7541 section 6.2.2).
            let field = [&b"\x00\x06cookie\x7f\xa1\x9b\x01"[..], value.as_bytes()].concat();
            let mut head = frame(1, field.len());
            head[4] = 4;
            head.truncate(HEAD_BYTES);
            head.extend(&field);
            for piece in head.chunks(3_000) {
                assert!(!turns.is_wasteful(BORN_US));
                overhead.came(piece);
                if makes_request && overhead.unfinished_bytes() == 0 {
                    overhead.asked(&request);
                }
                overhead.count(&mut turns, 0, BORN_US);
            }
            assert_eq!(turns.is_wasteful(BORN_US), is_wasteful, "{makes_request}");
        }
    }

    #[test]
    fn a_head_that_the_server_takes_is_no_flood_in_whatever_pieces_and_one_that_it_refuses_is() {
        // A field without an index, whose name and value have so many bytes each.
        let field = |len: u8| {
            [
                &[0x00, len][..],
                &vec![b'a'; len.into()],
                &[len],
                &vec![b'a'; len.into()],
            ]
            .concat()
        };
        for (fields, len, flags) in [(1_000, 5, 4), (1_000, 5, 0), (250, 100, 4)] {
            let payload = field(len).repeat(fields);
            let head = |stream: u32| {
                let mut head = frame(1, payload.len());
                head[4] = flags;
                head[5..HEAD_BYTES].copy_from_slice(&stream.to_be_bytes());
                head[HEAD_BYTES..].copy_from_slice(&payload);
                head
            };
            let mut overhead = Overhead::new(HEAD_BYTES_MAX, BORN_US);
            overhead.came(&[0; PREFACE_BYTES]);
            for piece in head(1)[..HEAD_BYTES + payload.len() - 1].chunks(700) {
                overhead.came(piece);
                assert!(!overhead.is_flood(0, false, BORN_US), "{fields} fields");
            }
            overhead.came(&payload[..1]);
            // None of them has become a request.
            overhead.came(&head(3));
            overhead.came(&frame(PING, 0));
            assert!(overhead.is_flood(0, false, BORN_US), "{fields} fields");
        }
    }

    #[test]
    fn a_connection_that_pings_keep_open_is_no_flood_after_a_year() {
        let seconds = 365 * 86_400;
        let mut idle = Overhead::new(HEAD_BYTES_MAX, BORN_US);
        idle.came_bytes = frame(PING, 8).len() as u64 * seconds;
        assert!(!idle.is_flood(0, false, BORN_US + seconds * 1_000_000));
    }
}
