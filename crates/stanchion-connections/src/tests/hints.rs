//! Hints that go ahead of an answer.

use stanchion_exchange::{AnswerEnd, Taken};

use super::fetching::{LONG_BYTES, take, taken, write};
use super::*;
use stanchion_record::{
    AnswerHead, HINT_BYTES_MAX, HINTS_BYTES_MAX, HINTS_MAX, PREFIX_BYTES, RESPONSE_RING_BYTES,
};

const SETTINGS: &str = r#"{"early_hints": true}"#;
const HINT: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";

/// Writes hints as a worker's host does, with a value that makes each of them unique.
fn hint(taken: &mut Taken<'_>, link: &str) {
    let mut hints = AnswerHead::default();
    hints.begin(103, b"");
    hints.field(b"Link", link.as_bytes());
    taken.write(hints.whole_hints()).expect("room");
    taken.publish();
}

fn ends_with_answer(heard: &str, body: &str) -> bool {
    let answer = heard.split_once("HTTP/1.1 200 OK\r\n");
    answer.is_some_and(|(before, rest)| before.is_empty() && rest.ends_with(body))
}

#[test]
fn hints_go_out_before_the_answer_is_there() {
    let mut stage = Stage::new(SETTINGS);
    for _ in 0..3 {
        let mut taken = taken(&mut stage);
        for _ in 0..2 {
            hint(&mut taken, "</a.css>");
            stage.sweep();
            assert_eq!(stage.heard().0, HINT);
        }
        write(&mut taken, Some(4), b"body");
        taken.finish(AnswerEnd::Complete);
        stage.sweep();
        assert!(ends_with_answer(&stage.heard().0, "\r\n\r\nbody"));
    }
    assert_eq!(stage.ended(Outcome::Answered), 3);
    stage.close_books();
}

#[test]
fn those_that_come_with_an_answer_of_any_length_are_before_it() {
    for (len, is_whole) in [
        (4, true),
        (4, false),
        (LONG_BYTES, true),
        (LONG_BYTES, false),
    ] {
        let mut stage = Stage::new(SETTINGS);
        let mut taken = taken(&mut stage);
        hint(&mut taken, "</a.css>");
        hint(&mut taken, "</a.css>");
        write(&mut taken, Some(len), &vec![b'x'; len]);
        if is_whole {
            taken.finish(AnswerEnd::Complete);
            stage.sweep();
        } else {
            taken.publish();
            stage.sweep();
            taken.finish(AnswerEnd::Complete);
            stage.sweep();
        }
        let heard = stage.all();
        let answer = heard.strip_prefix(&HINT.repeat(2)).expect("both");
        assert!(
            ends_with_answer(answer, &"x".repeat(len)),
            "{len} {is_whole}"
        );
        assert_eq!(stage.ended(Outcome::Answered), 1);
        stage.close_books();
    }
}

#[test]
fn a_head_of_any_length_has_room_beside_all_hints() {
    let mut stage = Stage::new(SETTINGS);
    let mut taken = taken(&mut stage);
    let link =
        "x".repeat(HINTS_BYTES_MAX / HINTS_MAX - "HTTP/1.1 103 Early Hints\r\nLink: \r\n".len());
    for _ in 0..HINTS_MAX {
        hint(&mut taken, &link);
    }
    let mut head = AnswerHead::default();
    head.begin(200, b"OK");
    head.field(b"Content-Length", b"0");
    head.field(b"X-Long", &[b'a'; 15_000].repeat(4));
    assert!(taken.has_room(head.whole(None).len()));
    taken.write(head.whole(None)).expect("room");
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    let heard = stage.all();
    assert_eq!(heard.matches("103 Early Hints").count(), HINTS_MAX);
    assert!(
        heard.ends_with("aaa\r\nServer: stanchion\r\n\r\n"),
        "{heard}"
    );
    stage.close_books();
}

