//! The signals that children of the master leave to it.

use std::io;

use stanchion_sys::signal;

/// For acceptor, template and scribe: the master decides when they leave, and a signal to the whole process
/// group, such as Ctrl-C, is for it alone.
pub(crate) fn leave_signals_to_master() -> io::Result<()> {
    signal::ignore(&[
        signal::SIGTERM,
        signal::SIGINT,
        signal::SIGQUIT,
        signal::SIGHUP,
        signal::SIGUSR1,
        signal::SIGUSR2,
        signal::SIGWINCH,
    ])?;
    signal::reset(&[signal::SIGCHLD, signal::SIGTTIN, signal::SIGTTOU])
}
