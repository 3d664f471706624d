//! Answers balancers at the listener of `agent`, in the format of `HAProxy`'s agent check (`agent-check` in its manual): each
//! connection gets one line, and is closed.
//!
//! - The line says how many requests may be here at once, and whether the server wants new ones. It says nothing of the
//!   queue, which changes within milliseconds: a balancer that asks twice a second would send its clients to the server that
//!   *was* idle.
//! - `ready` takes back `drain`, and `up` takes back `down`; `HAProxy` keeps a word until it hears the other one, also if no
//!   server answers any more.
//! - A balancer may send a text first (`agent-send`), or none. The answer does not wait for it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tracing::debug;

use stanchion_connections::after;
use stanchion_requests::Requests;
use stanchion_requests::lifecycle::Lifecycle;

/// Connections that have their answer and that their balancers have not closed yet. One more takes the place of the oldest.
const ANSWERED_MAX: usize = 64;
/// How long such a connection may stay. The kernel resets a connection that is closed before its text was read, and a reset
/// can overtake the answer.
const LINGER: Duration = Duration::from_secs(1);
/// Workers may have no seat for so long before the server says that it is down: a single worker that is replaced is no
/// reason for a balancer to move all clients.
const SEATLESS: Duration = Duration::from_secs(1);

/// Answers balancers, and has their connections until they have closed them.
#[derive(Default)]
pub(super) struct Agent {
    seats: SeatsSeen,
    workers: usize,
    looked_us: u64,
    answered: VecDeque<Answered>,
}

/// A connection that has its answer.
struct Answered {
    socket: OwnedFd,
    until_us: u64,
}

/// The seats that workers had of late.
#[derive(Clone, Copy, Debug, Default)]
struct SeatsSeen {
    /// How many there were when there were any; 0 before the first worker was there.
    last: usize,
    /// Since when there are none, as far as the acceptor has looked.
    none_since_us: Option<u64>,
}

impl Agent {
    /// Looks how many seats there are, and closes the connections that balancers have left.
    pub(super) fn look(&mut self, requests: &Requests) {
        let now_us = requests.now_us;
        self.looked_us = now_us;
        let view = requests.dispatch.view();
        self.workers = view.workers().len();
        let seats = view.workers().seats_there();
        self.seats.see(seats, now_us);
        self.answered.retain(|one| !one.is_over(now_us));
    }

    /// Answers a balancer.
    pub(super) fn answer(&mut self, socket: OwnedFd, requests: &Requests) {
        // Many balancers that ask in one turn cost one look.
        if requests.now_us != self.looked_us {
            self.look(requests);
        }
        // A balancer counts a WebSocket among its requests for as long as that is open, but it takes no seat. A worker can write to the
        // counts, so their bound is the setting's.
        let settings = &requests.common.settings;
        let sessions_max = settings.event_loop.worker_sessions as usize * self.workers;
        let sessions = requests.common.total.read().sessions() as usize;
        let sessions = sessions.min(sessions_max);
        let line = line(
            requests.serving.lifecycle,
            &self.seats,
            sessions,
            requests.now_us,
        );
        let told = send(&socket, line.as_bytes(), SendFlags::NOSIGNAL)
            .and_then(|_| shutdown(&socket, Shutdown::Write));
        if let Err(error) = told {
            debug!("a balancer had left before it was answered: {error}");
            return;
        }
        if self.answered.len() >= ANSWERED_MAX {
            self.answered.pop_front();
        }
        let until_us = after(requests.now_us, LINGER);
        self.answered.push_back(Answered { socket, until_us });
    }
}

impl Answered {
    /// Whether it can be closed: the balancer has closed it, or its time is over.
    fn is_over(&self, now_us: u64) -> bool {
        let waits = || match recv(&self.socket, &mut [0_u8; 256][..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => len > 0,
            Err(error) => error == Errno::AGAIN,
        };
        now_us >= self.until_us || !waits()
    }
}

impl SeatsSeen {
    /// Notes how many there are now.
    fn see(&mut self, seats: usize, now_us: u64) {
        if seats > 0 {
            self.last = seats;
            self.none_since_us = None;
        } else {
            self.none_since_us.get_or_insert(now_us);
        }
    }

