//! Clients that dawdle: a table of what each does, and of what becomes of it after how long.

use stanchion_http::BodyLength;

use std::net::Shutdown;
use std::sync::{Arc, Mutex};

use super::*;
use crate::phase::{LINGER, LINGER_PAUSE};
use stanchion_dispatch::storage::disk::{FOREIGN_THREADS_MAX, FileSystem};
use stanchion_requests::rig::S;

/// Deadlines that are all different.
const SETTINGS: &str = r#"{"header_timeout": 10, "body_timeout": 20, "keepalive": 5, "write_timeout": 40,
    "min_body_rate": 0, "min_response_rate": 0}"#;

#[test]
fn who_dawdles_has_so_long_and_no_longer() {
    let timeouts = [
        // (what the client has sent, how long it may do nothing, the answer that it gets then)
        ("", 10, ""),
        ("GET / HT", 10, "HTTP/1.1 408 "),
        (
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nx",
            20,
            "HTTP/1.1 408 ",
        ),
        ("answered", 5, ""),
    ];
    for (sent, limit_s, told) in timeouts {
        let mut stage = Stage::new(SETTINGS);
        if sent == "answered" {
            stage.say(GET);
            stage.answer(OK, "x");
            stage.heard();
        } else {
            stage.say(sent);
        }
        // The acceptor has looked at it before, as it does four times a second.
        stage.later(0);
        stage.later(limit_s * S - 1);
        assert_eq!(stage.heard(), (String::new(), false), "{sent:?}");
        stage.later(1);
        stage.turn();
        let (heard, is_over) = stage.heard();
        let is_answered = heard.starts_with(told) && heard.is_empty() == told.is_empty();
        assert!(is_answered && is_over, "{sent:?}: {heard} {is_over}");
        stage.close_books();
    }
}

/// The loop was busy with others, or has not read all news of the kernel.
#[test]
fn what_came_of_a_body_in_time_is_read_before_its_client_is_judged() {
    let mut stage = Stage::new(SETTINGS);
    stage.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nx");
    for more in [b"x", b"y"] {
        stage.socket.write_all(more).unwrap();
        stage.later(20 * S);
        assert_eq!(stage.heard(), (String::new(), false));
    }
    assert!(matches!(stage.connection().phase, Phase::Waiting(_)));
    stage.close_books();
}

#[test]
fn what_came_of_a_head_in_time_is_read_before_its_client_is_judged() {
    for read in [0, 8] {
        let mut stage = Stage::new(SETTINGS);
        let (read, unread) = GET.split_at(read);
        stage.say(read);
        stage.socket.write_all(unread.as_bytes()).unwrap();
        stage.later(10 * S);
        assert_eq!(stage.heard(), (String::new(), false), "{unread:?}");
        stage.answer(OK, "in time");
        let (heard, _) = stage.heard();
        assert!(heard.ends_with("in time"), "{heard}");
        stage.close_books();
    }
}

#[test]
fn a_request_that_waits_for_us_has_no_deadline_of_its_client() {
    let mut stage = Stage::new(SETTINGS);
    stage.say(GET);
    stage.later(0);
    stage.later(3_600 * S);
    assert_eq!(stage.doing(), Some(ConnectionState::Busy));
    stage.close_books();
}

#[test]
fn a_head_that_drips_has_as_long_as_one_that_stops() {
    let mut stage = Stage::new(SETTINGS);
    for second in 0..10 {
        assert_eq!(stage.heard(), (String::new(), false), "{second}");
        stage.say("G");
        stage.later(S);
    }
    let (heard, is_over) = stage.heard();
    assert!(heard.starts_with("HTTP/1.1 408 ") && is_over, "{heard}");
    assert_eq!(stage.ended(Outcome::HeadTimeout), 1);
    stage.close_books();
}

#[test]
fn who_cannot_be_told_that_its_head_took_too_long_is_gone_all_the_same() {
    let mut stage = Stage::new(SETTINGS);
    stage.say("GET / HT");
    // The client reads no more (shutdown(2)), which the kernel does not report to the server.
    stage.socket.shutdown(Shutdown::Read).unwrap();
    stage.later(10 * S);
    assert_eq!(stage.clients.len(), 0);
    assert_eq!(stage.ended(Outcome::HeadTimeout), 1);
    stage.close_books();
}

