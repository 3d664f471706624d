//! The settings: one table, from which everything else that knows settings is made.
//!
//! `table.rs` spells each setting once: name, type, default, range, flags, environment variable. `help/` says in words
//! what each does. The command line and `stanchion check` are built from [`schema_json`]; the layers of values
//! (defaults, environment, config file, command line) are merged and checked by [`resolve`];
//! `docs/reference/settings.md` is written by [`reference_markdown`]. The manual page and the completions of shells are
//! made from the table too. The rest of the server sees only [`Settings`], which cannot hold a value that the table
//! refuses.
//!
//! This crate may not do I/O, read a clock, have threads, log or use unsafe code: it opens no file and no socket and
//! reads no environment variable. The caller hands it values, and it returns what they mean or why they are refused.

#![forbid(unsafe_code)]

mod admin;
mod beside_one_worker;
mod bind;
mod checks;
mod coerce;
mod collector;
mod control;
mod datagram;
mod define;
mod effective;
mod help;
mod http;
mod https_port;
mod kept;
mod kind;
mod lane;
mod lanes;
mod listen;
mod loop_seats;
mod peers;
mod reference;
mod resolve;
mod row;
mod schema;
mod seconds;
mod static_dir;
mod statsd;
mod syslog;
mod table;
mod text;
mod tls;
mod values;
mod warm_up;
mod warnings;
mod without_effect;
mod words;
mod worker_count;
mod worker_ports;

pub use beside_one_worker::BesideOneWorker;
pub use bind::BindAddress;
pub use collector::Collector;
pub use control::ControlAddress;
pub use datagram::DatagramAddress;
pub use https_port::HttpsPort;
pub use kept::kept_by_a_reload;
pub use lane::Lane;
pub use listen::{Bind, ListenOptions};
pub use loop_seats::EVENT_LOOPS_SPARE;
pub use peers::{AllowedPeers, Believed};
pub use reference::reference_markdown;
pub use resolve::{Layer, Resolution, Unknown, resolve, resolve_json};
pub use row::Setting;
pub use schema::schema_json;
pub use seconds::Seconds;
pub use static_dir::StaticDir;
pub use statsd::StatsdAddress;
pub use syslog::{Facility, SyslogAddress};
pub use table::{
    AnswerSettings, AppSettings, BufferSettings, ClientLimits, EventLoopSettings, HttpSettings,
    LineSettings, Listening, LogSettings, MonitoringSettings, ProcessSettings, ProxySettings,
    Settings, SettingsFacts, TlsSettings, UMASK, WorkerSettings, settings,
};
pub use values::Resolved;
pub use warm_up::{WarmUp, WarmUpRequest};
pub use words::{
    EventLoop, Http2Cleartext, Interface, Lifespan, LoadReporting, LogLevel, OldestTls, Protocol,
    QueueOrder, ReloadEngine, SignalStyle, StaticMissing,
};
pub use worker_count::WorkerCount;

/// The reason why the given values are no valid settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The text is not the JSON that the caller promised: a fault of the program, not of the user.
    #[error("settings are not the expected JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Values that the table refuses, one line each: a fault of the operator that wrote them.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}
