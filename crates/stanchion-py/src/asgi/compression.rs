//! What compresses the messages of `WebSockets`: one for all of an event loop, so that one that idles holds none of it, and
//! all together leave the loop time for its other work.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use stanchion_server::record::{Claim, Close, Codec, Kind, Ration};

/// Shorter messages are sent as they are: they fit into one packet, and alone they have little that comes again.
const DEFLATED_BYTES_MIN: usize = 1 << 10;

pub(super) struct Compression {
    state: Mutex<State>,
    /// What the message of a client may have, in bytes.
    size_max: usize,
}

#[derive(Default)]
struct State {
    codec: Codec,
    /// Who waits for the next one does so by a future.
    ration: Ration<Py<PyAny>>,
}

impl Compression {
    pub(super) fn new(size_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            size_max,
        }
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.state
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
            .then(|| self.lock(py).codec.deflate(message, window_bits))
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
        let read = deflated.len();
        let mut state = self.lock(py);
        let message = state.codec.inflate(kind, deflated, self.size_max);
        // Of one that is none nobody knows how much was made.
        let made = message.as_ref().map_or(self.size_max, Vec::len);
        state.ration.use_up(read.saturating_add(made));
        message
    }

    /// Whether a WebSocket may have a message decompressed, or is to wait until the loop's other work has had its turn.
    pub(super) fn is_for(&self, py: Python<'_>, claim: &mut Claim) -> bool {
        self.lock(py).ration.is_for(claim)
    }

    /// It waits, by this future. Whether the loop is to be asked for [`Self::renew`], in its next turn.
    pub(super) fn wait(&self, py: Python<'_>, claim: &mut Claim, future: Py<PyAny>) -> bool {
        self.lock(py).ration.wait(claim, future)
    }

    /// The next turn has come: gives the futures of those who wait.
    pub(super) fn renew(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.lock(py).ration.renew()
    }
}
