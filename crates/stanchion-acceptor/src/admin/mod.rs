//! The admin listener shows people, scrapers and probes how the server is. A request here never waits in the line, and the
//! acceptor gathers the answers so seldom that they cost a bounded share of its time.
//!
//! Page, JSON and metrics are made from one snapshot. The figures that only the master knows are in memory that the two
//! share (`stanchion_generation::figures`), with the counts of the generations before. So one process answers for the
//! whole server, and no count goes down at a reload. A connection to the admin listener is the same state machine as
//! any other; the loop answers its requests itself.

mod exposition;
mod history;
mod hosts;
mod line;
mod metrics;
mod snapshot;
mod status;
mod told;

use bytes::Bytes;
use stanchion_http::{Framing, Head};
use tracing::error;

use exposition::Flavour;
use history::History;
pub(crate) use history::Moment;
use hosts::AllowedHosts;
pub(crate) use snapshot::{SnapshotSources, listener_statuses};
use stanchion_dispatch::reply::Reply;
use stanchion_requests::host::host_of;
use stanchion_requests::probe::Readiness;
use stanchion_settings::Settings;
pub(crate) use status::{AcceptorMemory, ConnectionCounts, ServingState, Status};
use told::Telling;

/// `stanchion top --hosts … --serve` shows the same page of several servers.
pub const PAGE: &str = include_str!("page.html");
/// The page is complete: the browser loads nothing else, and asks no other server.
pub const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Facts at the moment of a request. Facts that are costly to gather are closures, which the acceptor calls only if the
/// answer needs them.
pub(crate) struct Facts<'f> {
    pub now_us: u64,
    pub master_pid: i32,
    pub state: ServingState,
    /// Whether balancers should send new clients here.
    pub ready: &'f dyn Fn() -> Readiness,
    /// Gathers the whole status.
    pub snapshot: &'f dyn Fn() -> Status,
}

/// Answers the requests to the admin listener.
pub(crate) struct Admin {
    /// The host names that it answers to; `None` on a unix socket, which no browser reaches.
    hosts: Option<AllowedHosts>,
    telling: Telling,
    /// `None` without an admin listener, at which a client could ask for it.
    history: Option<History>,
}

impl Admin {
    pub(crate) fn new(settings: &Settings, is_tcp: bool) -> Self {
        Self {
            hosts: is_tcp.then(|| AllowedHosts::of(settings)),
            telling: Telling::default(),
            history: settings.monitoring.admin.is_some().then(History::default),
        }
    }

    /// Takes a sample for requests that come later, if it is time.
    pub(crate) fn look(&mut self, moment: &Moment<'_>) {
        if let Some(history) = &mut self.history {
            history.look(moment);
        }
    }

    /// Answers a request. The acceptor reads no body of it.
    pub(crate) fn answer(&mut self, head: &Head, facts: &Facts<'_>) -> Reply {
        let mut reply = self.told(head, facts);
        // The client's next request is for the acceptor that has the listener now.
        let is_to_go = facts.state == ServingState::Retiring;
        reply.closes = is_to_go || head.framing() != Framing::Empty;
        reply
    }

    fn told(&mut self, head: &Head, facts: &Facts<'_>) -> Reply {
        if !matches!(head.method(), "GET" | "HEAD") {
            return text(405, "only GET and HEAD\n").with("Allow", "GET, HEAD");
        }
        // Probes give nothing away, and come by whatever name a balancer has for the server.
        match head.path() {
            b"/live" => return Readiness::live().reply(),
            b"/ready" => return (facts.ready)().reply(),
            _ => {}
        }
        if let Some(hosts) = &self.hosts
            && !host_of(head).is_ok_and(|host| hosts.allow(host))
        {
            return text(421, hosts::MISDIRECTED);
        }
        match head.path() {
            b"/" => of_type("text/html; charset=utf-8", PAGE)
                .with("Content-Security-Policy", PAGE_POLICY),
            b"/status" => of_json(self.telling.status(facts)),
            b"/line" => of_json(self.telling.line(facts)),
            b"/history" => match &self.history {
                Some(history) => of_type("application/json", history.told(head, facts)),
                None => text(404, "no history is kept\n"),
            },
            b"/metrics" => {
                let accept = head.first("accept").unwrap_or_default();
                let flavour = Flavour::accepted(&String::from_utf8_lossy(accept));
                let metrics = self.telling.metrics(facts, flavour);
                of_type(flavour.content_type(), metrics)
            }
            _ => text(
                404,
                "there are /, /status, /line, /history, /metrics, /live and /ready\n",
            ),
        }
    }
}

fn of_type(content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    Reply {
        content_type,
        ..Reply::text(200, body)
    }
    .unstored()
}

