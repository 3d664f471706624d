//! The acceptor's view of a slot: the state of the request in it, and the bytes of its answer.
//!
//! A short answer is copied out of its response ring. A long one is *fetched*: as long as the client keeps up, its
//! connection sends directly from the ring (sendmsg(2), with the framing around it), so that the kernel's copy is the
//! only one in the acceptor. Bytes that the socket does not take are copied into the client's buffer, as far as that
//! has room (`response_buffer`, and `max_response_memory` for all). So a slow client does not occupy a ring, and when
//! the seat is done the slot is free.
//!
//! sendfile(2) from the exchange is not used, though it would save the kernel's copy too. The kernel keeps references
//! to the pages, and does not report when the last of them is gone. `SIOCOUTQ` shows how much the peer's kernel has
//! acknowledged; but on loopback and on unix sockets, where nginx is, acknowledged data in the peer's receive queue
//! still refers to our pages: the next answer would be written over data that the peer has not read yet. splice(2) from
//! a pipe is not used either, though no process writes over its pages: the worker's write(2) into fresh pages costs
//! more than the copy that splice(2) saves (docs/internals/measurements.md).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use stanchion_sys::outgoing::send_around;

use super::{AcceptorSide, Submitted};
use crate::corrupt::Corrupt;
use crate::meter::RunTimes;
use crate::protocol::low_water;
use crate::taken::AnswerEnd;
use crate::word::{SlotPhase, Tenant};

/// The state of a submitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The request waits: no seat has taken it.
    Ready,
    /// A seat has held it since `taken_us`.
    Running {
        /// The seat and epoch that hold it.
        tenant: Tenant,
        /// When the seat took it, in microseconds of the monotonic clock.
        taken_us: u64,
    },
    /// The seat has given it back.
    Done {
        /// The seat and epoch that held it.
        tenant: Tenant,
        /// How it ended; `None` if the value in the memory is not an [`AnswerEnd`].
        ending: Option<AnswerEnd>,
        /// When the seat took it.
        taken_us: u64,
        /// When the seat gave it back.
        done_us: u64,
        /// The times that the seat has measured.
        times: RunTimes,
    },
}