    /// How many the server promises, or why it promises none. It never promises 0, which is no limit for `HAProxy`.
    fn promised(&self, now_us: u64) -> Result<usize, &'static str> {
        if self.last == 0 {
            return Err("the server is starting");
        }
        match self.none_since_us {
            Some(since_us) if now_us > after(since_us, SEATLESS) => Err("no worker is there"),
            _ => Ok(self.last),
        }
    }
}

/// The answer to a balancer.
fn line(lifecycle: Lifecycle, seats: &SeatsSeen, sessions: usize, now_us: u64) -> String {
    let promised = match lifecycle {
        Lifecycle::Starting | Lifecycle::Announced => Err("the server is starting"),
        // An acceptor that retires has left the listener to another one.
        Lifecycle::Open | Lifecycle::Retiring => seats.promised(now_us),
        Lifecycle::LameDuck | Lifecycle::Draining | Lifecycle::Refusing => {
            return "drain\n".to_owned();
        }
        Lifecycle::TurningAway => Err("the application does not start"),
    };
    match promised {
        Ok(seats) => format!("up ready maxconn:{}\n", seats + sessions),
        Err(why) => format!("down #{why}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 10_000_000;

    fn told(lifecycle: Lifecycle, seats: &SeatsSeen) -> String {
        line(lifecycle, seats, 0, NOW_US)
    }

    #[test]
    fn the_line_follows_the_life_of_the_acceptor() {
        let mut seats = SeatsSeen::default();
        seats.see(4, NOW_US);
        for (lifecycle, expected) in [
            (Lifecycle::Starting, "down #the server is starting\n"),
            (Lifecycle::Announced, "down #the server is starting\n"),
            (Lifecycle::Open, "up ready maxconn:4\n"),
            (Lifecycle::LameDuck, "drain\n"),
            (Lifecycle::Retiring, "up ready maxconn:4\n"),
            (Lifecycle::Draining, "drain\n"),
            (Lifecycle::Refusing, "drain\n"),
            (
                Lifecycle::TurningAway,
                "down #the application does not start\n",
            ),
        ] {
            assert_eq!(told(lifecycle, &seats), expected, "{lifecycle:?}");
        }
    }

    #[test]
    fn sessions_are_promised_besides_the_seats() {
        let mut seats = SeatsSeen::default();
        seats.see(4, NOW_US);
        let expected = "up ready maxconn:7\n";
        assert_eq!(line(Lifecycle::Open, &seats, 3, NOW_US), expected);
    }

    #[test]
    fn a_moment_without_seats_is_not_told() {
        let (down, starting) = (
            "down #no worker is there\n",
            "down #the server is starting\n",
        );
        let seatless_us = after(0, SEATLESS);
        // The acceptor has seen so many seats so long ago; then it tells this.
        for (seen, expected) in [
            (&[][..], starting),
            (&[(0, 0)], starting),
            (&[(0, 2 * seatless_us)], starting),
            (&[(2, 0)], "up ready maxconn:2\n"),
            (&[(2, 9 * seatless_us)], "up ready maxconn:2\n"),
            (&[(2, seatless_us), (1, 0)], "up ready maxconn:1\n"),
            (&[(2, seatless_us), (0, 0)], "up ready maxconn:2\n"),
            (
                &[(2, seatless_us), (0, seatless_us)],
                "up ready maxconn:2\n",
            ),
            (&[(2, seatless_us), (0, seatless_us + 1)], down),
            (&[(2, seatless_us), (0, seatless_us + 1), (0, 0)], down),
            (
                &[(2, 9), (0, seatless_us + 1), (3, 5)],
                "up ready maxconn:3\n",
            ),
            (
                &[
                    (2, 9),
                    (0, 3 * seatless_us),
                    (3, seatless_us + 9),
                    (0, seatless_us),
                ],
                "up ready maxconn:3\n",
            ),
        ] {
            let mut seats = SeatsSeen::default();
            for (count, ago_us) in seen {
                seats.see(*count, NOW_US - ago_us);
            }
            assert_eq!(told(Lifecycle::Open, &seats), expected, "{seen:?}");
        }
    }
}
