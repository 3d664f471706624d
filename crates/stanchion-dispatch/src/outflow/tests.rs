use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn limits(buffer_bytes: usize, memory_bytes: usize, spool_bytes: u64) -> Rc<Limits> {
    Rc::new(Limits {
        buffer_bytes,
        memory: Memory::new(memory_bytes),
        spool_bytes,
    })
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The worker pushes up to so many bytes, as far as there is room.
    Push(usize),
    Pop,
    /// The client turns out to be slow.
    Spool,
    /// The spooler asks for a job, or finishes the job that it has with this luck.
    Work(Luck),
}

#[derive(Clone, Copy, Debug)]
enum Luck {
    Done,
    NoRoom,
    DiskFails,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let luck =
        prop_oneof![8 => Just(Luck::Done), 1 => Just(Luck::NoRoom), 1 => Just(Luck::DiskFails)];
    let step = prop_oneof![
        4 => (1..200_000_usize).prop_map(Step::Push),
        3 => Just(Step::Pop),
        1 => Just(Step::Spool),
        6 => luck.prop_map(Step::Work),
    ];
    vec(step, 0..150)
}

/// Does in steps what [`crate::requests::spooler`] does, with a vector for a file.
#[derive(Default)]
struct Spooler {
    works: bool,
    file: Vec<u8>,
    job: Option<FileAction>,
}

impl Spooler {
    fn work(&mut self, outflow: &mut Outflow, luck: Luck) {
        if !self.works {
            return;
        }
        let Some(job) = self.job.take() else {
            self.job = Some(outflow.next_job());
            return;
        };
        match (job, luck) {
            (FileAction::Wait, _) => {}
            (FileAction::Leave, _) => *self = Self::default(),
            (FileAction::Read { offset, len }, _) => {
                let offset = offset as usize;
                outflow.read(Bytes::copy_from_slice(&self.file[offset..offset + len]));
            }
            (FileAction::Write(pieces), Luck::Done) => {
                self.file.extend(pieces.concat());
                outflow.written(true);
            }
            (FileAction::Write(_), Luck::NoRoom) => outflow.written(false),
            (FileAction::Write(_), Luck::DiskFails) => outflow.disk_failed(),
        }
    }
}

