//! Long answers, which go out from where a worker has written them.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use stanchion_exchange::{AnswerEnd, SeatSide, Taken, Tenant};

use super::*;
use stanchion_dispatch::outflow::Patience;
use stanchion_record::{AnswerHead, FilePart, RESPONSE_RING_BYTES};

pub(super) const LONG_BYTES: usize = 100_000;

pub(super) fn seat(stage: &Stage) -> SeatSide<'static> {
    let tenant = Tenant {
        seat: 0,
        epoch: WORKER.epoch,
    };
    SeatSide::new(&stage.requests.common.exchange, tenant, 1, None)
}

/// Has another client ask.
fn ask(stage: &mut Stage) -> UnixStream {
    let mut other = stage.connect(peer());
    other.write_all(GET.as_bytes()).unwrap();
    stage.turn();
    other
}

/// Has the client ask, and the only seat take the request.
pub(super) fn taken(stage: &mut Stage) -> Taken<'static> {
    stage.seat_worker();
    stage.say(GET);
    take(stage)
}

/// Has the only seat take a request.
pub(super) fn take(stage: &Stage) -> Taken<'static> {
    let seat = seat(stage);
    let taken = seat.take().expect("the request");
    // The request is still there when its seat has gone.
    std::mem::forget(seat);
    taken
}

pub(super) fn write(taken: &mut Taken<'_>, length: Option<usize>, body: &[u8]) {
    let mut head = AnswerHead::default();
    head.begin(200, b"OK");
    if let Some(length) = length {
        head.field(b"Content-Length", length.to_string().as_bytes());
    }
    taken.write(head.whole(None)).expect("room");
    taken.write(body).expect("room");
}

impl Stage {
    /// Makes a turn of the loop that begins with the news from seats.
    pub(super) fn sweep(&mut self) {
        let now_us = self.requests.now_us;
        self.requests.dispatch.sweep(now_us);
        self.turn();
    }

    /// Has the kernel keep as little as it can for a client that does not read.
    pub(super) fn shrink_send_buffer(&mut self) {
        let socket = self.connection().link.transport.socket();
        set_socket_send_buffer_size(socket.expect("it has one"), 1).unwrap();
    }

    /// All that the client gets, read bit by bit.
    pub(super) fn all(&mut self) -> String {
        let mut all = String::new();
        loop {
            let (some, _) = self.heard();
            if some.is_empty() {
                return all;
            }
            all += &some;
            self.turn();
        }
    }
}

#[test]
fn long_answers_that_are_whole_have_their_length_and_leave_their_slots() {
    let mut stage = Stage::new("{}");
    // There are two slots, so the third answer needs a slot again.
    for length in [None, Some(LONG_BYTES), None, Some(LONG_BYTES)] {
        let mut taken = taken(&mut stage);
        write(&mut taken, length, &vec![b'x'; LONG_BYTES]);
        taken.finish(AnswerEnd::Complete);
        stage.sweep();
        let heard = stage.all();
        let (head, body) = heard.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains("Content-Length: 100000"), "{head}");
        assert_eq!(body, "x".repeat(LONG_BYTES));
    }
    assert_eq!(stage.ended(Outcome::Answered), 4);
    stage.close_books();
}

#[test]
fn one_whose_worker_is_dead_before_anybody_has_looked_is_whole() {
    let mut stage = Stage::new("{}");
    let mut taken = taken(&mut stage);
    write(&mut taken, None, &vec![b'x'; LONG_BYTES]);
    taken.finish(AnswerEnd::Complete);
    let now_us = stage.requests.now_us;
    stage.requests.dispatch.worker_gone(WORKER, now_us);
    stage.turn();
    let heard = stage.all();
    assert_eq!(heard.matches('x').count(), LONG_BYTES);
    assert_eq!(stage.ended(Outcome::Answered), 1);
    stage.close_books();
}

#[test]
fn a_client_that_is_behind_frees_the_ring_all_the_same() {
    let mut stage = Stage::new("{}");
    let mut taken = taken(&mut stage);
    let piece = vec![b'x'; RESPONSE_RING_BYTES - 1_000];
    write(&mut taken, None, &piece);
    taken.publish();
    stage.sweep();
    assert!(
        taken.has_room(piece.len()) || taken.write(&piece).is_ok(),
        "what the socket did not take is kept"
    );
    taken.publish();
    stage.sweep();
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    let heard = stage.all();
    assert_eq!(heard.matches('x').count(), 2 * piece.len());
    assert!(heard.ends_with("\r\n0\r\n\r\n"));
    stage.close_books();
}

