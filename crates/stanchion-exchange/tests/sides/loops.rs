//! Seats of one event loop: the requests that are ready for them, the waiting for room and bytes, and the moments when
//! the acceptor wakes the loop.

use stanchion_exchange::{
    AcceptorSide, AnswerEnd, BEAT_US, Exchange, Gone, Inbox, Inflow, LoopLag, MaskedBytes,
    SlotState, Taken, Unwanted,
};

use crate::{LOOPS, seat, submit, taken};

/// Whether the loop was woken since this function was last called.
fn is_woken(inbox: &Inbox<'_>) -> bool {
    inbox.silence()
}

fn noted(inbox: &Inbox<'_>) -> Vec<u32> {
    let mut slots = Vec::new();
    inbox.sweep(|slot| slots.push(slot));
    slots
}

/// The slots of which the acceptor has news.
fn news(side: &AcceptorSide<'_>) -> Vec<u32> {
    let mut slots = Vec::new();
    side.sweep(|slot| slots.push(slot));
    slots
}

#[test]
fn the_loop_with_the_fewest_requests_is_woken_and_only_if_it_sleeps() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let inboxes = [exchange.inbox(0).unwrap(), exchange.inbox(1).unwrap()];
    assert!(
        inboxes.iter().all(is_woken),
        "an acceptor that takes over wakes every loop"
    );
    inboxes[0].show_load(1);
    for inbox in &inboxes {
        assert!(inbox.try_sleep());
    }
    submit(&mut side);
    side.announce();
    assert_eq!(inboxes.each_ref().map(is_woken), [false, true]);
    submit(&mut side);
    side.announce();
    assert_eq!(inboxes.each_ref().map(is_woken), [true, false]);
    submit(&mut side);
    side.announce();
    assert_eq!(
        inboxes.each_ref().map(is_woken),
        [false, false],
        "they are up"
    );
    // One loop is stuck, and the other went to sleep before it saw the request.
    assert!(inboxes[0].try_sleep());
    side.call_all();
    assert_eq!(inboxes.each_ref().map(is_woken), [true, false]);
    inboxes[0].show_load(2);
    assert!(inboxes[0].try_sleep());
    side.call_all();
    assert!(!is_woken(&inboxes[0]), "it has no room");
}

#[test]
fn a_request_that_nobody_takes_is_seen_as_long_as_a_loop_with_room_sleeps() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let (stuck, other) = (exchange.inbox(0).unwrap(), exchange.inbox(1).unwrap());
    let seat = seat(&exchange, 2);
    assert!(stuck.try_sleep());
    assert_eq!(side.untaken(), None, "nothing is there");
    submit(&mut side);
    side.announce();
    assert_eq!(side.untaken(), None, "nobody else sleeps");
    assert!(other.try_sleep());
    let first = side.untaken();
    assert!(first.is_some());
    other.show_load(Inbox::NO_ROOM);
    assert_eq!(side.untaken(), None, "it takes no more");
    other.show_load(1);
    submit(&mut side);
    assert_eq!(side.untaken(), first);
    let taken = seat.take().unwrap();
    let second = side.untaken();
    assert!(second.is_some() && second != first);
    taken.finish(AnswerEnd::Complete);
    seat.take().unwrap();
    assert_eq!(side.untaken(), None);
}

#[test]
fn every_loop_looks_when_the_acceptor_drains_and_the_mark_stays() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let inboxes = [exchange.inbox(0).unwrap(), exchange.inbox(1).unwrap()];
    assert!(inboxes.iter().all(is_woken));
    assert!(inboxes[0].try_sleep());
    // The other one turns, and may have looked already.
    assert!(!exchange.is_draining());
    side.drain();
    assert_eq!(inboxes.each_ref().map(is_woken), [true, true]);
    assert!(exchange.is_draining());
    side.mend().unwrap();
    assert!(exchange.is_draining());
    // The next acceptor is not told to drain.
    let mut side = AcceptorSide::take_over(&exchange);
    assert!(!exchange.is_draining());
    side.mend().unwrap();
    assert!(!exchange.is_draining());
}

