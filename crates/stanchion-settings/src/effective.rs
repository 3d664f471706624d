//! Facts that follow from several settings together.

use std::borrow::Cow;
use std::time::Duration;

use super::checks::SEATS_MAX;
use super::loop_seats::loop_seats;
use super::worker_count::WorkerCount;
use super::{EventLoop, Interface, Protocol, Settings};

/// Of the memory limit of a control group, all clients of one acceptor have one part in so many, if no setting says otherwise.
const CLIENTS_SHARE: u64 = 4;
/// With `workers` auto there are seats for so many workers a core: as many keep it busy with requests that compute for an eighth of their time at
/// least, and seats that are not used cost little. docs/workers-and-threads.md has the figures.
const AUTO_PER_CORE: u32 = 10;

impl Settings {
    /// Lowers the default of `max_client_memory` where the control group may have no more than `limit_bytes`: two acceptors, while
    /// a reload goes on, take no more than half of it, and the rest is for workers. Returns the new limit if it is lower.
    pub fn heed_memory_limit(&mut self, limit_bytes: Option<u64>) -> Option<usize> {
        // 0 would be no limit.
        let share = usize::try_from(limit_bytes? / CLIENTS_SHARE).ok()?.max(1);
        if !self.facts.bounds_clients_by_default || share >= self.buffers.max_client_memory {
            return None;
        }
        self.buffers.max_client_memory = share;
        Some(share)
    }

    /// Has the number of workers follow from the cores, if it is to: an event loop for each core, or between a worker with threads for each and
    /// [`AUTO_PER_CORE`] times as many, as far as there may be seats.
    pub fn heed_cores(&mut self, cores: u32) {
        if !self.workers.workers.is_auto {
            return;
        }
        let (each, per_core) = if self.is_event_loop() {
            (1, 1)
        } else {
            (u64::from(self.workers.threads), AUTO_PER_CORE)
        };
        let seated = u32::try_from(SEATS_MAX / each.max(1)).unwrap_or(u32::MAX);
        let seated = seated.max(1);
        let cores = cores.clamp(1, seated);
        self.workers.workers = WorkerCount::auto(cores, cores.saturating_mul(per_core).min(seated));
    }

