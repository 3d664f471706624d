//! The new master of an upgrade.

use crate::event::ClientId;

/// A new master that is to follow this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Heir {
    #[default]
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

/// The upgrade that is under way, if one is.
#[derive(Debug, Default)]
pub(crate) struct Upgrade {
    pub(crate) heir: Heir,
    /// The reason that the heir has given at its end.
    pub(crate) leaves_because: Option<String>,
    /// Clients that wait for the end of the upgrade.
    pub(crate) waiting: Vec<ClientId>,
}