#[test]
fn nobody_calls_the_loop_of_a_worker_that_is_dead() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let (dead, other) = (exchange.inbox(0).unwrap(), exchange.inbox(1).unwrap());
    assert!(is_woken(&dead) && is_woken(&other));
    dead.beat(7, 5_000, BEAT_US);
    other.show_load(1);
    assert!(dead.try_sleep() && other.try_sleep());
    exchange.vacate_loop(0);
    submit(&mut side);
    side.announce();
    assert_eq!([&dead, &other].map(is_woken), [false, true]);
    assert_eq!((dead.beat_us(), dead.load()), (0, 0));
}

#[test]
fn an_answer_goes_on_when_there_is_room_and_ends_when_the_client_goes() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let inbox = exchange.inbox(1).unwrap();
    let seat = seat(&exchange, 2);
    let mut taken = taken(&mut side, &seat);
    side.announce();
    is_woken(&inbox);
    assert_eq!(taken.write_some(b"0123456789"), Ok(8));
    assert!(inbox.try_sleep());
    let mut out = Vec::new();
    side.read(taken.slot(), 3, &mut out).unwrap();
    side.announce();
    assert!(!is_woken(&inbox), "less than half of it is free");
    side.read(taken.slot(), 1, &mut out).unwrap();
    side.announce();
    assert!(is_woken(&inbox));
    assert_eq!(noted(&inbox), [taken.slot()]);
    assert_eq!(taken.write_some(b"89"), Ok(2));
    taken.publish();
    side.read(taken.slot(), 8, &mut out).unwrap();
    assert_eq!(out, b"0123456789");
    assert!(inbox.try_sleep(), "nobody waits for room now");
    side.announce();
    assert!(!is_woken(&inbox));
    side.give_up(taken.slot(), Unwanted::ClientGone);
    side.announce();
    assert!(is_woken(&inbox));
    assert_eq!(noted(&inbox), [taken.slot()]);
    assert_eq!(taken.write_some(b"more"), Err(Gone));
}

#[test]
fn short_pieces_that_are_read_soon_stay_at_the_start_of_the_ring() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let seat = seat(&exchange, 0);
    let mut taken = taken(&mut side, &seat);
    let (mut out, mut expected) = (Vec::new(), Vec::new());
    for round in 0..50_u8 {
        // Sometimes leave one byte unread, so that the next write wraps around the ring's end.
        let piece = [round; 5];
        expected.extend(piece);
        let written = taken.write_some(&piece).unwrap();
        taken.publish();
        if written < piece.len() {
            side.read(taken.slot(), 8, &mut out).unwrap();
            assert_eq!(taken.write_some(&piece[written..]), Ok(5 - written));
            taken.publish();
        }
        let left = usize::from(round % 3 == 0) * 2;
        let unread = side.readable(taken.slot()).unwrap();
        side.read(taken.slot(), unread.saturating_sub(left), &mut out)
            .unwrap();
    }
    side.read(taken.slot(), 8, &mut out).unwrap();
    assert_eq!(out, expected);
    taken.finish(AnswerEnd::Complete);
}

#[test]
fn what_comes_in_behind_a_head_arrives_whole_and_in_order() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let inbox = exchange.inbox(0).unwrap();
    let seat = seat(&exchange, 1);
    let mut taken = taken(&mut side, &seat);
    let slot = taken.slot();
    is_woken(&inbox);
    assert!(inbox.try_sleep());
    let sent: Vec<u8> = (0..100).collect();
    // These bytes are combined with the key, and combining them again yields the sent bytes.
    let key = [1, 2, 4, 8];
    let combined = sent.iter().zip(key.iter().cycle());
    let combined: Vec<u8> = combined.map(|(byte, key)| byte ^ key).collect();
    let (mut at, mut got) = (0, Vec::<u8>::new());
    let mut into = [0; 3];
    while got.len() < sent.len() {
        let end = sent.len().min(at + 1);
        let mut key = key;
        key.rotate_left(end % 4);
        let rest = MaskedBytes::new(&combined[end..], Some(key));
        at += side
            .pour(slot, &[MaskedBytes::from(&sent[at..end]), rest])
            .unwrap();
        assert_eq!(noted(&inbox), [slot]);
        let len = taken.receive(&mut into);
        got.extend(&into[..len]);
    }
    assert_eq!(got, sent);
    assert_eq!(taken.inflow(), (0, Inflow::Open));
    side.end_inflow(slot, Inflow::Complete);
    assert_eq!(taken.inflow(), (0, Inflow::Complete));
    side.announce();
    assert!(is_woken(&inbox));
    assert_eq!(side.mend(), Ok(()));
}

