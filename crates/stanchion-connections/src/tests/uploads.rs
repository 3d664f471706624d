//! Bodies that are still coming when their requests join the line.

use stanchion_exchange::{AnswerEnd, Corrupt, Inflow, Taken};

use super::fetching::take;
use super::*;
use stanchion_dispatch::request::{Body, Peer};
use stanchion_record::{BodyRecord, RequestBuffer};

const ASGI: &str = r#"{"interface": "asgi"}"#;
const EARLY_BYTES: usize = 64 << 10;
const INFLOW_BYTES: usize = 64 << 10;

fn head(framing: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")
}

/// A client that has sent this, and a worker.
fn stage(settings: &str, said: &str) -> Stage {
    let mut stage = Stage::new(settings);
    stage.seat_worker();
    stage.say(said);
    stage
}

/// How many bytes of the body are in the record, and whether more are to come.
fn start(taken: &Taken<'_>) -> (usize, bool) {
    let mut buffer = RequestBuffer::default();
    match buffer.read(taken).expect("a record").body {
        BodyRecord::Memory { len, .. } => (len, false),
        BodyRecord::Begun { len, .. } => (len, true),
        BodyRecord::Spooled { .. } => panic!("it is in no file"),
    }
}

/// The bytes of the rest that the worker has got.
pub(super) fn received(taken: &mut Taken<'_>) -> Vec<u8> {
    let mut bytes = vec![0; INFLOW_BYTES];
    let len = taken.receive(&mut bytes);
    bytes.truncate(len);
    bytes
}

/// Lets some time pass.
fn moment(stage: &mut Stage, by_us: u64) {
    stage.requests.now_us += by_us;
    let requests = &mut stage.requests;
    requests.wakes.wake_due(requests.now_us);
    stage.turn();
}

#[test]
fn a_request_joins_the_line_with_64_kib_or_with_what_there_is_after_a_while() {
    let long = head("Content-Length: 100000");
    let mut stage = stage(ASGI, &long);
    stage.say(&"a".repeat(EARLY_BYTES - 1));
    assert!(matches!(stage.connection().phase, Phase::Body(_)));
    stage.say("a");
    assert_eq!(start(&take(&stage)), (EARLY_BYTES, true));
    stage.close_books();

    let mut stage = self::stage(ASGI, &head("Content-Length: 9"));
    moment(&mut stage, S);
    assert!(
        stage.requests.wakes.later.due_us().is_none(),
        "nothing has come"
    );
    stage.say("abc");
    moment(&mut stage, 49_999);
    assert!(matches!(stage.connection().phase, Phase::Body(_)));
    moment(&mut stage, 1);
    assert_eq!(start(&take(&stage)), (3, true));
    stage.close_books();

    let mut whole = self::stage(ASGI, &format!("{}abc", head("Content-Length: 3")));
    assert_eq!(start(&take(&whole)), (3, false));
    assert!(matches!(whole.ticket().request.body, Body::Memory(_)));
    whole.close_books();
}

#[test]
fn with_whole_uploads_and_for_threads_it_joins_when_it_is_whole() {
    for settings in ["{}", r#"{"interface": "asgi", "whole_uploads": true}"#] {
        let mut stage = stage(settings, &head("Content-Length: 70000"));
        stage.say(&"a".repeat(69_999));
        moment(&mut stage, S);
        assert!(matches!(stage.connection().phase, Phase::Body(_)));
        stage.say("a");
        assert_eq!(start(&take(&stage)), (70_000, false));
        stage.close_books();
    }
}