#[test]
fn a_hint_may_be_as_long_as_the_limit() {
    let mut stage = Stage::new(SETTINGS);
    let mut taken = taken(&mut stage);
    let link = "x".repeat(HINT_BYTES_MAX - "HTTP/1.1 103 Early Hints\r\nLink: \r\n".len());
    hint(&mut taken, &link);
    stage.sweep();
    assert_eq!(stage.heard().0.len(), HINT_BYTES_MAX + "\r\n".len());
    write(&mut taken, Some(4), b"body");
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    assert!(ends_with_answer(&stage.heard().0, "\r\n\r\nbody"));
    stage.close_books();
}

#[test]
fn what_no_host_would_send_is_answered_502_and_its_worker_replaced() {
    let usual = format!(
        "HTTP/1.1 103 Early Hints\r\nLink: {}\r\n",
        "x".repeat(1_000)
    );
    let many = vec![usual.as_str(); 1 + HINTS_BYTES_MAX / usual.len()];
    let short = vec!["HTTP/1.1 103 \r\na: b\r\n"; 1 + HINTS_MAX];
    let before = "HTTP/1.1 103 \r\nLink: ";
    let long = format!(
        "{before}{}\r\n",
        "x".repeat(HINT_BYTES_MAX + 1 - before.len() - 2)
    );
    let one = HINT.strip_suffix("\r\n").expect("an end");
    for (settings, version, wires) in [
        ("{}", 1, &[one][..]),
        (SETTINGS, 0, &[one]),
        (SETTINGS, 1, &["HTTP/1.1 200 OK\r\na: b\r\n"]),
        (SETTINGS, 1, &[""]),
        (SETTINGS, 1, &[&long]),
        (SETTINGS, 1, &many),
        (SETTINGS, 1, &short),
    ] {
        let mut stage = Stage::new(settings);
        stage.seat_worker();
        stage.say(&format!("GET / HTTP/1.{version}\r\nHost: a\r\n\r\n"));
        let mut taken = take(&stage);
        for wire in wires {
            // The content may be anything; only the length is right.
            let mut prefix = [0; PREFIX_BYTES];
            prefix[..4].copy_from_slice(&(wire.len() as u32).to_le_bytes());
            prefix[4] = 2;
            taken.write(&prefix).expect("room");
            taken.write(wire.as_bytes()).expect("room");
        }
        taken.publish();
        stage.sweep();
        let heard = stage.heard().0;
        let answer = heard
            .find(" 502 Bad Gateway")
            .unwrap_or_else(|| panic!("{wires:?} {heard}"));
        // Earlier hints may be out, or go out with the answer.
        assert!(
            heard[..answer].matches("HTTP/1.").count() <= wires.len(),
            "{heard}"
        );
        assert_eq!(stage.ended(Outcome::NoAnswer), 1, "{wires:?}");
        drop(taken);
        stage.close_books();
    }
}

#[test]
fn hints_that_are_cut_are_no_answer() {
    let mut hints = AnswerHead::default();
    hints.begin(103, b"");
    hints.field(b"Link", b"</a.css>");
    let whole = hints.whole_hints().to_vec();
    let mut longer = whole.clone();
    longer[0] += 1;
    for written in [&whole[..whole.len() - 1], &longer] {
        let mut stage = Stage::new(SETTINGS);
        let mut taken = taken(&mut stage);
        taken.write(written).expect("room");
        taken.publish();
        stage.sweep();
        assert!(stage.heard().0.starts_with("HTTP/1.1 502 "));
        drop(taken);
        stage.close_books();
    }
}

#[test]
fn a_worker_that_dies_after_hints_is_answered_for() {
    let mut stage = Stage::new(SETTINGS);
    let mut taken = taken(&mut stage);
    hint(&mut taken, "</a.css>");
    let now_us = stage.requests.now_us;
    stage.requests.dispatch.worker_gone(WORKER, now_us);
    stage.turn();
    let heard = stage.heard().0;
    assert!(
        heard.starts_with(&format!("{HINT}HTTP/1.1 502 ")),
        "{heard}"
    );
    stage.close_books();
}

