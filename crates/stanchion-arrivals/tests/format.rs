//! The layout as tables, and what holds whatever is written and however a file is cut.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use proptest::prelude::*;
use proptest::sample::select;
use stanchion_arrivals::{
    ArrivalFile, ArrivalHeader, ArrivalRecord, EventKind, MAGIC, NotARecording, RECORD_BYTES,
    Recorded, RecordedEvent, RecordedLane, RecordedRequest, RecordedSettings, RequestEnd,
    Unreadable, lost, recorded_us,
};

const REQUEST: RecordedRequest = RecordedRequest {
    front_us: 0x0101_0101,
    wait_us: 0x0202_0202,
    service_us: 0x0303_0303,
    cpu_us: Some(0x0404_0404),
    core_us: Some(0x0505_0505),
    gil_us: Some(0x0606_0606),
    client: 0x0707_0707,
    busy: 0x0808,
    waiting: 0x0909,
    worker: Some(0x0a09),
    status: 0x0b0b,
    lane: 0x0c,
    end: RequestEnd::Shed,
    left_seat: true,
};

/// The checksum of a record of that request, by Python's `zlib.crc32`.
const CHECK: u32 = 0xd50d_aca5;

fn settings(lanes: usize) -> RecordedSettings {
    let lane = RecordedLane {
        name: "a-lane-with-a-name-of-32-letters".to_owned(),
        priority: 10,
        seats: 1,
        seats_max: Some(2),
        waiting_max: None,
        is_for_all: true,
    };
    RecordedSettings {
        server: "1.0".to_owned(),
        workers_min: 2,
        workers_max: 8,
        workers_keep_us: 60_000_000,
        seats_per_worker: 4,
        event_loop: false,
        cores: 2,
        waiting_max: 2048,
        waiting_max_per_client: 0,
        queue_timeout_us: 60_000_000,
        queue_target_us: None,
        timeout_us: 30_000_000,
        lanes: vec![lane; lanes],
    }
}

fn header(writer: u64) -> ArrivalHeader {
    ArrivalHeader {
        writer,
        begun_us: 1_700_000_000_000_000,
        settings: settings(1),
    }
}

fn file(writer: u64, records: &[ArrivalRecord]) -> Vec<u8> {
    let mut bytes = header(writer).encode();
    bytes.extend(records.iter().flat_map(ArrivalRecord::encode));
    bytes
}

fn numbered(number: u64) -> ArrivalRecord {
    ArrivalRecord {
        number,
        at_us: number * 10,
        what: Recorded::Request(REQUEST),
    }
}

#[test]
fn each_field_has_its_place() {
    let record = ArrivalRecord {
        number: 0x0d0d_0d0d_0d0d_0d0d,
        at_us: 0x0e0e_0e0e_0e0e_0e0e,
        what: Recorded::Request(REQUEST),
    };
    let bytes = record.encode();
    let runs: Vec<_> = bytes[..60].chunk_by(|a, b| a == b).collect();
    let expected: [(u8, usize); 18] = [
        (0x0d, 8),
        (0x0e, 8),
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
        (5, 4),
        (6, 4),
        (7, 4),
        (8, 2),
        (9, 2),
        (0x0a, 2),
        (0x0b, 2),
        (0x0c, 1),
        (0, 1),
        (8, 1),
        (1, 1),
        (0, 4),
    ];
    let runs: Vec<_> = runs.iter().map(|run| (run[0], run.len())).collect();
    assert_eq!(runs, expected);
    assert_eq!(bytes[60..], CHECK.to_le_bytes());

    let event = RecordedEvent {
        kind: EventKind::Wanted,
        worker: None,
        workers: 0x0303,
        waiting: 0x0404,
    };
    let bytes = ArrivalRecord {
        number: 1,
        at_us: 2,
        what: Recorded::Event(event),
    }
    .encode();
    assert_eq!(bytes[44..56], [3, 3, 4, 4, 0, 0, 0, 0, 0, 3, 0, 0]);
}

#[test]
fn what_does_not_fit_is_the_largest_that_does() {
    assert_eq!(recorded_us(u64::MAX), u32::MAX);
    assert_eq!(recorded_us(7), 7);
    let request = RecordedRequest {
        cpu_us: Some(u32::MAX),
        core_us: None,
        worker: Some(u16::MAX),
        ..REQUEST
    };
    let record = ArrivalRecord {
        what: Recorded::Request(request),
        ..numbered(1)
    };
    let Recorded::Request(read) = ArrivalRecord::decode(&record.encode()).unwrap().what else {
        panic!("a request became an event");
    };
    assert_eq!((read.cpu_us, read.core_us), (Some(u32::MAX - 1), None));
    assert_eq!(read.worker, Some(u16::MAX - 1));
}

#[test]
fn a_header_fills_pages_and_comes_out_as_it_went_in() {
    for (lanes, pages) in [(1, 1), (32, 2)] {
        let header = ArrivalHeader {
            settings: settings(lanes),
            ..header(7)
        };
        let bytes = header.encode();
        assert_eq!(bytes.len(), pages * 4096, "{lanes} lanes");
        let read = ArrivalFile::read(&bytes).unwrap();
        assert_eq!(
            (read.header, read.records.len(), read.unreadable),
            (header, 0, 0)
        );
    }
}