#[test]
fn the_rest_comes_as_there_is_room_and_then_the_next_request() {
    let total = 300_000;
    let mut stage = stage(ASGI, &head(&format!("Content-Length: {total}")));
    let body: String = (0..total)
        .map(|at| char::from(b'a' + (at % 23) as u8))
        .collect();
    let sent = format!("{body}{GET}");
    let (first, mut unsent) = sent.as_bytes().split_at(EARLY_BYTES);
    stage.socket.write_all(first).unwrap();
    stage.turn();
    let mut running = take(&stage);
    let mut got = first.to_vec();
    let mut stalls = 0;
    while got.len() < total {
        match stage.socket.write(unsent) {
            Ok(len) => unsent = &unsent[len..],
            Err(_) => stalls += 1,
        }
        stage.turn();
        let (unread, _) = running.inflow();
        assert!(unread > 0 && unread <= INFLOW_BYTES);
        got.extend(received(&mut running));
        stage.sweep();
    }
    assert!(got == body.as_bytes());
    assert!(stalls > 0 || unsent.is_empty());
    assert_eq!(running.inflow(), (0, Inflow::Complete));
    assert!(stage.takes_no_body() && !stage.connection().link.closing);
    drop(running);
    stage.close_books();
}

#[test]
fn chunks_are_taken_out_of_their_framing_and_what_is_behind_them_is_the_next_request() {
    let mut stage = stage(ASGI, &head("Transfer-Encoding: chunked"));
    stage.say("3\r\nabc\r\n");
    moment(&mut stage, 50_000);
    let mut running = take(&stage);
    assert_eq!(start(&running), (3, true));
    stage.say(&format!("2\r\nde\r\n1\r\nf\r\n0\r\n\r\n{GET}"));
    assert_eq!(running.inflow(), (3, Inflow::Complete));
    assert_eq!(received(&mut running), b"def");
    assert_eq!(stage.connection().link.ahead, GET.as_bytes());
    drop(running);
    stage.close_books();
}

#[test]
fn a_body_that_turns_out_bad_is_refused_and_its_worker_told() {
    let long = format!("200\r\n{}\r\n", "x".repeat(512));
    for (settings, more, status, outcome) in [
        (ASGI, "zz\r\n", "400", Outcome::BadRequest),
        (
            r#"{"interface": "asgi", "limit_request_body": 512}"#,
            &long,
            "413",
            Outcome::BodyTooLarge,
        ),
        (
            r#"{"interface": "asgi", "limit_request_body": 512}"#,
            "8000000000000000\r\n",
            "413",
            Outcome::BodyTooLarge,
        ),
    ] {
        let mut stage = stage(settings, &head("Transfer-Encoding: chunked"));
        stage.say("3\r\nabc\r\n");
        moment(&mut stage, 50_000);
        let running = take(&stage);
        assert!(!running.client_gone());
        stage.say(more);
        assert!(running.client_gone());
        let (heard, is_over) = stage.heard();
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
        assert!(heard.contains("Connection: close\r\n") && is_over);
        assert_eq!(stage.ended(outcome), 1);
        drop(running);
        stage.close_books();
    }
}

#[test]
fn a_body_that_does_not_go_on_is_called_off_but_not_while_its_worker_is_waited_for() {
    let settings = r#"{"interface": "asgi", "body_timeout": 10}"#;
    let mut stage = stage(settings, &head("Content-Length: 200000"));
    stage.say(&"a".repeat(EARLY_BYTES));
    let mut running = take(&stage);
    for _ in 0..2 {
        stage.say(&"a".repeat(INFLOW_BYTES / 2));
    }
    stage.later(60 * S);
    assert!(!running.client_gone(), "there is no room for more");
    received(&mut running);
    stage.sweep();
    stage.later(9 * S);
    assert!(!running.client_gone());
    stage.later(2 * S);
    assert!(running.client_gone());
    stage.turn();
    assert!(stage.heard().0.starts_with("HTTP/1.1 408 "));
    assert_eq!(stage.ended(Outcome::BodyTimeout), 1);
    drop(running);
    stage.close_books();
}

/// The loop was busy with others, or has not read all news of the kernel.
#[test]
fn what_came_of_an_upload_in_time_is_read_before_its_client_is_judged() {
    let settings = r#"{"interface": "asgi", "body_timeout": 10, "min_body_rate": 0}"#;
    let mut stage = stage(settings, &head("Content-Length: 200000"));
    stage.say(&"a".repeat(EARLY_BYTES));
    let mut running = take(&stage);
    for _ in 0..2 {
        stage.socket.write_all(b"more").unwrap();
        stage.later(10 * S);
        assert!(!running.client_gone());
        assert_eq!(received(&mut running), b"more");
    }
    stage.later(10 * S);
    assert!(running.client_gone());
    drop(running);
    stage.close_books();
}

