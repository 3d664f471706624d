use super::*;
use stanchion_dispatch::storage::scratch::{Scratch, bytes};

/// The number of the connection that the sinks are for.
const CONNECTION: u32 = 3;
/// The most bytes of one body in memory.
const OWN_BYTES_MAX: usize = 1_000;

/// Advances a sink until it is ready or has failed; gives what was noted besides.
fn settle(scratch: &Scratch, sink: &mut Sink) -> (SinkState, Vec<Noted>) {
    let means = Means {
        disk: &scratch.disk,
        spool: &scratch.spool,
        own_bytes_max: OWN_BYTES_MAX,
    };
    let mut notes = Vec::new();
    let state = scratch.until(|| {
        let (state, noted) = sink.advance(&means);
        if !matches!(noted, Noted::Nothing) {
            notes.push(noted);
        }
        (state != SinkState::Busy).then_some(state)
    });
    (state, notes)
}

fn sink(memory: &Rc<Memory>, framing: Framing) -> Sink {
    Sink::new(memory, None, framing, CONNECTION)
}

/// Adds bytes as a connection does that reads them straight to their place.
fn read(sink: &mut Sink, data: &[u8]) -> usize {
    let place = sink.place(data.len() as u64).unwrap();
    let len = (place.capacity() - place.len()).min(data.len());
    place.extend_from_slice(&data[..len]);
    sink.placed(len);
    len
}

fn in_memory(body: &Body) -> Vec<u8> {
    match body {
        Body::Memory(body) | Body::Begun(body) => body.with(<[_]>::concat).unwrap(),
        Body::Empty => Vec::new(),
        Body::Spooled(_) => panic!("it is in a file"),
    }
}

fn in_file(body: &Body) -> Vec<u8> {
    let Body::Spooled(body) = body else {
        panic!("it is in memory")
    };
    let read = std::fs::read(body.path().unwrap()).unwrap();
    assert_eq!(read.len() as u64, body.len);
    read
}

#[test]
fn a_body_of_known_length_is_received_into_one_piece_without_a_copy() {
    let memory = Memory::new(1 << 20);
    let data = bytes(FIRST_PIECE_BYTES);
    let mut sink = sink(&memory, Framing::Length(data.len() as u64));
    // These bytes came with the head.
    sink.add(&data[..100]);
    let place = sink.filling.as_ptr();
    assert_eq!(read(&mut sink, &data[100..5_000]), 4_900);
    assert_eq!(read(&mut sink, &data[5_000..]), data.len() - 5_000);
    assert_eq!(memory.left(), (1 << 20) - data.len());
    let body = sink.into_body();
    let Body::Memory(pieces) = &body else {
        panic!("it is in memory")
    };
    let found = pieces.with(|pieces| (pieces.len(), pieces[0].as_ptr()));
    assert_eq!(found, Some((1, place)));
    assert_eq!(in_memory(&body), data);
    drop(body);
    assert_eq!(memory.left(), 1 << 20);
}

#[test]
fn what_is_announced_and_does_not_come_takes_little_memory() {
    let memory = Memory::new(1 << 30);
    let announced = 100 << 20;
    let mut sink = sink(&memory, Framing::Length(announced));
    let (mut room, mut came) = (0, 0);
    while came < 4 << 20 {
        let place = sink.place(announced - came).unwrap();
        let left = place.capacity() - place.len();
        room += left;
        assert!(left <= PIECE_BYTES_MAX);
        assert!(room as u64 <= (2 * came).max(FIRST_PIECE_BYTES as u64));
        let len = read(&mut sink, &bytes(left));
        came += len as u64;
    }
    assert_eq!(sink.len(), came);
}

#[test]
fn a_body_in_chunks_is_put_together() {
    let memory = Memory::new(1 << 20);
    for len in [0, 1, 900, 200_000] {
        let data = bytes(len);
        let mut sink = sink(&memory, Framing::Chunked);
        assert!(sink.place(1).is_none());
        data.chunks(7).for_each(|chunk| sink.add(chunk));
        sink.end();
        assert_eq!(sink.len(), len as u64);
        let body = sink.into_body();
        assert_eq!(matches!(body, Body::Empty), len == 0);
        assert_eq!(in_memory(&body), data);
        if let Body::Memory(pieces) = &body {
            let count = pieces.with(<[_]>::len).unwrap();
            assert!(count <= 10, "{count}");
        }
    }
    assert_eq!(memory.left(), 1 << 20);
}

