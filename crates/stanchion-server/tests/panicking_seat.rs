//! A panic while a seat answers: a whole server, whose host panics when it is asked to.

mod rig;

use std::io::{Read, Write};
use std::net::TcpStream;

use rig::{PATIENCE, Server};
use stanchion_record::{AnswerHead, RequestBuffer};
use stanchion_server::{AnswerEnd, Taken};
use stanchion_sys::process;

/// Panics if asked for `/panic`, and else answers with the pid.
fn answer(mut taken: Taken<'_>) {
    let mut buffer = RequestBuffer::default();
    let request = buffer.read(&taken).expect("a request");
    assert_ne!(request.target, b"/panic", "as it was asked to");
    let body = process::pid().to_string();
    let mut head = AnswerHead::default();
    head.begin(200, b"OK");
    head.field(b"Content-Length", body.len().to_string().as_bytes());
    let mut answer = head.whole(None).to_vec();
    answer.extend_from_slice(body.as_bytes());
    if taken.write(&answer).is_ok() {
        taken.finish(AnswerEnd::Complete);
    }
}

fn get(address: &str, target: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (
        head.lines().next().unwrap_or("").to_owned(),
        body.to_owned(),
    )
}

fn is_answered_and_replaced(threads: u16) {
    let mut server = Server::start(threads);
    let address = &server.ready();
    let (_, worker) = get(address, "/");
    let (status, _) = get(address, "/panic");
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    server.wait_for("our fault: thread");
    server.wait_for("a worker thread has panicked");
    server.wait_for(&format!("worker 0 ({worker}) exited with code 1"));
    server.wait_for("worker ready worker=0");
    let (status, successor) = get(address, "/");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_ne!(successor, worker);
    server.leave();
}

fn main() {
    rig::run(answer, || {
        for threads in [1, 3] {
            is_answered_and_replaced(threads);
        }
    });
}
