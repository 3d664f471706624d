//! The records that a scribe gets.

use stanchion_sys::channel::{Channel, Received};

use super::*;

/// The records that a scribe gets of some requests.
fn records(settings: &serde_json::Value, tickets: &[Rc<Ticket>]) -> Vec<Vec<u8>> {
    let settings = Settings::from_json(&settings.to_string()).expect("settings");
    let tally = Arc::new(Tally::create().expect("counts"));
    let (ours, scribes) = Channel::pair_for(64 << 10).expect("a pair");
    let mut observers = Observers::open(&settings, &tally, Some(ours)).expect("opened");
    assert!(observers.wants() && observers.wants_answer_head());
    let mut head = b"HTTP/1.1 404 Not Found\r\n".to_vec();
    put_field(&mut head, b"X-Answer", b"\"yes\"");
    for ticket in tickets {
        observers.over(over(ticket, &head));
    }
    observers.finish();
    let mut lines = Vec::new();
    while let Ok(Received::Message(message)) = scribes.receive() {
        lines.extend(stanchion_log::lines_of(&message.bytes).map(<[u8]>::to_vec));
    }
    lines
}

fn record(line: &[u8]) -> serde_json::Value {
    let mut line: serde_json::Value = serde_json::from_slice(line).expect("JSON");
    line["access"].take()
}

#[test]
fn a_scribe_is_sent_all_that_there_is_to_say() {
    let log = LogPath::new();
    let mut settings = serde_json::json!({"accesslog": log.0.to_str().expect("text")});
    let tickets = [ticket(browsers(), None)];
    let [line] = &records(&settings, &tickets)[..] else {
        panic!("one line");
    };
    assert!(!log.0.exists(), "the file is the scribe's");
    let mut said = record(line);
    assert!(said["time_us"].take().as_u64() > Some(1 << 50));
    let time = said["atoms"]["t"].take();
    assert!(time.as_str().is_some_and(|time| time.starts_with('[')));
    // Each character is a byte.
    let expected = serde_json::json!({
        "time_us": null, "took_us": 1_500_043, "status": 404, "bytes": 1_234, "remote_port": 4_321, "pid": 77,
        "method": "GET", "target": "/caf%C3%A9?a=\u{c3}\u{a9}", "path": "/caf\u{c3}\u{a9}", "query": "a=\u{c3}\u{a9}",
        "protocol": "HTTP/1.1", "scheme": "http", "remote_addr": "127.0.0.1",
        "server_name": "127.0.0.1", "server_port": "8000", "reason": "Not Found",
        "fields": [
            ["Host", "shop.example"],
            ["USER-AGENT", "Mozilla/5.0 \"X\""],
            ["Referer", "http://shop.example/"],
            ["Authorization", "Basic YWRhOnNlY3JldA=="],
            ["X-Request-Id", "req-1"],
            ["Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
        ],
        "answer": [["X-Answer", "\"yes\""]],
        "atoms": {
            "h": "127.0.0.1", "p": "<77>", "{wait_us}x": "250", "{service_us}x": "1000", "{proxy_us}x": "17",
            "{lane}x": "default", "{worker}x": "3", "{client}x": "127.0.0.1", "{outcome}x": "answered",
            "{request_id}x": "req-1", "{trace_id}x": "0af7651916cd43dd8448eb211c80319c", "t": null,
            "{close_code}x": "-", "{messages_received}x": "-", "{messages_sent}x": "-",
            "{cpu_us}x": "300", "{core_us}x": "40", "{gil_us}x": "-",
            "{arrived_us}x": "1000000",
        },
    });
    assert_eq!(said, expected);

    settings["access_log_json"] = true.into();
    let said = record(&records(&settings, &tickets)[0]);
    let shown = said["line"].as_str().expect("a line");
    let shown: serde_json::Value = serde_json::from_str(shown).expect("JSON");
    assert_eq!(shown["path"], "/caf%C3%A9");
    assert_eq!(said["atoms"]["t"], serde_json::Value::Null);
}

#[test]
fn of_what_is_too_long_for_a_line_a_scribe_is_sent_the_beginnings() {
    let long = "\u{e9}".repeat(3_000);
    let target = format!("/{long}?{long}");
    let names: Vec<String> = (0..10).map(|number| format!("X-Long-{number}")).collect();
    let mut fields: Vec<(&str, &str)> = names.iter().map(|name| (&name[..], &long[..])).collect();
    fields.push(("User-Agent", &long));
    let tickets = [ticket(Head::of("GET", &target, &fields), None)];
    let lines = records(&serde_json::json!({"access_log_json": true}), &tickets);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].len() <= stanchion_log::LINE_BYTES_MAX);
    let said = record(&lines[0]);
    let kept = |text: &serde_json::Value| text.as_str().map(|text| text.chars().count());
    assert_eq!(kept(&said["target"]), Some(512));
    assert_eq!(said["fields"].as_array().map(Vec::len), Some(1));
    assert_eq!(kept(&said["fields"][0][1]), Some(512));
    assert_eq!(said["status"], 404);
}

#[test]
fn whatever_a_client_repeats_a_scribe_is_sent_a_line_that_fits() {
    for worst in ["\"", "a\t", "\u{e9}"] {
        let value = worst.repeat(512);
        let target = format!("/{}", "%01".repeat(2_000));
        let names = ["Referer", "User-Agent", "referer"];
        let mut fields = vec![("Host", "x")];
        for _ in 0..18 {
            fields.extend(names.map(|name| (name, &value[..])));
        }
        let tickets = [ticket(Head::of("GET", &target, &fields), None)];
        let lines = records(&serde_json::json!({}), &tickets);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].len() < stanchion_log::LINE_BYTES_MAX);
        let said = record(&lines[0]);
        let sent = said["fields"].as_array().expect("a list").iter();
        let sent: Vec<_> = sent.map(|field| field[0].clone()).collect();
        assert_eq!(sent, ["Host", "Referer", "User-Agent"]);
    }
}
