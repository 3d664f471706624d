//! What comes in behind the head of a request while it is answered: the rest of a body, the messages of a session.

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Inflow {
    /// More may come.
    #[default]
    Open = 0,
    /// That was all.
    Complete = 1,
    /// It broke off: nothing more comes, and it is not whole.
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
