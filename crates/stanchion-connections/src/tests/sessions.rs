//! `WebSockets`, and the deadlines of their clients.

use stanchion_exchange::Taken;
use stanchion_websocket::UnreadBytes;

use super::fetching::take;
use super::uploads::received;
use super::*;
use stanchion_dispatch::collect::SWITCHING;
use stanchion_dispatch::storage::message_memory::OWN_BYTES;
use stanchion_dispatch::ticket::Answer;
use stanchion_record::{AnswerHead, Content, MessageKind, message_head};
use stanchion_requests::lifecycle::Lifecycle;

const SETTINGS: &str = r#"{"interface": "asgi", "ws_ping_interval": 100, "ws_ping_timeout": 20, "body_timeout": 60,
    "session_grace": 0}"#;
const ASKED: &str = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
const PING: &[u8] = b"\x89\0";
/// A frame of a client, as those that follow. Its mask is zero.
const PONG: &[u8] = b"\x8a\x80\0\0\0\0";
/// More of the client's message, which goes on.
const CONTINUED: &[u8] = &[0; 100];
const CLOSE: &[u8] = b"\x88\x80\0\0\0\0";
const MESSAGE: &[u8] = b"\x82\x82\0\0\0\0me";

/// A client that has its WebSocket.
fn stage() -> Stage {
    let mut stage = Stage::new(SETTINGS);
    stage.say(ASKED);
    // An app cannot send a head of this status: its worker writes one when it accepts.
    let Answer::App(mut accepted) = answer(OK, b"", false, Start::Whole) else {
        panic!("it is the app's");
    };
    accepted.facts.status = SWITCHING;
    let ticket = stage.ticket();
    ticket.answer(Answer::App(accepted));
    drop(ticket);
    stage.turn();
    let (heard, _) = stage.heard();
    assert!(heard.contains("Upgrade: websocket\r\n"), "{heard}");
    stage.later(0);
    stage
}

/// The start of a message, long enough that it takes memory from others.
fn start_of_message() -> Vec<u8> {
    let header = b"\x82\xff\0\0\0\0\0\x10\0\0\0\0\0\0";
    [&header[..], &vec![0; 2 * OWN_BYTES]].concat()
}

/// Has the client send bytes that the server has not read yet.
fn send(stage: &mut Stage, bytes: &[u8]) {
    stage.socket.write_all(bytes).unwrap();
}

/// The bytes that the client has got, and whether the connection has ended.
fn frames(stage: &mut Stage) -> (Vec<u8>, bool) {
    let mut got = Vec::new();
    let is_over = stage.socket.read_to_end(&mut got).is_ok();
    (got, is_over)
}

/// The code of the close frame that the client has got, if it has.
fn code(stage: &mut Stage) -> Option<u16> {
    match frames(stage).0[..] {
        [] => None,
        [0x88, _, high, low, ..] => Some(u16::from_be_bytes([high, low])),
        ref frames => panic!("{frames:?}"),
    }
}

/// How long until the acceptor has to look at it.
fn due_in_us(stage: &mut Stage) -> u64 {
    let connection = stage.clients.table.get_mut(0).expect("it is here");
    let Phase::Session(session) = &connection.phase else {
        panic!("it is no session");
    };
    session.due_us(stage.requests.serving.lifecycle, stage.requests.now_us) - stage.requests.now_us
}

#[test]
fn once_it_is_closed_nothing_is_due_but_its_end() {
    let mut stage = stage();
    send(&mut stage, &start_of_message());
    stage.turn();
    assert_eq!(due_in_us(&mut stage), 60 * S, "the rest of its message");
    stage.later(60 * S);
    assert_eq!(code(&mut stage), Some(1008));
    assert_eq!(due_in_us(&mut stage), 10 * S);
    // Nothing is due for the client's message, for a ping, or because the server leaves.
    send(&mut stage, CONTINUED);
    stage.turn();
    stage.later(4 * S);
    stage.requests.serving.lifecycle = Lifecycle::Draining;
    assert_eq!(due_in_us(&mut stage), 6 * S);
    stage.later(6 * S - 1);
    assert_eq!(frames(&mut stage), (vec![], false));
    stage.later(1);
    assert!(frames(&mut stage).1);
    stage.close_books();
}

#[test]
fn a_client_that_does_not_answer_a_ping_is_waited_for_once() {
    let mut stage = stage();
    assert_eq!(due_in_us(&mut stage), 100 * S);
    stage.later(100 * S);
    assert_eq!(frames(&mut stage), (PING.to_vec(), false));
    assert_eq!(due_in_us(&mut stage), 20 * S);
    stage.later(20 * S);
    assert_eq!(code(&mut stage), Some(1011));
    assert_eq!(due_in_us(&mut stage), 10 * S);
    send(&mut stage, CLOSE);
    stage.turn();
    assert!(frames(&mut stage).1);
    stage.close_books();
}

