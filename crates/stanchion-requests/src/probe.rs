//! The server answers probes: whether it lives, and whether it is ready for more.

use stanchion_http::Head;

use crate::lifecycle::Lifecycle;
use stanchion_dispatch::reply::Reply;
use stanchion_settings::Settings;

/// The answer to a probe.
pub struct Readiness(Result<(), String>);

/// The figures of the line by which the server is ready or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineLoad {
    /// How many requests wait, and how long the oldest of them has waited.
    pub waiting: usize,
    pub oldest_wait_us: u64,
    /// A worker is at its seats.
    pub has_workers: bool,
}

impl Readiness {
    /// The server lives: a client that gets an answer knows that the acceptor's loop goes round.
    pub fn live() -> Self {
        Self(Ok(()))
    }

    /// Whether the server is ready for new clients, or they are better sent elsewhere.
    pub(crate) fn ready(settings: &Settings, lifecycle: Lifecycle, load: LineLoad) -> Self {
        Self(match lifecycle {
            // The connection is from before a reload: another acceptor serves newcomers.
            Lifecycle::Retiring => Ok(()),
            Lifecycle::LameDuck | Lifecycle::Draining | Lifecycle::Refusing => {
                Err("the server is shutting down".to_owned())
            }
            Lifecycle::TurningAway => Err("the application does not start".to_owned()),
            Lifecycle::Starting | Lifecycle::Announced => Err("the server is starting".to_owned()),
            Lifecycle::Open => within_limits(settings, load),
        })
    }

    /// The answer to a request on a listener of `bind`, if it is a probe (`health_path`).
    pub(crate) fn of_probe(
        settings: &Settings,
        head: &Head,
        ready: impl FnOnce() -> Self,
    ) -> Option<Self> {
        let prefix = settings.monitoring.health_path.as_deref()?;
        if !matches!(head.method(), "GET" | "HEAD") {
            return None;
        }
        match head.path().strip_prefix(prefix.as_bytes())? {
            b"/live" => Some(Self::live()),
            b"/ready" => Some(ready()),
            _ => None,
        }
    }

    /// 200, or 503 with the reason.
    pub fn reply(self) -> Reply {
        let reply = match self.0 {
            Ok(()) => Reply::text(200, "yes\n"),
            Err(reason) => Reply::text(503, format!("no: {reason}\n")),
        };
        reply.unstored()
    }

    /// The reason why it is not ready, if it is not.
    pub fn reason(self) -> Option<String> {
        self.0.err()
    }
}

fn within_limits(settings: &Settings, load: LineLoad) -> Result<(), String> {
    let LineLoad {
        waiting,
        oldest_wait_us,
        has_workers,
    } = load;
    let waiting_max = settings.monitoring.ready_waiting_max;
    let wait_max = settings.monitoring.ready_wait_max.as_duration();
    if !has_workers {
        Err("no worker is there".to_owned())
    } else if waiting_max > 0 && waiting > waiting_max {
        Err(format!(
            "{waiting} requests wait, more than {waiting_max} (ready_waiting_max)"
        ))
    } else if wait_max.is_some_and(|most| u128::from(oldest_wait_us) > most.as_micros()) {
        let wait_s = oldest_wait_us / 1_000_000;
        Err(format!(
            "a request has waited for {wait_s} s (ready_wait_max)"
        ))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: LineLoad = LineLoad {
        waiting: 0,
        oldest_wait_us: 0,
        has_workers: true,
    };

    fn settings() -> Settings {
        let text = r#"{"ready_waiting_max": 3, "ready_wait_max": 2, "health_path": "/-"}"#;
        Settings::from_json(text).expect("settings")
    }

    fn said(lifecycle: Lifecycle, load: LineLoad) -> (u16, String) {
        let reply = Readiness::ready(&settings(), lifecycle, load).reply();
        let body = String::from_utf8(reply.body.to_vec()).expect("text");
        (reply.status, body)
    }

    #[test]
    fn an_open_server_is_ready_within_its_limits() {
        let yes = (200, "yes\n".to_owned());
        let no = |why: &str| (503, format!("no: {why}\n"));
        let at_limits = LineLoad {
            waiting: 3,
            oldest_wait_us: 2_000_000,
            ..CALM
        };
        assert_eq!(said(Lifecycle::Open, CALM), yes);
        assert_eq!(said(Lifecycle::Open, at_limits), yes);
        let many = LineLoad { waiting: 4, ..CALM };
        let expected = no("4 requests wait, more than 3 (ready_waiting_max)");
        assert_eq!(said(Lifecycle::Open, many), expected);
        let long = LineLoad {
            oldest_wait_us: 2_000_001,
            ..CALM
        };
        let expected = no("a request has waited for 2 s (ready_wait_max)");
        assert_eq!(said(Lifecycle::Open, long), expected);
        let alone = LineLoad {
            has_workers: false,
            ..CALM
        };
        assert_eq!(said(Lifecycle::Open, alone), no("no worker is there"));
        // Another acceptor has the workers then, and serves the newcomers.
        assert_eq!(said(Lifecycle::Retiring, alone), yes);
        let leaving = no("the server is shutting down");
        assert_eq!(said(Lifecycle::Draining, CALM), leaving);
        assert_eq!(said(Lifecycle::Refusing, CALM), leaving);
        assert_eq!(said(Lifecycle::Starting, CALM).0, 503);
        assert_eq!(said(Lifecycle::Announced, CALM).0, 503);
    }

    #[test]
    fn probes_are_below_health_path() {
        let settings = settings();
        let status = |method, target| {
            let head = Head::of(method, target, &[]);
            let ready = || Readiness::ready(&settings, Lifecycle::Starting, CALM);
            Readiness::of_probe(&settings, &head, ready).map(|verdict| verdict.reply().status)
        };
        assert_eq!(status("GET", "/-/live"), Some(200));
        assert_eq!(status("HEAD", "/-/ready?x=1"), Some(503));
        for (method, target) in [
            ("POST", "/-/live"),
            ("GET", "/-/livelier"),
            ("GET", "/-"),
            ("GET", "/live"),
        ] {
            assert_eq!(status(method, target), None, "{method} {target}");
        }
    }
}
