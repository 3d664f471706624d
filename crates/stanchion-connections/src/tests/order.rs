//! The order of requests, answers and ends on a connection.

use std::net::Shutdown;

use super::*;
use stanchion_dispatch::request::Body;
use stanchion_exchange::AnswerEnd;
use stanchion_http::BodyLength;
use stanchion_requests::lifecycle::Lifecycle;

#[test]
fn a_request_that_comes_byte_by_byte_is_one_request() {
    let mut stage = Stage::new("{}");
    assert_eq!(stage.doing(), Some(ConnectionState::New));
    let text = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let head = text.len() - "abc".len();
    for (at, byte) in text.char_indices() {
        let expected = match at {
            0 => ConnectionState::New,
            at if at < head => ConnectionState::Reading,
            _ => ConnectionState::Busy,
        };
        assert_eq!(stage.doing(), Some(expected), "{at}");
        stage.say(&byte.to_string());
    }
    let ticket = stage.ticket();
    let request = &ticket.request;
    assert_eq!(
        (request.head.method(), request.head.target()),
        ("POST", &b"/x"[..])
    );
    let Body::Memory(body) = &request.body else {
        panic!("it is small");
    };
    assert_eq!(body.with(<[_]>::concat).unwrap(), b"abc");
    drop(ticket);
    assert_eq!(stage.heard(), (String::new(), false));
    stage.answer(OK, "fine");
    let said = "HTTP/1.1 200 OK\r\nServer: stanchion\r\nContent-Length: 4\r\n\r\nfine";
    assert_eq!(stage.heard(), (said.to_owned(), false));
    assert_eq!(stage.doing(), Some(ConnectionState::Idle));
    assert_eq!(stage.ended(Outcome::Answered), 1);
    stage.close_books();
}

/// So many bytes that the connection keeps the buffer into which they were read.
#[test]
fn a_long_body_that_comes_with_its_head_is_whole_and_what_follows_it_too() {
    let body: String = (0..40_000)
        .map(|number| char::from(b'a' + number as u8 % 23))
        .collect();
    let chunk = format!("9c40\r\n{body}\r\n");
    for (framing, sent, expected) in [
        ("Content-Length: 40000", body.clone(), body.clone()),
        (
            "Transfer-Encoding: chunked",
            format!("{chunk}0\r\n\r\n"),
            body.clone(),
        ),
        (
            "Transfer-Encoding: chunked",
            format!("{chunk}{chunk}0\r\n\r\n"),
            body.repeat(2),
        ),
    ] {
        let mut stage = Stage::new("{}");
        stage.say(&format!("POST /1 HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{sent}GET /2 HTTP/1.1\r\nHost: a\r\n\r\n"));
        let ticket = stage.ticket();
        let Body::Memory(body) = &ticket.request.body else {
            panic!("it is small");
        };
        let is_expected = body.with(|pieces| pieces.concat() == expected.as_bytes());
        assert_eq!(is_expected, Some(true), "{framing}");
        drop(ticket);
        stage.answer(OK, "fine");
        assert_eq!(stage.ticket().request.head.target(), b"/2");
        stage.answer(OK, "fine");
        assert_eq!(stage.ended(Outcome::Answered), 2);
        stage.close_books();
    }
}

