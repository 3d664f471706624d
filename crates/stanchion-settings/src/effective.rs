//! The settings as the server reads them: typed, checked, complete.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use stanchion_http::{ClientField, HeaderMap, ProxyVersions};

use super::choices::{LogLevel, QueueOrder, SignalStyle};
use super::interface::{EventLoop, Interface, Lifespan, Protocol};
use super::loop_seats::loop_seats;
use super::words;
use super::{
    AllowedPeers, Bind, Collector, ControlAddress, Facility, HttpsPort, Lane, OldestTls, Seconds,
    StaticDir, StaticMissing, StatsdAddress, SyslogAddress,
};

/// Of the memory limit of a control group, all clients of one acceptor have one part in so many, if no setting says otherwise.
const CLIENTS_SHARE: u64 = 4;

/// The effective value of each setting, under the setting's own name. [`super::table`] says once what each setting does; here stand the units.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // as many as operators have switches
pub struct Settings {
    /// Where to listen; at least one.
    pub bind: Vec<Bind>,
    /// Connections the kernel may hold unaccepted, as listen(2) takes it.
    pub backlog: i32,
    /// Set `SO_REUSEPORT` on TCP listeners.
    pub reuse_port: bool,
    /// Certificates by which TLS is served, each with its chain; none = no TLS.
    pub certfile: Vec<PathBuf>,
    /// Their keys, unless these are in the same files; see [`Settings::certificates`].
    pub keyfile: Vec<PathBuf>,
    /// The authorities that may issue certificates to clients.
    pub ca_certs: Option<PathBuf>,
    /// Whether clients are asked for them.
    pub cert_reqs: u8,
    /// Which cipher suites are served; `None` = all.
    pub ciphers: Option<String>,
    /// The oldest version of TLS.
    pub tls_min_version: OldestTls,
    /// Where clients in clear text are sent on to, if they are.
    pub redirect_to_https: Option<HttpsPort>,
    /// The webroot in which a client for ACME puts its challenges, if requests for them are answered here.
    pub acme_challenge_dir: Option<PathBuf>,
    /// Worker N answers alone on this port plus N; 0 = no such ports.
    pub worker_port_base: u16,
    /// Worker processes, at least 1.
    pub workers: u32,
    /// Threads in each worker of a WSGI app, at least 1.
    pub threads: u32,
    /// The interface by which the app is called, as the operator says; see [`Settings::is_event_loop`].
    pub interface: Interface,
    /// An app that is to decide that itself has turned out to be asynchronous.
    #[serde(skip)]
    pub found_asgi: bool,
    /// Requests that one event loop runs at once, at least 1; see [`Settings::seats_per_worker`].
    pub worker_concurrency: u32,
    /// How many `WebSocket`s one event loop may have open at once.
    pub worker_sessions: u32,
    /// Over how long `WebSocket`s are closed when the server leaves, or an old generation does.
    pub session_grace: Seconds,
    /// How often the client of a WebSocket is asked whether it is there; 0 = never.
    pub ws_ping_interval: Seconds,
    /// How long it may take to answer that; 0 = for ever.
    pub ws_ping_timeout: Seconds,
    /// The longest message of a client, in bytes.
    pub ws_max_size: usize,
    /// Whether messages are compressed if the client offers that.
    pub ws_per_message_deflate: bool,
    /// Which event loop runs an asynchronous app.
    #[serde(rename = "loop")]
    pub event_loop: EventLoop,
    /// Whether the worker calls an asynchronous app at its start and its end.
    pub lifespan: Lifespan,
    /// How long an event loop may not turn before its worker is named; 0 = as long as it likes.
    pub loop_timeout: Seconds,
    /// Whether the task of a request that has run into `timeout` is cancelled.
    pub cancel_on_timeout: bool,
    /// Whether a request waits in the line only when its body is whole, also if an event loop runs it.
    pub whole_uploads: bool,
    /// How long a worker may run one request; 0 = no limit.
    pub timeout: Seconds,
    /// How long a shutdown or reload may drain; 0 = not at all.
    pub graceful_timeout: Seconds,
    /// How long a connection may be idle between requests; 0 = close after each response.
    pub keepalive: Seconds,
    /// Whether hints of the app's go to clients ahead of its answers: [`Settings::sends_early_hints`].
    pub early_hints: bool,
    /// Whether asynchronous apps are offered `http.response.pathsend`.
    pub pathsend: bool,
    /// Whether a client that has shut its sending side is still served.
    pub half_close: bool,
    /// Whether an idempotent request whose worker died goes to another one, once.
    pub retry_idempotent: bool,
    /// Requests after which a worker is replaced; 0 = never.
    pub max_requests: u64,
    /// Most requests added at random to `max_requests`.
    pub max_requests_jitter: u64,
    /// How long after it was ready a worker is replaced; 0 = never.
    pub max_lifetime: Seconds,
    /// Longest time added at random to `max_lifetime`.
    pub max_lifetime_jitter: Seconds,
    /// Proportional set size in bytes past which a worker is replaced; 0 = no bound.
    pub max_memory: u64,
    /// Proportional set size in bytes past which a worker is killed; 0 = no bound.
    pub max_memory_hard: u64,
    /// Import the app in the template, not in each worker.
    pub preload_app: bool,
    /// Whether the operator has asked for that, and it is more than the default.
    #[serde(skip)]
    pub is_preload_asked_for: bool,
    /// Most requests in the line, at least 1.
    pub max_waiting: u32,
    /// Most requests of one client's address in the line; 0 = any number.
    pub max_waiting_per_client: u32,
    /// How long a request may wait in the line; 0 = no limit.
    pub queue_timeout: Seconds,
    /// Which request in the line is served first.
    pub queue_order: QueueOrder,
    /// How long the oldest may wait before an adaptive line is over its target; 0 = for ever.
    pub queue_target: Seconds,
    /// Lanes, the first that takes a request first; see [`Settings::lanes`].
    pub lane: Vec<Lane>,
    /// Longest request line in bytes; 0 = the parser's own 65534.
    pub limit_request_line: usize,
    /// Most header fields in a request; 0 = 32768.
    pub limit_request_fields: usize,
    /// Longest header field in bytes; 0 = no own limit.
    pub limit_request_field_size: usize,
    /// Largest request body in bytes; 0 = no limit.
    pub limit_request_body: u64,
    /// How long a client may take for a request's head; 0 = no limit.
    pub header_timeout: Seconds,
    /// Longest pause between two parts of a body; 0 = no limit.
    pub body_timeout: Seconds,
    /// Least bytes a second of a body, over a window; 0 = no such limit.
    pub min_body_rate: u64,
    /// How long a client may take nothing of its answer; 0 = no limit.
    pub write_timeout: Seconds,
    /// Least bytes a second that a client takes of its answer, over a window; 0 = no such limit.
    pub min_response_rate: u64,
    /// Most client connections at once, at least 1.
    pub max_connections: u32,
    /// Most of them from one client's address; 0 = no limit.
    pub max_connections_per_client: u32,
    /// Requests that a connection may bring; 0 = any number.
    pub keepalive_requests: u32,
    /// Largest request body in bytes that does not go to a spool file.
    pub body_memory: usize,
    /// Bytes of all request bodies together that do not go to spool files.
    pub max_body_memory: usize,
    /// Memory of what clients of `WebSockets` send, in bytes.
    pub max_ws_memory: usize,
    /// Bytes that all clients together may take in the acceptor; 0 = no limit.
    pub max_client_memory: usize,
    /// Whether that is the default, which a control group's limit may lower.
    #[serde(skip)]
    pub bounds_clients_by_default: bool,
    /// Bytes of a response held in memory for one slow reader.
    pub response_buffer: usize,
    /// Bytes of all responses together that are held in memory for slow readers.
    pub max_response_memory: usize,
    /// Bytes of a response held in a spool file for one slow reader; 0 = none.
    pub response_spool: u64,
    /// Bytes of all spool files together; 0 = no own limit.
    pub max_spool: u64,
    /// Where the spool directory is made; `None` = the system's temporary directory.
    pub tmp_upload_dir: Option<PathBuf>,
    /// Directories whose files are answered without a worker, the first that fits first.
    pub static_files: Vec<StaticDir>,
    /// Whether the app or the server answers where there is no such file.
    pub static_missing: StaticMissing,
    /// How long caches may keep such a file, in seconds; 0 = answers do not say.
    pub static_max_age: u32,
    /// Have files sent by the acceptor, not by the worker.
    pub sendfile: bool,
    /// Run in the background; the command line has gone there before the server sees this.
    pub daemon: bool,
    /// Keep what standard output and error of a daemon lead to, if that is no terminal.
    pub enable_stdio_inheritance: bool,
    /// The name in process titles, instead of the app's.
    pub proc_name: Option<String>,
    /// Where the master's process id is written.
    pub pidfile: Option<PathBuf>,
    /// The meanings of signals.
    pub signals: SignalStyle,
    /// Where the master takes commands; `None` = nowhere.
    pub control: Option<ControlAddress>,
    /// The listener at which the server shows its state; `None` = none.
    pub admin: Option<Bind>,
    /// Names by which clients may ask there, besides its own.
    pub admin_allowed_hosts: Vec<String>,
    /// Not ready while more than this many wait; 0 = however many.
    pub ready_waiting_max: usize,
    /// Not ready while the oldest has waited for longer; 0 = however long.
    pub ready_wait_max: Seconds,
    /// Where probes are answered on the listeners of `bind`; `None` = nowhere.
    pub health_path: Option<String>,
    /// Where spans are sent; `None` = there are none.
    pub otlp_endpoint: Option<Collector>,
    /// The service that they are of, if a setting says so.
    pub otlp_service_name: Option<String>,
    /// Of requests that come with no trace, one in so many is traced, at least 1.
    pub otlp_sample_one_in: u32,
    /// User that acceptor, template and workers become: a name, or a number as a text.
    pub user: Option<String>,
    /// Group that they become: a name, or a number as a text.
    pub group: Option<String>,
    /// Give them all groups of `user`.
    pub initgroups: bool,
    /// User that the acceptor becomes instead of `user`: a name, or a number as a text.
    pub acceptor_user: Option<String>,
    /// Set `no_new_privs` for template and workers.
    pub worker_no_new_privs: bool,
    /// Bits that the mode of a unix socket's file lacks.
    pub umask: u32,
    /// Directory to change to; the command line has done so before the server sees this.
    pub chdir: Option<PathBuf>,
    /// Directories to import from, with commas between; applied by the command line.
    pub pythonpath: Option<String>,
    /// Environment variables as `KEY=VALUE`; applied by the command line.
    pub raw_env: Vec<String>,
    /// Reload when a watched file changes.
    pub reload: bool,
    /// How to watch; every word means the same.
    pub reload_engine: String,
    /// Further files and patterns to watch; expanded by the host of the app.
    pub reload_extra_files: Vec<String>,
    /// The protocol on the listeners of `bind`.
    pub protocol: Protocol,
    /// Proxies that may speak the uwsgi protocol.
    pub uwsgi_allow_ips: AllowedPeers,
    /// Proxies whose forwarding headers count.
    pub forwarded_allow_ips: AllowedPeers,
    /// The field in which they name the client of a request.
    #[serde(deserialize_with = "words::client_field")]
    pub forwarded_header: ClientField,
    /// Which PROXY headers connections begin with; `None` = none.
    #[serde(deserialize_with = "words::proxy_versions")]
    pub proxy_protocol: Option<ProxyVersions>,
    /// Proxies that send them.
    pub proxy_allow_ips: AllowedPeers,
    /// Fields in which proxies say by which scheme the client came, and what each says for https.
    pub secure_scheme_headers: BTreeMap<String, String>,
    /// Names of fields with an underscore that count from proxies, with commas between; `*` = any.
    pub forwarder_headers: String,
    /// Where the app is mounted; empty = nowhere, or where its environment says.
    pub root_path: String,
    /// How other fields with an underscore in their names are treated.
    #[serde(deserialize_with = "words::header_map")]
    pub header_map: HeaderMap,
    /// Take methods with lower case, and of any length.
    pub permit_unconventional_http_method: bool,
    /// Make methods upper case.
    pub casefold_http_method: bool,
    /// Take versions other than 1.0 and 1.1.
    pub permit_unconventional_http_version: bool,
    /// Take values that go on in the next line.
    pub permit_obsolete_folding: bool,
    /// Take whitespace before the colon of a field.
    pub strip_header_spaces: bool,
    /// Which versions of HTTP are spoken, with commas between.
    pub http_protocols: String,
    /// Take HTTP/2 from connections without TLS that begin with it.
    #[serde(deserialize_with = "words::prior_knowledge")]
    pub http2_cleartext: bool,
    /// Most streams that a client may have open on one connection.
    pub http2_max_concurrent_streams: u32,
    /// Bytes of a body that a client may send before any were read.
    pub http2_initial_window_size: u32,
    /// Most bytes of a frame.
    pub http2_max_frame_size: u32,
    /// Most bytes of the fields of a head.
    pub http2_max_header_list_size: u32,
    /// How answers are compressed, names with commas between; empty = not at all.
    pub compress: String,
    /// The types of these answers, with commas between.
    pub compress_types: String,
    /// How long they are at least, in bytes.
    pub compress_min_size: u64,
    /// Access log: `None` = none, `-` = stdout.
    pub accesslog: Option<PathBuf>,
    /// Format of the access log in gunicorn's atoms, not parsed yet.
    pub access_log_format: String,
    /// Write lines of the access log as JSON, whatever the format says.
    pub access_log_json: bool,
    /// Error log: `-` = stderr.
    pub errorlog: PathBuf,
    /// Send what template and workers write to stdout and stderr there, if it is a file.
    pub capture_output: bool,
    /// A file of Python's `logging.config.fileConfig`, for the processes that run the app.
    pub logconfig: Option<String>,
    /// The same as a dictionary, as JSON; the host of the app has the dictionary itself.
    pub logconfig_dict: Option<String>,
    /// The same in a file, as JSON.
    pub logconfig_json: Option<String>,
    /// The class that applies it: a module and a name.
    pub logger_class: Option<String>,
    /// Least important events that are logged.
    pub loglevel: LogLevel,
    /// The field that carries a request's name; `None` = requests have none.
    pub request_id_header: Option<String>,
    /// Tell clients where the time went.
    pub server_timing: bool,
    /// Where metrics are sent; `None` = nowhere.
    pub statsd_host: Option<StatsdAddress>,
    /// The start of their names.
    pub statsd_prefix: String,
    /// The tags behind each, without `|#`.
    pub dogstatsd_tags: String,
    /// Send how many connections the kernel holds.
    pub enable_backlog_metric: bool,
    /// Send both logs to a syslog daemon as well.
    pub syslog: bool,
    /// Where it is.
    pub syslog_addr: SyslogAddress,
    /// The name of the program there, after `stanchion.`.
    pub syslog_prefix: Option<String>,
    /// The kind of program there.
    pub syslog_facility: Facility,
    /// Keep the access log from it.
    pub disable_redirect_access_to_syslog: bool,
    /// The app's specification, where it was not an argument.
    pub wsgi_app: Option<String>,
    /// The config file that was asked for.
    pub config: Option<String>,
    /// The `PasteDeploy` file that the host of the app loads it from.
    pub paste: Option<String>,
    /// Further variables that the app gets, as `KEY=VALUE`.
    pub raw_paste_global_conf: Vec<String>,
    /// Print each line that the app runs, which the host of the app does.
    pub spew: bool,
    /// Only look whether it could be served, which the command line has done before the server sees this.
    pub check_config: bool,
    /// The same, and print the settings.
    pub print_config: bool,
}

