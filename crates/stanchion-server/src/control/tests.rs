//! The control socket with real clients at its other end; time is an argument here too.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stanchion_sys::channel::poll_readable;

use super::*;

/// No answer of these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(10);
const STATUS: &str = "{\"command\":\"status\"}\n";
const RELOAD: &str = "{\"command\":\"reload\"}\n";
/// The start of the reply to a client that has done wrong, which gets no other.
const REFUSED: &str = "{\"ok\":false,\"message\":\"";

struct Desk {
    control: Control,
    now_ms: u64,
}

impl Desk {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("stanchion-desk-{}-{number}.ctl", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(name);
        Self {
            control: Control::open(&path).expect("opened"),
            now_ms: 1_000,
        }
    }

    fn client(&self) -> UnixStream {
        let client = UnixStream::connect(self.control.listener.path()).expect("connected");
        client.set_read_timeout(Some(PATIENCE)).expect("set");
        client
    }

    fn asking(&self, text: &str) -> UnixStream {
        let mut client = self.client();
        client.write_all(text.as_bytes()).expect("sent");
        client
    }

    fn gather(&mut self) -> Vec<(ClientId, CtlRequest)> {
        self.control.gather(self.now_ms)
    }

    fn after(&mut self, ms: u64) -> Vec<(ClientId, CtlRequest)> {
        self.now_ms += ms;
        self.gather()
    }

    /// Whether there is anything to wake up for.
    fn has_news(&self) -> bool {
        let ready = poll_readable(&self.control.fds(), Duration::ZERO).expect("polled");
        ready.contains(&true)
    }
}

/// One byte at a time, so that nothing of the next line is taken.
fn line(mut client: &UnixStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        client.read_exact(&mut byte).expect("a line");
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}

fn rest(mut client: &UnixStream) -> String {
    let mut rest = String::new();
    client.read_to_string(&mut rest).expect("the rest");
    rest
}

#[test]
fn one_connection_carries_request_after_request() {
    let mut desk = Desk::new();
    let mut client = desk.asking(STATUS);
    assert!(desk.has_news());
    assert_eq!(desk.gather(), [(1, CtlRequest::Status)]);
    desk.control.reply(1, &CtlReply::done("fine"));
    assert_eq!(
        line(&client),
        "{\"ok\":true,\"message\":\"fine\",\"data\":null}\n"
    );
    client.write_all(RELOAD.as_bytes()).expect("sent");
    assert!(desk.has_news());
    assert_eq!(desk.gather(), [(1, CtlRequest::Reload)]);
    desk.control.reply(1, &CtlReply::refused("broken"));
    assert!(line(&client).starts_with("{\"ok\":false,\"message\":\"broken\""));
}

#[test]
fn who_waits_is_answered_later_and_meanwhile_wakes_nobody() {
    let mut desk = Desk::new();
    let slow = desk.asking(RELOAD);
    assert_eq!(desk.gather(), [(1, CtlRequest::Reload)]);
    assert!(!desk.has_news() && desk.control.next_deadline_ms().is_none());
    let quick = desk.asking(STATUS);
    assert_eq!(desk.after(3_600_000), [(2, CtlRequest::Status)]);
    desk.control.reply(2, &CtlReply::done("quick"));
    desk.control.reply(1, &CtlReply::done("slow"));
    assert!(line(&quick).contains("quick"));
    assert!(line(&slow).contains("slow"));
}

#[test]
fn requests_sent_at_once_are_taken_one_by_one() {
    let mut desk = Desk::new();
    let client = desk.asking(&format!("{RELOAD}{STATUS}"));
    assert_eq!(desk.gather(), [(1, CtlRequest::Reload)]);
    assert_eq!(desk.gather(), []);
    desk.control.reply(1, &CtlReply::done("first"));
    assert_eq!(
        desk.control.next_deadline_ms(),
        Some(0),
        "it is here already"
    );
    assert_eq!(desk.gather(), [(1, CtlRequest::Status)]);
    desk.control.reply(1, &CtlReply::done("second"));
    assert!(line(&client).contains("first"));
    assert!(line(&client).contains("second"));
}

