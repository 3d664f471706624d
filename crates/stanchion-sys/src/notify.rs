//! Messages to the service manager (`sd_notify(3)`).

use std::io;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::clock::monotonic_us;
use crate::environment::number;
use crate::process;

/// The socket on which the service manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";
/// How often the manager expects a message, in microseconds (`sd_watchdog_enabled(3)`).
const WATCHDOG_US: &str = "WATCHDOG_USEC";
/// The process from which the manager expects it.
const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// Longest text of `STATUS=` in bytes, far below what a datagram holds.
const STATUS_BYTES_MAX: usize = 1_024;

/// Notifies the service manager of events, if there is one that listens. No call here waits: if the manager does not
/// take a message at once, the message is lost and the call returns an error.
#[derive(Debug)]
pub struct Notifier {
    /// `None` without a service manager.
    manager: Option<(Socket, SockAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Reads the variables `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`. They stay, for a later execve(2); see
    /// [`environment`](Self::environment).
    ///
    /// The error names the variable that makes no sense.
    pub fn from_env() -> Result<Self, String> {
        let get = |name| std::env::var(name).ok();
        let [socket, us, pid] = [SOCKET, WATCHDOG_US, WATCHDOG_PID].map(get);
        Self::new(socket.as_deref(), us.as_deref(), pid.as_deref())
    }

    /// A notifier without a service manager, which sends nothing.
    pub fn none() -> Self {
        Self {
            manager: None,
            watchdog: None,
        }
    }

    fn new(
        socket: Option<&str>,
        watchdog_us: Option<&str>,
        watchdog_pid: Option<&str>,
    ) -> Result<Self, String> {
        let Some(text) = socket.filter(|text| !text.is_empty()) else {
            return Ok(Self::none());
        };
        let opened = |error: io::Error| format!("{SOCKET} '{}': {error}", text.escape_debug());
        let address = manager_at(text).map_err(opened)?;
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .map_err(opened)?;
        Ok(Self {
            manager: Some((socket, address)),
            watchdog: watchdog(watchdog_us, watchdog_pid)?,
        })
    }

    /// Reports that the service serves, for the first time or again after [`reloading`](Self::reloading).
    pub fn ready(&self) -> io::Result<()> {
        self.send("READY=1")
    }

    /// Reports that the service reads its configuration again; a call of [`ready`](Self::ready) must follow.
    pub fn reloading(&self) -> io::Result<()> {
        // The time distinguishes this reload from an earlier one (systemd.service(5), Type=notify-reload).
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()))
    }

    /// Reports that the service is stopping.
    pub fn stopping(&self) -> io::Result<()> {
        self.send("STOPPING=1")
    }

    /// Sends one line for people, which `systemctl status` shows.
    pub fn status(&self, text: &str) -> io::Result<()> {
        self.send(&format!("STATUS={}", one_line(text)))
    }

    /// Reports that another process is the service's main one now. The manager must know that process as one of the
    /// service's, and `NotifyAccess=` must allow the sender.
    pub fn main_pid(&self, pid: i32) -> io::Result<()> {
        self.send(&format!("MAINPID={pid}"))
    }

    /// Reports that the service is alive; it must do so once in every [`watchdog_every`](Self::watchdog_every).
    pub fn watchdog(&self) -> io::Result<()> {
        self.send("WATCHDOG=1")
    }

    /// How often the service should call [`watchdog`](Self::watchdog): half of the time that the manager waits, as
    /// `sd_watchdog_enabled(3)` advises. `None` if the manager does not wait for it.
    pub fn watchdog_every(&self) -> Option<Duration> {
        self.watchdog.map(|longest| longest / 2)
    }

    /// The variables that the environment of the next master must hold, in place of today's: a value, or `None` for a
    /// variable that must not be there. `WATCHDOG_PID` names this process, and with it the next master would conclude
    /// that the watchdog is for another process.
    pub fn environment() -> Vec<(&'static str, Option<String>)> {
        let kept = [SOCKET, WATCHDOG_US].map(|name| (name, std::env::var(name).ok()));
        kept.into_iter().chain([(WATCHDOG_PID, None)]).collect()
    }

    fn send(&self, message: &str) -> io::Result<()> {
        let Some((socket, manager)) = &self.manager else {
            return Ok(());
        };
        loop {
            match socket.send_to(message.as_bytes(), manager) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent.map(drop),
            }
        }
    }
}

