//! The observers together record requests that are over.

mod recording;
mod scribe;

use std::net::UdpSocket;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use stanchion_http::put_field;

use super::*;
use stanchion_dispatch::request::{Body, Peer, Request};
use stanchion_dispatch::request_id::RequestIds;
use stanchion_dispatch::rig::peer;
use stanchion_dispatch::sessions::{MessageTotals, SessionFacts};
use stanchion_dispatch::ticket::{RunTimes, SeatRun, Ticket};
use stanchion_generation::tally::{CloseCode, Outcome};

/// A log of this test alone, gone when the test is.
struct LogPath(PathBuf);

impl LogPath {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let pid = stanchion_sys::process::pid();
        let name = format!("stanchion-observers-{pid}-{number}.log");
        Self(std::env::temp_dir().join(name))
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for LogPath {
    fn drop(&mut self) {
        // A test that has failed before may have left no log.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A request that no seat has had.
fn unseated(head: Head) -> Rc<Ticket> {
    Rc::new(new_ticket(head, None))
}

fn ticket(head: Head, trace: Option<Box<Trace>>) -> Rc<Ticket> {
    let ticket = new_ticket(head, trace);
    ticket.was_run(SeatRun {
        taken_us: 1_000_250,
        done_us: 1_001_250,
        worker: Some((3, 77)),
        times: RunTimes {
            cpu_us: Some(300),
            core_us: Some(40),
            gil_us: None,
        },
    });
    Rc::new(ticket)
}

fn new_ticket(head: Head, trace: Option<Box<Trace>>) -> Ticket {
    let ids = RequestIds::new("X-Request-Id").expect("random bytes");
    let request = Request {
        websocket: None,
        takes_hints: false,
        id: Some(ids.name(&head, true)),
        head,
        body: Body::Empty,
        peer: Rc::new(Peer {
            port: 4_321,
            trusted: true,
            ..peer()
        }),
        scheme: "http",
        proxy_us: Some(17),
        request_start_us: None,
        started_us: 1_000_000,
        arrived_us: 1_000_000,
    };
    Ticket::new(request, trace, 0, &Rc::default())
}

fn over(ticket: &Rc<Ticket>, head: &[u8]) -> Over {
    Over {
        ticket: Rc::clone(ticket),
        status: 404,
        outcome: Outcome::Answered,
        head: head.to_vec(),
        bytes: 1_234,
        now_us: 2_500_043,
    }
}

fn observers(settings: &serde_json::Value) -> Observers {
    let settings = Settings::from_json(&settings.to_string()).expect("settings");
    let tally = Arc::new(Tally::create().expect("counts"));
    Observers::open(&settings, &tally, None).expect("opened")
}

/// The lines for each of some requests, by settings that need not name the log.
fn lines(mut settings: serde_json::Value, tickets: &[Rc<Ticket>]) -> Vec<String> {
    let log = LogPath::new();
    settings["accesslog"] = log.0.to_str().expect("text").into();
    let mut observers = observers(&settings);
    assert!(observers.wants());
    let mut head = b"HTTP/1.1 404 Not Found\r\n".to_vec();
    put_field(&mut head, b"X-Answer", b"\"yes\"");
    for ticket in tickets {
        observers.over(over(ticket, &head));
        observers.tell(drop);
    }
    observers.finish();
    log.lines()
}

fn browsers() -> Head {
    let fields = [
        ("Host", "shop.example"),
        ("USER-AGENT", "Mozilla/5.0 \"X\""),
        ("Referer", "http://shop.example/"),
        ("Authorization", "Basic YWRhOnNlY3JldA=="),
        ("X-Request-Id", "req-1"),
        (
            "Traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
    ];
    Head::of("GET", "/caf%C3%A9?a=\u{e9}", &fields)
}

#[test]
fn a_line_is_as_gunicorn_has_it() {
    let bare = Head::of("POST", "/", &[("Host", "x")]);
    let tickets = [ticket(browsers(), None), ticket(bare, None)];
    // The time is checked where it is made.
    let format = r#"%(h)s %(l)s %(u)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s""#;
    let settings = serde_json::json!({"access_log_format": format});
    let expected = [
        r#"127.0.0.1 - ada "GET /caf%C3%A9?a=\xc3\xa9 HTTP/1.1" 404 1234 "http://shop.example/" "Mozilla/5.0 \"X\"""#,
        r#"127.0.0.1 - - "POST / HTTP/1.1" 404 1234 "-" "-""#,
    ];
    assert_eq!(lines(settings, &tickets), expected);
    let default = lines(serde_json::json!({}), &tickets);
    let (before, after) = default[1].split_once(" [").expect("a time");
    let (_, after) = after.split_once("] ").expect("its end");
    assert_eq!(format!("{before} {after}"), expected[1]);
}

/// A request by a peer, who may have an address, with what proxies say of the client.
fn ticket_by(peer: Option<&str>, trusted: bool, said: &[(&str, &str)]) -> Rc<Ticket> {
    let mut ticket = ticket(Head::of("GET", "/", said), None);
    let alone = Rc::get_mut(&mut ticket).expect("nobody else has it");
    let by = Rc::get_mut(&mut alone.request.peer).expect("nobody else has it");
    by.ip = peer.map(|peer| peer.parse().expect("an address"));
    by.address = peer.unwrap_or_default().to_owned();
    by.trusted = trusted;
    ticket
}

#[test]
fn the_client_is_whom_believed_proxies_name() {
    let said = [("X-Forwarded-For", "198.51.100.1, 2001:db8::7, 10.0.0.1")];
    let hidden = [("X-Forwarded-For", "198.51.100.1, unknown")];
    let tickets = [
        ticket_by(Some("127.0.0.1"), true, &said),
        ticket_by(Some("192.0.2.1"), false, &said),
        ticket_by(None, true, &said),
        ticket_by(None, false, &said),
        ticket_by(None, true, &[]),
        ticket_by(None, true, &hidden),
    ];
    let settings = serde_json::json!({
        "access_log_format": "%(h)s %({client}x)s %({remote_addr}e)s",
        "forwarded_allow_ips": "127.0.0.1,10.0.0.0/8,unix",
    });
    let expected = [
        "127.0.0.1 2001:db8::7 127.0.0.1",
        "192.0.2.1 192.0.2.1 192.0.2.1",
        "2001:db8::7 2001:db8::7 ",
        "- - ",
        "- - ",
        "- - ",
    ];
    assert_eq!(lines(settings, &tickets), expected);
    let settings =
        serde_json::json!({"access_log_json": true, "forwarded_allow_ips": "10.0.0.0/8,unix"});
    let clients = lines(settings, &tickets).into_iter().map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        line["client"].as_str().map(str::to_owned)
    });
    let expected = [
        Some("2001:db8::7"),
        Some("192.0.2.1"),
        Some("2001:db8::7"),
        None,
        None,
        None,
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|client| client.map(str::to_owned))
        .collect();
    assert_eq!(clients.collect::<Vec<_>>(), expected);
}

#[test]
fn every_atom_says_what_it_stands_for() {
    let table = [
        (
            "%(m)s %(U)s ?%(q)s %(H)s",
            r"GET /caf\xc3\xa9 ?a=\xc3\xa9 HTTP/1.1",
        ),
        ("%(T)s %(M)s %(D)s %(L)s", "1 1500 1500043 1.500043"),
        ("%(p)s %(B)s", "<77> 1234"),
        ("%({host}i)s %({None}i)s", "shop.example -"),
        ("%({x-ANSWER}o)s %({none}o)s", r#"\"yes\" -"#),
        ("%({HTTP_USER_AGENT}e)s", r#"Mozilla/5.0 \"X\""#),
        (
            "%({raw_uri}e)s %({path_info}e)s",
            r"/caf%C3%A9?a=\xc3\xa9 /caf\xc3\xa9",
        ),
        ("%({stanchion.queue_wait}e)s", "0.000250"),
        ("%({remote_addr}e)s:%({remote_port}e)s", "127.0.0.1:4321"),
        ("%({server_name}e)s:%({server_port}e)s", "127.0.0.1:8000"),
        ("%({content_type}e)s %({wsgi.input}e)s", "- -"),
        (
            "%({wait_us}x)s %({service_us}x)s %({proxy_us}x)s",
            "250 1000 17",
        ),
        (
            "%({lane}x)s %({worker}x)s %({outcome}x)s",
            "default 3 answered",
        ),
        ("%({arrived_us}x)s", "1000000"),
        (
            "%({request_id}x)s %({trace_id}x)s",
            "req-1 0af7651916cd43dd8448eb211c80319c",
        ),
    ];
    let ticket = [ticket(browsers(), None)];
    for (format, expected) in table {
        let settings = serde_json::json!({"access_log_format": format});
        assert_eq!(lines(settings, &ticket), [expected], "{format}");
    }
}

#[test]
fn the_line_of_a_session_says_how_it_was() {
    let upgraded = || ticket(Head::of("GET", "/chat", &[("Host", "x")]), None);
    let (closed, cut, request) = (upgraded(), upgraded(), upgraded());
    for (ticket, code) in [(&closed, Some(4_001)), (&cut, None)] {
        let facts = SessionFacts {
            begun_us: 1_500_000,
            code,
            received: MessageTotals { count: 2, bytes: 8 },
            sent: MessageTotals { count: 3, bytes: 9 },
        };
        assert!(ticket.session.set(Box::new(facts)).is_ok());
    }
    let tickets = [closed, cut, request];
    let format = "%({close_code}x)s %({messages_received}x)s %({messages_sent}x)s";
    let settings = serde_json::json!({"access_log_format": format});
    assert_eq!(lines(settings, &tickets), ["4001 2 3", "- 2 3", "- - -"]);
    let ends = lines(serde_json::json!({"access_log_json": true}), &tickets);
    let ends = ends
        .iter()
        .map(|line| line.split_once("\"client\"").expect("a key").1);
    let expected = [
        r#":"127.0.0.1","close_code":4001,"messages_received":2,"messages_sent":3,"bytes_received":8,"cpu_us":300,"core_us":40,"gil_us":null,"arrived_us":1000000}"#,
        r#":"127.0.0.1","close_code":null,"messages_received":2,"messages_sent":3,"bytes_received":8,"cpu_us":300,"core_us":40,"gil_us":null,"arrived_us":1000000}"#,
        r#":"127.0.0.1","cpu_us":300,"core_us":40,"gil_us":null,"arrived_us":1000000}"#,
    ];
    assert_eq!(ends.collect::<Vec<_>>(), expected);
}

#[test]
fn a_line_of_json_has_every_key_in_its_place() {
    let no_query = Head::of("GET", "/a?", &[]);
    let tickets = [ticket(browsers(), None), ticket(no_query, None)];
    let written = lines(serde_json::json!({"access_log_json": true}), &tickets);
    let (time, rest) = written[0].split_once(",\"remote_addr\"").expect("keys");
    assert!(time.starts_with("{\"time\":\"2"), "{time}");
    let expected = r#":"127.0.0.1","user":"ada","method":"GET","host":"shop.example","path":"/caf%C3%A9","query":"a=é","protocol":"HTTP/1.1","status":404,"bytes":1234,"referer":"http://shop.example/","user_agent":"Mozilla/5.0 \"X\"","duration_us":1500043,"wait_us":250,"service_us":1000,"proxy_us":17,"outcome":"answered","lane":"default","worker":3,"pid":77,"request_id":"req-1","trace_id":"0af7651916cd43dd8448eb211c80319c","client":"127.0.0.1","cpu_us":300,"core_us":40,"gil_us":null,"arrived_us":1000000}"#;
    assert_eq!(rest, expected);
    let bare: serde_json::Value = serde_json::from_str(&written[1]).expect("JSON");
    assert_eq!((&bare["query"], &bare["path"]), (&"".into(), &"/a".into()));
    assert!(bare["host"].is_null() && bare["trace_id"].is_null());
}

#[test]
fn the_answers_head_is_wanted_where_a_format_has_its_fields() {
    for (format, wanted) in [("%({x}o)s", true), ("%({x}i)s", false)] {
        let log = LogPath::new();
        let path = log.0.to_str().expect("text");
        let settings = serde_json::json!({"access_log_format": format, "accesslog": path});
        let mut observers = observers(&settings);
        assert_eq!(observers.wants_answer_head(), wanted, "{format}");
        observers.finish();
    }
    let mut nobody = observers(&serde_json::json!({}));
    assert!(!nobody.wants() && !nobody.wants_answer_head());
    nobody.over(over(&ticket(browsers(), None), b""));
}

#[test]
fn requests_are_told_in_order_once_a_turn_or_when_there_are_many() {
    let log = LogPath::new();
    let settings = serde_json::json!({
        "accesslog": log.0.to_str().expect("text"),
        "access_log_format": "%(U)s",
    });
    let mut observers = observers(&settings);
    let paths: Vec<_> = (0..OVER_MAX + 3).map(|n| format!("/{n}")).collect();
    for path in &paths {
        observers.over(over(&ticket(Head::of("GET", path, &[]), None), b""));
    }
    assert_eq!(observers.over.len(), 3, "the others are told");
    let mut told = Vec::new();
    observers.tell(|ticket| told.push(ticket.request.head.path().to_vec()));
    assert_eq!(told, ["/64", "/65", "/66"].map(str::as_bytes));
    assert!(observers.over.is_empty());
    observers.finish();
    assert_eq!(log.lines(), paths);
}

#[test]
fn statsd_hears_durations_counts_and_once_a_second_gauges() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("bound");
    server.set_nonblocking(true).expect("set");
    let address = server.local_addr().expect("bound").to_string();
    let mut observers = observers(&serde_json::json!({"statsd_host": address}));
    let heard = || {
        let mut bytes = [0; 2_048];
        // A datagram that was sent over the loopback has arrived.
        let len = server.recv(&mut bytes).unwrap_or(0);
        String::from_utf8(bytes[..len].to_vec()).expect("text")
    };
    let gauges = Gauges {
        workers: 2,
        waiting: 5,
        queued: Some(9),
        loops: Some(Loops {
            sessions: Some(7),
            lag_us: 12_900,
        }),
    };
    let told_gauges = "gunicorn.workers:2|g\nstanchion.line.waiting:5|g\ngunicorn.backlog:9|h\n\
         stanchion.sessions.open:7|g\nstanchion.loop.lag_ms:12|g";
    observers.over(over(&ticket(browsers(), None), b""));
    observers.tell(drop);
    observers.tally.ended(Outcome::Answered);
    observers.tick(0, || Some(gauges));
    let expected = format!(
        "gunicorn.request.duration:1500.043|ms\nstanchion.request.wait:0.25|ms\n\
         gunicorn.requests:1|c|@1.0\ngunicorn.request.status.404:1|c|@1.0\n\
         stanchion.request.outcome.answered:1|c|@1.0\n{told_gauges}"
    );
    assert_eq!(heard(), expected);
    for tick in 1..4 {
        observers.tick(tick, || unreachable!("nobody is to gather them"));
        assert_eq!(heard(), "", "{tick}");
    }
    observers.tick(4, || Some(gauges));
    assert_eq!(heard(), told_gauges);
    observers.tally.happened(Event::SessionBegun);
    observers.tally.happened_times(Event::SessionSent, 3);
    observers.tally.happened(Event::SessionClosedByApp);
    observers.tally.ended_by(CloseCode::Private);
    observers.tick(5, || unreachable!("nobody is to gather them"));
    let sessions = "stanchion.sessions.begun:1|c|@1.0\nstanchion.sessions.closed_by_app:1|c|@1.0\n\
         stanchion.sessions.messages_sent:3|c|@1.0\nstanchion.sessions.code.4xxx:1|c|@1.0";
    assert_eq!(heard(), sessions);
    observers.finish();
}

#[test]
fn the_app_is_told_of_the_span_that_is_its_parent() {
    // The thread calls no collector as long as no request is over.
    let mut observers = observers(&serde_json::json!({"otlp_endpoint": "http://127.0.0.1:9"}));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut head = Head::of(
        "GET",
        "/",
        &[("Traceparent", parent), ("Tracestate", "a=1")],
    );
    let trace = observers.begin_trace(&mut head, 5).expect("it is traced");
    let told = String::from_utf8(head.only("traceparent").expect("one").to_vec()).expect("text");
    let run_id = format!("{:016x}", u64::from_be_bytes(trace.run_id));
    assert_eq!(told, format!("{}{run_id}-01", &parent[..36]));
    assert_eq!(head.only("tracestate"), Some(&b"a=1"[..]));
    assert_eq!(
        trace.parent_id,
        Some(0xb7ad_6b71_6920_3331_u64.to_be_bytes())
    );
    assert_eq!(trace.started_us, 5);

    let mut unsampled = Head::of(
        "GET",
        "/",
        &[("Traceparent", &parent.replace("-01", "-00"))],
    );
    let before = unsampled.clone();
    assert!(observers.begin_trace(&mut unsampled, 5).is_none());
    assert!(
        unsampled.fields().eq(before.fields()),
        "it is left as it is"
    );

    let mut orphan = Head::of("GET", "/", &[("Tracestate", "a=1")]);
    let trace = observers.begin_trace(&mut orphan, 5).expect("it is traced");
    assert_eq!((trace.parent_id, orphan.only("tracestate")), (None, None));
    observers.finish();
}