#[test]
fn a_request_may_come_in_pieces() {
    let mut desk = Desk::new();
    let mut client = desk.asking(&STATUS[..5]);
    assert_eq!(desk.gather(), []);
    client.write_all(&STATUS.as_bytes()[5..]).expect("sent");
    assert_eq!(desk.gather(), [(1, CtlRequest::Status)]);
}

#[test]
fn nonsense_gets_one_line_and_no_second_chance() {
    for (text, reason) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "that is no request"),
        ("\n", "that is no request"),
        (&"x".repeat(5_000), "over the limit of 4096 bytes"),
    ] {
        let mut desk = Desk::new();
        let client = desk.asking(text);
        assert_eq!(desk.gather(), [], "{text}");
        let told = line(&client);
        assert!(told.starts_with(REFUSED) && told.contains(reason), "{told}");
        assert!(desk.control.clients.is_empty());
    }
}

#[test]
fn who_says_no_more_is_still_answered() {
    let mut desk = Desk::new();
    let client = desk.asking(RELOAD);
    client.shutdown(Shutdown::Write).expect("shut");
    assert_eq!(desk.gather(), [(1, CtlRequest::Reload)]);
    assert_eq!(desk.after(60_000), []);
    desk.control.reply(1, &CtlReply::done("done"));
    assert!(line(&client).contains("done"));
    assert_eq!(desk.gather(), []);
    assert!(rest(&client).is_empty());
    assert!(desk.control.clients.is_empty());
}

#[test]
fn half_a_request_is_none() {
    let mut desk = Desk::new();
    let client = desk.asking("{\"command\"");
    client.shutdown(Shutdown::Write).expect("shut");
    assert_eq!(desk.gather(), []);
    assert_eq!(desk.gather(), []);
    assert!(rest(&client).contains("without an end of line"));
}

#[test]
fn who_has_gone_is_forgotten_whatever_it_waited_for() {
    let mut desk = Desk::new();
    let (waiting, silent) = (desk.asking(RELOAD), desk.client());
    assert_eq!(desk.gather(), [(1, CtlRequest::Reload)]);
    assert_eq!(desk.control.clients.len(), 2);
    drop((waiting, silent));
    assert_eq!(desk.gather(), []);
    assert!(desk.control.clients.is_empty());
    desk.control.reply(1, &CtlReply::done("to nobody"));
}

#[test]
fn who_asks_for_nothing_has_to_leave() {
    let mut desk = Desk::new();
    let client = desk.asking("{");
    assert_eq!(desk.gather(), []);
    let due_ms = desk.control.next_deadline_ms().expect("a deadline");
    assert_eq!(due_ms, desk.now_ms + 5_000);
    assert_eq!(desk.after(4_999), []);
    assert_eq!(desk.control.clients.len(), 1);
    assert_eq!(desk.after(1), []);
    assert!(rest(&client).contains("no whole request has come within 5000 ms"));
    assert!(desk.control.clients.is_empty());
}

/// Longer than the kernel keeps for one socket.
fn long_reply(len: usize) -> CtlReply {
    CtlReply::done("x".repeat(len))
}

#[test]
fn a_long_reply_goes_out_as_the_client_reads() {
    let mut desk = Desk::new();
    let client = desk.asking(STATUS);
    client.shutdown(Shutdown::Write).expect("shut");
    desk.gather();
    let reply = long_reply(3_000_000);
    desk.control.reply(1, &reply);
    assert!(desk.control.fds().len() == 1, "only the listener");
    let due_ms = desk.control.next_deadline_ms();
    assert_eq!(due_ms, Some(desk.now_ms + 10));
    let reader = std::thread::spawn(move || rest(&client));
    while !desk.control.clients.is_empty() {
        assert_eq!(desk.gather(), []);
        std::thread::yield_now();
    }
    assert_eq!(reader.join().expect("read").as_bytes(), reply.line());
}

