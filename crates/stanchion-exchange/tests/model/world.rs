//! The exchange and its model, step by step side by side.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stanchion_exchange::{
    AcceptorSide, AnswerEnd, Area, Exchange, Geometry, Gone, SeatSide, SeatState, SlotState,
    Submitted, Taken, Tenant, Unwanted,
};

/// The sizes are small, so that everything runs out and wraps around, and odd, so that it does so in odd places.
pub(crate) const GEOMETRY: Geometry = Geometry {
    seats: 4,
    seats_per_worker: 2,
    ahead_per_seat: 1,
    spare_per_worker: 0,
    sessions_per_worker: 0,
    event_loops: false,
    inflow_bytes: 0,
    request_bytes: 24,
    response_bytes: 13,
};
const SLOTS: usize = 8;
pub(crate) const WORKERS: usize = 2;
pub(crate) const RING_ENTRIES: usize = 32;
const OWN_RING_ENTRIES: usize = 16;

/// The byte at a position of a request or an answer: a hash, so that a misplaced byte shows.
fn byte(use_of: Submitted, position: u64) -> u8 {
    let mixed = (u64::from(use_of.slot) << 40) ^ (u64::from(use_of.turn) << 20) ^ position;
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn bytes(use_of: Submitted, from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|position| byte(use_of, position)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Ready,
    Running(Tenant),
    Done(Tenant, AnswerEnd),
}

/// The model's record of a slot in use.
#[derive(Debug)]
struct Used {
    turn: u32,
    request_len: u64,
    stand: Stand,
    /// Bytes of the answer: written ≥ published ≥ consumed.
    written: u64,
    published: u64,
    consumed: u64,
    /// Bytes that the seat believes to be free.
    room: u64,
    gone: bool,
    orphan: bool,
}

struct Chair<'x> {
    tenant: Tenant,
    side: SeatSide<'x>,
    taken: Option<Taken<'x>>,
    /// The last request was for its worker alone.
    took_own: bool,
}

impl<'x> Chair<'x> {
    fn new(exchange: &'x Exchange, seat: u16, epoch: u16) -> Self {
        let tenant = Tenant { seat, epoch };
        Self {
            tenant,
            side: SeatSide::new(exchange, tenant, 1, None),
            taken: None,
            took_own: false,
        }
    }
}

/// The model of a ring: its entries, stale ones among them, oldest first.
type Ring = VecDeque<Submitted>;

pub(crate) struct World<'x> {
    exchange: &'x Exchange,
    pub(crate) acceptor: AcceptorSide<'x>,
    chairs: Vec<Chair<'x>>,
    used: BTreeMap<u32, Used>,
    turns: [u32; SLOTS],
    pub(crate) ring: Ring,
    /// The ring of each worker.
    own_rings: [Ring; WORKERS],
    /// Slots with notices.
    news: BTreeSet<u32>,
}

impl<'x> World<'x> {
    pub(crate) fn new(exchange: &'x Exchange) -> Self {
        Self {
            exchange,
            acceptor: AcceptorSide::take_over(exchange),
            chairs: (0..4).map(|seat| Chair::new(exchange, seat, 1)).collect(),
            used: BTreeMap::new(),
            turns: [0; SLOTS],
            ring: Ring::new(),
            own_rings: [Ring::new(), Ring::new()],
            news: BTreeSet::new(),
        }
    }

    pub(crate) fn is_ready(&self, entry: Submitted) -> bool {
        let used = self.used.get(&entry.slot);
        used.is_some_and(|used| used.turn == entry.turn && used.stand == Stand::Ready)
    }

    /// The ring of one worker, or the shared ring.
    fn ring(&mut self, worker: Option<usize>) -> &mut Ring {
        match worker {
            None => &mut self.ring,
            Some(worker) => &mut self.own_rings[worker],
        }
    }

    /// Removes stale entries from the front of a ring.
    fn skip_stale(&mut self, worker: Option<usize>) {
        while let Some(&entry) = self.ring(worker).front()
            && !self.is_ready(entry)
        {
            self.ring(worker).pop_front();
        }
    }

