use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use stanchion_sys::clock::monotonic_us;
use stanchion_sys::process;

use super::*;

fn settings(bind: &[&str]) -> Settings {
    Settings::from_json(&serde_json::json!({ "bind": bind }).to_string()).unwrap()
}

/// A path of this test alone, removed with whatever is there.
struct Path(PathBuf);

impl Path {
    fn new() -> Self {
        let name = format!("stanchion-open-{}-{}", process::pid(), monotonic_us());
        Self(std::env::temp_dir().join(name))
    }

    fn bind(&self) -> String {
        format!("unix:{}", self.0.display())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _mostly_gone = std::fs::remove_file(&self.0);
    }
}

fn addresses(listeners: &[Listener]) -> Vec<String> {
    let shown = listeners
        .iter()
        .map(|listener| listener.address().to_string());
    shown.collect()
}

fn port(listener: &Listener) -> u16 {
    match listener.address() {
        ListenerAddress::Tcp(address) => address.port(),
        other => panic!("{other}"),
    }
}

fn failure(settings: &Settings, inherited: Vec<Listener>) -> String {
    open(settings, inherited).expect_err("it must fail")
}

#[test]
fn what_is_still_wanted_stays_and_the_rest_comes_and_goes() {
    let path = Path::new();
    let first = open(&settings(&["127.0.0.1:0", &path.bind()]), Vec::new()).unwrap();
    let chosen = port(&first[0]);
    // The same words again, in another order, and one more.
    let more = settings(&[&path.bind(), "[::1]:0", "127.0.0.1:0?backlog=7"]);
    let second = open(&more, clones(&first).unwrap()).unwrap();
    assert_eq!(port(&second[2]), chosen);
    assert_eq!(addresses(&second)[0], addresses(&first)[1]);
    // A port of 0 that became known may be named.
    let named = settings(&[&format!("127.0.0.1:{chosen}")]);
    let third = open(&named, clones(&second).unwrap()).unwrap();
    assert_eq!(addresses(&third), [format!("http://127.0.0.1:{chosen}")]);
    drop((first, second));
    TcpStream::connect(("127.0.0.1", chosen)).expect("it listens through all of that");
    assert!(path.0.exists(), "who lets go of a file decides on it");
}

#[test]
fn a_failure_leaves_everything_as_it_was() {
    let (kept, made) = (Path::new(), Path::new());
    let first = open(&settings(&[&kept.bind()]), Vec::new()).unwrap();
    let taken = Listener::tcp("127.0.0.1", 0, &SocketOptions::with_backlog(16)).unwrap();
    let in_use = format!("127.0.0.1:{}", port(&taken));
    let wanted = settings(&[&kept.bind(), &made.bind(), &in_use]);
    let problem = failure(&wanted, clones(&first).unwrap());
    assert!(
        problem.starts_with(&format!("cannot listen on {in_use}: ")),
        "{problem}"
    );
    assert!(
        problem.contains("another server listens there"),
        "{problem}"
    );
    assert!(kept.0.exists() && first[0].has_its_file());
    assert!(
        !made.0.exists(),
        "the file of a listener that came to nothing"
    );
}

#[test]
fn a_failure_says_what_to_do() {
    // TEST-NET-1, which no host has (RFC 5737).
    let foreign = failure(&settings(&["192.0.2.1:0"]), Vec::new());
    assert!(
        foreign.ends_with("(no interface of this host has that address: see `ip address`)"),
        "{foreign}"
    );
    let missing = failure(&settings(&["unix:/nowhere/of/ours/app.sock"]), Vec::new());
    assert!(
        missing.contains("(the directory /nowhere/of/ours does not exist: make it"),
        "{missing}"
    );
}

#[test]
fn a_socket_file_that_is_gone_is_made_anew() {
    let path = Path::new();
    let first = open(&settings(&[&path.bind()]), Vec::new()).unwrap();
    std::fs::remove_file(&path.0).unwrap();
    let second = open(&settings(&[&path.bind()]), clones(&first).unwrap()).unwrap();
    assert!(second[0].has_its_file());
    // The one without a file must not take the other's with it.
    remove_files(&first);
    assert!(path.0.exists());
    remove_files(&second);
    assert!(!path.0.exists());
}

#[test]
fn from_one_address_of_a_port_to_all_is_said_to_be_impossible() {
    let first = open(&settings(&["127.0.0.1:0"]), Vec::new()).unwrap();
    let all = settings(&[&format!("0.0.0.0:{}", port(&first[0]))]);
    let problem = failure(&all, clones(&first).unwrap());
    assert!(
        problem.contains("by this server, at http://127.0.0.1:"),
        "{problem}"
    );
}

#[test]
fn descriptors_are_taken_over_only_at_the_start() {
    let problem = failure(&settings(&["fd://5"]), Vec::new());
    assert!(problem.contains("only when the server starts"), "{problem}");
}

#[test]
fn an_address_in_use_is_tried_as_often_as_asked() {
    let taken = Listener::tcp("127.0.0.1", 0, &SocketOptions::with_backlog(16)).unwrap();
    let port = port(&taken);
    let held = HeldSignals::hold(&[signal::SIGQUIT]).unwrap();
    let try_with = |options: &str| {
        let settings = settings(&[&format!("127.0.0.1:{port}?{options}")]);
        opened(&settings, Vec::new(), Some(&held))
    };
    let start_us = monotonic_us();
    assert!(matches!(
        try_with("tries=3&delay=0.05"),
        Err(ListenError::Failed(_))
    ));
    assert!(
        monotonic_us() - start_us >= 100_000,
        "two pauses between three attempts"
    );
    let freed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(taken);
    });
    let listeners = try_with("tries=-1&delay=0.01").unwrap();
    freed.join().unwrap();
    assert_eq!(addresses(&listeners), [format!("http://127.0.0.1:{port}")]);
}
