//! The atomic word that names a slot's owner.

/// The phases of a slot: Free → Filling → Ready → Taken → Answering → Done → Free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotPhase {
    /// The acceptor owns the slot, unused.
    Free = 0,
    /// The acceptor is writing a request into it.
    Filling = 1,
    /// The slot is in a ready ring; any seat that looks there may take it.
    Ready = 2,
    /// A seat owns it and reads the request; no byte of the answer is published.
    Taken = 3,
    /// A seat owns it; part of the answer is in the response ring.
    Answering = 4,
    /// The acceptor owns it again: the seat has ended the answer.
    Done = 5,
}

impl SlotPhase {
    fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits {
            0 => Self::Free,
            1 => Self::Filling,
            2 => Self::Ready,
            3 => Self::Taken,
            4 => Self::Answering,
            5 => Self::Done,
            _ => return None,
        })
    }
}

/// A seat in the hands of one worker process. The epoch counts the workers that have had the seat, so that the words a
/// dead worker left differ from those of its successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Index of the seat, below [`Word::SEATS_MAX`].
    pub seat: u16,
    /// The number of the worker that has the seat; wraps round below [`Word::EPOCHS`].
    pub epoch: u16,
}

/// A slot's word, unpacked. The turn counts the uses of the slot, so that a stale entry in the ring cannot claim a
/// later request (no ABA). It wraps after 2^32 uses, and no process delays a compare-and-swap for that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The phase of the slot.
    pub phase: SlotPhase,
    /// The seat that owns it while Taken or Answering, or owned it when Done; zero otherwise.
    pub tenant: Tenant,
    /// Which use of the slot this is.
    pub turn: u32,
}

impl Word {
    /// Seats take sixteen bits of the word.
    pub const SEATS_MAX: usize = u16::MAX as usize;
    /// Epochs take twelve bits: by the time a seat has seen so many workers, the slots of the first are long free.
    pub const EPOCHS: u16 = 1 << 12;

    const SEAT_SHIFT: u32 = 4;
    const EPOCH_SHIFT: u32 = 20;
    const TURN_SHIFT: u32 = 32;

    /// A word without an owner.
    pub fn unowned(phase: SlotPhase, turn: u32) -> Self {
        Self {
            phase,
            tenant: Tenant::default(),
            turn,
        }
    }

    /// The word as stored: `turn:32 | epoch:12 | seat:16 | phase:4`.
    pub fn pack(self) -> u64 {
        u64::from(self.turn) << Self::TURN_SHIFT
            | u64::from(self.tenant.epoch % Self::EPOCHS) << Self::EPOCH_SHIFT
            | u64::from(self.tenant.seat) << Self::SEAT_SHIFT
            | self.phase as u64
    }

    /// `None` for a phase that does not exist: a worker has written where it should not.
    pub fn unpack(bits: u64) -> Option<Self> {
        Some(Self {
            phase: SlotPhase::from_bits(bits & 0xf)?,
            tenant: Tenant {
                seat: (bits >> Self::SEAT_SHIFT) as u16,
                epoch: (bits >> Self::EPOCH_SHIFT) as u16 % Self::EPOCHS,
            },
            turn: (bits >> Self::TURN_SHIFT) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packing_loses_nothing(phase in 0_u64..6, seat: u16, epoch in 0..Word::EPOCHS, turn: u32) {
            let phase = SlotPhase::from_bits(phase).expect("a phase");
            let word = Word { phase, tenant: Tenant { seat, epoch }, turn };
            prop_assert_eq!(Word::unpack(word.pack()), Some(word));
        }
    }

    #[test]
    fn a_phase_that_does_not_exist_is_refused() {
        assert_eq!(Word::unpack(6), None);
        assert_eq!(Word::unpack(15), None);
    }
}