impl Settings {
    /// Lowers the default of `max_client_memory` where the control group may have no more than `limit_bytes`: two acceptors, while
    /// a reload goes on, take no more than half of it, and the rest is for workers. Returns the new limit if it is lower.
    pub fn heed_memory_limit(&mut self, limit_bytes: Option<u64>) -> Option<usize> {
        // 0 would be no limit.
        let share = usize::try_from(limit_bytes? / CLIENTS_SHARE).ok()?.max(1);
        if !self.bounds_clients_by_default || share >= self.max_client_memory {
            return None;
        }
        self.max_client_memory = share;
        Some(share)
    }

    /// The name of the server in the titles of its processes: `proc_name`, or else its app. All users of the host see titles, so the arguments of a
    /// factory, among which passwords may be, are left out.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        if let Some(name) = &self.proc_name {
            return Some(name.into());
        }
        if let Some(file) = self
            .paste
            .as_deref()
            .and_then(|file| file.split('#').next())
        {
            return Some(file.into());
        }
        let app = self.wsgi_app.as_deref()?;
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
        self.event_loop == EventLoop::Gevent
    }

    /// Whether the app is an asynchronous one. If the app is to decide that itself, it is taken for a WSGI app until an import shows otherwise.
    pub fn is_asgi(&self) -> bool {
        match self.interface {
            Interface::Auto => self.found_asgi && !self.is_gevent(),
            Interface::Wsgi => false,
            Interface::Asgi => true,
        }
    }

    /// Whether requests join the line before their bodies are whole.
    pub fn streams_uploads(&self) -> bool {
        self.is_asgi() && !self.whole_uploads
    }

    /// Whether hints go to clients ahead of answers to requests that take them. The uwsgi protocol knows of none.
    pub fn sends_early_hints(&self) -> bool {
        self.early_hints && self.protocol == Protocol::Http
    }

    /// Whether it takes the app to know by which interface that is called.
    pub fn is_guess(&self) -> bool {
        self.interface == Interface::Auto && !self.is_gevent()
    }

    /// Whether the app may be imported before workers are forked. gevent changes Python's modules before that, and each
    /// worker by itself.
    pub fn may_preload(&self) -> bool {
        self.preload_app && !self.is_gevent()
    }

    /// The same settings for an app that is taken for an asynchronous one, or not, where the app is to decide that itself. The error is one line.
    pub fn taken_for(mut self, asgi: bool) -> Result<Self, String> {
        self.found_asgi = asgi;
        let kept: usize = self.lane.iter().map(|lane| lane.seats).sum();
        if kept > 0 && kept >= self.seats() {
            return Err(format!(
                "setting `lane`: {kept} seats are kept, and there are {} for an app such as this one",
                self.seats()
            ));
        }
        Ok(self)
    }

    /// Requests that one worker runs at once: a seat for each of its threads, or for each task of its event loop.
    pub fn seats_per_worker(&self) -> usize {
        if self.is_event_loop() {
            loop_seats(self.workers.into(), self.worker_concurrency.into()) as usize
        } else {
            self.threads as usize
        }
    }

    /// Over how long sessions are closed that all are to be: in the rest of `graceful_timeout` apps end what they do.
    pub fn session_spread(&self) -> Duration {
        let half = self.graceful_timeout.duration() / 2;
        self.session_grace.duration().min(half)
    }

    /// Requests that can run at once.
    pub fn seats(&self) -> usize {
        self.workers as usize * self.seats_per_worker()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::SettingsError;

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
            assert_eq!(settings.max_client_memory, lowered.unwrap_or(GIB));
        }
    }

    /// Every field must be in the table and every setting a field: serde refuses both a missing
    /// and an unknown one.
    #[test]
    fn the_defaults_of_the_table_fill_every_field() {
        let settings = Settings::default();
        assert_eq!(settings.bind, [Bind::parse("127.0.0.1:8000").unwrap()]);
        assert_eq!(
            settings.timeout.as_duration(),
            Some(Duration::from_secs(30))
        );
        assert_eq!(settings.body_memory, 114_688);
        assert_eq!(settings.loglevel, LogLevel::Info);
        assert_eq!(settings.seats(), 1);
    }

    #[test]
    fn values_are_read_over_the_defaults() {
        let settings =
            Settings::from_json(r#"{"workers": 3, "threads": 2, "timeout": 0, "bind": "[::1]:0"}"#)
                .unwrap();
        assert_eq!(settings.seats(), 6);
        assert_eq!(settings.timeout.as_duration(), None);
        assert_eq!(settings.bind, [Bind::parse("[::1]:0").unwrap()]);
        assert_eq!(settings.max_waiting, 2048);
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
        assert_eq!(settings.event_loop, EventLoop::Uvloop);
        assert_eq!(settings.lifespan, Lifespan::Off);
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
                "setting `workers` from settings: expected a whole number >= 1, got 0",
                "setting `wrokers` from settings: there is no such setting",
            ]
        );
        assert!(matches!(
            Settings::from_json("["),
            Err(SettingsError::Json(_))
        ));
    }
}