#[test]
fn a_loop_is_woken_once_for_the_news_of_all_its_slots() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let inboxes = [exchange.inbox(0).unwrap(), exchange.inbox(1).unwrap()];
    let seats = [seat(&exchange, 0), seat(&exchange, 1)];
    let taken = seats.each_ref().map(|seat| taken(&mut side, seat));
    let slots = taken.each_ref().map(Taken::slot);
    side.announce();
    for inbox in &inboxes {
        is_woken(inbox);
        assert!(inbox.try_sleep());
    }
    for slot in slots {
        assert_eq!(side.pour(slot, &[MaskedBytes::from(&b"news"[..])]), Ok(4));
        assert!(side.is_unannounced());
        assert!(!is_woken(&inboxes[0]), "more may come");
    }
    side.announce();
    assert!(!side.is_unannounced());
    assert_eq!(inboxes.each_ref().map(is_woken), [true, false]);
    assert_eq!(noted(&inboxes[0]), slots);
    // The acceptor wakes the loops that have news before it sleeps itself.
    assert!(inboxes[0].try_sleep());
    side.end_inflow(slots[0], Inflow::Complete);
    assert!(side.try_sleep());
    assert!(is_woken(&inboxes[0]));
}

#[test]
fn the_acceptor_gets_news_of_room_only_if_it_wants_some() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let seat = seat(&exchange, 0);
    let mut taken = taken(&mut side, &seat);
    let slot = taken.slot();
    let mut into = [0; 8];
    assert_eq!(side.pour(slot, &[MaskedBytes::from(&b"all"[..])]), Ok(3));
    assert_eq!(taken.receive(&mut into), 3);
    assert!(news(&side).is_empty());
    assert_eq!(
        side.pour(slot, &[MaskedBytes::from(&b"more than fits"[..])]),
        Ok(8)
    );
    assert_eq!(taken.receive(&mut into[..1]), 1);
    assert!(news(&side).is_empty(), "less than half of it is free");
    assert_eq!(taken.receive(&mut into), 7);
    assert_eq!(news(&side), [slot]);
}

#[test]
fn an_acceptor_that_asks_for_room_gets_news_once_half_of_the_ring_is_free() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let seat = seat(&exchange, 0);
    let mut taken = taken(&mut side, &seat);
    let slot = taken.slot();
    let mut into = [0; 8];
    assert_eq!(side.await_inflow_room(slot), Some(8));
    assert_eq!(side.pour(slot, &[MaskedBytes::from(&b"4444"[..])]), Ok(4));
    assert_eq!(side.await_inflow_room(slot), Some(4));
    assert_eq!(side.pour(slot, &[MaskedBytes::from(&b"1"[..])]), Ok(1));
    assert_eq!(side.await_inflow_room(slot), None);
    assert!(news(&side).is_empty());
    assert_eq!(taken.receive(&mut into[..1]), 1);
    assert_eq!(news(&side), [slot]);
    assert_eq!(side.await_inflow_room(slot), Some(4));
    // The last bytes come together with the end; if not all of them fit, the end does not come with them.
    assert_eq!(side.pour_last(slot, b"55555"), Ok(4));
    assert_eq!(taken.inflow(), (8, Inflow::Open));
    assert_eq!(taken.receive(&mut into), 8);
    assert_eq!(side.pour_last(slot, b"5"), Ok(1));
    assert_eq!(taken.inflow(), (1, Inflow::Complete));
    assert_eq!(side.mend(), Ok(()));
}

#[test]
fn the_next_request_finds_nothing_of_the_one_before() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let seat = seat(&exchange, 0);
    let first = taken(&mut side, &seat);
    let slot = first.slot();
    side.pour(slot, &[MaskedBytes::from(&b"secret"[..])])
        .unwrap();
    side.end_inflow(slot, Inflow::Broken);
    first.finish(AnswerEnd::Complete);
    side.release(slot);
    let mut second = taken(&mut side, &seat);
    assert_eq!(second.slot(), slot);
    assert_eq!(second.inflow(), (0, Inflow::Open));
    side.pour(slot, &[MaskedBytes::from(&b"x"[..])]).unwrap();
    let mut into = [0; 8];
    assert_eq!(second.receive(&mut into), 1);
    assert_eq!(into[0], b'x');
}

