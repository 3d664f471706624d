//! Compresses and decompresses the messages of `WebSocket`s. All of an event loop share one codec, so that an idle one holds no memory for it, and
//! one ration, so that together they leave the loop time for its other work.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use stanchion_record::{Claim, Close, Codec, MessageKind, Ration};

/// Shorter messages are sent uncompressed: they fit into one packet, and alone they have little that repeats.
const DEFLATED_BYTES_MIN: usize = 1 << 10;

pub(super) struct MessageCompression {
    state: Mutex<CompressionState>,
    /// The most bytes that a client's message may have.
    size_max: usize,
}

#[derive(Default)]
struct CompressionState {
    codec: Codec,
    /// How much may be decompressed in a turn. A WebSocket that waits for the next ration waits for a future.
    ration: Ration<Py<PyAny>>,
}

impl MessageCompression {
    pub(super) fn new(size_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            size_max,
        }
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, CompressionState> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Compresses a message of the app, with a window of so many bits; `None` if the message is better sent uncompressed.
    pub(super) fn deflate(
        &self,
        py: Python<'_>,
        message: &[u8],
        window_bits: u8,
    ) -> Option<Vec<u8>> {
        (message.len() >= DEFLATED_BYTES_MIN)
            .then(|| self.lock(py).codec.deflate(message, window_bits))
            .flatten()
    }

    /// Decompresses a client's message.
    ///
    /// # Errors
    /// The message is malformed or too long, and its WebSocket has to be closed in this way.
    pub(super) fn inflate(
        &self,
        py: Python<'_>,
        kind: MessageKind,
        deflated: Vec<u8>,
    ) -> Result<Vec<u8>, Close> {
        let read = deflated.len();
        let mut state = self.lock(py);
        let message = state.codec.inflate(kind, deflated, self.size_max);
        // It is unknown how much a malformed message made, so it counts as the most.
        let made = message.as_ref().map_or(self.size_max, Vec::len);
        state.ration.use_up(read.saturating_add(made));
        message
    }

    /// Whether a WebSocket may have a message decompressed now. If not, it has to wait until the loop's other work has had its turn.
    pub(super) fn is_for(&self, py: Python<'_>, claim: &mut Claim) -> bool {
        self.lock(py).ration.is_for(claim)
    }

    /// Has a WebSocket wait, for this future. Returns whether the caller has to make the loop call [`Self::renew`] in its next turn.
    pub(super) fn wait(&self, py: Python<'_>, claim: &mut Claim, future: Py<PyAny>) -> bool {
        self.lock(py).ration.wait(claim, future)
    }

    /// Begins a new ration, in the next turn. Returns the future of each WebSocket that waits.
    pub(super) fn renew(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.lock(py).ration.renew()
    }
}
