//! What a worker that writes where it should not makes of the exchange.

/// The shared memory says something that cannot be: a worker has written where it should not, or what it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt(pub &'static str);

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a worker has written what cannot be: {}", self.0)
    }
}

impl std::error::Error for Corrupt {}
