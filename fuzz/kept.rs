//! The inputs that the fuzzer has kept in `fuzz/kept`, first as they are, and then spliced and edited at random.
//! Rust tests of several crates include this file, and call the fuzzer's targets with these inputs.

use std::cell::Cell;
use std::path::Path;

use proptest::prelude::RngExt;
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestError, TestRng, TestRunner};

/// The most edits of one input.
const EDITS_MAX: usize = 8;
/// The most bytes that an edit inserts, removes or repeats.
const RANGE_BYTES_MAX: usize = 16;
/// The most repetitions of a range: the targets have small limits, and some inputs shall be beyond them.
const REPEATS_MAX: usize = 32;
/// The longest input, which is also the fuzzer's longest for most targets.
const INPUT_BYTES_MAX: usize = 1024;
const SHRINKINGS_MAX: u32 = 2_000;
/// The seed, unless `PROPTEST_RNG_SEED` has another one.
const SEED: u64 = 1;

/// Calls a target with every input that is kept for it, and with `mutated` ones.
///
/// # Panics
/// If the target does. It prints the shortest input that it has found for this, as a line of the corpus, and the seed that
/// makes the same inputs again.
pub(crate) fn try_target(name: &str, mutated: u32, look: impl Fn(&[u8])) {
    let kept = kept(name);
    let mut config = Config {
        cases: kept.len() as u32 + mutated,
        failure_persistence: None,
        max_shrink_iters: SHRINKINGS_MAX,
        ..Config::default()
    };
    if config.rng_seed == RngSeed::Random {
        // The same inputs each time, so that a change is judged by what it changes. `make fuzz` looks for others.
        config.rng_seed = RngSeed::Fixed(SEED);
    }
    let seed = config.rng_seed;
    let inputs = Inputs {
        kept,
        unchanged: Cell::new(0),
    };
    let outcome = TestRunner::new(config).run(&inputs, |bytes| {
        look(&bytes);
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("{name}: {reason}"),
        Err(TestError::Fail(reason, bytes)) => {
            tell(name, seed, &bytes);
            look(&bytes);
            panic!("{name} failed once, and not again: {reason}");
        }
    }
}

#[allow(clippy::print_stderr)] // the test harness shows it if the test fails
fn tell(name: &str, seed: RngSeed, bytes: &[u8]) {
    let line = bytes.escape_ascii();
    eprintln!("{name} fails (all inputs again: PROPTEST_RNG_SEED={seed}).");
    eprintln!("This line of fuzz/kept/{name} keeps the input:\n{line}");
}

/// The inputs that `fuzz/run` has written, one a line.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/kept")
        .join(target);
    let text = std::fs::read_to_string(path).expect("what is kept for the target");
    let kept: Vec<_> = text.lines().map(unescaped).collect();
    assert!(!kept.is_empty(), "nothing is kept for {target}");
    kept
}

fn unescaped(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line;
    while let Some((before, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let (kind, after) = escape.split_at(1);
        let (byte, after) = match kind {
            "r" => (b'\r', after),
            "n" => (b'\n', after),
            "t" => (b'\t', after),
            "x" => {
                let (digits, after) = after.split_at(2);
                (u8::from_str_radix(digits, 16).expect("two digits"), after)
            }
            _ => (kind.as_bytes()[0], after),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// The kept inputs one after the other, and then mutated ones.
#[derive(Debug)]
struct Inputs {
    kept: Vec<Vec<u8>>,
    /// How many have been given as they are.
    unchanged: Cell<usize>,
}

impl Strategy for Inputs {
    type Tree = Shrinking;
    type Value = Vec<u8>;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let next = self.unchanged.get();
        let bytes = match self.kept.get(next) {
            Some(input) => {
                self.unchanged.set(next + 1);
                input.clone()
            }
            None => self.mutated(runner.rng()),
        };
        Ok(Shrinking::new(bytes))
    }
}

impl Inputs {
    fn mutated(&self, rng: &mut TestRng) -> Vec<u8> {
        let mut bytes = self.any(rng).to_vec();
        if rng.random() {
            let other = self.any(rng);
            bytes.truncate(rng.random_range(0..=bytes.len()));
            bytes.extend_from_slice(&other[rng.random_range(0..=other.len())..]);
        }
        for _ in 0..rng.random_range(0..=EDITS_MAX) {
            self.edit(&mut bytes, rng);
        }
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    }

    fn edit(&self, bytes: &mut Vec<u8>, rng: &mut TestRng) {
        let start = rng.random_range(0..=bytes.len());
        let len = rng.random_range(1..=RANGE_BYTES_MAX);
        let end = bytes.len().min(start + len);
        match (rng.random_range(0..5), bytes.get_mut(start)) {
            (0, Some(byte)) => *byte = self.any_byte(rng),
            (1, Some(byte)) => *byte ^= 1 << rng.random_range(0..8),
            (2, _) => drop(bytes.drain(start..end)),
            (3, _) => {
                let times = rng.random_range(1..=REPEATS_MAX);
                let repeated = bytes[start..end].repeat(times);
                bytes.splice(start..start, repeated);
            }
            _ => {
                let inserted: Vec<_> = (0..len).map(|_| self.any_byte(rng)).collect();
                bytes.splice(start..start, inserted);
            }
        }
    }

    fn any(&self, rng: &mut TestRng) -> &[u8] {
        &self.kept[rng.random_range(0..self.kept.len())]
    }

    /// A byte that means something to the target, more often than not.
    fn any_byte(&self, rng: &mut TestRng) -> u8 {
        let input = self.any(rng);
        let at = rng.random_range(0..input.len() * 4 / 3 + 1);
        input.get(at).copied().unwrap_or_else(|| rng.random())
    }
}

/// An input that fails, from which ranges are removed as long as it still does: first long ones, then shorter ones.
#[derive(Debug)]
struct Shrinking {
    bytes: Vec<u8>,
    /// The input before the last removal.
    before: Option<Vec<u8>>,
    /// Where the next range begins, and how long it is.
    start: usize,
    len: usize,
}

impl Shrinking {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            len: bytes.len(),
            bytes,
            before: None,
            start: 0,
        }
    }

    fn remove(&mut self) -> bool {
        while self.len > 0 {
            if self.start < self.bytes.len() {
                self.before = Some(self.bytes.clone());
                let end = self.bytes.len().min(self.start + self.len);
                self.bytes.drain(self.start..end);
                return true;
            }
            self.start = 0;
            self.len /= 2;
        }
        false
    }
}

impl ValueTree for Shrinking {
    type Value = Vec<u8>;

    fn current(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    fn simplify(&mut self) -> bool {
        self.before = None;
        self.remove()
    }

    fn complicate(&mut self) -> bool {
        let Some(before) = self.before.take() else {
            return false;
        };
        self.bytes = before;
        self.start += self.len;
        self.remove()
    }
}
