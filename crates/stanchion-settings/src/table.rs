//! The table that defines every setting.
//!
//! A row is the name, the type and the default, and what else holds for the setting: [`super::row`] has the words. Files in `help/` say to people
//! what the setting does, and in which order they read about it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use stanchion_http::{ClientField, HeaderMap, ProxyVersions};

use super::define::settings;
use super::kind::{between, from, zero_or_from};
use super::row::{
    Row, Setting, account, bytes, int, list, map, octal, optional, seconds, size, switch, text,
    text_or_none, word, worker_count,
};
use super::text::{
    assignment, codings, content_types, field_name, field_names, file_name, host_name,
    metric_prefix, metric_tags, mount_point, path_prefix, protocols, scheme_field, variable,
};
use super::values::Values;
use super::words::{
    EventLoop, Http2Cleartext, Interface, Lifespan, LoadReporting, LogLevel, OldestTls, Protocol,
    QueueOrder, ReloadEngine, SignalStyle, StaticMissing,
};
use super::{
    AllowedPeers, Bind, Collector, ControlAddress, Facility, HttpsPort, Lane, Seconds, StaticDir,
    StatsdAddress, SyslogAddress, WarmUp, WorkerCount,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const U32_MAX: u64 = u32::MAX as u64;

/// No worker fits into less.
const WORKER_BYTES_MIN: u64 = MIB;
/// Each session costs a few hundred bytes of the acceptor's, used or not.
const SESSIONS_MAX: u64 = 100_000;
/// Lengths in the exchange have 32 bits.
const WS_SIZE_MAX: u64 = GIB;
/// The longest URI that the parser takes (`http::Uri`).
const REQUEST_LINE_BYTES_MAX: u64 = 65_534;
/// Most header fields of a request, as in gunicorn.
const REQUEST_FIELDS_MAX: u64 = 32_768;
/// RFC 9113 section 6.9.1.
const WINDOW_BYTES_MAX: u64 = (1 << 31) - 1;
/// RFC 9113 section 6.5.2.
const FRAME_BYTES_MIN: u64 = 1 << 14;
const FRAME_BYTES_MAX: u64 = (1 << 24) - 1;
/// Far more than a head may have, of which RFC 9113 section 6.5.2 counts 32 bytes more for each field.
const HEADER_LIST_BYTES_MAX: u64 = 1 << 20;
const STREAMS_MAX: u64 = 1 << 16;
/// A gibibyte: an operator who wants nothing compressed says so.
const SIZE_MAX: u64 = GIB;
/// A year, the longest max-age that is sent (RFC 9111 section 1.2.2 knows no limit; more means nothing).
const MAX_AGE_S_MAX: u64 = 31_536_000;
/// Bits that the mode of a socket file lacks by default: 0660 is left, so that owner and group may connect.
pub const UMASK: u32 = 0o117;
const THIS_HOST: &str = "127.0.0.1,::1,unix";
const SCHEME_FIELDS: &[(&str, &str)] = &[
    ("X-FORWARDED-PROTOCOL", "ssl"),
    ("X-FORWARDED-PROTO", "https"),
    ("X-FORWARDED-SSL", "on"),
];
const COMPRESSED_TYPES: &str = "text/*, *+json, *+xml, application/json, application/javascript, application/xml, application/wasm, \
                                application/x-ndjson";
const ACCESS_LOG_FORMAT: &str = r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s""#;

settings! {
    /// The sockets that clients connect to.
    listen: Listening {
        /// Where to listen; at least one.
        bind: Vec<Bind> = list(&["127.0.0.1:8000"]).at_least_one().or_map(Bind::text_of_map).flags("-b --bind ADDRESS")
            .env("PORT", "0.0.0.0:{}").of_gunicorn();
        /// Connections the kernel may hold unaccepted, as listen(2) takes it.
        backlog: i32 = int(2048, between(1, i32::MAX as u64)).flags("--backlog N").of_gunicorn();
        /// Set `SO_REUSEPORT` on TCP listeners.
        reuse_port: bool = switch(false).flags("--reuse-port").of_gunicorn();
        /// Worker N answers alone on this port plus N; 0 = no such ports.
        worker_port_base: u16 = int(0, between(0, u16::MAX as u64)).flags("--worker-port-base PORT");
    }

    /// TLS on these sockets.
    tls: TlsSettings {
        /// Certificates by which TLS is served, each with its chain; none = no TLS.
        certfile: Vec<PathBuf> = list(&[]).flags("--certfile FILE").of_gunicorn();
        /// Their keys, unless these are in the same files; see [`Settings::certificates`].
        keyfile: Vec<PathBuf> = list(&[]).flags("--keyfile FILE").of_gunicorn();
        /// The authorities that may issue certificates to clients.
        ca_certs: Option<PathBuf> = optional().flags("--ca-certs FILE").of_gunicorn();
        /// Whether clients are asked for them.
        cert_reqs: u8 = int(0, between(0, 2)).flags("--cert-reqs N").of_gunicorn();
        /// Which cipher suites are served; `None` = all.
        ciphers: Option<String> = optional().flags("--ciphers NAMES").of_gunicorn();
        /// The oldest version of TLS.
        tls_min_version: OldestTls = word("1.2").flags("--tls-min-version VERSION");
        /// Where clients in clear text are sent on to, if they are.
        redirect_to_https: Option<HttpsPort> = optional().flags("--redirect-to-https PORT");
        /// The webroot in which a client for ACME puts its challenges, if requests for them are answered here.
        acme_challenge_dir: Option<PathBuf> = optional().flags("--acme-challenge-dir DIR");
    }

    /// The processes that run the app, and when one is replaced or killed.
    workers: WorkerSettings {
        /// Worker processes, at least 1, or the fewest and the most.
        workers: WorkerCount = worker_count(1).flags("-w --workers N").env("WEB_CONCURRENCY", "{}").of_gunicorn();
        /// How long a worker beyond the fewest stays after it was last needed; at least a second.
        workers_keep: Seconds = seconds(60).flags("--workers-keep SECONDS");
        /// Threads in each worker of a WSGI app, at least 1.
        threads: u32 = int(1, from(1)).flags("--threads N").of_gunicorn();
        /// How long a worker may run one request; 0 = no limit.
        timeout: Seconds = seconds(30).flags("-t --timeout SECONDS").of_gunicorn();
        /// How long a shutdown or reload may drain; 0 = not at all.
        graceful_timeout: Seconds = seconds(30).flags("--graceful-timeout SECONDS").of_gunicorn();
        /// How long the server goes on accepting after an order to leave; 0 = not at all.
        drain_delay: Seconds = seconds(0).flags("--drain-delay SECONDS");
        /// Whether an idempotent request whose worker died goes to another one, once.
        retry_idempotent: bool = switch(false).flags("--retry-idempotent");
        /// Requests after which a worker is replaced; 0 = never.
        max_requests: u64 = int(0, from(0)).flags("--max-requests N").of_gunicorn();
        /// Most requests added at random to `max_requests`.
        max_requests_jitter: u64 = int(0, from(0)).flags("--max-requests-jitter N").of_gunicorn();
        /// How long after it was ready a worker is replaced; 0 = never.
        max_lifetime: Seconds = seconds(0).flags("--max-lifetime SECONDS");
        /// Longest time added at random to `max_lifetime`.
        max_lifetime_jitter: Seconds = seconds(0).flags("--max-lifetime-jitter SECONDS");
        /// Proportional set size in bytes past which a worker is replaced; 0 = no bound.
        max_memory: u64 = bytes(0, zero_or_from(WORKER_BYTES_MIN)).flags("--max-memory SIZE");
        /// Proportional set size in bytes past which a worker is killed; 0 = no bound.
        max_memory_hard: u64 = bytes(0, zero_or_from(WORKER_BYTES_MIN)).flags("--max-memory-hard SIZE");
        /// Import the app in the template, not in each worker.
        preload_app: bool = switch(true).flags("--preload --no-preload").of_gunicorn();
        /// Requests that the app answers there before workers are forked.
        warm_up: WarmUp = text("").flags("--warm-up PATHS");
        /// Requests after which a worker becomes the template, once; 0 = never.
        refork_after: u64 = int(0, from(0)).flags("--refork-after N");
    }

    /// Event loops, and the asynchronous apps and `WebSocket`s that they run.
    event_loop: EventLoopSettings {
        /// The interface by which the app is called, as the operator says; see [`Settings::is_event_loop`].
        interface: Interface = word("auto").flags("--interface NAME");
        /// Requests that one event loop runs at once, at least 1; see [`Settings::seats_per_worker`].
        worker_concurrency: u32 = int(1000, between(1, U32_MAX)).flags("--worker-concurrency N");
        /// How many `WebSocket`s one event loop may have open at once.
        worker_sessions: u32 = int(1000, between(1, SESSIONS_MAX)).flags("--worker-sessions N");
        /// Over how long `WebSocket`s are closed when the server leaves, or an old generation does.
        session_grace: Seconds = seconds(10).flags("--session-grace SECONDS");
        /// How often the client of a WebSocket is asked whether it is there; 0 = never.
        ws_ping_interval: Seconds = seconds(20).flags("--ws-ping-interval SECONDS");
        /// How long it may take to answer that; 0 = for ever.
        ws_ping_timeout: Seconds = seconds(20).flags("--ws-ping-timeout SECONDS");
        /// The longest message of a client, in bytes.
        ws_max_size: usize = bytes(16 * MIB, between(1, WS_SIZE_MAX)).flags("--ws-max-size SIZE");
        /// Whether messages are compressed if the client offers that.
        ws_per_message_deflate: bool = switch(false).flags("--ws-per-message-deflate");
        /// Memory of what clients of `WebSockets` send, in bytes.
        max_ws_memory: usize = size(256 * MIB).flags("--max-ws-memory SIZE");
        /// Which event loop runs an asynchronous app.
        event_loop: EventLoop = word("auto").named("loop").flags("--loop NAME");
        /// How long an event loop may not turn before its worker is named; 0 = as long as it likes.
        loop_timeout: Seconds = seconds(5).flags("--loop-timeout SECONDS");
        /// Whether the task of a request that has run into `timeout` is cancelled.
        cancel_on_timeout: bool = switch(false).flags("--cancel-on-timeout");
        /// Whether a request waits in the line only when its body is whole, also if an event loop runs it.
        whole_uploads: bool = switch(false).flags("--whole-uploads");
        /// Whether the worker calls an asynchronous app at its start and its end.
        lifespan: Lifespan = word("auto").flags("--lifespan MODE");
    }

    /// The line, in which requests wait.
    line: LineSettings {
        /// Most requests in the line, at least 1.
        max_waiting: u32 = int(2048, between(1, U32_MAX)).flags("--max-waiting N");
        /// Most requests of one client's address in the line; 0 = any number.
        max_waiting_per_client: u32 = int(0, between(0, U32_MAX)).flags("--max-waiting-per-client N");
        /// How long a request may wait in the line; 0 = no limit.
        queue_timeout: Seconds = seconds(60).flags("--queue-timeout SECONDS");
        /// Which request in the line is served first.
        queue_order: QueueOrder = word("fifo").flags("--queue-order ORDER");
        /// How long the oldest may wait before an adaptive line is over its target; 0 = for ever.
        queue_target: Seconds = seconds(1).flags("--queue-target SECONDS");
        /// Lanes, the first that takes a request first; see [`Settings::lanes`].
        lane: Vec<Lane> = list(&[]).flags("--lane LANE");
    }

    /// How much a client may ask of the server.
    limits: ClientLimits {
        /// Longest request line in bytes; 0 = the parser's own 65534.
        limit_request_line: usize = bytes(4094, between(0, REQUEST_LINE_BYTES_MAX)).flags("--limit-request-line SIZE").of_gunicorn();
        /// Most header fields in a request; 0 = 32768.
        limit_request_fields: usize = int(100, between(0, REQUEST_FIELDS_MAX)).flags("--limit-request-fields N").of_gunicorn();
        /// Longest header field in bytes; 0 = no own limit.
        limit_request_field_size: usize = bytes(8190, from(0)).flags("--limit-request-field-size --limit-request-field_size SIZE").of_gunicorn();
        /// Largest request body in bytes; 0 = no limit.
        limit_request_body: u64 = size(GIB).flags("--limit-request-body --max-body SIZE");
        /// How long a client may take for a request's head; 0 = no limit.
        header_timeout: Seconds = seconds(30).flags("--header-timeout SECONDS");
        /// Longest pause between two parts of a body; 0 = no limit.
        body_timeout: Seconds = seconds(60).flags("--body-timeout SECONDS");
        /// Least bytes a second of a body, over a window; 0 = no such limit.
        min_body_rate: u64 = bytes(240, from(0)).flags("--min-body-rate SIZE");
        /// How long a client may take nothing of its answer; 0 = no limit.
        write_timeout: Seconds = seconds(60).flags("--write-timeout SECONDS");
        /// Least bytes a second that a client takes of its answer, over a window; 0 = no such limit.
        min_response_rate: u64 = bytes(240, from(0)).flags("--min-response-rate SIZE");
        /// Most client connections at once, at least 1.
        max_connections: u32 = int(16_384, between(1, U32_MAX)).flags("--max-connections N");
        /// Most of them from one client's address; 0 = no limit.
        max_connections_per_client: u32 = int(1_024, between(0, U32_MAX)).flags("--max-connections-per-client N");
        /// Requests that a connection may bring; 0 = any number.
        keepalive_requests: u32 = int(0, between(0, U32_MAX)).flags("--keepalive-requests N");
    }

    /// Memory and files for bodies and answers.
    buffers: BufferSettings {
        /// Largest request body in bytes that does not go to a spool file.
        body_memory: usize = bytes(112 * KIB, between(0, MIB)).flags("--body-memory SIZE");
        /// Bytes of all request bodies together that do not go to spool files.
        max_body_memory: usize = size(64 * MIB).flags("--max-body-memory SIZE");
        /// Bytes that all clients together may take in the acceptor; 0 = no limit.
        max_client_memory: usize = size(1024 * MIB).flags("--max-client-memory SIZE");
        /// Bytes of a response held in memory for one slow reader.
        response_buffer: usize = size(MIB).flags("--response-buffer SIZE");
        /// Bytes of all responses together that are held in memory for slow readers.
        max_response_memory: usize = size(256 * MIB).flags("--max-response-memory SIZE");
        /// Bytes of a response held in a spool file for one slow reader; 0 = none.
        response_spool: u64 = size(GIB).flags("--response-spool SIZE");
        /// Bytes of all spool files together; 0 = no own limit.
        max_spool: u64 = size(4 * GIB).flags("--max-spool SIZE");
        /// Where the spool directory is made; `None` = the system's temporary directory.
        tmp_upload_dir: Option<PathBuf> = optional().flags("--tmp-upload-dir DIR").of_gunicorn();
    }

    /// The server as a process: its users, files and signals.
    process: ProcessSettings {
        /// Run in the background; the command line has gone there before the server sees this.
        daemon: bool = switch(false).flags("-D --daemon").of_gunicorn().stays();
        /// Keep what standard output and error of a daemon lead to, if that is no terminal.
        enable_stdio_inheritance: bool = switch(false).flags("-R --enable-stdio-inheritance").of_gunicorn().stays();
        /// Where the master's process id is written.
        pidfile: Option<PathBuf> = optional().flags("-p --pid FILE").of_gunicorn().stays();
        /// The meanings of signals.
        signals: SignalStyle = word("gunicorn").flags("--signals WHOSE").stays();
        /// Where the master takes commands; `None` = nowhere.
        control: Option<ControlAddress> = optional().flags("--control ADDRESS").stays();
        /// User that acceptor, template and workers become: a name, or a number as a text.
        user: Option<String> = account().flags("-u --user USER").of_gunicorn();
        /// Group that they become: a name, or a number as a text.
        group: Option<String> = account().flags("-g --group GROUP").of_gunicorn();
        /// Give them all groups of `user`.
        initgroups: bool = switch(false).flags("--initgroups").of_gunicorn();
        /// User that the acceptor becomes instead of `user`: a name, or a number as a text.
        acceptor_user: Option<String> = account().flags("--acceptor-user USER");
        /// Set `no_new_privs` for template and workers.
        worker_no_new_privs: bool = switch(false).flags("--worker-no-new-privs");
        /// Bits that the mode of a unix socket's file lacks.
        umask: u32 = octal(UMASK as u64, between(0, 0o777)).flags("-m --umask MASK").of_gunicorn().stays();
    }

    /// The proxies in front: which are believed, and the protocol that they speak.
    proxies: ProxySettings {
        /// Proxies whose forwarding headers count.
        forwarded_allow_ips: AllowedPeers = text(THIS_HOST).flags("--forwarded-allow-ips LIST").env("FORWARDED_ALLOW_IPS", "{}").of_gunicorn();
        /// The field in which they name the client of a request.
        forwarded_header: ClientField = word("x-forwarded-for").flags("--forwarded-header HEADER");
        /// Which PROXY headers connections begin with; `None` = none.
        proxy_protocol: Option<ProxyVersions> = word("off").flags("--proxy-protocol VERSION").of_gunicorn();
        /// Proxies that send them.
        proxy_allow_ips: AllowedPeers = text(THIS_HOST).flags("--proxy-allow-from LIST").of_gunicorn();
        /// The protocol on the listeners of `bind`.
        protocol: Protocol = word("http").flags("--protocol NAME").of_gunicorn();
        /// Proxies that may speak the uwsgi protocol.
        uwsgi_allow_ips: AllowedPeers = text(THIS_HOST).flags("--uwsgi-allow-from LIST").of_gunicorn();
        /// Fields in which proxies say by which scheme the client came, and what each says for https.
        secure_scheme_headers: BTreeMap<String, String> = map(SCHEME_FIELDS, scheme_field).of_gunicorn();
        /// Names of fields with an underscore that count from proxies, with commas between; `*` = any.
        forwarder_headers: String = text("SCRIPT_NAME,PATH_INFO").checked(field_names).flags("--forwarder-headers NAMES").of_gunicorn();
    }

    /// How HTTP is spoken.
    http: HttpSettings {
        /// How long a connection may be idle between requests; 0 = close after each response.
        keepalive: Seconds = seconds(2).flags("--keep-alive SECONDS").of_gunicorn();
        /// Whether a client that has shut its sending side is still served.
        half_close: bool = switch(false).flags("--half-close");
        /// How other fields with an underscore in their names are treated.
        header_map: HeaderMap = word("drop").flags("--header-map HOW").of_gunicorn();
        /// Take methods with lower case, and of any length.
        permit_unconventional_http_method: bool = switch(false).flags("--permit-unconventional-http-method").of_gunicorn();
        /// Make methods upper case.
        casefold_http_method: bool = switch(false).flags("--casefold-http-method").of_gunicorn();
        /// Take versions other than 1.0 and 1.1.
        permit_unconventional_http_version: bool = switch(false).flags("--permit-unconventional-http-version").of_gunicorn();
        /// Take values that go on in the next line.
        permit_obsolete_folding: bool = switch(false).flags("--permit-obsolete-folding").of_gunicorn();
        /// Take whitespace before the colon of a field.
        strip_header_spaces: bool = switch(false).flags("--strip-header-spaces").of_gunicorn();
        /// Which versions of HTTP are spoken, with commas between.
        http_protocols: String = text("h1").checked(protocols).flags("--http-protocols LIST").of_gunicorn();
        /// How HTTP/2 begins on connections without TLS.
        http2_cleartext: Http2Cleartext = word("off").flags("--http2-cleartext HOW").of_gunicorn();
        /// Most streams that a client may have open on one connection.
        http2_max_concurrent_streams: u32 = int(100, between(1, STREAMS_MAX)).flags("--http2-max-concurrent-streams COUNT").of_gunicorn();
        /// Bytes of a body that a client may send before any were read.
        http2_initial_window_size: u32 = bytes(65_535, between(1, WINDOW_BYTES_MAX)).flags("--http2-initial-window-size BYTES").of_gunicorn();
        /// Most bytes of a frame.
        http2_max_frame_size: u32 = bytes(16_384, between(FRAME_BYTES_MIN, FRAME_BYTES_MAX)).flags("--http2-max-frame-size SIZE").of_gunicorn();
        /// Most bytes of the fields of a head.
        http2_max_header_list_size: u32 = bytes(65_536, between(1, HEADER_LIST_BYTES_MAX)).flags("--http2-max-header-list-size BYTES").of_gunicorn();
        /// The field that carries a request's name; `None` = requests have none.
        request_id_header: Option<String> = text_or_none("X-Request-Id").checked(field_name).flags("--request-id-header NAME");
    }

    /// How answers are sent: files, compression, hints.
    answers: AnswerSettings {
        /// Whether hints of the app's go to clients ahead of its answers: [`Settings::sends_early_hints`].
        early_hints: bool = switch(false).flags("--early-hints");
        /// Whether asynchronous apps are offered `http.response.pathsend`.
        pathsend: bool = switch(false).flags("--pathsend");
        /// Have files sent by the acceptor, not by the worker.
        sendfile: bool = switch(true).flags("--sendfile --no-sendfile").of_gunicorn();
        /// Directories whose files are answered without a worker, the first that fits first.
        static_files: Vec<StaticDir> = list(&[]).flags("--static PATH=DIR");
        /// Whether the app or the server answers where there is no such file.
        static_missing: StaticMissing = word("app").flags("--static-missing WHO");
        /// How long caches may keep such a file, in seconds; 0 = answers do not say.
        static_max_age: u32 = int(0, between(0, MAX_AGE_S_MAX)).flags("--static-max-age SECONDS");
        /// How answers are compressed, names with commas between; empty = not at all.
        compress: String = text("").checked(codings).flags("--compress LIST");
        /// The types of these answers, with commas between.
        compress_types: String = text(COMPRESSED_TYPES).checked(content_types).flags("--compress-types LIST");
        /// How long they are at least, in bytes.
        compress_min_size: u64 = bytes(1024, between(0, SIZE_MAX)).flags("--compress-min-size BYTES");
        /// Tell clients where the time went.
        server_timing: bool = switch(false).flags("--server-timing");
        /// Tell trusted proxies how busy the server is.
        load_report: LoadReporting = word("none").flags("--load-report FORMAT");
    }

    /// The access log and the error log.
    log: LogSettings {
        /// Access log: `None` = none, `-` = stdout.
        accesslog: Option<PathBuf> = optional().flags("--access-logfile FILE").of_gunicorn();
        /// Format of the access log in gunicorn's atoms, not parsed yet.
        access_log_format: String = text(ACCESS_LOG_FORMAT).flags("--access-logformat FORMAT").of_gunicorn();
        /// Write lines of the access log as JSON, whatever the format says.
        access_log_json: bool = switch(false).flags("--access-log-json");
        /// Error log: `-` = stderr.
        errorlog: PathBuf = text("-").checked(file_name).flags("--error-logfile --log-file FILE").of_gunicorn().stays();
        /// Send what template and workers write to stdout and stderr there, if it is a file.
        capture_output: bool = switch(false).flags("--capture-output").of_gunicorn();
        /// A file of Python's `logging.config.fileConfig`, for the processes that run the app.
        logconfig: Option<String> = optional().flags("--log-config FILE").of_gunicorn();
        /// The same as a dictionary, as JSON; the host of the app has the dictionary itself.
        logconfig_dict: Option<String> = optional().of_gunicorn();
        /// The same in a file, as JSON.
        logconfig_json: Option<String> = optional().flags("--log-config-json FILE").of_gunicorn();
        /// The class that applies it: a module and a name.
        logger_class: Option<String> = optional().flags("--logger-class CLASS").of_gunicorn();
        /// Least important events that are logged.
        loglevel: LogLevel = word("info").flags("--log-level LEVEL").of_gunicorn().stays();
        /// Send both logs to a syslog daemon as well.
        syslog: bool = switch(false).flags("--log-syslog").of_gunicorn().stays_in_error_log("syslog");
        /// Where it is.
        syslog_addr: SyslogAddress = text("udp://localhost:514").flags("--log-syslog-to ADDR").of_gunicorn().stays_in_error_log("syslog");
        /// The name of the program there, after `stanchion.`.
        syslog_prefix: Option<String> = optional().flags("--log-syslog-prefix NAME").of_gunicorn().stays_in_error_log("syslog");
        /// The kind of program there.
        syslog_facility: Facility = word("user").flags("--log-syslog-facility NAME").of_gunicorn().stays_in_error_log("syslog");
        /// Keep the access log from it.
        disable_redirect_access_to_syslog: bool = switch(false).flags("--log-syslog-error-only --disable-redirect-access-to-syslog").of_gunicorn();
    }

    /// How operators and their tools see the server.
    monitoring: MonitoringSettings {
        /// The listener at which the server shows its state; `None` = none.
        admin: Option<Bind> = optional().flags("--admin ADDRESS");
        /// Names by which clients may ask there, besides its own.
        admin_allowed_hosts: Vec<String> = list(&[]).checked(host_name).flags("--admin-allowed-host NAME");
        /// The listener at which balancers ask for seats and state (an agent check); `None` = none.
        agent: Option<Bind> = optional().flags("--agent ADDRESS");
        /// Not ready while more than this many wait; 0 = however many.
        ready_waiting_max: usize = int(0, between(0, U32_MAX)).flags("--ready-waiting-max N");
        /// Not ready while the oldest has waited for longer; 0 = however long.
        ready_wait_max: Seconds = seconds(0).flags("--ready-wait-max SECONDS");
        /// Where probes are answered on the listeners of `bind`; `None` = nowhere.
        health_path: Option<String> = optional().checked(path_prefix).flags("--health-path PREFIX");
        /// Where metrics are sent; `None` = nowhere.
        statsd_host: Option<StatsdAddress> = optional().flags("--statsd-host ADDRESS").of_gunicorn().stays_in_error_log("statsd");
        /// The start of their names.
        statsd_prefix: String = text("").checked(metric_prefix).flags("--statsd-prefix PREFIX").of_gunicorn().stays_in_error_log("statsd");
        /// The tags behind each, without `|#`.
        dogstatsd_tags: String = text("").checked(metric_tags).flags("--dogstatsd-tags TAGS").of_gunicorn().stays_in_error_log("statsd");
        /// Send how many connections the kernel holds.
        enable_backlog_metric: bool = switch(false).flags("--enable-backlog-metric").of_gunicorn();
        /// The directory in which arrivals are recorded; `None` = they are not.
        record_arrivals: Option<PathBuf> = optional().flags("--record-arrivals DIR");
        /// Where spans are sent; `None` = there are none.
        otlp_endpoint: Option<Collector> = optional().flags("--otlp-endpoint URL");
        /// The service that they are of, if a setting says so.
        otlp_service_name: Option<String> = optional().flags("--otlp-service-name NAME").env("OTEL_SERVICE_NAME", "{}");
        /// Of requests that come with no trace, one in so many is traced, at least 1.
        otlp_sample_one_in: u32 = int(1, between(1, U32_MAX)).flags("--otlp-sample-one-in N");
    }

    /// The app: where it is, how it is loaded and what surrounds it.
    app: AppSettings {
        /// The name in process titles, instead of the app's.
        proc_name: Option<String> = optional().flags("-n --name NAME").of_gunicorn();
        /// Directory to change to; the command line has done so before the server sees this.
        chdir: Option<PathBuf> = optional().flags("--chdir DIR").of_gunicorn();
        /// Directories to import from, with commas between; applied by the command line.
        pythonpath: Option<String> = optional().flags("--pythonpath DIRS").of_gunicorn();
        /// Environment variables as `KEY=VALUE`; applied by the command line.
        raw_env: Vec<String> = list(&[]).checked(assignment).flags("-e --env KEY=VALUE").of_gunicorn();
        /// Reload when a watched file changes.
        reload: bool = switch(false).flags("--reload").of_gunicorn();
        /// How to watch; every word means the same.
        reload_engine: ReloadEngine = word("auto").flags("--reload-engine ENGINE").of_gunicorn();
        /// Further files and patterns to watch; expanded by the host of the app.
        reload_extra_files: Vec<String> = list(&[]).flags("--reload-extra-file FILE").of_gunicorn();
        /// Where the app is mounted; empty = nowhere, or where its environment says.
        root_path: String = text("").checked(mount_point).flags("--root-path PATH").of_gunicorn();
        /// The app's specification, where it was not an argument.
        wsgi_app: Option<String> = optional().of_gunicorn();
        /// The config file that was asked for.
        config: Option<String> = optional().flags("-c --config FILE").of_gunicorn();
        /// The `PasteDeploy` file that the host of the app loads it from.
        paste: Option<String> = optional().flags("--paste --paster FILE").of_gunicorn();
        /// Further variables that the app gets, as `KEY=VALUE`.
        raw_paste_global_conf: Vec<String> = list(&[]).checked(variable).flags("--paste-global KEY=VALUE").of_gunicorn();
        /// Print each line that the app runs, which the host of the app does.
        spew: bool = switch(false).flags("--spew").of_gunicorn();
        /// Only look whether it could be served, which the command line has done before the server sees this.
        check_config: bool = switch(false).flags("--check-config").of_gunicorn();
        /// The same, and print the settings.
        print_config: bool = switch(false).flags("--print-config").of_gunicorn();
    }
}

/// Every setting.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    TABLE.iter().copied()
}

/// The setting of this name.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.name == name)
}

/// Facts on values that no row holds.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsFacts {
    /// An app that is to decide `interface` itself has turned out to be asynchronous.
    pub found_asgi: bool,
    /// Whether the operator has asked for `preload_app`, and it is more than the default.
    pub is_preload_asked_for: bool,
    /// Whether `max_client_memory` is the default, which a control group's limit may lower.
    pub bounds_clients_by_default: bool,
}

impl SettingsFacts {
    fn of(values: &Values) -> Self {
        let preload = &values[rows::preload_app.setting.name];
        let memory = &values[rows::max_client_memory.setting.name];
        Self {
            found_asgi: false,
            is_preload_asked_for: !preload.is_default() && preload.value == true,
            bounds_clients_by_default: memory.is_default(),
        }
    }
}