/// The address of a path or, with a leading @, of an abstract name.
fn manager_at(text: &str) -> io::Result<SockAddr> {
    match text.as_bytes()[0] {
        b'/' => SockAddr::unix(text),
        b'@' => SockAddr::unix(format!("\0{}", &text[1..])),
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "neither a path nor @name; stanchion knows no other kind of socket",
        )),
    }
}

fn watchdog(us: Option<&str>, pid: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(us) = us else { return Ok(None) };
    if let Some(pid) = pid
        && number::<u64>(WATCHDOG_PID, pid)? != u64::from(process::pid().cast_unsigned())
    {
        return Ok(None);
    }
    match number(WATCHDOG_US, us)? {
        0 => Err(format!("{WATCHDOG_US} is 0, which is no time")),
        us => Ok(Some(Duration::from_micros(us))),
    }
}

/// A line break would begin another assignment.
fn one_line(text: &str) -> String {
    let fits = |(begin, c): &(usize, char)| begin + c.len_utf8() <= STATUS_BYTES_MAX;
    text.char_indices()
        .take_while(fits)
        .map(|(_, c)| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    fn manager(name: &str) -> (UnixDatagram, Notifier) {
        let name = format!("stanchion-notify-{name}-{}", process::pid());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("bound");
        let socket = format!("@{name}");
        let notifier = Notifier::new(Some(&socket), Some("3000000"), None).expect("made");
        (manager, notifier)
    }

    fn heard(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let count = manager.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn each_message_as_the_manager_reads_it() {
        let (manager, notifier) = manager("messages");
        notifier.ready().expect("sent");
        assert_eq!(heard(&manager), "READY=1");
        notifier.stopping().expect("sent");
        assert_eq!(heard(&manager), "STOPPING=1");
        notifier.status("3 workers\nREADY=1").expect("sent");
        assert_eq!(heard(&manager), "STATUS=3 workers READY=1");
        notifier.status(&"\u{e9}".repeat(5_000)).expect("sent");
        assert_eq!(heard(&manager).len(), "STATUS=".len() + STATUS_BYTES_MAX);
        notifier.main_pid(42).expect("sent");
        assert_eq!(heard(&manager), "MAINPID=42");
        notifier.watchdog().expect("sent");
        assert_eq!(heard(&manager), "WATCHDOG=1");
        let before = monotonic_us();
        notifier.reloading().expect("sent");
        let message = heard(&manager);
        let us = message
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .expect("both");
        assert!((before..=monotonic_us()).contains(&us.parse().expect("a number")));
        assert_eq!(
            notifier.watchdog_every(),
            Some(Duration::from_millis(1_500))
        );
    }

    #[test]
    fn a_manager_that_does_not_listen_is_not_waited_for() {
        let (manager, notifier) = manager("deaf");
        let lost = std::iter::repeat_with(|| notifier.ready()).take(100_000);
        let mut lost = lost.filter_map(Result::err);
        assert_eq!(
            lost.next().map(|error| error.kind()),
            Some(io::ErrorKind::WouldBlock)
        );
        drop(manager);
        assert!(notifier.ready().is_err());
    }

    #[test]
    fn without_a_manager_nothing_is_sent_and_nothing_fails() {
        for socket in [None, Some("")] {
            let notifier = Notifier::new(socket, Some("1"), None).expect("made");
            assert!(notifier.manager.is_none());
            assert_eq!(notifier.watchdog_every(), None);
            notifier.ready().expect("nothing to do");
        }
    }

    #[test]
    fn the_watchdog_is_for_who_is_named() {
        let own = process::pid().to_string();
        assert_eq!(watchdog(None, None), Ok(None));
        assert_eq!(
            watchdog(Some("2"), None),
            Ok(Some(Duration::from_micros(2)))
        );
        assert_eq!(
            watchdog(Some("2"), Some(&own)),
            Ok(Some(Duration::from_micros(2)))
        );
        assert_eq!(watchdog(Some("2"), Some("1")), Ok(None));
        assert!(watchdog(Some("0"), None).is_err());
        assert!(watchdog(Some("-2"), None).is_err());
        assert!(watchdog(Some("2"), Some("me")).is_err());
    }

    #[test]
    fn what_is_no_socket_is_refused() {
        for socket in ["vsock:2:1234", "run/notify", "x"] {
            assert!(Notifier::new(Some(socket), None, None).is_err(), "{socket}");
        }
    }
}
