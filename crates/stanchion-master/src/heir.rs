//! The new master of an upgrade.

/// A new master that is to follow this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heir {
    None,
    Asked,
    Booting {
        pid: i32,
    },
    /// It has the door.
    Serving {
        pid: i32,
    },
    /// It had the door, and has ended.
    Left,
}

impl Heir {
    /// Its process, if it has one.
    pub(crate) fn pid(self) -> Option<i32> {
        match self {
            Self::Booting { pid } | Self::Serving { pid } => Some(pid),
            Self::None | Self::Asked | Self::Left => None,
        }
    }
}
