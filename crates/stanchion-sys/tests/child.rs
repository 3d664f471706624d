//! Which processes are our children, by real processes. It is a program of its own, because another test might reap a
//! child of this one.

use std::io;
use std::process::{Command, Stdio};

use stanchion_sys::child::{is_ours, send_signal};
use stanchion_sys::process;
use stanchion_sys::signal::SIGKILL;

#[test]
fn only_children_of_ours_are_ours_until_they_are_reaped() {
    let mut child = Command::new("sleep").arg("60").spawn().expect("started");
    let pid = child.id().cast_signed();
    assert!(is_ours(pid));
    send_signal(pid, SIGKILL).expect("sent");
    // The child has ended or is about to: a signal to a zombie is no error.
    send_signal(pid, SIGKILL).expect("no error");
    child.wait().expect("reaped");
    assert!(!is_ours(pid));
    for nobody in [0, -1, -pid] {
        assert!(!is_ours(nobody));
        assert!(send_signal(nobody, SIGKILL).is_err());
    }
}

#[test]
fn a_stranger_is_left_alone() {
    // A child of the shell, which prints the child's number.
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 60 & echo $!; wait"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = String::new();
    let mut told = io::BufReader::new(shell.stdout.take().expect("piped"));
    io::BufRead::read_line(&mut told, &mut line).expect("told");
    let stranger: i32 = line.trim().parse().expect("a number");
    assert!(!is_ours(stranger));
    let refused = send_signal(stranger, SIGKILL).expect_err("not ours");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    assert!(process::is_alive(stranger));
    send_signal(shell.id().cast_signed(), SIGKILL).expect("ours");
    shell.wait().expect("reaped");
    process::kill(stranger, SIGKILL).expect("ended");
}
