//! The servers that scripts are played on. A thread makes each of them once, since it never gives back the memory that their
//! processes share.

use std::cell::OnceCell;
use std::rc::Rc;

use super::script::{Opening, ProtocolStack};
use stanchion_dispatch::request::Peer;
use stanchion_dispatch::rig::peer;
use stanchion_dispatch::storage::disk::Disk;
use stanchion_dispatch::storage::payers::Payers;
use stanchion_generation::common::Common;
use stanchion_requests::Requests;
use stanchion_requests::rig::{common_of_seats, requests_of};
use stanchion_requests::tls::TlsService;

/// How many requests run at once, and how many sessions beside them.
const SEATS: usize = 3;
const SESSIONS: usize = 2;
/// How many connections there are at most at a time, and how many HTTP/2 streams on all of them together.
const CONNECTIONS_MAX: usize = 32;
const STREAMS_MAX: usize = 64;
/// How many jobs of helper threads may wait.
const JOBS_MAX: usize = 1_000;

/// The payers of memory, numbered from 1.
pub(super) const PAYERS_MAX: u32 = 2 * (CONNECTIONS_MAX + STREAMS_MAX) as u32;

const COMMON: &str = r#""workers": 1, "http_protocols": "h2,h1", "http2_cleartext": true, "proxy_protocol": "auto",
    "max_connections": 64, "http2_max_concurrent_streams": 20, "early_hints": true, "retry_idempotent": true"#;
const TIGHT: &str = r#", "limit_request_line": 200, "limit_request_fields": 8, "limit_request_field_size": 200,
    "limit_request_body": 200000, "body_memory": 8192, "max_body_memory": 20000, "response_buffer": 16384,
    "max_response_memory": 40000, "response_spool": 400000, "max_spool": 500000, "max_client_memory": 600000,
    "ws_max_size": 100000, "max_ws_memory": 40000, "max_waiting": 4, "max_waiting_per_client": 3,
    "keepalive_requests": 5, "half_close": true, "http2_max_header_list_size": 400, "queue_timeout": 20"#;

thread_local! {
    static COMMONS: [OnceCell<&'static Common>; 4] = const { [const { OnceCell::new() }; 4] };
    #[cfg(fuzzing)]
    static SERVER: stanchion_tls::Config = stanchion_tls::client::server(&[b"h2", b"http/1.1"]);
    #[cfg(fuzzing)]
    static CLIENTS: [stanchion_tls::client::ClientOptions; 2] =
        [b"http/1.1".as_slice(), b"h2"].map(stanchion_tls::client::options);
}

fn common(opening: Opening) -> &'static Common {
    let index = usize::from(opening.is_asgi) + 2 * usize::from(opening.is_tight);
    COMMONS.with(|commons| {
        *commons[index].get_or_init(|| {
            let interface = if opening.is_asgi {
                format!(r#""interface": "asgi", "worker_concurrency": {SEATS}, "worker_sessions": {SESSIONS}"#)
            } else {
                format!(r#""interface": "wsgi", "threads": {SEATS}"#)
            };
            let tight = if opening.is_tight { TIGHT } else { "" };
            let sessions = if opening.is_asgi { SESSIONS } else { 0 };
            let settings = format!("{{{interface}, {COMMON}{tight}}}");
            common_of_seats(&settings, SEATS, sessions)
        })
    })
}

/// The services below the connections of such a server. The caller plays their helper threads.
pub(super) fn requests(opening: Opening) -> (Requests, Disk, Rc<Payers>) {
    let payers = Payers::open(CONNECTIONS_MAX, STREAMS_MAX);
    let mut requests = requests_of(common(opening));
    let disk = Disk::without_threads(JOBS_MAX).expect("an eventfd");
    requests.storage.disk = disk.clone();
    requests.tls = tls(opening.way, &disk, &requests);
    (requests, disk, payers)
}

#[cfg(fuzzing)]
fn tls(way: ProtocolStack, disk: &Disk, requests: &Requests) -> Option<TlsService> {
    let config = SERVER.with(Clone::clone);
    way.is_tls
        .then(|| TlsService::computed_by(disk.clone(), config, &requests.wakes.clients))
}

/// Tests have no client that speaks TLS.
#[cfg(not(fuzzing))]
fn tls(_: ProtocolStack, _: &Disk, _: &Requests) -> Option<TlsService> {
    None
}

/// The peer of a connection.
pub(super) fn peer_of(way: ProtocolStack) -> Peer {
    Peer {
        scheme: if way.is_tls { "https" } else { "http" },
        speaks_tls: way.is_tls && cfg!(fuzzing),
        sends_proxy_header: way.is_proxied,
        ..peer()
    }
}

/// Calls `act` with the TLS options that the clients share.
#[cfg(fuzzing)]
pub(super) fn with_client_options<T>(
    way: ProtocolStack,
    act: impl FnOnce(&stanchion_tls::client::ClientOptions) -> T,
) -> T {
    CLIENTS.with(|clients| act(&clients[usize::from(way.is_http2)]))
}