#[test]
fn who_does_not_read_is_dropped() {
    let mut desk = Desk::new();
    let client = desk.asking(STATUS);
    desk.gather();
    desk.control.reply(1, &long_reply(3_000_000));
    assert_eq!(desk.after(4_999), []);
    assert_eq!(desk.control.clients.len(), 1);
    assert_eq!(desk.after(1), []);
    assert!(desk.control.clients.is_empty());
    drop(client);
}

#[test]
fn the_seventeenth_is_told_so() {
    let mut desk = Desk::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS_MAX {
        clients.push(desk.asking(RELOAD));
        assert_eq!(desk.gather().len(), 1);
    }
    let late = desk.asking(STATUS);
    assert_eq!(desk.gather(), []);
    assert!(line(&late).contains("16 clients"));
    // A client that has gone makes room, though its request has not been carried out.
    clients.pop();
    let next = desk.asking(STATUS);
    assert_eq!(desk.gather().len(), 1);
    drop(next);
}

#[test]
fn stacks_are_kept_until_the_reply_and_are_bounded() {
    let mut desk = Desk::new();
    let client = desk.asking("{\"command\":\"dump\"}\n");
    client.shutdown(Shutdown::Write).expect("shut");
    desk.gather();
    for number in 0..3 {
        let stacks = WorkerStacks {
            number,
            pid: 7,
            generation: 1,
            stacks: "x".repeat(1_200_000),
        };
        desk.control.add_stacks(1, stacks);
    }
    desk.control.reply(1, &CtlReply::done("3 workers"));
    let reader = std::thread::spawn(move || rest(&client));
    while !desk.control.clients.is_empty() {
        desk.gather();
        std::thread::yield_now();
    }
    let told = reader.join().expect("read");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let stacks = told["data"].as_array().expect("a list");
    let lens: Vec<_> = stacks
        .iter()
        .map(|one| one["stacks"].as_str().map(str::len))
        .collect();
    assert_eq!(lens[..2], [Some(1_200_000); 2]);
    assert!(
        stacks[2]["stacks"]
            .as_str()
            .expect("text")
            .starts_with("(left out")
    );
}

#[test]
fn root_and_the_server_s_own_user_may_command() {
    for (uid, user, may) in [
        (0, 0, true),
        (0, 33, true),
        (33, 33, true),
        (34, 33, false),
        (33, 0, false),
        // A user of a user namespace that ours does not know (user_namespaces(7)).
        (65_534, 33, false),
    ] {
        assert_eq!(may_command(uid, user), may, "{uid} {user}");
    }
}

#[test]
fn somebody_else_is_told_why_not() {
    let mut desk = Desk::new();
    let client = desk.asking(STATUS);
    let (socket, peer) = desk
        .control
        .listener
        .accept()
        .expect("asked")
        .expect("came");
    let stranger = PeerCredentials {
        uid: peer.uid.wrapping_add(1).max(1),
        ..peer
    };
    let mut requests = Vec::new();
    desk.control.welcome(socket, stranger, &mut requests);
    assert!(requests.is_empty() && desk.control.clients.is_empty());
    assert!(line(&client).contains("may not command this server"));
}

#[test]
fn the_file_goes_with_its_master_and_a_successor_keeps_its_own() {
    let desk = Desk::new();
    let path = desk.control.listener.path().to_owned();
    let mut heir = Control::take_over(&path).expect("taken over");
    drop(desk);
    let mut client = UnixStream::connect(&path).expect("the heir listens");
    client.write_all(STATUS.as_bytes()).expect("sent");
    assert_eq!(heir.gather(1), [(1, CtlRequest::Status)]);
    drop(heir);
    assert!(!path.exists());
}