#[test]
fn a_request_is_run_again_after_hints_and_has_all_of_them_again() {
    let mut stage = Stage::new(r#"{"early_hints": true, "retry_idempotent": true}"#);
    let mut first = taken(&mut stage);
    for _ in 0..HINTS_MAX {
        hint(&mut first, "</a.css>");
    }
    let now_us = stage.requests.now_us;
    stage.requests.dispatch.worker_gone(WORKER, now_us);
    std::mem::forget(first);
    stage.turn();
    assert_eq!(stage.heard().0, HINT.repeat(HINTS_MAX));
    stage.seat_worker();
    let mut second = take(&stage);
    for _ in 0..HINTS_MAX {
        hint(&mut second, "</a.css>");
    }
    write(&mut second, Some(2), b"ok");
    second.finish(AnswerEnd::Complete);
    stage.sweep();
    let heard = stage.heard().0;
    let answer = heard
        .strip_prefix(&HINT.repeat(HINTS_MAX))
        .expect("all again");
    assert!(ends_with_answer(answer, "\r\n\r\nok"));
    stage.close_books();
}

#[test]
fn hints_are_not_kept_for_a_client_that_does_not_read() {
    let mut stage = Stage::new(SETTINGS);
    stage.shrink_send_buffer();
    let mut taken = taken(&mut stage);
    let ticket = stage.ticket();
    let link = "x".repeat(1_000);
    let whole = format!("HTTP/1.1 103 Early Hints\r\nLink: {link}\r\n\r\n");
    let sent = HINTS_BYTES_MAX / whole.len();
    for _ in 0..sent {
        hint(&mut taken, &link);
        stage.sweep();
    }
    let kept = ticket
        .hints(|hints| hints.unsent().len())
        .expect("some came");
    assert!(kept < whole.len() * sent, "{kept}");
    write(&mut taken, Some(LONG_BYTES), &vec![b'x'; LONG_BYTES]);
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    let heard = stage.all();
    let (hints, answer) = heard.split_once("HTTP/1.1 200 OK\r\n").expect("an answer");
    let came = hints.len() / whole.len();
    assert_eq!(hints, whole.repeat(came), "each that came is whole");
    assert!((1..sent).contains(&came), "{came}");
    assert!(answer.ends_with(&"x".repeat(LONG_BYTES)));
    stage.close_books();
}

#[test]
fn a_long_stream_after_hints_is_whole() {
    let mut stage = Stage::new(SETTINGS);
    let mut taken = taken(&mut stage);
    hint(&mut taken, "</a.css>");
    stage.sweep();
    let piece = vec![b'x'; RESPONSE_RING_BYTES - 1_000];
    write(&mut taken, None, &piece);
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    let heard = stage.all();
    assert!(heard.starts_with(&format!("{HINT}{OK}")));
    assert_eq!(heard.matches('x').count(), piece.len());
    stage.close_books();
}

#[test]
fn a_body_may_look_like_hints() {
    let mut stage = Stage::new(SETTINGS);
    let mut taken = taken(&mut stage);
    hint(&mut taken, "</a.css>");
    write(&mut taken, None, b"x");
    taken.publish();
    stage.sweep();
    hint(&mut taken, "</in-the-body>");
    stage.sweep();
    taken.finish(AnswerEnd::Complete);
    stage.sweep();
    let heard = stage.all();
    let (head, body) = heard.split_once(OK).expect("an answer");
    assert_eq!(
        (head, body.contains("Link: </in-the-body>\r\n\r\n")),
        (HINT, true)
    );
    assert_eq!(stage.ended(Outcome::Answered), 1);
    stage.close_books();
}

#[test]
fn hints_that_come_while_the_acceptor_looks_are_no_head() {
    let mut stage = Stage::new(SETTINGS);
    for pause in (0..500).step_by(4) {
        let mut taken = taken(&mut stage);
        let worker = std::thread::spawn(move || {
            for _ in 0..HINTS_MAX {
                hint(&mut taken, "</a.css>");
                (0..10 * pause).for_each(|_| std::hint::spin_loop());
            }
            taken
        });
        while !worker.is_finished() {
            stage.sweep();
        }
        let mut taken = worker.join().expect("it hints");
        write(&mut taken, Some(4), b"body");
        taken.finish(AnswerEnd::Complete);
        stage.sweep();
        let heard = stage.all();
        let answer = heard.strip_prefix(&HINT.repeat(HINTS_MAX)).expect("all");
        assert!(ends_with_answer(answer, "\r\n\r\nbody"));
    }
    stage.close_books();
}
