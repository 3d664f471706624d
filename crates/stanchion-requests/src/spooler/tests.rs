use super::*;
use stanchion_dispatch::outflow::{Limits, OWN_BYTES, Outgoing};
use stanchion_dispatch::storage::memory::Memory;
use stanchion_dispatch::storage::scratch::{Scratch, bytes};
use stanchion_exchange::AnswerEnd;

/// The number of the connection that the spoolers are for.
const CONNECTION: u32 = 3;

fn outflow() -> Outflow {
    Outflow::new(&Rc::new(Limits {
        buffer_bytes: OWN_BYTES,
        memory: Memory::new(usize::MAX),
        spool_bytes: u64::MAX,
    }))
}

fn spooler_turn(scratch: &Scratch, spooler: &mut Spooler, outflow: &mut Outflow) -> SpoolerStep {
    scratch.until(|| {
        let turn = spooler.advance(outflow, &scratch.spool, &scratch.disk, || None);
        (!matches!(turn, SpoolerStep::Busy)).then_some(turn)
    })
}

/// The bytes that the client gets at once, and whether they are all.
fn popped(outflow: &mut Outflow) -> (Vec<u8>, Option<AnswerEnd>) {
    let mut all = Vec::new();
    loop {
        match outflow.pop() {
            Outgoing::Piece(piece) => all.extend_from_slice(piece.bytes()),
            Outgoing::Nothing => return (all, None),
            Outgoing::End(end) => return (all, Some(end)),
        }
    }
}

#[test]
fn what_a_worker_gives_goes_through_a_file_to_the_client() {
    let scratch = Scratch::new("spooler-through", 0);
    let (mut outflow, mut spooler) = (outflow(), Spooler::new(CONNECTION));
    let mut turn = |outflow: &mut Outflow| spooler_turn(&scratch, &mut spooler, outflow);
    let data = bytes(400_000);
    outflow.push(data.slice(..100_000));
    outflow.spool();
    assert!(matches!(turn(&mut outflow), SpoolerStep::Idle));
    for (n, from) in [100_000, 200_000, 300_000].into_iter().enumerate() {
        outflow.push(data.slice(from..from + 100_000));
        let written = turn(&mut outflow);
        assert!(matches!(written, SpoolerStep::Written { is_first } if is_first == (n == 0)));
        assert!(matches!(turn(&mut outflow), SpoolerStep::Idle));
    }
    outflow.end(AnswerEnd::Complete);
    let mut got = Vec::new();
    let mut turns = Vec::new();
    loop {
        let (some, end) = popped(&mut outflow);
        got.extend(some);
        if end.is_some() {
            assert_eq!(end, Some(AnswerEnd::Complete));
            break;
        }
        turns.push(turn(&mut outflow));
    }
    assert_eq!(got, data);
    // 300 kB are read back in parts of at most 128 KiB.
    assert_eq!(turns.len(), 3);
    assert!(turns.iter().all(|turn| matches!(turn, SpoolerStep::Read)));
    assert!(matches!(turn(&mut outflow), SpoolerStep::Over));
    assert!(!spooler.is_needed() && spooler.file.is_none());
}

#[test]
fn while_there_is_no_room_the_client_gets_what_is_in_memory_and_is_told_when_there_is() {
    let scratch = Scratch::new("spooler-full", 1_000);
    let (mut outflow, mut spooler) = (outflow(), Spooler::new(CONNECTION));
    let mut other = scratch.spool.unnamed_file(&scratch.disk, None);
    other.append(1, vec![bytes(1_000)]).unwrap();
    scratch.until(|| other.appended()).unwrap();
    outflow.spool();
    outflow.push(bytes(600));
    assert!(matches!(
        spooler_turn(&scratch, &mut spooler, &mut outflow),
        SpoolerStep::Full
    ));
    let mut woken = Vec::new();
    scratch.woken.take(&mut woken);
    woken.clear();
    drop(other);
    scratch.woken.take(&mut woken);
    assert_eq!(woken, [CONNECTION]);
    let written = spooler_turn(&scratch, &mut spooler, &mut outflow);
    assert!(
        matches!(written, SpoolerStep::Written { is_first: true }),
        "{written:?}"
    );
    outflow.push(bytes(700));
    assert!(matches!(
        spooler_turn(&scratch, &mut spooler, &mut outflow),
        SpoolerStep::Read
    ));
    assert!(matches!(
        spooler_turn(&scratch, &mut spooler, &mut outflow),
        SpoolerStep::Over
    ));
    assert_eq!(popped(&mut outflow).0, [bytes(600), bytes(700)].concat());
}

#[test]
fn a_disk_that_fails_leaves_the_answer_in_memory() {
    let scratch = Scratch::new("spooler-fails", 0);
    std::fs::remove_dir(&scratch.directory).unwrap();
    let (mut outflow, mut spooler) = (outflow(), Spooler::new(CONNECTION));
    outflow.spool();
    outflow.push(bytes(600));
    let failed = spooler_turn(&scratch, &mut spooler, &mut outflow);
    assert!(
        matches!(&failed, SpoolerStep::DiskFailed(error) if error.kind() == io::ErrorKind::NotFound)
    );
    assert!(matches!(
        spooler_turn(&scratch, &mut spooler, &mut outflow),
        SpoolerStep::Idle
    ));
    assert_eq!(popped(&mut outflow).0, bytes(600));
    std::fs::create_dir(&scratch.directory).unwrap();
}

#[test]
fn what_cannot_be_read_back_breaks_the_answer() {
    let scratch = Scratch::new("spooler-lost", 0);
    let (mut outflow, mut spooler) = (outflow(), Spooler::new(CONNECTION));
    outflow.push(bytes(10));
    outflow.spool();
    outflow.push(bytes(600));
    assert!(matches!(
        spooler_turn(&scratch, &mut spooler, &mut outflow),
        SpoolerStep::Written { .. }
    ));
    outflow.end(AnswerEnd::Complete);
    assert_eq!(popped(&mut outflow), (bytes(10).to_vec(), None));
    // The file looks shorter than what was written.
    spooler.file = None;
    let lost = spooler_turn(&scratch, &mut spooler, &mut outflow);
    assert!(
        matches!(&lost, SpoolerStep::Lost(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    );
    assert_eq!(popped(&mut outflow), (Vec::new(), Some(AnswerEnd::Broken)));
    assert!(matches!(
        spooler_turn(&scratch, &mut spooler, &mut outflow),
        SpoolerStep::Over
    ));
}

#[test]
fn an_answer_that_is_given_up_in_the_middle_leaves_nothing_behind() {
    let scratch = Scratch::new("spooler-given-up", 1_000);
    let (mut outflow, mut spooler) = (outflow(), Spooler::new(CONNECTION));
    outflow.spool();
    outflow.push(bytes(1_000));
    let turn = spooler.advance(&mut outflow, &scratch.spool, &scratch.disk, || None);
    assert!(matches!(turn, SpoolerStep::Busy));
    outflow.give_up();
    drop(spooler);
    let mut again = scratch.spool.unnamed_file(&scratch.disk, None);
    assert!(again.append(1, vec![bytes(1_000)]).is_ok());
}
