//! The ration bounds how much is decompressed for the `WebSockets` of an event loop before the loop's other work has
//! its turn, and orders the `WebSockets` that wait for the next turn: those that got nothing in the last turn come
//! first.

/// How many bytes, and the rest of the message that reaches this number. Otherwise a client could keep the loop busy
/// with a small part of what it can send.
const BYTES_MAX: usize = 1 << 20;

/// The ration for one turn of the loop. A `W` stands for a WebSocket that waits for the next one.
#[derive(Debug)]
pub struct Ration<W> {
    number: u64,
    /// How many of its bytes were read and made.
    used: usize,
    /// How many of the `WebSockets` that were called for it have not come yet. Until they have, it is reserved for
    /// them.
    expected: usize,
    /// The `WebSockets` that were called for this ration and found it used up.
    passed_over: Vec<W>,
    /// The other waiting `WebSockets`, which may have had some of this ration.
    waiting: Vec<W>,
}

/// The number of the ration for which a WebSocket waits, if it waits.
#[derive(Debug, Default)]
pub struct Claim(Option<u64>);

impl<W> Default for Ration<W> {
    fn default() -> Self {
        Self {
            number: 0,
            used: 0,
            expected: 0,
            passed_over: Vec::new(),
            waiting: Vec::new(),
        }
    }
}

impl<W> Ration<W> {
    /// Whether a WebSocket may have a message decompressed now; then it waits no more.
    pub fn is_for(&mut self, claim: &mut Claim) -> bool {
        let is_expected = claim.0 == Some(self.number);
        self.expected = self.expected.saturating_sub(usize::from(is_expected));
        let is_for = self.used < BYTES_MAX && (is_expected || self.expected == 0);
        if is_for {
            claim.0 = None;
        }
        is_for
    }

    /// Counts bytes that were read and made.
    pub fn use_up(&mut self, bytes: usize) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Lets a WebSocket that may not use this ration wait for the next one. True if it is the first to wait.
    pub fn wait(&mut self, claim: &mut Claim, who: W) -> bool {
        let is_first = self.passed_over.is_empty() && self.waiting.is_empty();
        if claim.0 == Some(self.number) {
            self.passed_over.push(who);
        } else {
            self.waiting.push(who);
        }
        claim.0 = Some(self.number + 1);
        is_first
    }

    /// Begins the next ration, after the loop's other work has had its turn. Returns the waiting `WebSockets`, to be
    /// called in this order.
    pub fn renew(&mut self) -> Vec<W> {
        let mut called = std::mem::take(&mut self.passed_over);
        called.append(&mut self.waiting);
        (self.number, self.used, self.expected) = (self.number + 1, 0, called.len());
        called
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `WebSockets` that always have a message of so many bytes, and decompress it as the tasks of a loop do: each goes
    /// on until it has to wait. Returns the `WebSockets` that had a message in each turn.
    fn turns(sizes: &[usize], turns: usize) -> Vec<Vec<usize>> {
        let mut ration = Ration::default();
        let mut claims: Vec<Claim> = sizes.iter().map(|_| Claim::default()).collect();
        let mut called: Vec<usize> = (0..sizes.len()).collect();
        let mut had = Vec::new();
        for _ in 0..turns {
            let mut in_turn = Vec::new();
            for who in called {
                while ration.is_for(&mut claims[who]) {
                    ration.use_up(sizes[who]);
                    in_turn.push(who);
                }
                ration.wait(&mut claims[who], who);
            }
            had.push(in_turn);
            called = ration.renew();
        }
        had
    }

    #[test]
    fn in_one_turn_no_more_is_decompressed_than_the_ration_and_the_rest_of_a_message() {
        let half = BYTES_MAX / 2;
        for (sizes, expected) in [
            (&[16 * BYTES_MAX][..], &[&[0][..], &[0], &[0]][..]),
            (&[half + 1], &[&[0, 0], &[0, 0]]),
            (&[half], &[&[0, 0], &[0, 0]]),
            // Each comes once before any comes again, as soon as they wait.
            (&[BYTES_MAX; 3], &[&[0], &[0], &[1], &[2], &[0], &[1]]),
            (&[half; 3], &[&[0, 0], &[0, 1], &[2, 0], &[1, 2], &[0, 1]]),
            (&[BYTES_MAX, half / 2], &[&[0], &[0], &[1, 0], &[1, 0]]),
        ] {
            assert_eq!(turns(sizes, expected.len()), expected, "{sizes:?}");
        }
    }

    #[test]
    fn whoever_waits_is_not_overtaken_by_those_who_come() {
        let mut ration = Ration::default();
        ration.use_up(BYTES_MAX);
        let mut waits = Claim::default();
        assert!(!ration.is_for(&mut waits));
        assert!(ration.wait(&mut waits, "waits"), "the loop is to be called");
        for _ in 0..3 {
            assert_eq!(ration.renew()[0], "waits");
            // New ones come earlier in the turn, and there are ever more of them.
            let mut comes = Claim::default();
            assert!(!ration.is_for(&mut comes));
            ration.wait(&mut comes, "comes");
            ration.use_up(BYTES_MAX);
            assert!(!ration.is_for(&mut waits));
            assert!(!ration.wait(&mut waits, "waits"), "it is called already");
        }
        assert_eq!(ration.renew(), ["waits", "comes"]);
        assert!(ration.is_for(&mut waits));
        assert!(
            !ration.is_for(&mut Claim::default()),
            "another one is called"
        );
    }

    #[test]
    fn one_that_waits_and_does_not_come_keeps_nobody_from_it_for_long() {
        let mut ration = Ration::default();
        ration.use_up(BYTES_MAX);
        let (mut leaves, mut comes) = (Claim::default(), Claim::default());
        ration.wait(&mut leaves, "leaves");
        assert_eq!(ration.renew(), ["leaves"]);
        assert!(!ration.is_for(&mut comes));
        assert!(ration.wait(&mut comes, "comes"));
        assert_eq!(ration.renew(), ["comes"]);
        assert!(ration.is_for(&mut comes) && ration.is_for(&mut comes));
        // It comes back as if it had never waited.
        assert!(ration.is_for(&mut leaves));
    }
}