#[test]
fn as_much_as_one_may_have_stays_in_memory_and_one_byte_more_goes_to_a_file() {
    let scratch = Scratch::new("sink-own", 0);
    let memory = Memory::new(1 << 20);
    let data = bytes(OWN_BYTES_MAX + 1);
    for (framing, len) in [
        (Framing::Length(1_000), 1_000),
        (Framing::Chunked, 1_000),
        // Last, since a helper thread removes their files.
        (Framing::Length(1_001), 1_001),
        (Framing::Chunked, 1_001),
    ] {
        let mut sink = sink(&memory, framing);
        sink.add(&data[..len]);
        let (state, notes) = settle(&scratch, &mut sink);
        assert_eq!(state, SinkState::Ready);
        sink.end();
        assert_eq!(settle(&scratch, &mut sink).0, SinkState::Ready);
        let body = sink.into_body();
        if len > OWN_BYTES_MAX {
            assert!(matches!(notes[..], [Noted::Spooled]), "{notes:?}");
            assert_eq!(in_file(&body), data[..len]);
            assert_eq!(memory.left(), 1 << 20);
        } else {
            assert!(notes.is_empty() && scratch.files() == 0);
            assert_eq!(in_memory(&body), data[..len]);
        }
    }
}

#[test]
fn a_large_body_is_written_in_large_parts_and_the_last_one_when_it_is_whole() {
    let scratch = Scratch::new("sink-large", 0);
    let memory = Memory::new(1 << 30);
    for framing in [Framing::Length(1_000_000), Framing::Chunked] {
        let data = bytes(1_000_000);
        let mut sink = sink(&memory, framing);
        let (mut parts, mut spooled) = (0, 0);
        for part in data.chunks(50_000) {
            sink.add(part);
            let held = sink.held.bytes();
            let (state, notes) = settle(&scratch, &mut sink);
            assert_eq!(state, SinkState::Ready);
            spooled += notes.len();
            parts += usize::from(sink.held.bytes() < held);
            assert!(sink.held.bytes() <= SPOOL_WRITE_BYTES);
        }
        sink.end();
        assert_eq!(settle(&scratch, &mut sink).0, SinkState::Ready);
        // The first 50 kB, three times 300 kB, and the rest.
        let expected = if framing == Framing::Chunked { 4 } else { 5 };
        assert_eq!((parts, spooled), (expected, 1));
        assert_eq!((sink.held.bytes(), memory.left()), (0, 1 << 30));
        assert_eq!(in_file(&sink.into_body()), data);
    }
}

#[test]
fn when_all_have_too_much_in_memory_the_next_goes_to_a_file() {
    let scratch = Scratch::new("sink-all", 0);
    let memory = Memory::new(1_000);
    let mut first = sink(&memory, Framing::Length(900));
    first.add(&bytes(900));
    assert_eq!(settle(&scratch, &mut first).0, SinkState::Ready);
    let mut second = sink(&memory, Framing::Length(200));
    second.add(&bytes(101));
    assert_eq!(settle(&scratch, &mut second).0, SinkState::Ready);
    assert_eq!(memory.left(), 100);
    second.add(&bytes(99));
    assert_eq!(settle(&scratch, &mut second).0, SinkState::Ready);
    assert_eq!(in_memory(&first.into_body()), bytes(900));
    assert_eq!(
        in_file(&second.into_body()),
        [bytes(101), bytes(99)].concat()
    );
}

#[test]
fn what_is_being_written_counts_until_it_is() {
    let scratch = Scratch::new("sink-counts", 0);
    let memory = Memory::new(10_000);
    let mut sink = sink(&memory, Framing::Chunked);
    sink.add(&bytes(2_000));
    let means = Means {
        disk: &scratch.disk,
        spool: &scratch.spool,
        own_bytes_max: OWN_BYTES_MAX,
    };
    assert_eq!(sink.advance(&means).0, SinkState::Busy);
    assert_eq!(memory.left(), 8_000);
    assert_eq!(settle(&scratch, &mut sink).0, SinkState::Ready);
    assert_eq!(memory.left(), 10_000);
}

#[test]
fn a_body_for_which_there_is_no_room_is_refused() {
    let memory = Memory::new(1 << 20);
    let client = Client::at([192, 0, 2, 1].into());
    for (owner, expected) in [
        (None, Refusal::SpoolFull),
        (Some(client), Refusal::SpoolShareFull),
    ] {
        let scratch = Scratch::new("sink-full", if owner.is_some() { 3_000 } else { 1_999 });
        let mut sink = Sink::new(&memory, owner, Framing::Chunked, CONNECTION);
        sink.add(&bytes(2_000));
        let (state, notes) = settle(&scratch, &mut sink);
        assert_eq!((state, notes.len()), (SinkState::Failed(expected), 0));
        drop(sink);
        assert_eq!(memory.left(), 1 << 20);
    }
}

#[test]
fn a_disk_that_fails_is_told_of() {
    let scratch = Scratch::new("sink-fails", 0);
    let memory = Memory::new(1 << 20);
    std::fs::remove_dir(&scratch.directory).unwrap();
    let mut sink = sink(&memory, Framing::Chunked);
    sink.add(&bytes(2_000));
    let (state, notes) = settle(&scratch, &mut sink);
    assert_eq!(state, SinkState::Failed(Refusal::SpoolFailed));
    let [Noted::Failed(error)] = &notes[..] else {
        panic!("{notes:?}")
    };
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    std::fs::create_dir(&scratch.directory).unwrap();
}
