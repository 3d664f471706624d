//! A panic while a seat answers: a whole server, whose host panics when it is asked to.
//!
//! Started without arguments this program tests itself, started with settings it is the server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use stanchion_server::record::{AnswerHead, RequestBuffer};
use stanchion_server::settings::Settings;
use stanchion_server::{Ending, Fork, Hook, Host, LoadError, Seat, StartedAs, Taken, Worker};
use stanchion_sys::process::{self, Between};

/// Bound of every wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

struct Panicking;

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
        taken.finish(Ending::Complete);
    }
}

fn pull(seat: &Seat<'_>) {
    while let Some(taken) = seat.wait() {
        answer(taken);
        seat.served();
    }
}

impl Host for Panicking {
    fn load(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    fn settle(&mut self) {}

    fn fork(&mut self) -> io::Result<Fork> {
        process::fork_single_threaded()
    }

    fn fork_worker(&mut self, between: Between) -> io::Result<Fork> {
        process::fork_single_threaded_for_subreaper(between)
    }

    fn serve(&mut self, worker: &'static Worker) -> Result<(), String> {
        std::thread::scope(|scope| {
            for index in 1..worker.seats() {
                scope.spawn(move || worker.work(|| pull(&worker.seat(index))));
            }
            worker.work(|| pull(&worker.seat(0)));
        });
        Ok(())
    }

    fn started_as(&self) -> StartedAs {
        StartedAs {
            command: std::env::args_os().collect(),
            directory: PathBuf::from("."),
        }
    }

    fn watched_files(&mut self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn enter(&mut self, _worker: &'static Worker) -> Result<(), String> {
        Ok(())
    }

    fn run_hook(&mut self, _hook: Hook) -> Result<(), LoadError> {
        Ok(())
    }

    fn reconfigure(&mut self) -> Result<Settings, String> {
        Err("not here".to_owned())
    }

    fn revert(&mut self) {}
}

/// A server that is killed with the test.
struct Server {
    process: Child,
    log: BufReader<ChildStderr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended there is nobody to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(threads: u16) -> Self {
        let settings = format!(r#"{{"workers": 1, "threads": {threads}, "bind": "127.0.0.1:0"}}"#);
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program)
            .arg(settings)
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let log = BufReader::new(process.stderr.take().expect("a pipe"));
        Self { process, log }
    }

    /// Reads the log up to a line with this in it, which it gives. Ends with the server.
    fn wait_for(&mut self, wanted: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).expect("a log") > 0 {
            if line.contains(wanted) {
                return line;
            }
            line.clear();
        }
        panic!("the log ended without {wanted:?}");
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
    let line = server.wait_for("listening at http://");
    let address = line.trim().rsplit("http://").next().expect("an address");
    server.wait_for("ready: 1 workers");
    let (_, worker) = get(address, "/");
    let (status, _) = get(address, "/panic");
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    server.wait_for("our fault: thread");
    server.wait_for("a seat has panicked");
    server.wait_for(&format!("worker 0 ({worker}) exited with code 1"));
    server.wait_for("worker ready worker=0");
    let (status, successor) = get(address, "/");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_ne!(successor, worker);
    let pid = i32::try_from(server.process.id()).expect("a pid");
    process::kill(pid, stanchion_sys::signal::SIGTERM).expect("told to leave");
    server.wait_for("stanchion leaves");
    assert!(server.process.wait().expect("its end").success());
}

fn main() {
    let first = std::env::args().nth(1).unwrap_or_default();
    if first.starts_with('{') {
        let settings = Settings::from_json(&first).expect("settings");
        std::process::exit(stanchion_server::serve(settings, &mut Panicking));
    }
    std::thread::spawn(|| {
        std::thread::sleep(3 * PATIENCE);
        std::process::exit(1);
    });
    for threads in [1, 3] {
        is_answered_and_replaced(threads);
    }
}
