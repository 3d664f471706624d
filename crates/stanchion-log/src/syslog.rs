//! The syslog protocol, as Python's `SysLogHandler` speaks it and gunicorn uses it: RFC 3164's
//! priority, no time and no host, a NUL at the end.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use stanchion_sys::process;
use tracing::Level;

use crate::datagrams::Datagrams;
use stanchion_settings::Settings;

/// Longest message in bytes; what is longer is cut. A datagram of UDP holds no more than 65507.
const MESSAGE_BYTES_MAX: usize = 60 << 10;

/// A way to a syslog daemon.
#[derive(Debug)]
pub struct Syslog {
    socket: Datagrams,
    /// Facility times eight (RFC 3164 section 4.1.1).
    facility: u8,
    /// The start of each message, such as `stanchion.shop.error: `.
    tag: String,
}

impl Syslog {
    /// Opens what the settings ask for; `log` is `error` or `access`. A daemon that is not there
    /// yet is no error: it may come.
    pub fn open(settings: &Settings, log: &str) -> io::Result<Self> {
        let tag = match settings.log.syslog_prefix.as_deref() {
            Some(prefix) => format!("stanchion.{prefix}.{log}: "),
            None => format!("stanchion.{log}: "),
        };
        Ok(Self {
            socket: Datagrams::open(&settings.log.syslog_addr.0)?,
            facility: settings.log.syslog_facility.number() * 8,
            tag,
        })
    }

    /// Appends a message as it is sent.
    pub fn frame(&self, out: &mut String, level: Level, text: &str) {
        let priority = self.facility + severity(level);
        // Writing to a String cannot fail.
        let _ = write!(out, "<{priority}>{}[{}] ", self.tag, process::pid());
        // A NUL would end it.
        if text.contains('\0') {
            out.push_str(&text.replace('\0', "\\x00"));
        } else {
            out.push_str(text);
        }
        out.push('\0');
    }

    /// How long the first of some messages is, with its end.
    pub(super) fn first_message(bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|&byte| byte == 0);
        end.map_or(bytes.len(), |end| end + 1)
    }

    /// Sends the first of some messages.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let len = Self::first_message(bytes);
        let message = &bytes[..len.min(MESSAGE_BYTES_MAX)];
        self.socket.send(message)?;
        Ok(len)
    }

    /// For messages.
    pub(super) fn shown(&self) -> String {
        format!("syslog at {}", self.socket)
    }
}

impl AsFd for Syslog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// RFC 3164 section 4.1.1; the same numbers as sd-daemon(3) has.
pub(super) fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use stanchion_sys::channel::poll_writable;

    use super::*;

    fn settings(address: &str) -> Settings {
        let values = serde_json::json!({
            "syslog": true, "syslog_addr": address, "syslog_prefix": "shop", "syslog_facility": "local0"
        });
        Settings::from_json(&values.to_string()).expect("settings")
    }

    fn send(syslog: &Syslog, text: &str) -> io::Result<usize> {
        let mut message = String::new();
        syslog.frame(&mut message, Level::WARN, text);
        syslog.write(message.as_bytes())
    }

    #[test]
    fn a_daemon_that_is_started_anew_is_found_again() {
        let path = std::env::temp_dir().join(format!("stanchion-syslog-{}", process::pid()));
        let syslog = Syslog::open(&settings(&format!("unix://{}", path.display())), "error");
        let syslog = syslog.expect("it need not be there");
        assert!(send(&syslog, "nobody hears it").is_err());
        for text in ["one", "t\0o"] {
            let daemon = UnixDatagram::bind(&path).expect("bound");
            send(&syslog, text).expect("sent");
            let mut got = [0; 200];
            let len = daemon.recv(&mut got).expect("received");
            let shown = text.replace('\0', "\\x00");
            let pid = process::pid();
            // local0 is 16, a warning 4: 16 * 8 + 4.
            let expected = format!("<132>stanchion.shop.error: [{pid}] {shown}\0");
            assert_eq!(String::from_utf8_lossy(&got[..len]), expected);
            std::fs::remove_file(&path).expect("removed");
        }
    }

    #[test]
    fn one_that_does_not_keep_up_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("stanchion-slow-syslog-{}", process::pid()));
        let daemon = UnixDatagram::bind(&path).expect("bound");
        let syslog = Syslog::open(&settings(&format!("unix://{}", path.display())), "error");
        let syslog = syslog.expect("open");
        let error = loop {
            if let Err(error) = send(&syslog, "on and on") {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!poll_writable(syslog.as_fd(), Duration::ZERO).expect("asked"));
        drop(daemon);
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn each_message_is_a_datagram() {
        let daemon = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let address = format!("udp://{}", daemon.local_addr().expect("bound"));
        let syslog = Syslog::open(&settings(&address), "access").expect("open");
        let mut messages = String::new();
        syslog.frame(&mut messages, Level::INFO, "one");
        syslog.frame(&mut messages, Level::INFO, "two\nlines");
        let mut bytes = messages.as_bytes();
        for expected in ["one\0", "two\nlines\0"] {
            bytes = &bytes[syslog.write(bytes).expect("sent")..];
            let mut got = [0; 200];
            let len = daemon.recv(&mut got).expect("received");
            assert!(got[..len].ends_with(expected.as_bytes()));
        }
        assert!(bytes.is_empty());
    }
}
