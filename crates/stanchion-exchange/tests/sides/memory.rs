//! How much of the kernel's memory an exchange takes, and when it gives memory back.

use stanchion_exchange::{AcceptorSide, AnswerEnd, Exchange, Geometry, MaskedBytes};

use crate::{LOOPS, seat, taken};

/// How many bytes of this exchange are resident; other tests may have mapped exchanges at the same time.
fn resident_bytes(exchange: &Exchange) -> u64 {
    let within = exchange.seats().as_ptr() as usize;
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut mappings = smaps.split_inclusive("VmFlags:");
    let mapping = mappings.find(|mapping| {
        mapping.contains("memfd:stanchion-exchange") && {
            let first = mapping.lines().find(|line| line.contains("memfd:"));
            let (start, rest) = first.unwrap().split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            let address = |hex| usize::from_str_radix(hex, 16).unwrap();
            (address(start)..address(end)).contains(&within)
        }
    });
    let mut lines = mapping.unwrap().lines();
    let rss = lines.find(|line| line.starts_with("Rss:")).unwrap();
    let kib = rss.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

const LARGE: Geometry = Geometry {
    seats: 64,
    seats_per_worker: 64,
    response_bytes: 1 << 20,
    request_bytes: 4096,
    ..LOOPS
};

#[test]
fn a_dead_worker_with_many_requests_takes_no_memory_with_it() {
    let exchange = Exchange::create(LARGE).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let mut slots = Vec::new();
    for number in 0..64 {
        let seat = seat(&exchange, number);
        let mut taken = taken(&mut side, &seat);
        taken.write(b"secret").unwrap();
        slots.push(taken.slot());
        std::mem::forget((taken, seat));
    }
    let before = resident_bytes(&exchange);
    for slot in slots {
        side.release(slot);
    }
    assert!(
        resident_bytes(&exchange) <= before,
        "memory that was never used is not touched"
    );
}

#[test]
fn a_long_stream_of_short_pieces_is_forgotten_without_touching_more_than_it_used() {
    let exchange = Exchange::create(LARGE).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let seat = seat(&exchange, 0);
    let mut taken = taken(&mut side, &seat);
    let mut out = Vec::new();
    for _ in 0..3000 {
        assert_eq!(taken.write_some(&[7; 1000]), Ok(1000));
        taken.publish();
        out.clear();
        side.read(taken.slot(), 1000, &mut out).unwrap();
    }
    let (slot, before) = (taken.slot(), resident_bytes(&exchange));
    taken.finish(AnswerEnd::Complete);
    side.release(slot);
    assert_eq!(resident_bytes(&exchange), before);
}

#[test]
fn what_a_slot_has_taken_is_given_back_once_nobody_has_used_it_for_a_while() {
    const LONG: usize = 1 << 17;
    let exchange = Exchange::create(Geometry {
        request_bytes: LONG,
        inflow_bytes: LONG,
        ..LARGE
    });
    let exchange = exchange.unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let before = resident_bytes(&exchange);
    let seat = seat(&exchange, 0);
    let use_all = |side: &mut AcceptorSide<'_>| {
        let submitted = side.submit(None, 0, |mut area| {
            area.put(0, &vec![1; LONG]);
            Some(LONG)
        });
        let slot = submitted.unwrap().slot;
        let mut taken = seat.take().unwrap();
        assert_eq!(
            side.pour(slot, &[MaskedBytes::from(&vec![2; LONG][..])]),
            Ok(LONG)
        );
        taken.write(&vec![3; 1 << 20]).unwrap();
        taken.finish(AnswerEnd::Complete);
        side.release(slot);
        side.wipe_remains();
    };
    // The slot keeps its memory for the next request, as long as one comes.
    for _ in 0..3 {
        use_all(&mut side);
        assert!(resident_bytes(&exchange) > before + (1 << 20) + 2 * LONG as u64);
    }
    side.wipe_remains();
    // Some pages of the parts that all slots share were not touched before.
    assert!(resident_bytes(&exchange) < before + LONG as u64);
}

#[test]
fn an_answer_that_idles_holds_no_memory_and_goes_on() {
    let exchange = Exchange::create(Geometry {
        request_bytes: 3 * 4096,
        response_bytes: 4 * 4096,
        ..LOOPS
    })
    .unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let seat = seat(&exchange, 0);
    let submitted = side.submit(None, 0, |mut area| {
        area.put(0, &[1; 4096 * 2]);
        Some(4096 * 2)
    });
    let slot = submitted.unwrap().slot;
    let mut taken = seat.take().unwrap();
    assert_eq!(taken.request(), [1; 4096 * 2]);
    taken.write(&[2; 4096 * 2]).unwrap();
    assert!(!taken.give_back(), "it is not published");
    taken.publish();
    assert!(!taken.give_back(), "it is not read");
    let mut read = Vec::new();
    assert_eq!(side.read(slot, usize::MAX, &mut read).unwrap(), 4096 * 2);
    let before = resident_bytes(&exchange);
    assert!(taken.give_back());
    assert_eq!(before - resident_bytes(&exchange), 4 * 4096);
    assert_eq!(taken.request(), []);
    assert_eq!(taken.written(), 4096 * 2);
    taken.write(&[3; 4096 * 3]).unwrap();
    taken.finish(AnswerEnd::Complete);
    read.clear();
    side.read(slot, usize::MAX, &mut read).unwrap();
    assert_eq!(read, [3; 4096 * 3]);
}