    pub(crate) fn submit(&mut self, worker: Option<usize>, len: usize) {
        let entries = worker.map_or(RING_ENTRIES, |_| OWN_RING_ENTRIES);
        let mut room = self.ring(worker).len() < entries;
        if !room {
            self.skip_stale(worker);
            room = self.ring(worker).len() < entries;
        }
        let expected = room && self.used.len() < SLOTS;
        let mut filled = false;
        let fill = |mut area: Area<'_>| {
            filled = true;
            assert_eq!(area.len(), GEOMETRY.request_bytes);
            area.put(0, &vec![len as u8; area.len()]);
            Some(len)
        };
        let only = worker.map(|worker| worker as u16);
        let submitted = self.acceptor.submit(only, 0, fill);
        assert_eq!((submitted.is_some(), filled), (expected, expected));
        let Some(submitted) = submitted else { return };
        let turn = &mut self.turns[submitted.slot as usize];
        *turn += 1;
        assert_eq!(submitted.turn, *turn);
        let used = Used {
            turn: *turn,
            request_len: len as u64,
            stand: Stand::Ready,
            written: 0,
            published: 0,
            consumed: 0,
            room: GEOMETRY.response_bytes as u64,
            gone: false,
            orphan: false,
        };
        assert!(
            self.used.insert(submitted.slot, used).is_none(),
            "a slot in use was given out"
        );
        self.ring(worker).push_back(submitted);
    }

    pub(crate) fn take(&mut self, seat: usize) {
        if self.chairs[seat].taken.is_some() {
            return;
        }
        let worker = Some(seat / GEOMETRY.seats_per_worker);
        // The worker's own ring and the shared ring take turns.
        let order = if self.chairs[seat].took_own {
            [None, worker]
        } else {
            [worker, None]
        };
        let expected = order.into_iter().find_map(|worker| {
            self.skip_stale(worker);
            let entry = self.ring(worker).pop_front()?;
            self.chairs[seat].took_own = worker.is_some();
            Some(entry)
        });
        let chair = &mut self.chairs[seat];
        chair.taken = chair.side.take();
        let Some(taken) = &chair.taken else {
            assert_eq!(expected, None, "a request was not found");
            return;
        };
        let (slot, turn) = taken.ticket();
        assert_eq!(
            expected,
            Some(Submitted { slot, turn }),
            "first in, first out"
        );
        let used = self.used.get_mut(&slot).unwrap();
        used.stand = Stand::Running(chair.tenant);
        assert_eq!(
            taken.request(),
            vec![used.request_len as u8; used.request_len as usize]
        );
    }

    /// Writes as much of `len` as the seat can write without waiting.
    pub(crate) fn write(&mut self, seat: usize, len: usize) {
        let Some(taken) = &mut self.chairs[seat].taken else {
            return;
        };
        let (slot, turn) = taken.ticket();
        let used = self.used.get_mut(&slot).unwrap();
        let capacity = GEOMETRY.response_bytes as u64;
        if len > 0 && used.consumed == used.written {
            // The seat restarts the ring.
            used.room = capacity;
        }
        let mut len = (len as u64).min(capacity - (used.written - used.consumed));
        // Once the seat has filled the bytes it knew to be free, it waits while more than half is unread.
        if !used.gone && used.written + used.room - used.consumed > capacity / 2 {
            len = len.min(used.room);
        }
        let more = bytes(Submitted { slot, turn }, used.written, used.written + len);
        let looks = len > used.room;
        let gone = looks && used.gone;
        let fits = if gone { used.room } else { len };
        assert_eq!(taken.write(&more), if gone { Err(Gone) } else { Ok(()) });
        if looks {
            // The seat looks at how much was read only once it has filled the bytes it knew to be free.
            let filled = used.written + used.room;
            if used.published < filled {
                self.news.insert(slot);
            }
            used.published = filled;
            used.room = if gone {
                0
            } else {
                capacity - (filled - used.consumed) - (len - used.room)
            };
        } else {
            used.room -= len;
        }
        used.written += fits;
    }

    pub(crate) fn publish(&mut self, seat: usize) {
        let Some(taken) = &mut self.chairs[seat].taken else {
            return;
        };
        taken.publish();
        let (slot, _) = taken.ticket();
        let used = self.used.get_mut(&slot).unwrap();
        if used.published < used.written {
            used.published = used.written;
            self.news.insert(slot);
        }
    }

    pub(crate) fn finish(&mut self, seat: usize, ending: AnswerEnd) {
        let chair = &mut self.chairs[seat];
        let Some(taken) = chair.taken.take() else {
            return;
        };
        let (slot, _) = taken.ticket();
        match ending {
            AnswerEnd::Complete => taken.finish(ending),
            AnswerEnd::Broken => drop(taken),
        }
        // The app may go on for a while after its answer.
        assert_eq!(self.exchange.seat_state(chair.tenant.seat), SeatState::Busy);
        chair.side.rest();
        let used = self.used.get_mut(&slot).unwrap();
        used.published = used.written;
        used.stand = Stand::Done(chair.tenant, ending);
        self.news.insert(slot);
    }

    pub(crate) fn kill(&mut self, seat: usize) {
        let Tenant {
            seat: number,
            epoch,
        } = self.chairs[seat].tenant;
        let successor = Chair::new(self.exchange, number, epoch.wrapping_add(1));
        let Chair {
            tenant,
            side,
            taken,
            ..
        } = std::mem::replace(&mut self.chairs[seat], successor);
        std::mem::forget((side, taken));
        let held: BTreeSet<u32> = self
            .acceptor
            .held_by(|holder| holder == tenant)
            .into_iter()
            .collect();
        let theirs = |used: &Used| match used.stand {
            Stand::Ready => false,
            Stand::Running(holder) | Stand::Done(holder, _) => holder == tenant,
        };
        let expected = self.used.iter().filter(|(_, used)| theirs(used));
        assert_eq!(held, expected.map(|(&slot, _)| slot).collect());
        for slot in held {
            self.clear_up(slot, true);
        }
    }

    /// Reads the rest of an answer to which no seat will add, and frees the slot.
    fn clear_up(&mut self, slot: u32, dead: bool) {
        let orphan = self.used[&slot].orphan;
        assert_eq!(self.acceptor.settle_orphan(slot, dead), orphan);
        if !orphan {
            self.read(slot, usize::MAX);
            self.acceptor.release(slot);
        }
        self.used.remove(&slot);
    }

    pub(crate) fn read(&mut self, slot: u32, max: usize) {
        let Some(used) = self.used.get_mut(&slot) else {
            return;
        };
        if used.orphan {
            return;
        }
        let unread = used.published - used.consumed;
        assert_eq!(self.acceptor.readable(slot), Ok(unread as usize));
        let wanted = unread.min(max as u64);
        let mut out = b"kept".to_vec();
        assert_eq!(self.acceptor.read(slot, max, &mut out), Ok(wanted as usize));
        let use_of = Submitted {
            slot,
            turn: used.turn,
        };
        assert_eq!(
            out.split_off(4),
            bytes(use_of, used.consumed, used.consumed + wanted)
        );
        assert_eq!(out, b"kept");
        used.consumed += wanted;
    }

    pub(crate) fn sweep(&mut self) {
        assert_eq!(self.acceptor.try_sleep(), self.news.is_empty());
        self.acceptor.awake();
        let mut swept = BTreeSet::new();
        self.acceptor.sweep(|slot| assert!(swept.insert(slot)));
        assert_eq!(swept, std::mem::take(&mut self.news));
        for slot in swept {
            match self.used.get(&slot).map(|used| used.stand) {
                Some(Stand::Done(..)) => self.clear_up(slot, false),
                Some(Stand::Running(_)) => {
                    let orphan = self.used[&slot].orphan;
                    assert_eq!(self.acceptor.settle_orphan(slot, false), orphan);
                }
                Some(Stand::Ready) | None => {}
            }
        }
    }

    pub(crate) fn give_up(&mut self, slot: u32) {
        if let Some(used) = self
            .used
            .get_mut(&slot)
            .filter(|used| used.stand != Stand::Ready)
        {
            self.acceptor.give_up(slot, Unwanted::ClientGone);
            used.gone = true;
        }
    }

    pub(crate) fn withdraw(&mut self, slot: u32) {
        let Some(used) = self.used.get(&slot) else {
            return;
        };
        let ready = used.stand == Stand::Ready;
        assert_eq!(self.acceptor.withdraw(slot), ready);
        if ready {
            self.used.remove(&slot);
        }
    }

    pub(crate) fn take_over(&mut self) {
        self.acceptor = AcceptorSide::take_over(self.exchange);
        self.used
            .retain(|_, used| matches!(used.stand, Stand::Running(_)));
        self.ring.clear();
        self.own_rings.iter_mut().for_each(Ring::clear);
        for used in self.used.values_mut() {
            used.orphan = true;
            used.gone = true;
        }
    }

    /// Checks the invariants that hold between any two steps.
    pub(crate) fn check(&self) {
        assert_eq!(self.acceptor.free_slots() + self.used.len(), SLOTS);
        for (&slot, used) in &self.used {
            let stand = match self.acceptor.state(slot).unwrap() {
                SlotState::Ready => Stand::Ready,
                SlotState::Running { tenant, .. } => Stand::Running(tenant),
                SlotState::Done { tenant, ending, .. } => Stand::Done(tenant, ending.unwrap()),
            };
            assert_eq!(stand, used.stand);
            assert_eq!(
                self.acceptor.submitted(slot),
                Submitted {
                    slot,
                    turn: used.turn
                }
            );
        }
        for chair in &self.chairs {
            let state = self.exchange.seat_state(chair.tenant.seat);
            let busy = chair.taken.is_some();
            assert_eq!(
                state,
                if busy {
                    SeatState::Busy
                } else {
                    SeatState::Idle
                }
            );
            if let Some(taken) = &chair.taken {
                assert_eq!(taken.client_gone(), self.used[&taken.ticket().0].gone);
            }
        }
    }

    /// All seats and the acceptor finish their work; then every slot must be free.
    pub(crate) fn wind_up(&mut self) {
        loop {
            for seat in 0..self.chairs.len() {
                self.finish(seat, AnswerEnd::Complete);
                self.take(seat);
            }
            self.sweep();
            self.check();
            if self.used.is_empty() {
                return;
            }
        }
    }
}