fn of_json(written: Result<Bytes, serde_json::Error>) -> Reply {
    match written {
        Ok(json) => of_type("application/json", json),
        Err(error) => {
            error!("the status cannot be written as JSON: our fault: {error}");
            text(500, "see the error log\n")
        }
    }
}

fn text(status: u16, body: impl Into<Bytes>) -> Reply {
    Reply::text(status, body).unstored()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin(is_tcp: bool) -> Admin {
        let settings = Settings::from_json(r#"{"admin": "127.0.0.1:8299"}"#).expect("settings");
        Admin::new(&settings, is_tcp)
    }

    fn answered(admin: &mut Admin, head: &Head, state: ServingState) -> Reply {
        let snapshot = || Status {
            state,
            ..Status::default()
        };
        let facts = Facts {
            now_us: 0,
            master_pid: 1,
            state,
            ready: &Readiness::live,
            snapshot: &snapshot,
        };
        admin.answer(head, &facts)
    }

    fn serving(admin: &mut Admin, head: &Head) -> Reply {
        answered(admin, head, ServingState::Serving)
    }

    fn get(target: &str, host: &str) -> Head {
        Head::of("GET", target, &[("Host", host)])
    }

    #[test]
    fn every_page_is_there_and_no_cache_keeps_it() {
        let mut admin = admin(true);
        for (target, status, content_type) in [
            ("/", 200, "text/html; charset=utf-8"),
            ("/status", 200, "application/json"),
            ("/line", 200, "application/json"),
            ("/history?since_us=1", 200, "application/json"),
            ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
            ("/live", 200, "text/plain; charset=utf-8"),
            ("/ready?x=1", 200, "text/plain; charset=utf-8"),
            ("/other", 404, "text/plain; charset=utf-8"),
        ] {
            let reply = serving(&mut admin, &get(target, "127.0.0.1"));
            assert_eq!((reply.status, reply.content_type), (status, content_type));
            let unstored = ("Cache-Control".into(), "no-store".to_owned());
            assert!(reply.fields.contains(&unstored), "{target}");
            assert!(!reply.closes && !reply.body.is_empty(), "{target}");
        }
        let accept = ("Accept", "application/openmetrics-text;version=1.0.0");
        let head = Head::of("GET", "/metrics", &[("Host", "localhost"), accept]);
        let metrics = serving(&mut admin, &head);
        assert!(metrics.body.ends_with(b"# EOF\n"));
        let policy = |reply: Reply| reply.fields.iter().any(|(_, text)| text == PAGE_POLICY);
        assert!(policy(serving(&mut admin, &get("/", "localhost"))));
    }

    #[test]
    fn nothing_can_be_changed_here() {
        let mut admin = admin(true);
        for method in ["POST", "DELETE", "OPTIONS"] {
            let reply = serving(&mut admin, &Head::of(method, "/status", &[]));
            assert_eq!(reply.status, 405, "{method}");
            let allow = ("Allow".into(), "GET, HEAD".to_owned());
            assert!(reply.fields.contains(&allow), "{method}");
        }
        let with_body = [("Host", "localhost"), ("Content-Length", "3")];
        for (method, status) in [("POST", 405), ("GET", 200)] {
            let reply = serving(&mut admin, &Head::of(method, "/live", &with_body));
            assert_eq!((reply.status, reply.closes), (status, true), "{method}");
        }
        let reply = serving(&mut admin, &Head::of("HEAD", "/status", &[]));
        assert_eq!(reply.status, 200);
    }

    #[test]
    fn a_strangers_name_hears_nothing_but_probes() {
        let mut over_tcp = admin(true);
        for (target, status) in [
            ("/", 421),
            ("/status", 421),
            ("/line", 421),
            ("/history", 421),
            ("/metrics", 421),
            ("/other", 421),
            ("/live", 200),
            ("/ready", 200),
        ] {
            let reply = serving(&mut over_tcp, &get(target, "evil.example"));
            assert_eq!(reply.status, status, "{target}");
        }
        // No browser reaches a unix socket.
        let mut over_unix = admin(false);
        let reply = serving(&mut over_unix, &get("/status", "evil.example"));
        assert_eq!(reply.status, 200);
    }

    #[test]
    fn who_asks_an_acceptor_that_retires_asks_another_one_next() {
        let mut admin = admin(true);
        for (state, closes) in [
            (ServingState::Serving, false),
            (ServingState::Retiring, true),
            (ServingState::Draining, false),
        ] {
            let reply = answered(&mut admin, &get("/live", "localhost"), state);
            assert_eq!(reply.closes, closes, "{state:?}");
        }
    }
}
