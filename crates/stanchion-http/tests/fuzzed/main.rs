//! The fuzzer's targets, with a fixed number of inputs derived from those that it has kept.

mod answer;
mod body;
mod connection;
mod forwarded;
mod http2;
#[path = "../../../../fuzz/kept.rs"]
mod kept;
mod proxy_protocol;
mod uwsgi;

use kept::try_target;

#[test]
fn answers() {
    try_target("answer", 130_000, answer::look);
}

#[test]
fn bodies() {
    try_target("body", 100_000, body::look);
}

#[test]
fn connections() {
    try_target("connection", 150_000, connection::look);
}

#[test]
fn forwarded_by_proxies() {
    try_target("forwarded", 100_000, forwarded::look);
}

#[test]
fn heads_of_http2() {
    try_target("http2", 130_000, http2::look);
}

#[test]
fn proxy_headers() {
    try_target("proxy_protocol", 60_000, proxy_protocol::look);
}

#[test]
fn packets_of_uwsgi() {
    try_target("uwsgi", 100_000, uwsgi::look);
}
