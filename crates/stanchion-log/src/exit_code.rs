//! Exit codes of `stanchion serve`, listed for operators in docs/reference/command-line.md.

/// Served, and told to stop.
pub const FINE: i32 = 0;
/// Something of ours, or of the kernel's, went wrong; the log says what.
pub const INTERNAL: i32 = 1;
/// A bad flag, setting or config file.
pub const USAGE: i32 = 2;
/// A worker failed to boot before any was ready (gunicorn's code for it).
pub const WORKER_BOOT: i32 = 3;
/// The app could not be loaded (gunicorn's code for it).
pub const APP_LOAD: i32 = 4;
/// An address could not be bound.
pub const BIND: i32 = 5;

/// Of an acceptor, and never of the server: a turn of its loop did not end.
pub const SPUN: i32 = 70;
