//! Looking after connections that dawdle and requests that have waited too long.

use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::clock::monotonic_us;

use super::Shared;
use super::connection::{Connection, Order, Phase};
use super::intake::Verdict;
use super::pace::{GRACE, PaceLimits, Slowness};
use super::refusal::Refusal;
use super::room::SHED_MAX;
use crate::settings::Seconds;

/// How often they are looked for. A timer for each connection costs more than four times a second a look
/// at all of them that may be overdue.
const INTERVAL: Duration = Duration::from_millis(250);
/// While draining: how long a connection that has sent nothing yet may take to begin.
const NEWCOMER: Duration = Duration::from_secs(1);

/// Looks, and looks again.
pub(super) async fn watch(shared: Rc<Shared>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        shared.dispatch.borrow_mut().mend();
        shared.dispatch.borrow_mut().expire();
        shared.dispatch.borrow_mut().report_culprits();
        let now_us = monotonic_us();
        shared.unaccepted.settle(now_us);
        shared.unspooled.settle(now_us);
        shared.repeats.settle(now_us);
        shared.common.count_dropped_lines();
        shared.count_dropped_spans();
        shared.tell_statsd(now_us);
        let least = shared.least_limit();
        // Once we close, less is waited for than before; and likewise while others have no place.
        let mut to_shed = if shared.is_starved() { SHED_MAX } else { 0 };
        let due_us = if shared.is_closing() || to_shed > 0 {
            u64::MAX
        } else {
            now_us
        };
        let mut connections = shared.connections.borrow_mut();
        connections.look(due_us, |connection| {
            let look = shared.judge(connection, to_shed > 0, now_us);
            if let Look::Now(Order::CutOff(_) | Order::CallOff(_)) = look {
                to_shed = to_shed.saturating_sub(1);
            }
            let order = match look {
                Look::At(at_us) if !connection.is_half_closed() => {
                    return at_us.min(after(now_us, least));
                }
                Look::At(_) => Order::LookAgain,
                Look::Now(order) => order,
            };
            connection.order(order);
            now_us
        });
    }
}

/// What a look at a connection comes to.
enum Look {
    Now(Order),
    /// Not before then, if it goes on as it is.
    At(u64),
}

impl Shared {
    /// How slowly a body may come.
    pub(super) fn body_pace(&self) -> PaceLimits {
        let settings = &self.common.settings;
        PaceLimits {
            pause: settings.body_timeout.as_duration(),
            bytes_per_s: settings.min_body_rate,
        }
    }

    /// How slowly an answer may be taken.
    pub(super) fn intake_pace(&self) -> PaceLimits {
        let settings = &self.common.settings;
        PaceLimits {
            pause: settings.write_timeout.as_duration(),
            bytes_per_s: settings.min_response_rate,
        }
    }

    /// The shortest time that a connection may take for anything: what it begins after a look does
    /// not take too long before the end of it.
    fn least_limit(&self) -> Duration {
        let settings = &self.common.settings;
        if settings.half_close {
            return Duration::ZERO;
        }
        let limits = [
            settings.header_timeout,
            settings.body_timeout,
            settings.write_timeout,
            settings.keepalive,
        ];
        let limits = limits.into_iter().filter_map(Seconds::as_duration);
        limits.fold(GRACE, Duration::min)
    }

    /// What a connection is to be told, if its client dawdles; `others_wait` for its place.
    fn judge(&self, connection: &Connection, others_wait: bool, now_us: u64) -> Look {
        let settings = &self.common.settings;
        let past = |since_us: u64, limit: Option<Duration>, order: Order| {
            let at_us = limit.map_or(u64::MAX, |limit| after(since_us, limit));
            if now_us < at_us {
                Look::At(at_us)
            } else {
                Look::Now(order)
            }
        };
        match connection.judge_intake(others_wait, now_us) {
            Some(Verdict::Well { until_us }) => return Look::At(until_us),
            Some(Verdict::Doubt) => return Look::Now(Order::LookAgain),
            Some(Verdict::CutOff(why)) => return Look::Now(Order::CutOff(why)),
            None => {}
        }
        match connection.phase() {
            Phase::New { since_us } => {
                let newcomer = self.is_closing().then_some(NEWCOMER);
                let limit = newcomer.or(settings.header_timeout.as_duration());
                past(since_us, limit, Order::Drop)
            }
            Phase::Idle { .. } if self.is_closing() => Look::Now(Order::Close),
            Phase::Idle { since_us } => {
                past(since_us, settings.keepalive.as_duration(), Order::Close)
            }
            Phase::Reading { since_us } => {
                let limit = settings.header_timeout.as_duration();
                let look = past(since_us, limit, Order::TimedOut);
                match (look, connection.dozes_until_us()) {
                    (Look::At(_), Some(until_us)) if until_us <= now_us => {
                        connection.glance();
                        Look::Now(Order::LookAgain)
                    }
                    (Look::At(at_us), Some(until_us)) => Look::At(at_us.min(until_us)),
                    (look, _) => look,
                }
            }
            Phase::Busy => {
                let Some(pace) = connection.pace() else {
                    return Look::At(u64::MAX);
                };
                match pace.too_slow(now_us) {
                    None if others_wait && pace.drips(now_us) => {
                        Look::Now(Order::CallOff(Refusal::BodyTooSlow))
                    }
                    None => Look::At(now_us),
                    Some(Slowness::Pause) => Look::Now(Order::CallOff(Refusal::BodyTimeout)),
                    Some(Slowness::Rate) => Look::Now(Order::CallOff(Refusal::BodyTooSlow)),
                }
            }
            Phase::Leaving { .. } => Look::At(u64::MAX),
        }
    }
}

fn after(since_us: u64, time: Duration) -> u64 {
    u64::try_from(time.as_micros()).map_or(u64::MAX, |us| since_us.saturating_add(us))
}
