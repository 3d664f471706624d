//! Memory for what clients send over `WebSockets`: messages that have not come as a whole, and messages for which the
//! apps have no room.

use std::io;
use std::rc::Rc;

use super::memory::{Held, Memory};
use super::shortage::Shortage;

/// A client may have so many bytes in memory, whatever others have: most messages are shorter.
pub const OWN_BYTES: usize = 16 << 10;

/// A bound on the bytes that all clients together have in memory, beyond each client's own.
pub struct MessageMemory {
    memory: Rc<Memory>,
    shortage: Shortage,
}

impl MessageMemory {
    /// How many bytes there are.
    #[cfg(debug_assertions)]
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Memory for so many bytes of messages.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            memory: Memory::new(bytes_max),
            shortage: Shortage::of(
                "clients send more at once over WebSockets than there is memory for (max_ws_memory), and are closed with code 1013",
            ),
        }
    }

    /// Holds nothing, as yet.
    pub fn held(&self) -> Held {
        Held::new(&self.memory, 0)
    }

    /// Notes that a client has so much in memory now. False if that is too much.
    pub fn hold(&self, held: &mut Held, bytes: usize, now_us: u64) -> bool {
        let shared = bytes.saturating_sub(OWN_BYTES);
        let wants_more = shared > held.bytes();
        held.set(shared);
        if !wants_more || !self.memory.is_over() {
            return true;
        }
        let why = io::Error::other(format!("{} bytes are held", self.memory.bytes()));
        self.shortage.failed(now_us, &why);
        false
    }

    /// Looks whether a shortage is over.
    pub fn settle(&self, now_us: u64) {
        self.shortage.settle(now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_more_than_there_is_gets_no_more_than_its_own() {
        let messages = MessageMemory::new(100_000);
        let [mut first, mut second] = [messages.held(), messages.held()];
        for (shared, fits) in [(60_000, true), (100_000, true), (100_001, false)] {
            let bytes = OWN_BYTES + shared;
            assert_eq!(messages.hold(&mut first, bytes, 0), fits, "{bytes}");
        }
        assert!(messages.hold(&mut second, OWN_BYTES, 0));
        assert!(!messages.hold(&mut second, OWN_BYTES + 1, 0));
        assert!(messages.hold(&mut first, 0, 0));
        assert!(messages.hold(&mut second, OWN_BYTES + 100_000, 0));
        assert!(!messages.hold(&mut first, OWN_BYTES + 1, 0));
        drop((first, second));
        assert_eq!(messages.memory.bytes(), 0);
    }
}