#[test]
fn how_late_a_loop_turns_is_counted_and_outlives_the_worker() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let inbox = exchange.inbox(1).unwrap();
    for lag_us in [0, 1_000, 20_000_000, 1_001] {
        inbox.beat(7, lag_us, BEAT_US);
    }
    let lag = inbox.lag();
    assert_eq!(
        (lag.last_us, lag.max_us, lag.sum_us),
        (1_001, 20_000_000, 20_002_001)
    );
    assert_eq!(lag.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    exchange.vacate_loop(1);
    let after = LoopLag {
        last_us: 0,
        max_us: 0,
        ..lag
    };
    assert_eq!(inbox.lag(), after);
    inbox.beat(8, 0, BEAT_US);
    inbox.rest();
    assert_eq!(inbox.beat_us(), 0);
}

#[test]
fn a_loop_that_has_nothing_to_do_turns_seldom_and_is_still_one_that_turns() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let (one, other) = (exchange.inbox(0).unwrap(), exchange.inbox(1).unwrap());
    let start_us = 10_000_000;
    one.beat(start_us, 0, 4 * BEAT_US);
    other.beat(start_us, 0, BEAT_US);
    assert_eq!(one.beat_us(), start_us + 3 * BEAT_US);
    assert_eq!(other.beat_us(), start_us);
    let mut side = AcceptorSide::take_over(&exchange);
    for _ in 0..4 {
        submit(&mut side);
    }
    // Half of the requests are the other loop's share, as long as that loop is not late.
    assert_eq!(exchange.share_of_ready(1, start_us + 300_000), 2);
    assert_eq!(exchange.share_of_ready(1, start_us + 1_300_000), 2);
    assert_eq!(exchange.share_of_ready(1, start_us + 1_400_000), 4);
    one.hastens(start_us + 1_500_000);
    assert_eq!(one.beat_us(), start_us + 1_500_000);
}

#[test]
fn who_comes_back_to_a_slot_that_was_taken_back_does_nothing_to_whose_it_is_now() {
    let exchange = Exchange::create(LOOPS).unwrap();
    let mut side = AcceptorSide::take_over(&exchange);
    let [stuck, next] = [0, 2].map(|number| seat(&exchange, number));
    for has_published in [false, true] {
        let mut late = taken(&mut side, &stuck);
        let slot = late.slot();
        if has_published {
            assert_eq!(late.write_some(b"early"), Ok(5));
            late.publish();
        }
        let unpublished = late.write_some(b"abc");
        // The acceptor considers the worker dead, and gives the slot to the next request.
        side.release(slot);
        side.submit(None, 0, |_| Some(4)).unwrap();
        let mut new = next.take().unwrap();
        assert_eq!((new.slot(), unpublished), (slot, Ok(3)));
        side.pour(slot, &[MaskedBytes::from(&b"mine"[..])]).unwrap();

        late.publish();
        assert!(late.client_gone() && !late.give_back());
        assert_eq!(late.write_some(b"more"), Err(Gone));
        assert_eq!(late.write(b"more"), Err(Gone));
        assert_eq!(late.inflow(), (0, Inflow::Broken));
        assert_eq!(late.receive(&mut [0; 4]), 0);
        assert_eq!(late.read_request(0, &mut [0; 4]), 0);
        late.finish(AnswerEnd::Complete);

        let running = side.state(slot).unwrap();
        assert!(matches!(running, SlotState::Running { tenant, .. } if tenant.seat == 2));
        assert_eq!(side.readable(slot), Ok(0));
        let mut got = [0; 4];
        assert_eq!((new.receive(&mut got), &got), (4, b"mine"));
        assert_eq!(new.write_some(b"answer"), Ok(6));
        new.finish(AnswerEnd::Complete);
        let mut answer = Vec::new();
        assert_eq!(side.read(slot, 8, &mut answer), Ok(6));
        assert_eq!(answer, b"answer");
        assert!(matches!(
            side.state(slot),
            Ok(SlotState::Done {
                ending: Some(AnswerEnd::Complete),
                ..
            })
        ));
        side.release(slot);
        stuck.rest();
        next.rest();
    }
}
