//! What compresses the messages of `WebSockets`: one for all of an event loop, so that one that idles holds none of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use stanchion_server::record::{Close, Codec, Kind};

/// Shorter messages are sent as they are: they fit into one packet, and alone they have little that comes again.
const DEFLATED_BYTES_MIN: usize = 1 << 10;

pub(super) struct Compression {
    codec: Mutex<Codec>,
    /// What the message of a client may have, in bytes.
    size_max: usize,
}

impl Compression {
    pub(super) fn new(size_max: usize) -> Self {
        Self {
            codec: Mutex::default(),
            size_max,
        }
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Codec> {
        self.codec
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A message of the app's, compressed with a window of so many bits, if it is better sent so.
    pub(super) fn deflate(
        &self,
        py: Python<'_>,
        message: &[u8],
        window_bits: u8,
    ) -> Option<Vec<u8>> {
        (message.len() >= DEFLATED_BYTES_MIN)
            .then(|| self.lock(py).deflate(message, window_bits))
            .flatten()
    }

    /// A message of a client's, as it was.
    ///
    /// # Errors
    /// How its WebSocket is to be closed, since it is none, or too long.
    pub(super) fn inflate(
        &self,
        py: Python<'_>,
        kind: Kind,
        deflated: Vec<u8>,
    ) -> Result<Vec<u8>, Close> {
        self.lock(py).inflate(kind, deflated, self.size_max)
    }
}