    /// The name of the server in the titles of its processes: `proc_name`, or else its app. All users of the host see titles, so the arguments of a
    /// factory, among which passwords may be, are left out.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        if let Some(name) = &self.app.proc_name {
            return Some(name.into());
        }
        if let Some(file) = self
            .app
            .paste
            .as_deref()
            .and_then(|file| file.split('#').next())
        {
            return Some(file.into());
        }
        let app = self.app.wsgi_app.as_deref()?;
        Some(match app.split_once('(') {
            Some((factory, _)) => format!("{factory}()").into(),
            None => app.into(),
        })
    }

    /// Whether workers run an event loop: of an asynchronous app, or gevent's.
    pub fn is_event_loop(&self) -> bool {
        self.is_gevent() || self.is_asgi()
    }

    /// Whether workers run gevent's event loop, which is for WSGI apps.
    pub fn is_gevent(&self) -> bool {
        self.event_loop.event_loop == EventLoop::Gevent
    }

    /// Whether the app is an asynchronous one. If the app is to decide that itself, it is taken for a WSGI app until an import shows otherwise.
    pub fn is_asgi(&self) -> bool {
        match self.event_loop.interface {
            Interface::Auto => self.facts.found_asgi && !self.is_gevent(),
            Interface::Wsgi => false,
            Interface::Asgi => true,
        }
    }

    /// Whether requests join the line before their bodies are whole.
    pub fn streams_uploads(&self) -> bool {
        self.is_asgi() && !self.event_loop.whole_uploads
    }

    /// Whether hints go to clients ahead of answers to requests that take them. The uwsgi protocol knows of none.
    pub fn sends_early_hints(&self) -> bool {
        self.answers.early_hints && self.proxies.protocol == Protocol::Http
    }

    /// Whether it takes the app to know by which interface that is called.
    pub fn is_guess(&self) -> bool {
        self.event_loop.interface == Interface::Auto && !self.is_gevent()
    }

    /// Whether the app may be imported before workers are forked. gevent changes Python's modules before that, and each
    /// worker by itself.
    pub fn may_preload(&self) -> bool {
        self.workers.preload_app && !self.is_gevent()
    }

    /// Why no worker can become the template, if none can.
    pub fn without_refork(&self) -> Option<&'static str> {
        if self.is_gevent() {
            return Some("with gevent each worker imports the app, and shares no memory of it");
        }
        if self.is_event_loop() {
            return Some("an event loop, with its connections, does not survive a fork");
        }
        (!self.workers.preload_app).then_some(
            "without preload_app each worker imports the app, and shares no memory of it",
        )
    }

    /// Why the number of workers cannot be a range, if it is one.
    pub(super) fn cannot_be_elastic(&self) -> Option<&'static str> {
        let count = self.workers.workers;
        let is_refused = count.is_elastic() && !count.is_auto && self.is_event_loop();
        is_refused.then_some(
            "a range is for workers with threads. An event loop is seldom out of seats, so no line shows how many are needed: give one number",
        )
    }

    /// The same settings for an app that is taken for an asynchronous one, or not, where the app is to decide that itself. The error is one line.
    pub fn taken_for(mut self, asgi: bool) -> Result<Self, String> {
        self.facts.found_asgi = asgi;
        if let Some(reason) = self.cannot_be_elastic() {
            return Err(format!("setting `workers`: {reason}"));
        }
        if self.workers.refork_after > 0
            && let Some(reason) = self.without_refork()
        {
            return Err(format!("setting `refork_after`: {reason}"));
        }
        if let Some(kept) = self.reserves_too_many() {
            return Err(format!(
                "setting `lane`: {kept} seats are kept, and there are {} for an app such as this one",
                self.seats_min()
            ));
        }
        Ok(self)
    }

    /// Requests that one worker runs at once: a seat for each of its threads, or for each task of its event loop.
    pub fn seats_per_worker(&self) -> usize {
        if self.is_event_loop() {
            loop_seats(
                self.workers.workers.max.into(),
                self.event_loop.worker_concurrency.into(),
            ) as usize
        } else {
            self.workers.threads as usize
        }
    }

    /// Over how long sessions are closed that all are to be: in the rest of `graceful_timeout` apps end what they do.
    pub fn session_spread(&self) -> Duration {
        let half = self.workers.graceful_timeout.duration() / 2;
        self.event_loop.session_grace.duration().min(half)
    }

    /// Requests that can run at once, with the most workers.
    pub fn seats(&self) -> usize {
        self.workers.workers.max as usize * self.seats_per_worker()
    }

    /// Requests that can run at once, with the fewest workers.
    pub(super) fn seats_min(&self) -> usize {
        self.workers.workers.min as usize * self.seats_per_worker()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Bind, Lifespan, LogLevel, SettingsError};

    #[test]
    fn a_control_group_lowers_only_the_default_memory_of_clients() {
        const GIB: usize = 1 << 30;
        for (set, limit_bytes, lowered) in [
            ("{}", None, None),
            ("{}", Some(8 << 30), None),
            ("{}", Some(512 << 20), Some(128 << 20)),
            (r#"{"max_client_memory": "1G"}"#, Some(512 << 20), None),
        ] {
            let mut settings = Settings::from_json(set).unwrap();
            assert_eq!(settings.heed_memory_limit(limit_bytes), lowered);
            assert_eq!(settings.buffers.max_client_memory, lowered.unwrap_or(GIB));
        }
    }

    #[test]
    fn the_defaults_of_the_table_fill_every_field() {
        let settings = Settings::default();
        assert_eq!(
            settings.listen.bind,
            [Bind::parse("127.0.0.1:8000").unwrap()]
        );
        assert_eq!(
            settings.workers.timeout.as_duration(),
            Some(Duration::from_secs(30))
        );
        assert_eq!(settings.buffers.body_memory, 114_688);
        assert_eq!(settings.log.loglevel, LogLevel::Info);
        assert_eq!(settings.seats(), 1);
    }

    #[test]
    fn values_are_read_over_the_defaults() {
        let settings =
            Settings::from_json(r#"{"workers": 3, "threads": 2, "timeout": 0, "bind": "[::1]:0"}"#)
                .unwrap();
        assert_eq!(settings.seats(), 6);
        assert_eq!(settings.workers.timeout.as_duration(), None);
        assert_eq!(settings.listen.bind, [Bind::parse("[::1]:0").unwrap()]);
        assert_eq!(settings.line.max_waiting, 2048);
    }

    #[test]
    fn an_event_loop_has_seats_for_tasks_and_no_more_than_can_be_named() {
        let settings = |text| Settings::from_json(text).unwrap();
        let seats = |text| settings(text).seats_per_worker();
        assert_eq!(seats(r#"{"threads": 3, "worker_concurrency": 9}"#), 3);
        assert_eq!(
            seats(r#"{"threads": 3, "worker_concurrency": 9, "interface": "wsgi"}"#),
            3
        );
        assert_eq!(
            seats(r#"{"threads": 3, "worker_concurrency": 9, "interface": "asgi"}"#),
            9
        );
        assert_eq!(seats(r#"{"interface": "asgi"}"#), 1000);
        assert_eq!(seats(r#"{"interface": "asgi", "workers": 57}"#), 1000);
        assert_eq!(seats(r#"{"interface": "asgi", "workers": 58}"#), 992);
        assert_eq!(seats(r#"{"interface": "asgi", "workers": 4096}"#), 15);
        assert_eq!(
            seats(r#"{"interface": "asgi", "worker_concurrency": 4000000000}"#),
            7281
        );
        let settings =
            settings(r#"{"interface": "ASGI", "loop": "uvloop", "lifespan": "off", "workers": 2}"#);
        assert!(settings.is_event_loop());
        assert_eq!(settings.seats(), 2000);
        assert_eq!(settings.event_loop.event_loop, EventLoop::Uvloop);
        assert_eq!(settings.event_loop.lifespan, Lifespan::Off);
    }

    #[test]
    fn gevent_is_an_event_loop_for_wsgi_apps_which_are_not_preloaded() {
        let settings = |text| Settings::from_json(text).unwrap();
        for text in [
            r#"{"loop": "gevent"}"#,
            r#"{"loop": "gevent", "interface": "wsgi"}"#,
        ] {
            let found = settings(text).taken_for(true).unwrap();
            assert!(
                found.is_event_loop() && found.is_gevent() && !found.is_asgi(),
                "{text}"
            );
            assert!(!found.is_guess() && !found.may_preload(), "{text}");
            assert_eq!(found.seats_per_worker(), 1000);
        }
        assert!(!settings("{}").is_event_loop() && settings("{}").is_guess());
        assert!(settings("{}").may_preload());
        assert!(!settings(r#"{"preload_app": false}"#).may_preload());
        assert!(!settings(r#"{"interface": "asgi"}"#).is_guess());
    }

    #[test]
    fn a_range_of_workers_is_for_threads_and_counts_with_its_most() {
        let settings = |text| Settings::from_json(text).unwrap();
        let range = settings(r#"{"workers": "2..8", "threads": 3}"#);
        assert!(range.workers.workers.is_elastic() && !settings("{}").workers.workers.is_elastic());
        assert_eq!((range.seats(), range.seats_min()), (24, 6));
        assert_eq!(range.beside_one_worker(), crate::BesideOneWorker::Template);
        assert!(range.clone().taken_for(false).is_ok());
        let refused = range.taken_for(true).unwrap_err();
        assert!(
            refused.starts_with("setting `workers`: a range is for"),
            "{refused}"
        );
        let reforks = settings(r#"{"workers": 2, "refork_after": 9}"#);
        assert!(reforks.clone().taken_for(false).is_ok());
        let refused = reforks.taken_for(true).unwrap_err();
        assert!(
            refused.starts_with("setting `refork_after`: an event loop"),
            "{refused}"
        );
        for (text, reason) in [
            (
                r#"{"workers": "2..8", "interface": "asgi"}"#,
                "a range is for workers with threads",
            ),
            (
                r#"{"workers": "2..8", "loop": "gevent"}"#,
                "a range is for workers with threads",
            ),
            (
                r#"{"workers": "2..8", "workers_keep": 0.5}"#,
                "expected at least 1, got 0.5",
            ),
            (
                r#"{"workers": "2..4097"}"#,
                "expected workers times threads <= 4096, got 2..4097 times 1",
            ),
            (
                r#"{"workers": "2..8", "lane": ["a=/a seats=2"]}"#,
                "expected fewer reserved seats than the 2",
            ),
            (
                r#"{"workers": "2..8", "worker_port_base": 65529}"#,
                "expected a port for each of 8 workers",
            ),
        ] {
            let error = Settings::from_json(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn lanes_must_leave_a_seat_to_the_others_whatever_the_app_turns_out_to_be() {
        let settings = |threads: u32| {
            let lane = r#"["a=/a seats=3"]"#;
            let text =
                format!(r#"{{"threads": {threads}, "worker_concurrency": 3, "lane": {lane}}}"#);
            Settings::from_json(&text).unwrap()
        };
        let refused = settings(4).taken_for(true).unwrap_err();
        assert!(
            refused.contains("3 seats are kept, and there are 3"),
            "{refused}"
        );
        let taken = settings(4).taken_for(false).unwrap();
        assert_eq!((taken.is_event_loop(), taken.seats()), (false, 4));
        let taken = Settings::default().taken_for(true).unwrap();
        assert_eq!((taken.is_event_loop(), taken.seats()), (true, 1000));
    }

    #[test]
    fn auto_is_as_many_workers_as_the_cores_are_good_for() {
        for (text, cores, range) in [
            (r#"{"workers": "auto"}"#, 2, (2, 20)),
            (r#"{"workers": "auto", "threads": 8}"#, 64, (64, 512)),
            (r#"{"workers": "auto", "threads": 4096}"#, 64, (1, 1)),
            (r#"{"workers": "auto"}"#, 0, (1, 10)),
            (r#"{"workers": "auto", "interface": "asgi"}"#, 8, (8, 8)),
            (r#"{"workers": 3}"#, 8, (3, 3)),
        ] {
            let mut settings = Settings::from_json(text).unwrap();
            settings.heed_cores(cores);
            let count = settings.workers.workers;
            assert_eq!((count.min, count.max), range, "{text}");
        }
        let mut found = Settings::from_json(r#"{"workers": "auto"}"#).unwrap();
        found.heed_cores(2);
        assert!(found.workers.workers.is_elastic());
        let mut found = found.taken_for(true).expect("a loop for each core");
        found.heed_cores(2);
        assert_eq!(found.seats(), 2000);
    }

    #[test]
    fn a_server_is_called_as_it_is_told_or_by_its_app() {
        let name = |text| {
            let settings = Settings::from_json(text).unwrap();
            settings.name().map(Cow::into_owned)
        };
        assert_eq!(name("{}"), None);
        assert_eq!(
            name(r#"{"wsgi_app": "shop:make('s3cret')"}"#).as_deref(),
            Some("shop:make()")
        );
        assert_eq!(
            name(r#"{"wsgi_app": "shop:app", "proc_name": "x"}"#).as_deref(),
            Some("x")
        );
    }

    #[test]
    fn what_the_table_refuses_never_becomes_settings() {
        let error = Settings::from_json(r#"{"workers": 0, "wrokers": 2}"#).unwrap_err();
        let SettingsError::Invalid(lines) = error else {
            panic!("{error}")
        };
        assert_eq!(
            lines,
            [
                "setting `workers` from settings: expected a whole number >= 1, two such as 2..8, or auto, got 0",
                "setting `wrokers` from settings: there is no such setting",
            ]
        );
        assert!(matches!(
            Settings::from_json("["),
            Err(SettingsError::Json(_))
        ));
    }
}
