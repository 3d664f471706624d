//! The error for an exchange that a worker has damaged.

/// The shared memory holds an impossible value: a worker has written where it should not, or a value it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt(pub &'static str);

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a worker has written an impossible value to the shared memory: {}",
            self.0
        )
    }
}

impl std::error::Error for Corrupt {}
