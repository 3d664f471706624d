//! The protocol of a server, the interface of an app, and the event loop that it runs in.

use serde::Deserialize;

/// The protocol that clients, or the proxies before them, speak with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP.
    Http,
    /// The uwsgi protocol.
    Uwsgi,
}

/// The interface by which the app is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// As the app turns out to be.
    Auto,
    /// PEP 3333, in threads.
    Wsgi,
    /// ASGI 3, in an event loop.
    Asgi,
}

/// Which event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventLoop {
    /// uvloop where it is installed.
    Auto,
    /// Python's own.
    Asyncio,
    /// uvloop and no other.
    Uvloop,
    /// gevent's hub, of which each greenlet runs a WSGI app.
    Gevent,
}

/// Whether the app is called with the lifespan scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifespan {
    /// Yes, and it may refuse.
    Auto,
    /// Yes, and it must take it.
    On,
    /// No.
    Off,
}
