//! Looking after connections that dawdle and requests that have waited too long.

use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::clock::monotonic_us;

use super::Shared;
use super::connection::{Connection, Order, Phase};
use super::pace::PaceLimits;

/// How often they are looked for. A timer for each connection costs more than a look at all of
/// them four times a second.
const INTERVAL: Duration = Duration::from_millis(250);
/// While draining: how long a connection that has sent nothing yet may take to begin.
const NEWCOMER: Duration = Duration::from_secs(1);

/// Looks, and looks again.
pub(super) async fn watch(shared: Rc<Shared>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        shared.dispatch.borrow_mut().expire();
        let now_us = monotonic_us();
        shared.unaccepted.settle(now_us);
        shared.unspooled.settle(now_us);
        shared.repeats.settle(now_us);
        shared.common.count_dropped_lines();
        for connection in shared.connections.borrow().iter() {
            if let Some(order) = shared.overdue(connection, now_us) {
                connection.order(order);
            } else if connection.is_half_closed() {
                connection.order(Order::LookAgain);
            }
        }
    }
}

impl Shared {
    /// What a connection is to be told, if its client dawdles.
    fn overdue(&self, connection: &Connection, now_us: u64) -> Option<Order> {
        let settings = &self.common.settings;
        let passed = |since_us: u64, limit: Option<Duration>| {
            limit.is_some_and(|limit| {
                u128::from(now_us.saturating_sub(since_us)) >= limit.as_micros()
            })
        };
        if let Some(stall) = connection.stall() {
            if !passed(stall.since_us, settings.write_timeout.as_duration()) {
                return None;
            }
            if !stall.in_doubt {
                connection.doubt(stall);
                return None;
            }
            return Some(Order::Drop);
        }
        match connection.phase() {
            Phase::New { since_us } => {
                let newcomer = self.is_closing().then_some(NEWCOMER);
                passed(since_us, newcomer.or(settings.header_timeout.as_duration()))
                    .then_some(Order::Drop)
            }
            Phase::Idle { since_us } => {
                let idle = settings.keepalive.as_duration();
                (self.is_closing() || passed(since_us, idle)).then_some(Order::Close)
            }
            Phase::Reading { since_us } => {
                passed(since_us, settings.header_timeout.as_duration()).then_some(Order::TimedOut)
            }
            Phase::Busy => {
                let limits = PaceLimits {
                    pause: settings.body_timeout.as_duration(),
                    bytes_per_s: settings.min_body_rate,
                };
                let refusal = connection.pace()?.too_slow(limits, now_us)?;
                Some(Order::CallOff(refusal))
            }
            Phase::Leaving { .. } => None,
        }
    }
}
