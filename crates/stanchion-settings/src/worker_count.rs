//! How many workers an operator asks for: a number, a range, or as many as the machine is good for.

use std::fmt;

use serde_json::Value;

use super::kind::Range;

/// The word for as many as the machine is good for.
const AUTO: &str = "auto";

/// A number of workers, or two between which the server chooses: `4`, `4..32`, `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCount {
    /// The fewest, at least 1.
    pub min: u32,
    /// The most, at least as many.
    pub max: u32,
    /// The machine says both: until it is asked ([`super::Settings::heed_cores`]) they are 1.
    pub is_auto: bool,
}

impl WorkerCount {
    /// By the machine, from `min` to `max`.
    pub(super) fn auto(min: u32, max: u32) -> Self {
        Self {
            min,
            max,
            is_auto: true,
        }
    }

    /// Whether the server chooses.
    pub fn is_elastic(self) -> bool {
        self.min < self.max
    }

    /// Reads a value of the setting's kind, or what an operator wrote.
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Some(Self::fixed(saturated(number.as_u64()?))),
            Value::String(text) if text.trim().eq_ignore_ascii_case(AUTO) => Some(Self::auto(1, 1)),
            Value::String(text) => match text.split_once("..") {
                Some((min, max)) => Some(Self {
                    min: number(min)?,
                    max: number(max)?,
                    is_auto: false,
                }),
                None => number(text).map(Self::fixed),
            },
            _ => None,
        }
    }

    fn fixed(workers: u32) -> Self {
        let (min, max) = (workers, workers);
        Self {
            min,
            max,
            is_auto: false,
        }
    }

    /// Whether both numbers will do.
    pub(super) fn is_within(self, range: Range) -> bool {
        self.min <= self.max
            && [self.min, self.max]
                .map(u64::from)
                .iter()
                .all(|&one| range.holds(one))
    }
}

impl From<WorkerCount> for Value {
    fn from(count: WorkerCount) -> Self {
        if count.is_elastic() || count.is_auto {
            count.to_string().into()
        } else {
            count.min.into()
        }
    }
}

impl fmt::Display for WorkerCount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, max, is_auto } = self;
        if *is_auto {
            out.write_str(AUTO)
        } else if self.is_elastic() {
            write!(out, "{min}..{max}")
        } else {
            write!(out, "{min}")
        }
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = text.trim();
    // from_str alone would take "+5".
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    Some(saturated(number))
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kind::from;
    use super::*;

    #[test]
    fn one_number_or_two() {
        let table = [
            (json!(4), Some(("4", false))),
            (json!("4"), Some(("4", false))),
            (json!(" 04 "), Some(("4", false))),
            (json!("4..32"), Some(("4..32", true))),
            (json!(" 4 .. 32 "), Some(("4..32", true))),
            (json!("4..4"), Some(("4", false))),
            (json!("auto"), Some(("auto", false))),
            (json!(" Auto "), Some(("auto", false))),
            (json!("auto..8"), None),
            (json!("2..auto"), None),
            (json!("32..4"), None),
            (json!("0..4"), None),
            (json!(0), None),
            (json!("4.."), None),
            (json!("..4"), None),
            (json!("4...8"), None),
            (json!("4-8"), None),
            (json!("+4"), None),
            (json!(-1), None),
            (json!(2.5), None),
            (json!(true), None),
            (json!(["4"]), None),
        ];
        for (written, expected) in table {
            let read = WorkerCount::read(&written).filter(|count| count.is_within(from(1)));
            let shown = read.map(|count| (count.to_string(), count.is_elastic()));
            let shown = shown
                .as_ref()
                .map(|(text, is_elastic)| (text.as_str(), *is_elastic));
            assert_eq!(shown, expected, "{written}");
        }
    }

    #[test]
    fn a_fixed_number_is_a_number_in_json() {
        let value = |text: &str| WorkerCount::read(&json!(text)).map(Value::from);
        assert_eq!(value("3"), Some(json!(3)));
        assert_eq!(value("3..3"), Some(json!(3)));
        assert_eq!(value("3..5"), Some(json!("3..5")));
        assert_eq!(value("auto"), Some(json!("auto")));
        assert_eq!(value("99999999999"), Some(json!(u32::MAX)));
    }
}