#[test]
fn who_waits_in_the_line_with_the_start_of_a_body_is_not_called_slow() {
    let settings = r#"{"interface": "asgi", "body_timeout": 10}"#;
    let mut stage = Stage::new(settings);
    stage.say(&format!("{}abc", head("Content-Length: 9")));
    moment(&mut stage, 50_000);
    assert!(matches!(stage.connection().phase, Phase::Waiting(_)));
    stage.later(60 * S);
    stage.turn();
    assert_eq!(stage.heard(), (String::new(), false));
    stage.close_books();
}

#[test]
fn an_answer_before_the_end_of_a_body_is_the_last() {
    let mut stage = stage(ASGI, &head("Content-Length: 200000"));
    stage.say(&"a".repeat(EARLY_BYTES));
    let running = take(&stage);
    stage.answer(OK, "early");
    let (heard, is_over) = stage.heard();
    assert!(
        heard.contains("Connection: close\r\n") && heard.ends_with("early"),
        "{heard}"
    );
    assert!(is_over);
    assert_eq!(stage.doing(), Some(ConnectionState::Leaving));
    running.finish(AnswerEnd::Broken);
    stage.close_books();
}

/// The client takes nothing of the answer, and the worker takes nothing of the body: the loop waits for both of them.
#[test]
fn an_answer_and_a_body_that_both_wait_for_the_other_side_keep_the_loop_at_rest() {
    let mut stage = stage(ASGI, &head("Content-Length: 200000"));
    stage.say(&"a".repeat(EARLY_BYTES));
    let mut running = take(&stage);
    stage.say(&"a".repeat(INFLOW_BYTES));
    assert_eq!(running.inflow().0, INFLOW_BYTES);
    fetching::write(&mut running, None, b"");
    while !stage.connection().link.intake.is_stalled() {
        running.write(&[b'x'; 10_000]).expect("room");
        running.publish();
        stage.sweep();
    }
    stage.say("a");
    received(&mut running);
    stage.sweep();
    assert_eq!(running.inflow().0, 1, "the rest comes once there is room");
    drop(running);
    stage.close_books();
}

#[test]
fn a_body_goes_on_after_a_while_if_the_notice_of_room_is_lost() {
    let mut stage = stage(ASGI, &head("Content-Length: 200000"));
    stage.say(&"a".repeat(EARLY_BYTES));
    let mut running = take(&stage);
    stage.say(&"a".repeat(INFLOW_BYTES + 1));
    received(&mut running);
    stage.requests.dispatch.lose_notices();
    stage.turn();
    assert_eq!(running.inflow().0, 0);
    stage.requests.now_us += 10 * S;
    let now_us = stage.requests.now_us;
    stage.requests.dispatch.mend(now_us);
    stage.turn();
    assert_eq!(running.inflow().0, 1);
    drop(running);
    stage.close_books();
}

