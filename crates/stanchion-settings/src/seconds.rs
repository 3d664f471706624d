//! A length of time as an operator writes it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A length of time in seconds, with fractions. Zero means "no limit" for most settings, so the
/// two readings have two methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(Duration);

impl Seconds {
    /// `None` for what is no length of time.
    pub(super) fn new(seconds: f64) -> Option<Self> {
        Duration::try_from_secs_f64(seconds).ok().map(Self)
    }

    /// The limit, or `None` where the operator switched it off with 0.
    pub fn as_duration(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }

    /// The plain length, for settings whose 0 means "at once" and not "never".
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(input)?;
        Self::new(seconds).ok_or_else(|| de::Error::custom("no length of time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_off_and_fractions_are_kept() {
        let read = |text| serde_json::from_str::<Seconds>(text);
        assert_eq!(read("0").unwrap().as_duration(), None);
        assert_eq!(
            read("0.5").unwrap().as_duration(),
            Some(Duration::from_millis(500))
        );
        assert_eq!(read("30").unwrap().to_string(), "30");
        assert!(read("-1").is_err());
    }
}