#[test]
fn who_takes_nothing_of_its_answer_is_cut_off() {
    let body = "x".repeat(5 << 20);
    // An answer that went to the kernel whole counts as answered, whether or not the client reads it.
    for (is_whole, outcome) in [
        (true, Outcome::Answered),
        (false, Outcome::AbandonedAnswering),
    ] {
        let mut stage = Stage::new(SETTINGS);
        stage.say(GET);
        if is_whole {
            stage.answer(OK, &body);
        } else {
            let ticket = stage.ticket();
            let limits = Rc::clone(&stage.requests.storage.answers);
            let first = body.clone().into();
            ticket
                .start_body(&limits, BodyLength::Unknown, first, false)
                .unwrap();
            ticket.answer(answer(OK, b"", false, Start::Streamed(None)));
            stage.turn();
        }
        stage.later(40 * S - 1);
        assert_eq!(stage.clients.len(), 1);
        // First the acceptor looks at the socket, since the client may have taken more than it knows.
        stage.later(1);
        stage.later(0);
        assert_eq!(stage.clients.len(), 0);
        assert_eq!(stage.ended(outcome), 1, "{is_whole}");
        let counts = stage.requests.common.tally.read();
        assert_eq!(counts.happened(Event::CutOff), 1, "{is_whole}");
        stage.close_books();
    }
}

#[test]
fn who_is_seen_out_may_pause_and_take_so_long_in_all() {
    let refused = || {
        let mut stage = Stage::new(SETTINGS);
        stage.say("no request\r\n\r\n");
        assert_eq!(stage.doing(), Some(ConnectionState::Leaving));
        stage.later(0);
        stage
    };
    let pause_us = after(0, LINGER_PAUSE);
    let mut stage = refused();
    stage.later(pause_us - 1);
    assert_eq!(stage.doing(), Some(ConnectionState::Leaving));
    stage.later(1);
    assert_eq!(stage.doing(), None);
    stage.close_books();
    // A client that goes on sending gets longer, but not for ever.
    let mut stage = refused();
    let mut lasted_us = 0;
    while stage.doing().is_some() {
        stage.say("x");
        stage.later(S);
        lasted_us += S;
    }
    assert_eq!(lasted_us, after(0, LINGER));
    stage.close_books();
}

#[test]
fn while_the_server_leaves_newcomers_have_a_second_and_idlers_none() {
    let mut stage = Stage::new(SETTINGS);
    stage.requests.serving.lifecycle = stanchion_requests::lifecycle::Lifecycle::Draining;
    stage.later(S - 1);
    assert_eq!(stage.doing(), Some(ConnectionState::New));
    stage.later(1);
    assert_eq!(stage.doing(), None);
    stage.close_books();
    let mut stage = Stage::new(SETTINGS);
    stage.say(GET);
    stage.answer(OK, "x");
    stage.requests.serving.lifecycle = stanchion_requests::lifecycle::Lifecycle::Draining;
    stage.later(0);
    assert_eq!(stage.doing(), None);
    stage.close_books();
}

#[test]
fn only_who_has_idled_for_a_while_is_closed_for_others() {
    let mut stage = Stage::new(SETTINGS);
    let shed = |stage: &mut Stage| {
        let wait = stage.clients.shed(&mut stage.requests, &stage.poller);
        (wait, stage.clients.len())
    };
    stage.requests.now_us += 400_000;
    assert_eq!(shed(&mut stage), (Duration::from_millis(600), 1));
    stage.say(GET);
    stage.requests.now_us += 10 * S;
    // The client is asking something.
    assert_eq!(shed(&mut stage), (SPARED_AFTER, 1));
    stage.answer(OK, "x");
    assert_eq!(shed(&mut stage), (SPARED_AFTER, 1));
    stage.requests.now_us += S;
    assert_eq!(shed(&mut stage), (SPARED_AFTER, 0));
    assert_eq!(stage.requests.common.tally.read().happened(Event::Shed), 1);
    stage.close_books();
}

#[test]
fn a_file_system_that_does_not_answer_is_not_waited_for_without_end() {
    let mut stage = Stage::new(r#"{"static_files": ["/s=/proc/sys/kernel"]}"#);
    // All helper threads that may look for files wait for one that hangs.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let hang = || {
        let released = Arc::clone(&released);
        let wait = move || {
            drop(released.lock().map(|released| released.recv()));
            Ok(())
        };
        stage
            .requests
            .storage
            .disk
            .start(FileSystem::Foreign, 99, wait)
    };
    let _hanging: Vec<_> = (0..FOREIGN_THREADS_MAX).map(|_| hang()).collect();
    stage.say("GET /s/ostype HTTP/1.1\r\nHost: a\r\n\r\n");
    stage.later(30 * S - 1);
    assert_eq!(stage.heard(), (String::new(), false));
    stage.later(1);
    let (told, is_over) = stage.heard();
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(!is_over, "the next request may be for another file");
    drop(release);
}