/// The socket keeps messages apart that were sent apart (unix(7), `SOCK_SEQPACKET`).
#[test]
fn the_last_chunk_goes_out_with_the_one_before_it() {
    let mut stage = Stage::new("{}");
    let (theirs, ours) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::NONBLOCK,
        None,
    )
    .unwrap();
    let mut client = UnixStream::from(theirs);
    stage.admit(UnixStream::from(ours), false);
    client.write_all(GET.as_bytes()).unwrap();
    let mut taken = taken(&mut stage);
    write(&mut taken, None, b"first");
    taken.publish();
    stage.sweep();
    taken.write(b"last").expect("room");
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    let mut buffer = [0; 1024];
    let mut packets = Vec::new();
    while let Ok(len) = client.read(&mut buffer) {
        packets.push(undated(&buffer[..len]));
    }
    let [head, .., last] = &packets[..] else {
        panic!("{packets:?}");
    };
    assert!(head.starts_with(OK), "{packets:?}");
    assert_eq!(last, "4\r\nlast\r\n0\r\n\r\n");
    assert_eq!(stage.ended(Outcome::Answered), 1);
    stage.close_books();
}

#[test]
fn what_is_left_of_the_last_piece_goes_out_once_there_is_room() {
    let mut stage = Stage::new("{}");
    let mut taken = taken(&mut stage);
    write(&mut taken, None, b"x");
    taken.publish();
    stage.sweep();
    let piece = vec![b'x'; RESPONSE_RING_BYTES - 1_000];
    taken.write(&piece).expect("room");
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    assert_eq!(
        stage.ended(Outcome::Answered),
        0,
        "more than a socket takes"
    );
    let heard = stage.all();
    assert_eq!(heard.matches('x').count(), 1 + piece.len());
    assert!(heard.ends_with("x\r\n0\r\n\r\n"));
    assert_eq!(stage.ended(Outcome::Answered), 1);
    stage.close_books();
}

#[test]
fn an_answer_that_turns_out_longer_than_it_says_is_broken_off_before() {
    let mut stage = Stage::new("{}");
    let mut taken = taken(&mut stage);
    write(&mut taken, Some(50_000), &vec![b'x'; 40_000]);
    taken.publish();
    stage.sweep();
    let before = stage.all().matches('x').count();
    assert_eq!(before, 40_000);
    taken.write(&vec![b'y'; 40_000]).expect("room");
    taken.publish();
    stage.sweep();
    let (heard, is_over) = stage.heard();
    assert_eq!((heard.matches('y').count(), is_over), (0, true));
    assert_eq!(stage.ended(Outcome::BrokenOff), 1);
    drop(taken);
    stage.close_books();
}

#[test]
fn the_next_in_the_line_are_handed_out_when_fetched_answers_are_out() {
    let mut stage = Stage::new("{}");
    let first = taken(&mut stage);
    let others = [(); 3].map(|()| ask(&mut stage));
    let seat = seat(&stage);
    let second = seat.take().expect("handed out ahead");
    assert!(seat.take().is_none(), "there is room for two");
    for mut taken in [first, second] {
        write(&mut taken, None, &vec![b'x'; LONG_BYTES]);
        taken.finish(AnswerEnd::Complete);
    }
    stage.sweep();
    let next = seat.take();
    assert!(next.is_some(), "two wait, and nobody is served");
    drop((next, others));
}