impl AcceptorSide<'_> {
    /// Names the present use of a slot.
    pub fn submitted(&self, slot: u32) -> Submitted {
        Submitted {
            slot,
            turn: self.slots[slot].turn,
        }
    }

    /// The state of the request that is in the slot now.
    pub fn state(&self, slot: u32) -> Result<SlotState, Corrupt> {
        let word = self
            .exchange
            .word(slot)
            .ok_or(Corrupt("the phase of a slot does not exist"))?;
        if word.turn != self.slots[slot].turn {
            return Err(Corrupt("the slot is in another turn"));
        }
        let head = self.exchange.head(slot);
        let taken_us = head.taken_us.load(Ordering::Relaxed);
        match word.phase {
            SlotPhase::Ready if word.tenant == Tenant::default() => Ok(SlotState::Ready),
            SlotPhase::Ready => Err(Corrupt("a slot that is ready has an owner")),
            SlotPhase::Taken | SlotPhase::Answering => Ok(SlotState::Running {
                tenant: word.tenant,
                taken_us,
            }),
            SlotPhase::Done => Ok(SlotState::Done {
                tenant: word.tenant,
                ending: match head.ending.load(Ordering::Relaxed) {
                    1 => Some(AnswerEnd::Complete),
                    2 => Some(AnswerEnd::Broken),
                    _ => None,
                },
                taken_us,
                done_us: head.done_us.load(Ordering::Relaxed),
                times: RunTimes::of_words(
                    head.run_times
                        .each_ref()
                        .map(|word| word.load(Ordering::Relaxed)),
                ),
            }),
            SlotPhase::Free | SlotPhase::Filling => Err(Corrupt("a slot in use is marked as free")),
        }
    }

    /// How many bytes of the answer are published and unread.
    pub fn readable(&self, slot: u32) -> Result<usize, Corrupt> {
        let produced = self.exchange.flow(slot).produced.load(Ordering::Acquire);
        let unread = produced.checked_sub(self.slots[slot].consumed);
        match unread {
            Some(unread) if unread <= self.exchange.geometry().response_bytes as u64 => {
                Ok(unread as usize)
            }
            _ => Err(Corrupt(
                "an answer has more unread bytes than its ring can hold",
            )),
        }
    }

    /// Moves up to `max` unread bytes of the answer to the end of `out`, and frees their room.
    pub fn read(&mut self, slot: u32, max: usize, out: &mut Vec<u8>) -> Result<usize, Corrupt> {
        let len = self.readable(slot)?.min(max);
        if len == 0 {
            return Ok(0);
        }
        self.copy_unread(slot, 0, len, out);
        self.consume(slot, len);
        Ok(len)
    }

    /// Copies the first unread bytes of the answer into `into` and leaves them unread; false if there are too few to
    /// fill it.
    pub fn peek(&self, slot: u32, into: &mut [u8]) -> Result<bool, Corrupt> {
        if self.readable(slot)? < into.len() {
            return Ok(false);
        }
        let mut rest = into;
        for (start, len) in self.unread(slot, 0, rest.len()) {
            let (part, behind) = rest.split_at_mut(len);
            // SAFETY: as in `copy_unread`; `part` has room for `len`.
            unsafe { std::ptr::copy_nonoverlapping(start, part.as_mut_ptr(), len) };
            rest = behind;
        }
        Ok(true)
    }

    /// Sends `len` unread bytes of the answer over `socket` straight from the ring, preceded by `before` and followed
    /// by `after`, and frees their room. Returns how many bytes in all the kernel took. Bytes of the answer that the
    /// kernel did not take are appended to `left`.
    ///
    /// # Errors
    /// `Corrupt` if fewer than `len` bytes are unread. The inner error is the kernel's: nothing was sent, and nothing
    /// freed.
    pub fn send(
        &mut self,
        slot: u32,
        len: usize,
        socket: BorrowedFd<'_>,
        before: &[&[u8]],
        after: &[u8],
        left: &mut Vec<u8>,
    ) -> Result<io::Result<usize>, Corrupt> {
        if len > self.readable(slot)? {
            return Err(Corrupt("an answer has fewer unread bytes than before"));
        }
        // SAFETY: both stretches lie within the slot's response ring, which stays mapped.
        let sent = unsafe { send_around(socket, before, self.unread(slot, 0, len), after) };
        if let Ok(bytes) = sent {
            let of_others: usize = before.iter().map(|bytes| bytes.len()).sum();
            let of_answer = bytes.saturating_sub(of_others).min(len);
            self.copy_unread(slot, of_answer, len, left);
            self.consume(slot, len);
        }
        Ok(sent)
    }

    /// The two stretches of the ring in which the unread bytes `from..to` of the answer lie: the bytes may wrap around
    /// its end.
    fn unread(&self, slot: u32, from: usize, to: usize) -> [(*const u8, usize); 2] {
        let capacity = self.exchange.geometry().response_bytes;
        let base = self.exchange.flow(slot).base.load(Ordering::Relaxed);
        // `at` is within the ring, whatever a worker has written to `base`.
        let since = (self.slots[slot].consumed + from as u64).wrapping_sub(base);
        let at = (since % capacity as u64) as usize;
        let (len, first) = (to - from, (to - from).min(capacity - at));
        let area = self.exchange.response_area(slot).cast_const();
        [(area.wrapping_add(at), first), (area, len - first)]
    }

    /// Appends the unread bytes `from..to` of the answer to `out`.
    fn copy_unread(&self, slot: u32, from: usize, to: usize, out: &mut Vec<u8>) {
        for (start, len) in self.unread(slot, from, to) {
            out.reserve(len);
            let end = out.len();
            // SAFETY: the stretch lies within the slot's response ring, and `out` has room for `len`. The seat
            // published these bytes and writes them no more until they are consumed. A seat that writes them
            // nevertheless spoils its own answer only, because the bytes are copied and never looked at in place.
            unsafe {
                std::ptr::copy_nonoverlapping(start, out.as_mut_ptr().add(end), len);
                out.set_len(end + len);
            }
        }
    }

    /// Whether a seat that waits for room in its ring goes on waiting while `unread` bytes of it are unread.
    pub fn is_held_by(&self, unread: usize) -> bool {
        unread as u64 > low_water(self.exchange.geometry().response_bytes as u64)
    }

    fn consume(&mut self, slot: u32, len: usize) {
        let consumed = self.slots[slot].consumed + len as u64;
        let reached = self.reached_by(slot, consumed);
        let known = &mut self.slots[slot];
        (known.consumed, known.reached) = (consumed, known.reached.max(reached));
        self.tell_consumed(slot);
    }

    /// How far into its ring an answer of so many bytes reaches, counted from where the seat last restarted the ring.
    fn reached_by(&self, slot: u32, bytes: u64) -> usize {
        let capacity = self.exchange.geometry().response_bytes;
        let base = self.exchange.flow(slot).base.load(Ordering::Relaxed);
        let since = bytes.checked_sub(base).map(usize::try_from);
        since.and_then(Result::ok).unwrap_or(capacity).min(capacity)
    }

    /// How far into its ring the answer has reached, read or unread, in bytes; the whole ring if the answer is longer.
    pub fn reached(&self, slot: u32) -> usize {
        let flow = self.exchange.flow(slot);
        let unread = self.reached_by(slot, flow.produced.load(Ordering::Acquire));
        self.slots[slot].reached.max(unread)
    }

    /// Informs the seat how far the acceptor has read the answer.
    pub(super) fn tell_consumed(&self, slot: u32) {
        let capacity = self.exchange.geometry().response_bytes as u64;
        let flow = self.exchange.flow(slot);
        let consumed = self.slots[slot].consumed;
        if !self.exchange.geometry().event_loops {
            flow.consume(consumed, capacity);
        } else if flow.advance(consumed, capacity) && flow.room.ring_silently() {
            self.post(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::acceptor::rig::{GEOMETRY, taken};
    use crate::shared::Exchange;

    #[test]
    fn a_slot_in_another_turn_than_ours_makes_no_sense() {
        let exchange = Exchange::create(GEOMETRY).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let (slot, _taken) = taken(&exchange, &mut side);
        let turn = side.submitted(slot).turn;
        let tenant = Tenant { seat: 0, epoch: 1 };
        exchange.set_word(slot, SlotPhase::Done, tenant, turn.wrapping_sub(1));
        let another = Corrupt("the slot is in another turn");
        assert_eq!(side.state(slot), Err(another));
    }

    #[test]
    fn what_is_looked_at_stays_unread_also_over_the_end_of_its_ring() {
        let exchange = Exchange::create(GEOMETRY).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let (slot, mut taken) = taken(&exchange, &mut side);
        let mut seen = [0; 5];
        assert_eq!(side.peek(slot, &mut seen), Ok(false));
        taken.write(b"abcdef").expect("room");
        taken.publish();
        for _ in 0..2 {
            assert_eq!(side.peek(slot, &mut seen), Ok(true));
            assert_eq!(&seen, b"abcde");
        }
        side.read(slot, 5, &mut Vec::new()).expect("bytes");
        // One byte is still unread, so the seat does not restart the ring.
        taken.write(b"ghijk").expect("room");
        taken.publish();
        assert_eq!(side.peek(slot, &mut seen), Ok(true));
        assert_eq!((&seen, side.readable(slot)), (b"fghij", Ok(6)));
        assert_eq!(side.peek(slot, &mut [0; 7]), Ok(false));
    }

    #[test]
    fn an_answer_is_sent_from_where_it_stands_also_over_the_end_of_its_ring() {
        let exchange = Exchange::create(GEOMETRY).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let (slot, mut taken) = taken(&exchange, &mut side);
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let mut left = Vec::new();
        for bytes in [b"abcdef", b"ghijkl"] {
            taken.write(bytes).expect("room");
            taken.publish();
            let socket = ours.as_fd();
            assert_eq!(
                side.send(slot, 7, socket, &[], b"", &mut left)
                    .expect_err("there is less"),
                Corrupt("an answer has fewer unread bytes than before")
            );
            let sent = side.send(slot, 6, socket, &[b"<", b"6>"], b";", &mut left);
            assert_eq!(sent.expect("as it should be").expect("room"), 10);
            let mut got = [0; 16];
            assert_eq!(theirs.read(&mut got).expect("bytes"), 10);
            assert_eq!(&got[..10], [&b"<6>"[..], bytes, b";"].concat());
            assert_eq!((side.readable(slot), left.len()), (Ok(0), 0));
        }
    }

    #[test]
    fn what_a_full_socket_does_not_take_stays_where_it_is() {
        let exchange = Exchange::create(GEOMETRY).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let (slot, mut taken) = taken(&exchange, &mut side);
        taken.write(b"abc").expect("room");
        taken.publish();
        let (mut ours, _theirs) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("set");
        while ours.write(&[0; 4096]).is_ok() {}
        let mut left = Vec::new();
        let sent = side.send(slot, 3, ours.as_fd(), &[], b"", &mut left);
        let error = sent.expect("as it should be").expect_err("it is full");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!((side.readable(slot), left.len()), (Ok(3), 0));
    }
}