/// The loop was busy with others, or has not read all news of the kernel.
#[test]
fn what_came_of_a_message_in_time_is_heard_before_its_client_is_judged() {
    for is_reported in [true, false] {
        let mut stage = stage();
        send(&mut stage, &start_of_message());
        stage.turn();
        stage.requests.now_us += 60 * S;
        send(&mut stage, CONTINUED);
        if is_reported {
            stage.turn();
        }
        stage.later(0);
        assert_eq!(code(&mut stage), None, "{is_reported}");
        stage.later(60 * S);
        assert_eq!(code(&mut stage), Some(1008), "{is_reported}");
        stage.close_books();
    }
}

#[test]
fn an_answer_to_a_ping_that_came_in_time_is_heard_before_its_client_is_judged() {
    for is_reported in [true, false] {
        let mut stage = stage();
        stage.later(100 * S);
        assert_eq!(frames(&mut stage).0, PING);
        stage.requests.now_us += 20 * S;
        send(&mut stage, PONG);
        if is_reported {
            stage.turn();
        }
        stage.later(0);
        assert_eq!(code(&mut stage), None, "{is_reported}");
        assert_eq!(due_in_us(&mut stage), 100 * S);
        stage.close_books();
    }
}

/// A client that has its WebSocket, and the worker at the other end of it.
fn stage_with_worker() -> (Stage, Taken<'static>) {
    let mut stage = Stage::new(SETTINGS);
    stage.seat_worker();
    stage.say(ASKED);
    let mut taken = take(&stage);
    let mut head = AnswerHead::default();
    head.begin(101, b"Switching Protocols");
    taken.write(head.whole(None)).expect("room");
    taken.publish();
    stage.sweep();
    let (heard, _) = stage.heard();
    assert!(heard.starts_with("HTTP/1.1 101 "), "{heard}");
    (stage, taken)
}

/// A message as it crosses the exchange.
fn record(message: &[u8]) -> Vec<u8> {
    let head = message_head(
        Content::Message(MessageKind::Binary.into()),
        message.len() as u32,
    );
    [&head[..], message].concat()
}

/// Has the worker send a message.
fn write(taken: &mut Taken<'_>, message: &[u8]) {
    taken.write(&record(message)).expect("room");
    taken.publish();
}

/// No app answers a message faster than that: the worker has answered before the loop has finished with the bytes that came.
#[test]
fn a_pong_comes_before_the_answer_to_what_came_behind_the_ping() {
    let (mut stage, mut taken) = stage_with_worker();
    let ping = b"\x89\x80\0\0\0\0";
    let connection = stage.clients.table.get_mut(0).expect("it is here");
    let Phase::Session(session) = &mut connection.phase else {
        panic!("it is no session");
    };
    let left = session.came(
        UnreadBytes::new(&mut [&ping[..], MESSAGE].concat()),
        &mut stage.requests,
    );
    assert_eq!(left, 0);
    write(&mut taken, b"you");
    stage.sweep();
    let pong = b"\x8a\0";
    assert_eq!(frames(&mut stage).0, [&pong[..], b"\x82\x03you"].concat());
    drop(taken);
    stage.close_books();
}

/// The kernel reports the message once (epoll(7), EPOLLET), and the connection does not read it yet.
#[test]
fn a_message_that_comes_while_the_worker_has_no_room_follows_without_more_news_of_its_client() {
    let (mut stage, mut taken) = stage_with_worker();
    let long = vec![b'x'; 100_000];
    let header = [&b"\x82\xff"[..], &100_000_u64.to_be_bytes(), &[0; 4]].concat();
    send(&mut stage, &[header, long.clone()].concat());
    stage.turn();
    send(&mut stage, MESSAGE);
    stage.turn();
    let expected = [record(&long), record(b"me")].concat();
    let mut got = Vec::new();
    for _ in 0..4 {
        got.extend(received(&mut taken));
        stage.sweep();
    }
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
    drop(taken);
    stage.close_books();
}

/// The connection has found nothing, and asks once more before it waits.
#[test]
fn a_message_that_comes_during_a_look_is_found_by_it_and_one_behind_it_wakes_the_connection() {
    let (mut stage, mut taken) = stage_with_worker();
    let connection = stage.clients.table.get_mut(0).expect("it is here");
    let Phase::Session(session) = &connection.phase else {
        panic!("it is no session");
    };
    let ticket = Rc::clone(&session.ticket);
    let now_us = stage.requests.now_us;
    let dispatch = &mut stage.requests.dispatch;
    assert!(!dispatch.news(&ticket, now_us));
    write(&mut taken, b"one");
    assert!(dispatch.news(&ticket, now_us));
    let notes = |stage: &mut Stage| {
        let mut notes = Vec::new();
        stage.requests.wakes.clients.take(&mut notes);
        notes
    };
    assert_eq!(notes(&mut stage), [0_u32; 0], "the connection is at work");
    let (requests, poller) = (&mut stage.requests, &stage.poller);
    stage.clients.drive(0, None, requests, poller);
    assert_eq!(frames(&mut stage).0, b"\x82\x03one");
    write(&mut taken, b"two");
    stage.requests.dispatch.sweep(now_us);
    assert_eq!(notes(&mut stage), [0]);
    drop((taken, ticket));
    stage.close_books();
}