#[test]
fn a_long_answer_whose_client_has_gone_leaves_its_slot_at_once() {
    let mut stage = Stage::new("{}");
    let mut taken = taken(&mut stage);
    write(&mut taken, None, &vec![b'x'; LONG_BYTES]);
    taken.finish(AnswerEnd::Complete);
    let (socket, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    drop(std::mem::replace(&mut stage.socket, socket));
    // The kernel's news of that comes after this.
    let now_us = stage.requests.now_us;
    stage.requests.dispatch.sweep(now_us);
    stage
        .clients
        .drive(0, None, &mut stage.requests, &stage.poller);
    stage.clients.end_turn();
    stage.turn();
    stage.admit(ours, false);
    let other = ask(&mut stage);
    stage.say(GET);
    let seat = seat(&stage);
    let both = [seat.take(), seat.take()];
    assert!(both.iter().all(Option::is_some), "there are two slots");
    drop((both, other));
}

#[test]
fn a_file_whose_head_is_long_is_sent() {
    let mut stage = Stage::new("{}");
    let now_us = stage.requests.now_us;
    let pid = stanchion_sys::process::pid();
    stage
        .requests
        .dispatch
        .worker_ready(WORKER, (0, 1, pid), now_us);
    stage.say(GET);
    let mut taken = seat(&stage).take().expect("the request");
    let path = std::env::temp_dir().join(format!("stanchion-fetched-{pid}"));
    std::fs::write(&path, "12345").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let (slot, turn) = taken.ticket();
    let name = [slot.to_le_bytes(), turn.to_le_bytes()].concat();
    let files = &stage.requests.common.files.worker_end;
    files.send(&name, Some(file.as_fd())).expect("room");
    let mut head = AnswerHead::default();
    head.begin(200, b"OK");
    head.field(b"Content-Length", b"5");
    head.field(b"X-Long", &[b'a'; 15_000].repeat(4));
    let part = FilePart { offset: 0, len: 5 };
    taken.write(head.whole(Some(part))).expect("room");
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    let heard = stage.all();
    assert!(heard.starts_with(OK) && heard.ends_with("12345"));
}

#[test]
fn what_is_left_of_an_answer_goes_to_a_file_if_there_is_no_room_for_it() {
    let mut stage = Stage::new(r#"{"max_response_memory": 150000}"#);
    let mut taken = taken(&mut stage);
    let ticket = stage.ticket();
    write(&mut taken, None, &vec![b'x'; RESPONSE_RING_BYTES - 1_000]);
    taken.finish(AnswerEnd::Complete);
    let now_us = stage.requests.now_us;
    stage.requests.dispatch.sweep(now_us);
    stage.requests.dispatch.worker_gone(WORKER, now_us);
    assert_eq!(ticket.outflow(|outflow| outflow.is_spooling()), Some(true));
}

#[test]
fn who_keeps_up_again_is_no_slow_client() {
    let mut stage = Stage::new(r#"{"response_buffer": 65536}"#);
    let mut taken = taken(&mut stage);
    let ticket = stage.ticket();
    for len in [400_000, 5_000] {
        write(&mut taken, None, &vec![b'x'; len]);
        taken.publish();
        stage.sweep();
    }
    stage.all();
    for _ in 0..100 {
        stage.requests.now_us += 10_000;
        taken.write(b"more").expect("room");
        taken.publish();
        stage.sweep();
        assert!(stage.all().contains("more"));
    }
    let now_us = stage.requests.now_us;
    let patience = ticket.outflow(|outflow| outflow.patience(now_us));
    assert_eq!(patience, Some(Patience::Unneeded));
}

/// A wake-up costs two switches between the processes, where both are on one core.
#[test]
fn a_seat_is_not_woken_before_the_turn_is_over() {
    let mut stage = Stage::new("{}");
    stage.seat_worker();
    // No request has come for a while.
    stage.requests.now_us += S;
    let bell = stage.requests.common.exchange.ready_bell();
    let rung = bell.word().load(Ordering::Relaxed);
    stage.say(GET);
    assert_eq!(bell.word().load(Ordering::Relaxed), rung);
    stage.requests.dispatch.end_turn(S);
    assert_ne!(bell.word().load(Ordering::Relaxed), rung);
}

#[test]
fn a_seat_is_woken_in_the_middle_of_a_long_turn() {
    let mut stage = Stage::new("{}");
    stage.seat_worker();
    let bell = stage.requests.common.exchange.ready_bell();
    let rung = bell.word().load(Ordering::Relaxed);
    let dispatch = &mut stage.requests.dispatch;
    dispatch.announce_if_late(|| unreachable!("nobody is to be woken"));
    stage.say(GET);
    let dispatch = &mut stage.requests.dispatch;
    // (when the loop looks, whether it is time)
    for (at_us, is_late) in [(S, false), (S + 100, false), (S + 101, true)] {
        dispatch.announce_if_late(|| at_us);
        assert_eq!(bell.word().load(Ordering::Relaxed) != rung, is_late);
    }
}

/// The worker's ring is full, and room for a few bytes does not help it: it waits for its client.
#[test]
fn a_worker_whom_little_room_does_not_help_waits_for_its_client() {
    let mut stage = Stage::new(r#"{"max_response_memory": 0, "response_buffer": 65536}"#);
    stage.shrink_send_buffer();
    let mut taken = taken(&mut stage);
    let ticket = stage.ticket();
    write(&mut taken, None, &vec![b'x'; RESPONSE_RING_BYTES - 1_000]);
    taken.publish();
    stage.sweep();
    let now_us = stage.requests.now_us;
    let patience = ticket.outflow(|outflow| outflow.patience(now_us));
    assert_eq!(patience, Some(Patience::Left));
}