#[test]
fn a_chunk_is_refused_at_its_head_if_the_body_becomes_too_long_by_it() {
    let mut stage = Stage::new(r#"{"limit_request_body": 100000}"#);
    stage.say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nea60\r\n");
    stage.say(&"x".repeat(60_000));
    assert_eq!(stage.heard(), (String::new(), false));
    stage.say("\r\nea60\r\n");
    assert!(stage.heard().0.starts_with("HTTP/1.1 413 "));
}

#[test]
fn of_requests_that_come_at_once_each_waits_for_the_one_before() {
    let mut stage = Stage::new("{}");
    stage.say("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.0\r\n\r\nGET /4");
    let shown = |length, ending| {
        format!("HTTP/1.{length} 200 OK\r\nServer: stanchion\r\nContent-Length: {ending}")
    };
    for (target, said, is_over) in [
        ("/1", shown(1, "2\r\n\r\n/1"), false),
        ("/2", shown(1, "2\r\n\r\n"), false),
        ("/3", shown(0, "2\r\nConnection: close\r\n\r\n/3"), true),
    ] {
        assert_eq!(stage.requests.common.tally.read().in_flight(), 1);
        assert_eq!(stage.ticket().request.head.target(), target.as_bytes());
        match target {
            "/2" => stage.answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", ""),
            target => stage.answer(OK, target),
        }
        let (heard, over) = stage.heard();
        let said = match target {
            // The head is as the app has made it, and the server's own fields follow.
            "/2" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: stanchion\r\n\r\n".to_owned(),
            _ => said,
        };
        assert_eq!((heard, over), (said, is_over), "{target}");
    }
    // The bytes behind the last request are no request.
    assert_eq!(stage.requests.common.tally.read().arrived(), 3);
    assert_eq!(stage.doing(), Some(ConnectionState::Leaving));
    stage.socket.shutdown(std::net::Shutdown::Both).unwrap();
    stage.turn();
    assert_eq!(stage.doing(), None);
    stage.close_books();
}

#[test]
fn connections_that_ask_a_lot_at_once_go_on_one_by_one_behind_all_others() {
    let mut stage = Stage::new(r#"{"health_path": "/-"}"#);
    let probe = "GET /-/live HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut greedy = vec![stage.socket.try_clone().unwrap()];
    greedy.extend((1..3).map(|_| stage.connect(peer())));
    for socket in &mut greedy {
        socket.write_all(probe.repeat(40).as_bytes()).unwrap();
    }
    let mut honest = stage.connect(peer());
    let readable = Ready {
        readable: true,
        ..Ready::default()
    };
    // The kernel reports all of them in each turn of the loop, and the honest one has a request in the second turn.
    let mut answered = Vec::new();
    for turn in 0..7 {
        if turn == 1 {
            honest.write_all(probe.as_bytes()).unwrap();
        }
        let before = stage.ended(Outcome::Probed);
        for number in 0..4 {
            let (requests, poller) = (&mut stage.requests, &stage.poller);
            stage
                .clients
                .drive(number, Some(readable), requests, poller);
        }
        let (requests, poller) = (&mut stage.requests, &stage.poller);
        stage.clients.drive_behind(requests, poller);
        answered.push(stage.ended(Outcome::Probed) - before);
    }
    // A turn is 16 requests. In the first turn of the loop all connections have theirs, and one that has used it up goes on.
    // In the fourth none has as much to do.
    assert_eq!(answered, [16 * 4, 17, 16, 24, 0, 0, 0]);
    let mut heard = [0; 16];
    honest.read_exact(&mut heard).unwrap();
    stage.close_books();
}

#[test]
fn connections_of_one_client_have_no_more_of_a_turn_than_one_and_others_come_first() {
    let mut stage = Stage::new(r#"{"health_path": "/-"}"#);
    let probe = "GET /-/live HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut greedy = vec![stage.socket.try_clone().unwrap()];
    let mut admit = |of: &str| {
        let ip = of.parse().ok();
        stage.connect(Peer { ip, ..peer() })
    };
    greedy.extend((0..7).map(|_| admit("127.0.0.1")));
    let mut honest = admit("192.0.2.1");
    for socket in &mut greedy {
        socket.write_all(probe.repeat(40).as_bytes()).unwrap();
    }
    // The honest client has more to do than one turn, too.
    honest.write_all(probe.repeat(40).as_bytes()).unwrap();
    honest.set_nonblocking(true).unwrap();
    let mut heard = Vec::new();
    let (mut turns, mut most) = (0, 0);
    while turns < 20 {
        let before = stage.ended(Outcome::Probed);
        stage.turn_once();
        most = most.max(stage.ended(Outcome::Probed) - before);
        turns += 1;
        let _ = honest.read_to_end(&mut heard);
        let answers = heard.windows(4).filter(|four| four == b"\r\n\r\n").count();
        if answers == 40 {
            break;
        }
    }
    // Of the eight connections one has its turn (16), then the honest client's; and one that stands behind goes on.
    assert_eq!((most, turns), (3 * 16, 4));
    stage.turn();
    assert_eq!(stage.ended(Outcome::Probed), 9 * 40);
    stage.close_books();
}

#[test]
fn wasteful_connections_go_on_after_others_and_rest_in_between() {
    let mut stage = Stage::new(r#"{"health_path": "/-"}"#);
    let probe = b"GET /-/live HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut honest = stage.connect(peer());
    stage.make_wasteful(0);
    let mut answers = Vec::new();
    for is_rested in [true, false, false, true] {
        if is_rested {
            let due_us = stage.requests.wakes.clients.wasteful_due_us();
            stage.requests.now_us = due_us.unwrap_or(0).max(stage.requests.now_us);
        }
        stage.socket.write_all(probe).unwrap();
        honest.write_all(probe).unwrap();
        let before = stage.ended(Outcome::Probed);
        stage.turn_once();
        answers.push(stage.ended(Outcome::Probed) - before);
    }
    // The honest client has its answer in each turn. The wasteful one has the first at once, and then all three.
    assert_eq!(answers, [2, 1, 1, 4]);
    stage.close_books();
}

#[test]
fn a_wasteful_connection_gets_its_answer_once_it_has_rested() {
    let mut stage = Stage::new("{}");
    stage.say(GET);
    stage.make_wasteful(0);
    let due_us = stage.requests.now_us + 1;
    stage.requests.wakes.clients.rest_until(due_us);
    let ticket = stage.ticket();
    ticket.answer(answer(OK, b"", false, Start::Whole));
    drop(ticket);
    // The worker's answer leaves a note for the connection.
    stage.turn_once();
    assert_eq!(stage.heard(), (String::new(), false));
    stage.requests.now_us = due_us;
    stage.turn_once();
    assert!(stage.heard().0.starts_with(OK));
    stage.close_books();
}

#[test]
fn the_next_connection_of_a_wasteful_client_is_wasteful_and_no_other_clients_is() {
    let mut stage = Stage::new("{}");
    stage.make_wasteful(0);
    stage.socket.shutdown(Shutdown::Both).unwrap();
    stage.turn();
    assert_eq!(stage.clients.len(), 0);
    for (ip, is_wasteful) in [("127.0.0.1", true), ("127.0.0.2", false)] {
        let ip = ip.parse().ok();
        let number = stage.clients.table.next_number();
        let _theirs = stage.connect(Peer { ip, ..peer() });
        let now_us = stage.requests.now_us;
        let connection = stage.clients.table.get_mut(number).unwrap();
        assert_eq!(
            connection.link.turns.is_wasteful(now_us),
            is_wasteful,
            "{ip:?}"
        );
    }
    stage.close_books();
}

#[test]
fn a_client_whom_a_proxy_header_names_brings_its_waste_along() {
    let mut stage = Stage::new(r#"{"proxy_protocol": "auto"}"#);
    let came = |stage: &mut Stage, ip: &str, is_proxied: bool| {
        let number = stage.clients.table.next_number();
        let proxy = if is_proxied { "192.0.2.1" } else { ip };
        let from = Peer {
            ip: proxy.parse().ok(),
            sends_proxy_header: is_proxied,
            ..peer()
        };
        let mut theirs = stage.connect(from);
        if is_proxied {
            write!(theirs, "PROXY TCP4 {ip} 192.0.2.2 4711 80\r\n").unwrap();
        }
        stage.turn();
        (number, theirs)
    };
    let (number, theirs) = came(&mut stage, "192.0.2.7", false);
    stage.make_wasteful(number);
    drop(theirs);
    stage.turn();
    for (ip, is_wasteful) in [("192.0.2.7", true), ("192.0.2.8", false)] {
        let (number, _theirs) = came(&mut stage, ip, true);
        let now_us = stage.requests.now_us;
        let connection = stage.clients.table.get_mut(number).unwrap();
        assert_eq!(
            connection.link.turns.is_wasteful(now_us),
            is_wasteful,
            "{ip}"
        );
    }
    stage.close_books();
}

#[test]
fn requests_of_http_1_pay_for_what_earlier_connections_have_wasted() {
    let mut stage = Stage::new(r#"{"health_path": "/-"}"#);
    let now_us = stage.requests.now_us;
    stage.connection().link.turns.count(10_000, 0, 0, now_us);
    assert!(stage.connection().link.turns.is_wasteful(now_us));
    for _ in 0..10 {
        stage.say("GET /-/live HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    assert!(!stage.connection().link.turns.is_wasteful(now_us));
    stage.close_books();
}

#[test]
fn a_body_in_pieces_is_framed_as_its_client_understands_it() {
    for (version, head, framed, is_over) in [
        (
            "1.1",
            OK,
            "Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
            false,
        ),
        ("1.0", OK, "Connection: close\r\n\r\nonetwo", true),
        (
            "1.1",
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n",
            "\r\nonetwo",
            false,
        ),
    ] {
        let mut stage = Stage::new("{}");
        stage.say(&format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n"));
        let ticket = stage.ticket();
        let limits = Rc::clone(&stage.requests.storage.answers);
        ticket
            .start_body(&limits, BodyLength::Unknown, "one".into(), false)
            .unwrap();
        ticket.answer(answer(head, b"", false, Start::Streamed(None)));
        stage.turn();
        assert_eq!(stage.doing(), Some(ConnectionState::Busy));
        let first = stage.heard();
        assert!(
            !first.1 && first.0.contains("one") && !first.0.contains("two"),
            "{first:?}"
        );
        ticket.push("two".into()).unwrap();
        ticket.end(AnswerEnd::Complete).unwrap();
        drop(ticket);
        stage.turn();
        let second = stage.heard();
        let all = first.0 + &second.0;
        let (_, said) = all.split_once("Server: stanchion\r\n").unwrap();
        assert_eq!((said, second.1), (framed, is_over), "{version} {head:?}");
        assert_eq!(stage.ended(Outcome::Answered), 1);
        stage.close_books();
    }
}

#[test]
fn an_answer_that_breaks_off_ends_without_an_end() {
    let mut stage = Stage::new("{}");
    stage.say(GET);
    let ticket = stage.ticket();
    let limits = Rc::clone(&stage.requests.storage.answers);
    ticket
        .start_body(&limits, BodyLength::Unknown, "one".into(), false)
        .unwrap();
    ticket.answer(answer(OK, b"", false, Start::Streamed(None)));
    ticket.end(AnswerEnd::Broken).unwrap();
    drop(ticket);
    stage.turn();
    let (said, is_over) = stage.heard();
    assert!(is_over && said.ends_with("\r\n\r\n3\r\none\r\n"), "{said}");
    assert_eq!(stage.ended(Outcome::BrokenOff), 1);
    stage.close_books();
}

#[test]
fn what_is_no_request_is_told_so_and_seen_out() {
    for (text, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("\u{16}\u{3}\u{1}", "400"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n",
            "413",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n201\r\n",
            "413",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n200\r\n",
            "413",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n8000000000000000\r\n",
            "413",
        ),
    ] {
        let mut stage = Stage::new(r#"{"limit_request_body": 512}"#);
        stage.say(text);
        let (said, is_over) = stage.heard();
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{text}: {said}"
        );
        assert!(
            said.contains("\r\nConnection: close\r\n") && is_over,
            "{text}: {said}"
        );
        // The server discards what the client still sends, so that it is not reset while it reads.
        stage.say(GET);
        assert_eq!(stage.doing(), Some(ConnectionState::Leaving), "{text}");
        stage.socket.shutdown(std::net::Shutdown::Both).unwrap();
        stage.turn();
        assert_eq!(stage.clients.len(), 0, "{text}");
        assert_eq!(stage.requests.common.tally.read().arrived(), 1, "{text}");
        stage.close_books();
    }
}

#[test]
fn a_body_is_asked_for_only_if_it_is_wanted() {
    for (settings, length, expected) in [
        ("{}", 3, "HTTP/1.1 100 Continue\r\n\r\n"),
        (r#"{"limit_request_body": 512}"#, 513, "HTTP/1.1 413 "),
    ] {
        let mut stage = Stage::new(settings);
        let expects = "Expect: 100-continue\r\n";
        stage.say(&format!(
            "PUT / HTTP/1.1\r\nHost: a\r\n{expects}Content-Length: {length}\r\n\r\n"
        ));
        let (said, _) = stage.heard();
        assert!(said.starts_with(expected), "{said}");
        stage.close_books();
    }
}

#[test]
fn who_leaves_is_not_answered_unless_it_may_still_listen() {
    for (half_close, stays) in [(false, false), (true, true)] {
        let mut stage = Stage::new(&format!(r#"{{"half_close": {half_close}}}"#));
        stage.say(GET);
        stage.socket.shutdown(std::net::Shutdown::Write).unwrap();
        stage.turn();
        assert_eq!(stage.doing().is_some(), stays, "{half_close}");
        assert_eq!(stage.ended(Outcome::AbandonedWaiting), u64::from(!stays));
        if stays {
            stage.answer(OK, "x");
            let (said, is_over) = stage.heard();
            assert!(said.ends_with("\r\n\r\nx") && is_over, "{said}");
            assert_eq!(stage.clients.len(), 0);
        }
        stage.close_books();
    }
    // In the middle of a body there is no request to answer, but the refusal has a reason.
    let mut stage = Stage::new("{}");
    stage.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nx");
    stage.socket.shutdown(std::net::Shutdown::Write).unwrap();
    stage.turn();
    let (said, is_over) = stage.heard();
    assert!(
        said.starts_with("HTTP/1.1 400 ") || said.is_empty(),
        "{said}"
    );
    assert!(is_over);
    stage.close_books();
}

#[test]
fn how_the_server_leaves_is_how_connections_end() {
    // (what the server does, what its client has sent by then, the answer, whether that is the last)
    for (lifecycle, sent, told, is_over) in [
        (Lifecycle::Retiring, "", "", false),
        // The client's request may be about to come.
        (Lifecycle::Draining, "", "", false),
        (Lifecycle::Draining, GET, "", false),
        (Lifecycle::Refusing, GET, "HTTP/1.1 503 ", true),
        (Lifecycle::TurningAway, GET, "HTTP/1.1 503 ", true),
    ] {
        let mut stage = Stage::new("{}");
        stage.say(sent);
        stage.requests.serving.lifecycle = lifecycle;
        if lifecycle.is_refusing() {
            let now_us = stage.requests.now_us;
            let why = stage.requests.serving.lifecycle.refusal().expect("one");
            stage.requests.dispatch.refuse_all(why, true, now_us);
        }
        if lifecycle.is_closing() {
            let (requests, poller) = (&mut stage.requests, &stage.poller);
            stage.clients.close_soon(|_| true, requests, poller);
        }
        stage.turn();
        let (heard, over) = stage.heard();
        let is_answered = heard.starts_with(told) && heard.is_empty() == told.is_empty();
        assert!(is_answered, "{lifecycle:?} {sent:?}: {heard}");
        assert_eq!(over, is_over, "{lifecycle:?} {sent:?}");
        if !is_over {
            // The present request, or one more, is answered, and that answer is the last.
            if sent.is_empty() {
                stage.say(GET);
            }
            stage.answer(OK, "x");
            let (heard, over) = stage.heard();
            assert!(
                heard.contains("\r\nConnection: close\r\n") && over,
                "{heard}"
            );
        }
        stage.close_books();
    }
}

#[test]
fn who_is_turned_away_is_told_and_asked_nothing() {
    let mut stage = Stage::new("{}");
    let (mut other, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    stage.admit(ours, true);
    stage.turn();
    other.set_nonblocking(true).unwrap();
    let mut told = Vec::new();
    other.read_to_end(&mut told).unwrap();
    assert!(told.starts_with(b"HTTP/1.1 429 "));
    assert_eq!(stage.ended(Outcome::TooManyConnections), 1);
    drop(other);
    stage.turn();
    assert_eq!(stage.clients.len(), 1);
    stage.close_books();
}

#[test]
fn of_a_long_answer_so_much_is_sent_as_the_client_takes() {
    let mut stage = Stage::new("{}");
    stage.say(GET);
    let body = "x".repeat(5 << 20);
    stage.answer(OK, &body);
    assert_eq!(stage.doing(), Some(ConnectionState::Busy));
    let mut heard = String::new();
    for _ in 0..TURNS_MAX {
        let (more, is_over) = stage.heard();
        assert!(!is_over);
        heard += &more;
        stage.turn();
        if stage.doing() == Some(ConnectionState::Idle) {
            break;
        }
    }
    heard += &stage.heard().0;
    let (_, got) = heard.split_once("\r\n\r\n").unwrap();
    assert!(got == body, "{} of {} bytes", got.len(), body.len());
    stage.close_books();
}

/// The acceptor answers probes itself, at once.
#[test]
fn a_probe_is_answered_without_a_worker() {
    let mut stage = Stage::new(r#"{"health_path": "/-"}"#);
    stage.say("GET /-/ready HTTP/1.1\r\nHost: a\r\n\r\n");
    let (said, is_over) = stage.heard();
    // No worker is there.
    assert!(said.starts_with("HTTP/1.1 503 ") && !is_over, "{said}");
    stage.close_books();
}
