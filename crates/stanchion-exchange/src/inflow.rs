//! Inflow: bytes that arrive behind the head of a request while a seat answers it (the rest of a body, the messages of
//! a session).

/// Whether an inflow goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Inflow {
    /// More bytes may come.
    #[default]
    Open = 0,
    /// All bytes have come.
    Complete = 1,
    /// The inflow broke off: no more bytes come, and it is incomplete.
    Broken = 2,
}

impl Inflow {
    pub(crate) fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Open,
            1 => Self::Complete,
            _ => Self::Broken,
        }
    }
}