#[test]
fn a_file_that_is_no_recording_is_refused_for_a_reason() {
    let whole = file(1, &[]);
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    for (bytes, reason) in [
        (Vec::new(), NotARecording::Foreign),
        (b"HTTP/1.1 200 OK".to_vec(), NotARecording::Foreign),
        (with(0, b's'), NotARecording::Foreign),
        (MAGIC.to_vec(), NotARecording::CutShort),
        (whole[..100].to_vec(), NotARecording::CutShort),
        (whole[..4095].to_vec(), NotARecording::CutShort),
        (with(8, 2), NotARecording::Version(2)),
        (with(12, 8), NotARecording::CutShort),
        (with(13, 0), NotARecording::Settings),
        (with(16, 65), NotARecording::Settings),
        (with(40, b'['), NotARecording::Settings),
    ] {
        assert_eq!(ArrivalFile::read(&bytes), Err(reason), "{reason}");
    }
}

#[test]
fn records_that_are_missing_are_counted_by_their_writers() {
    let files = |numbers: &[(u64, &[u64])]| {
        let files = numbers.iter().map(|(writer, numbers)| {
            let records: Vec<_> = numbers.iter().copied().map(numbered).collect();
            ArrivalFile::read(&file(*writer, &records)).unwrap()
        });
        lost(&files.collect::<Vec<_>>())
    };
    for (numbers, expected) in [
        (&[][..], 0),
        (&[(1, &[][..])], 0),
        (&[(1, &[1, 2, 3])], 0),
        // The files with the first ones were removed.
        (&[(1, &[7, 8, 9])], 0),
        (&[(1, &[7, 9])], 1),
        // One writer has written two files, and lost the records between them.
        (&[(1, &[1, 2]), (1, &[5, 6])], 2),
        (&[(1, &[1, 2]), (2, &[5, 6])], 0),
        (&[(1, &[1, 4]), (2, &[5, 9])], 5),
    ] {
        assert_eq!(files(numbers), expected, "{numbers:?}");
    }
}

fn requests() -> impl Strategy<Value = RecordedRequest> {
    let measured = || proptest::option::of(0..u32::MAX);
    let times = (any::<[u32; 3]>(), measured(), measured(), measured());
    let rest = (
        any::<u32>(),
        any::<[u16; 3]>(),
        proptest::option::of(0..u16::MAX),
        any::<(u8, bool)>(),
        select(RequestEnd::ALL),
    );
    (times, rest).prop_map(|(times, rest)| {
        let ([front_us, wait_us, service_us], cpu_us, core_us, gil_us) = times;
        let (client, [busy, waiting, status], worker, (lane, left_seat), end) = rest;
        RecordedRequest {
            front_us,
            wait_us,
            service_us,
            cpu_us,
            core_us,
            gil_us,
            client,
            busy,
            waiting,
            worker,
            status,
            lane,
            end,
            left_seat,
        }
    })
}

fn events() -> impl Strategy<Value = RecordedEvent> {
    let parts = (
        select(EventKind::ALL),
        proptest::option::of(0..u16::MAX),
        any::<(u16, u16)>(),
    );
    parts.prop_map(|(kind, worker, (workers, waiting))| RecordedEvent {
        kind,
        worker,
        workers,
        waiting,
    })
}

fn records() -> impl Strategy<Value = ArrivalRecord> {
    let what = prop_oneof![
        requests().prop_map(Recorded::Request),
        events().prop_map(Recorded::Event),
    ];
    (any::<(u64, u64)>(), what).prop_map(|((number, at_us), what)| ArrivalRecord {
        number,
        at_us,
        what,
    })
}

proptest! {
    #[test]
    fn a_record_comes_out_as_it_went_in(record in records()) {
        prop_assert_eq!(ArrivalRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn a_record_with_a_wrong_bit_is_unreadable(record in records(), bit in 0..8 * RECORD_BYTES) {
        let mut bytes = record.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(ArrivalRecord::decode(&bytes), Err(Unreadable));
    }

    #[test]
    fn whatever_bytes_come_reading_them_ends(bytes: Vec<u8>, has_header: bool) {
        let mut all = if has_header { file(1, &[]) } else { MAGIC.to_vec() };
        all.extend(bytes);
        let _ = ArrivalFile::read(&all);
    }

    /// A file is read while it is written, and after the host went down.
    #[test]
    fn of_a_file_that_is_cut_anywhere_all_whole_records_are_read(
        records in proptest::collection::vec(records(), 0..8),
        cut in 0..8 * RECORD_BYTES,
        hole in 0..8_usize,
    ) {
        let mut bytes = file(1, &records);
        let begin = header(1).encode().len();
        bytes.truncate(begin + cut.min(records.len() * RECORD_BYTES));
        let mut whole = records[..(bytes.len() - begin) / RECORD_BYTES].to_vec();
        let is_torn = !(bytes.len() - begin).is_multiple_of(RECORD_BYTES);
        // The kernel had made room for this one and not written it.
        let has_hole = hole < whole.len();
        if has_hole {
            let at = begin + hole * RECORD_BYTES;
            bytes[at..at + RECORD_BYTES].fill(0);
            whole.remove(hole);
        }
        let read = ArrivalFile::read(&bytes).unwrap();
        prop_assert_eq!(read.records, whole);
        prop_assert_eq!(read.unreadable, u64::from(is_torn) + u64::from(has_hole));
    }
}
