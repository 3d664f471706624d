//! The time as the log shows it.

use stanchion_sys::clock::LocalTime;

use super::LogFormatKind;

const US_PER_S: u64 = 1_000_000;

/// The text of a second, made once.
#[derive(Default)]
pub(super) struct Time {
    /// When it is over, by the monotonic clock.
    until_us: u64,
    pub(super) text: String,
}

/// Bytes of an offset as RFC 3339 has it, such as `+00:00`.
pub(super) const OFFSET_BYTES: usize = 6;

impl Time {
    /// Makes the text again if its second is over: true if it was. Only then does it look at the clock on the wall, so
    /// a clock that is set counts up to a second later.
    pub(super) fn pass(
        &mut self,
        now_us: u64,
        wall_us: impl FnOnce() -> u64,
        kind: LogFormatKind,
    ) -> bool {
        if now_us < self.until_us {
            return false;
        }
        let wall_us = wall_us();
        self.until_us = now_us + (US_PER_S - wall_us % US_PER_S);
        self.text = text(LocalTime::at((wall_us / US_PER_S).cast_signed()), kind);
        true
    }

    /// Milliseconds of the second that the text is of.
    pub(super) fn ms(&self, now_us: u64) -> u64 {
        let into_us = (now_us + US_PER_S).saturating_sub(self.until_us);
        (into_us / 1_000).min(999)
    }
}

fn text(time: LocalTime, kind: LogFormatKind) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let offset = time.offset();
    let LocalTime {
        year,
        month,
        day,
        hour,
        minute,
        second,
        ..
    } = time;
    match kind {
        LogFormatKind::Text => {
            let month = MONTHS[usize::from(month.clamp(1, 12)) - 1];
            format!("[{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} {offset}]")
        }
        // RFC 3339 section 5.6 has a colon in the offset.
        LogFormatKind::Json => {
            let (hours, minutes) = offset.split_at(3);
            format!(
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{hours}:{minutes}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: LocalTime = LocalTime {
        year: 2026,
        month: 2,
        day: 3,
        hour: 4,
        minute: 5,
        second: 6,
        offset_minutes: -210,
    };

    #[test]
    fn both_forms() {
        let common = "[03/Feb/2026:04:05:06 -0330]";
        assert_eq!(text(TIME, LogFormatKind::Text), common);
        assert_eq!(text(TIME, LogFormatKind::Json), "2026-02-03T04:05:06-03:30");
    }

    #[test]
    fn it_is_made_when_the_clock_on_the_wall_has_another_second() {
        let mut time = Time::default();
        // The one runs 400 ms ahead of the other in its second.
        let mut passes = |now_us| time.pass(now_us, || now_us + 7_400_000, LogFormatKind::Text);
        assert!(passes(1_000_000), "the first");
        assert!(!passes(1_599_999));
        assert!(passes(1_600_000));
        assert!(!passes(2_599_999));
        assert!(passes(5_000_000));
        assert!(!passes(5_599_999));
    }

    #[test]
    fn milliseconds_are_those_of_the_clock_on_the_wall() {
        let mut time = Time::default();
        time.pass(1_000_000, || 8_400_000, LogFormatKind::Json);
        assert_eq!(
            [1_000_000, 1_001_000, 1_599_999].map(|now_us| time.ms(now_us)),
            [400, 401, 999]
        );
        // A request that was over in the second before keeps to this second.
        assert_eq!(time.ms(500_000), 0);
    }
}