/// The bytes of an answer from `start` on. They differ by their place, so that a test sees if one is missed, doubled or
/// exchanged.
fn bytes_from(start: usize, len: usize) -> Bytes {
    /// The pattern repeats after so many bytes: a prime, which no size of a piece divides.
    const PERIOD: usize = 999_983;
    static PATTERN: LazyLock<Bytes> = LazyLock::new(|| {
        let byte = |n: usize| (n % PERIOD).wrapping_mul(2_654_435_761) >> 13;
        (0..PERIOD + OWN_BYTES * 4).map(|n| byte(n) as u8).collect()
    });
    PATTERN.slice(start % PERIOD..start % PERIOD + len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The client gets what the worker wrote, all of it and in order, and no more is in memory than there may be,
    /// however slow the client is and whatever the disk does.
    #[test]
    fn what_goes_in_comes_out_in_order(
        steps in steps(),
        buffer_bytes in 0..400_000_usize,
        memory_bytes in 0..400_000_usize,
        spool_bytes in 1..600_000_u64,
    ) {
        let limits = limits(buffer_bytes, memory_bytes, spool_bytes);
        let mut outflow = Outflow::new(&limits);
        let mut spooler = Spooler::default();
        let (mut pushed, mut popped) = (0, 0);
        for step in steps {
            match step {
                Step::Push(len) => {
                    let len = len.min(outflow.room());
                    outflow.push(bytes_from(pushed, len));
                    pushed += len;
                }
                Step::Pop => {
                    if let Outgoing::Piece(piece) = outflow.pop() {
                        prop_assert_eq!(piece.bytes(), &bytes_from(popped, piece.len()));
                        popped += piece.len();
                    }
                }
                Step::Spool => {
                    outflow.spool();
                    spooler.works = true;
                }
                Step::Work(luck) => spooler.work(&mut outflow, luck),
            }
            let in_memory = memory_bytes.saturating_sub(limits.memory.left());
            // The front, the back, and what was just read back.
            prop_assert!(in_memory <= buffer_bytes.max(OWN_BYTES) + 2 * OWN_BYTES);
            prop_assert!(spooler.file.len() as u64 <= spool_bytes);
        }
        outflow.end(AnswerEnd::Complete);
        loop {
            match outflow.pop() {
                Outgoing::Piece(piece) => {
                    prop_assert_eq!(piece.bytes(), &bytes_from(popped, piece.len()));
                    popped += piece.len();
                }
                Outgoing::Nothing => spooler.work(&mut outflow, Luck::Done),
                Outgoing::End(end) => {
                    prop_assert_eq!(end, AnswerEnd::Complete);
                    break;
                }
            }
        }
        prop_assert_eq!(popped, pushed);
        prop_assert_eq!(limits.memory.left(), memory_bytes);
    }
}

#[test]
fn a_buffer_that_is_full_has_room_again_once_the_file_has_it() {
    let mut outflow = Outflow::new(&limits(OWN_BYTES, usize::MAX, u64::MAX));
    outflow.push(bytes_from(0, OWN_BYTES));
    assert_eq!(outflow.room(), 0);
    outflow.spool();
    assert_eq!(outflow.room(), OWN_BYTES);
    outflow.push(bytes_from(0, OWN_BYTES));
    assert_eq!(outflow.room(), 0);
    assert!(matches!(outflow.next_job(), FileAction::Write(pieces) if pieces.len() == 1));
    assert_eq!(outflow.room(), 0, "not before it is written");
    outflow.written(true);
    assert_eq!(outflow.room(), OWN_BYTES);
}

#[test]
fn all_share_the_memory_but_each_has_a_little_of_its_own() {
    let limits = limits(1 << 20, 300_000, 0);
    let (mut first, mut second) = (Outflow::new(&limits), Outflow::new(&limits));
    first.push(bytes_from(0, first.room()));
    assert_eq!((first.room(), second.room()), (0, OWN_BYTES));
    second.push(bytes_from(0, OWN_BYTES));
    assert_eq!(second.room(), 0);
    // A piece that the client has taken counts until it is dropped.
    let Outgoing::Piece(piece) = first.pop() else {
        panic!("there is a piece")
    };
    assert_eq!(second.room(), 0);
    drop(piece);
    assert_eq!(second.room(), 300_000 - OWN_BYTES);
}

#[test]
fn a_client_is_slow_when_its_worker_waits_longer_than_a_quick_one_would_take() {
    for (taken, held_us, expected) in [
        (0, PATIENCE_US, Patience::Left),
        (0, PATIENCE_US + 1, Patience::Over),
        (QUICK_BYTES_PER_S, PATIENCE_US + 1, Patience::Left),
        (QUICK_BYTES_PER_S, PATIENCE_US + 1_000_000, Patience::Left),
        (QUICK_BYTES_PER_S, PATIENCE_US + 1_000_001, Patience::Over),
    ] {
        let mut outflow = Outflow::new(&limits(1 << 20, usize::MAX, 1));
        outflow.taken = taken;
        assert_eq!(outflow.patience(u64::MAX), Patience::Unneeded);
        // The worker waits in two parts, and the pause between them does not count.
        outflow.hold(true, 1_000);
        outflow.hold(true, 1_010);
        outflow.hold(false, 1_020);
        assert_eq!(outflow.patience(u64::MAX), Patience::Unneeded);
        outflow.hold(true, 5_000_000);
        assert_eq!(outflow.patience(5_000_000 + held_us - 20), expected);
    }
    let mut outflow = Outflow::new(&limits(1 << 20, usize::MAX, 0));
    outflow.hold(true, 0);
    assert_eq!(outflow.patience(PATIENCE_US + 1), Patience::Forced);
}

#[test]
fn a_worker_gets_stuck_when_it_waits_and_nothing_more_can_be_written() {
    for (spool_bytes, answer) in [
        (10, None),
        (u64::MAX, Some(Outflow::disk_failed as fn(&mut Outflow))),
        (u64::MAX, Some(|outflow| outflow.written(false))),
    ] {
        let mut outflow = Outflow::new(&limits(OWN_BYTES, usize::MAX, spool_bytes));
        outflow.spool();
        outflow.push(bytes_from(0, OWN_BYTES));
        let job = outflow.next_job();
        assert_eq!(job == FileAction::Wait, answer.is_none());
        if let Some(answer) = answer {
            assert!(!outflow.gets_stuck(u64::MAX));
            answer(&mut outflow);
        }
        assert!(!outflow.gets_stuck(u64::MAX), "the worker does not wait");
        outflow.hold(true, 0);
        assert!(outflow.gets_stuck(u64::MAX));
        assert!(!outflow.gets_stuck(u64::MAX), "once is enough");
        assert!(matches!(outflow.pop(), Outgoing::Piece(_)), "from memory");
    }
}

#[test]
fn after_the_disk_has_failed_nothing_more_is_written() {
    let mut outflow = Outflow::new(&limits(OWN_BYTES, usize::MAX, u64::MAX));
    outflow.spool();
    outflow.push(bytes_from(0, 10));
    assert!(matches!(outflow.next_job(), FileAction::Write(_)));
    outflow.disk_failed();
    assert_eq!(outflow.next_job(), FileAction::Wait);
    assert!(matches!(outflow.pop(), Outgoing::Piece(piece) if piece.len() == 10));
}

#[test]
fn what_the_disk_lost_breaks_the_answer_off_after_what_there_is() {
    let mut outflow = Outflow::new(&limits(OWN_BYTES, usize::MAX, u64::MAX));
    outflow.push(bytes_from(0, 10));
    outflow.spool();
    outflow.push(bytes_from(10, 10));
    outflow.lost();
    outflow.push(bytes_from(20, 10));
    outflow.end(AnswerEnd::Complete);
    assert!(matches!(outflow.pop(), Outgoing::Piece(piece) if piece.len() == 10));
    assert!(matches!(outflow.pop(), Outgoing::End(AnswerEnd::Broken)));
}

#[test]
fn an_answer_that_is_given_up_holds_nothing() {
    let limits = limits(OWN_BYTES, OWN_BYTES, u64::MAX);
    let mut outflow = Outflow::new(&limits);
    outflow.push(bytes_from(0, 10));
    outflow.spool();
    outflow.push(bytes_from(10, 10));
    assert!(matches!(outflow.next_job(), FileAction::Write(_)));
    outflow.give_up();
    outflow.written(true);
    assert_eq!(limits.memory.left(), OWN_BYTES);
    assert_eq!(outflow.next_job(), FileAction::Leave);
}
