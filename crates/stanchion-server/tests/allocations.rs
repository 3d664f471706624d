//! How often the acceptor allocates for a request, once it is warm: from the bytes of a head to the last byte of the
//! answer. Counted, not timed. The app answers the count, once the acceptor has handed over the request and sleeps.

mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::Instant;

use rig::{PATIENCE, Server};
use stanchion_record::AnswerHead;
use stanchion_server::{AnswerEnd, Taken};
use stanchion_sys::counts::SharedCounts;
use stanchion_sys::process;

/// One for each process that there may be, by its id (proc(5), `pid_max`).
const COUNTS: usize = 4_194_304;
const WARM_UP: usize = 300;
const REQUESTS: usize = 200;
/// So many of these may cost more: the work of the acceptor four times a second, and the date of answers once.
const CLOCK_MAX: usize = REQUESTS / 4;

/// The ticket of a request, which connection and dispatch share.
const TICKET: u64 = 1;
/// The state of reading a body; where the body is kept; the list of its pieces.
const BODY: u64 = 3;

/// Counts what the first thread of each process allocates, and lets the system do it.
struct Counting;

static ALLOCATIONS: OnceLock<SharedCounts> = OnceLock::new();

thread_local! {
    /// Set in the thread that becomes the server, and so in the first of each process that it forks.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

impl Counting {
    fn count() {
        if IS_COUNTED.get()
            && let Some(counts) = ALLOCATIONS.get()
        {
            counts.add(process::pid().cast_unsigned() as usize, 1);
        }
    }
}

// SAFETY: everything is passed on as it is; what counts has no destructor and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: what the caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        Self::count();
        // SAFETY: what the caller has promised.
        unsafe { System.realloc(memory, layout, len) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: what the caller has promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The fields of /proc/PID/stat behind the name, and the name (proc(5)).
fn stat(pid: i32) -> Option<(String, Vec<String>)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (start, rest) = text.rsplit_once(") ")?;
    let name = start.split_once('(')?.1.to_owned();
    Some((name, rest.split(' ').map(str::to_owned).collect()))
}

/// In a worker: its acceptor's process.
fn acceptor() -> i32 {
    static FOUND: OnceLock<i32> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let (_, own) = stat(process::pid()).expect("this process");
        let entries = fs::read_dir("/proc").expect("proc(5)");
        let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_acceptor = |pid: &i32| {
            stat(*pid).is_some_and(|(name, fields)| name == "stanchion-acpt" && fields[1] == own[1])
        };
        pids.find(is_acceptor).expect("the master has an acceptor")
    })
}

fn answer(mut taken: Taken<'_>) {
    let acceptor = acceptor();
    let began = Instant::now();
    // Nothing tells that a process sleeps.
    while stat(acceptor).is_some_and(|(_, fields)| fields[0] != "S") {
        assert!(began.elapsed() < PATIENCE, "the acceptor does not sleep");
        std::thread::yield_now();
    }
    let counts = ALLOCATIONS.get().expect("made before the server began");
    let body = format!("{:20}", counts.get(acceptor.cast_unsigned() as usize));
    let mut head = AnswerHead::default();
    head.begin(200, b"OK");
    head.field(b"Content-Type", b"text/plain");
    head.field(b"Content-Length", body.len().to_string().as_bytes());
    let mut answer = head.whole(None).to_vec();
    answer.extend_from_slice(body.as_bytes());
    if taken.write(&answer).is_ok() {
        taken.finish(AnswerEnd::Complete);
    }
}

/// Asks, and gives how often the acceptor had allocated when the app ran.
fn ask(stream: &mut TcpStream, request: &[u8]) -> u64 {
    stream.write_all(request).expect("sent");
    let mut got = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let len = stream.read(&mut piece).expect("answered");
        assert!(len > 0, "closed after {:?}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&piece[..len]);
        let text = String::from_utf8_lossy(&got);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.len() == 20
        {
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            return body.trim().parse().expect("a count");
        }
    }
}

/// The cost of each of many such requests, in ascending order.
fn costs(address: &str, request: &[u8]) -> Vec<u64> {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    for _ in 0..WARM_UP {
        ask(&mut stream, request);
    }
    let mut before = ask(&mut stream, request);
    let mut costs: Vec<u64> = (0..REQUESTS)
        .map(|_| {
            let after = ask(&mut stream, request);
            after - std::mem::replace(&mut before, after)
        })
        .collect();
    costs.sort_unstable();
    costs
}

fn each_request_costs_as_much() {
    let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let of_a_browser = "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example.org\r\nConnection: keep-alive\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n\
         Accept-Language: en-GB,en;q=0.9\r\nReferer: https://shop.example.org/\r\nCookie: a=b; c=d\r\n\
         Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nCache-Control: no-cache\r\n\r\n";
    let with_a_body = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n{}",
        "x".repeat(1024)
    );
    let mut server = Server::start(1);
    let address = server.ready();
    for (name, request, expected) in [
        ("plain", plain.as_str(), TICKET),
        ("of a browser", of_a_browser, TICKET),
        ("with a body", with_a_body.as_str(), TICKET + BODY),
    ] {
        let costs = costs(&address, request.as_bytes());
        let usual = costs.iter().filter(|cost| **cost == expected).count();
        assert_eq!(costs[0], expected, "a request {name} costs {costs:?}");
        assert!(
            usual >= REQUESTS - CLOCK_MAX,
            "a request {name} costs {costs:?}"
        );
    }
    server.leave();
}

fn main() {
    let counts = SharedCounts::create("allocations", COUNTS).expect("memory");
    assert!(ALLOCATIONS.set(counts).is_ok());
    IS_COUNTED.set(true);
    rig::run(answer, each_request_costs_as_much);
}