/// The connection must not take the rest of the body for a request.
#[test]
fn a_worker_that_has_written_nonsense_ends_the_connection() {
    let mut stage = stage(ASGI, &head("Content-Length: 200000"));
    stage.say(&"a".repeat(EARLY_BYTES));
    let running = take(&stage);
    let ticket = stage.ticket();
    let nonsense = Corrupt("nonsense");
    stage.requests.dispatch.slots.distrust(&ticket, nonsense);
    drop(ticket);
    stage.say("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    let (heard, is_over) = stage.heard();
    assert!(heard.starts_with("HTTP/1.1 502 "), "{heard}");
    assert!(heard.contains("Connection: close\r\n") && is_over);
    drop(running);
    stage.close_books();
}

/// A client whose request has the only seat, and of whose body so much comes each second; and another client, whose request
/// waits.
fn stage_with_one_who_waits(bytes_per_s: usize) -> (Stage, Taken<'static>, UnixStream) {
    const ONE_SEAT: &str = r#"{"interface": "asgi", "worker_concurrency": 1}"#;
    let mut stage = stage(ONE_SEAT, &format!("{}a", head("Content-Length: 1000000")));
    moment(&mut stage, 50_000);
    let mut running = take(&stage);
    for _ in 0..60 {
        stage.requests.now_us += S;
        stage.say(&"a".repeat(bytes_per_s));
        stage.later(0);
        received(&mut running);
    }
    assert_eq!(
        stage.doing(),
        Some(ConnectionState::Busy),
        "no other client waits"
    );
    let mut other = stage.connect(peer());
    other.write_all(GET.as_bytes()).unwrap();
    stage.turn();
    assert_eq!(stage.requests.dispatch.waiting(), 1);
    (stage, running, other)
}

#[test]
fn who_uploads_hardly_fast_enough_gives_way_to_those_who_wait_for_its_seat() {
    let (mut stage, running, _other) = stage_with_one_who_waits(245);
    stage.later(S - 1);
    assert_eq!(stage.heard(), (String::new(), false), "not for a moment");
    stage.later(1);
    assert!(running.client_gone(), "the app is told");
    let (heard, _) = stage.heard();
    assert!(heard.starts_with("HTTP/1.1 408 "), "{heard}");
    assert!(heard.contains("too slowly"), "{heard}");
    assert_eq!(stage.ended(Outcome::BodyTooSlow), 1);
    drop(running);
    stage.close_books();
}

#[test]
fn who_uploads_fast_enough_keeps_its_seat_whoever_waits() {
    let (mut stage, running, _other) = stage_with_one_who_waits(2_000);
    for _ in 0..10 {
        stage.later(S);
        stage.say(&"a".repeat(2_000));
    }
    assert!(!running.client_gone());
    assert_eq!(stage.heard(), (String::new(), false));
    drop(running);
    stage.close_books();
}

#[test]
fn a_body_is_kept_while_it_may_be_handed_over_once_more() {
    let repeats = r#"{"retry_idempotent": true}"#;
    let ports = r#"{"worker_port_base": 9000}"#;
    // (settings, method, the port of one worker, whether the body is kept once a worker can take it)
    for (settings, method, port, is_kept) in [
        ("{}", "POST", None, false),
        ("{}", "PUT", None, false),
        (ports, "POST", Some(0), true),
        (repeats, "POST", None, false),
        (repeats, "PUT", None, true),
    ] {
        let case = format!("{settings} {method}");
        let mut stage = Stage::new(settings);
        let connection = stage.connection();
        let peer = (*connection.link.peer).clone();
        connection.link.peer = Rc::new(Peer {
            only_worker: port,
            ..peer
        });
        stage.say(&format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
        ));
        let ticket = stage.ticket();
        let Body::Memory(body) = &ticket.request.body else {
            panic!("it is small");
        };
        assert!(body.is_kept(), "{case}");
        stage.seat_worker();
        assert_eq!(body.is_kept(), is_kept, "{case}");
        assert_eq!(start(&take(&stage)), (3, false), "{case}");
        stage.close_books();
    }
}

/// Slow uploads give way to requests that want their seats.
#[test]
fn a_request_whose_lane_has_all_of_its_seats_wants_none_of_others() {
    let settings =
        r#"{"interface": "asgi", "worker_concurrency": 1, "lane": ["few=/few seats_max=1"]}"#;
    for (target, expected) in [("/other", 1), ("/few", 0)] {
        let mut stage = stage(settings, "GET /few HTTP/1.1\r\nHost: a\r\n\r\n");
        let running = take(&stage);
        let mut other = stage.connect(peer());
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        other.write_all(request.as_bytes()).unwrap();
        stage.turn();
        let now_us = stage.requests.now_us;
        let dispatch = &mut stage.requests.dispatch;
        assert_eq!((dispatch.waiting(), dispatch.starving(now_us)), (1, 0));
        assert_eq!(dispatch.starving(now_us + 2 * S), expected, "{target}");
        running.finish(AnswerEnd::Broken);
    }
}
