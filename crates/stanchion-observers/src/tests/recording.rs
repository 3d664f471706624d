//! The recording of arrivals.

use std::path::Path;

use stanchion_arrivals::{
    ArrivalFile, EventKind, Recorded, RecordedEvent, RecordedRequest, RequestEnd,
};

use super::*;

/// A directory of this test alone, gone when the test is.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let name = LogPath::new();
        std::fs::create_dir(&name.0).expect("made");
        Self(name.0.clone())
    }

    fn read(&self) -> Vec<ArrivalFile> {
        let entries = std::fs::read_dir(&self.0).expect("listed");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let is_recording = |path: &PathBuf| path.extension() == Some("rec".as_ref());
        let mut paths: Vec<_> = paths.filter(is_recording).collect();
        paths.sort();
        let read = |path: &PathBuf| {
            let bytes = std::fs::read(path).expect("read");
            ArrivalFile::read(&bytes).expect("a recording")
        };
        paths.iter().map(read).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("removed");
    }
}

fn recording(directory: &Path) -> Observers {
    let settings =
        serde_json::json!({"record_arrivals": directory.to_str().expect("text"), "threads": 4});
    let mut observers = observers(&settings);
    assert!(!observers.wants());
    let settings = Settings::from_json(&settings.to_string()).expect("settings");
    let files = open_recording(&settings, 2).expect("opened");
    observers
        .record_arrivals(&settings, files)
        .expect("a thread");
    assert!(observers.wants() && !observers.wants_answer_head());
    observers
}

fn request_of(file: &ArrivalFile, index: usize) -> RecordedRequest {
    match file.records[index].what {
        Recorded::Request(request) => request,
        Recorded::Event(event) => panic!("{event:?}"),
    }
}

#[test]
fn a_request_that_was_in_the_line_has_a_record_and_its_client_has_the_same_hash() {
    let directory = Directory::new();
    let mut observers = recording(&directory.0);
    observers.begin_turn(1_700_000_000_000_000);
    let first = ticket(browsers(), None);
    first.waiting.set(5);
    first.busy.set(3);
    let session = ticket(browsers(), None);
    let facts = SessionFacts {
        begun_us: 1_000_750,
        ..SessionFacts::default()
    };
    assert!(session.session.set(Box::new(facts)).is_ok());
    let stranger = ticket_by(Some("192.0.2.1"), false, &[]);
    let unknown = ticket_by(None, false, &[]);
    let tickets = [first, session, stranger, unknown];
    for ticket in &tickets {
        observers.over(over(ticket, b""));
    }
    let event = RecordedEvent {
        kind: EventKind::Gone,
        worker: Some(3),
        workers: 1,
        waiting: 2,
    };
    observers.tell(drop);
    observers.workers_changed(event, 2_000_007);
    observers.finish();

    let [file] = &directory.read()[..] else {
        panic!("one file");
    };
    assert_eq!(file.header.settings.seats_per_worker, 4);
    let numbers: Vec<_> = file.records.iter().map(|record| record.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(file.records[0].at_us, 1_700_000_001_000_000);
    let request = request_of(file, 0);
    let expected = RecordedRequest {
        front_us: 17,
        wait_us: 250,
        service_us: 1_000,
        cpu_us: Some(300),
        core_us: Some(40),
        gil_us: None,
        client: request.client,
        busy: 3,
        waiting: 5,
        worker: Some(3),
        status: 404,
        lane: 0,
        end: RequestEnd::Served,
        left_seat: false,
    };
    assert_eq!(request, expected);
    let session = request_of(file, 1);
    assert_eq!((session.left_seat, session.service_us), (true, 500));
    let [one, same, other, unknown] = [0, 1, 2, 3].map(|index| request_of(file, index).client);
    assert!(one != 0 && one == same && other != 0 && other != one);
    assert_eq!(unknown, 0);
    assert_eq!(file.records[4].at_us, 1_700_000_002_000_007);
    assert_eq!(file.records[4].what, Recorded::Event(event));
}

#[test]
fn a_request_that_never_came_to_the_line_has_no_record() {
    let directory = Directory::new();
    let mut observers = recording(&directory.0);
    let bad = unseated(Head::of("GET", "/static", &[]));
    observers.over(over(&bad, b""));
    observers.finish();
    assert!(directory.read()[0].records.is_empty());
}

#[test]
fn another_writer_hashes_clients_under_another_key() {
    let directory = Directory::new();
    for _ in 0..2 {
        let mut observers = recording(&directory.0);
        observers.over(over(&ticket(browsers(), None), b""));
        observers.finish();
    }
    let [first, second] = &directory.read()[..] else {
        panic!("a file for each");
    };
    assert_ne!(first.header.writer, second.header.writer);
    assert_ne!(request_of(first, 0).client, request_of(second, 0).client);
}
