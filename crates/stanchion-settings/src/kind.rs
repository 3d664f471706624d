//! The kinds of values that settings take.

use serde_json::{Map, Value};

/// A check of a text: what is wrong with it, without naming the setting.
pub(super) type Check = fn(&str) -> Result<(), String>;

/// The text that a mapping stands for, or what is wrong with it.
pub(super) type FromMap = fn(&Map<String, Value>) -> Result<String, String>;

/// Which values a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// A whole number.
    Int(Range),
    /// A whole number, or two with `..` between them.
    Workers(Range),
    /// A whole number from 1, or -1 for ever.
    Tries,
    /// A number of bytes.
    Bytes(Range),
    /// A number of seconds, with fractions.
    Seconds(Range),
    /// A number as modes of files are written: octal with a leading 0 or 0o, else decimal, as
    /// gunicorn reads its umask.
    Octal(Range),
    /// Yes or no.
    Bool,
    /// A user or a group: a name, or a number as a text; none if empty.
    Account,
    /// A text; where `nullable`, an empty one and `None` both mean "none".
    Text {
        /// Whether there may be none.
        nullable: bool,
        /// Whether this text will do.
        check: Check,
    },
    /// A list of texts, from a flag that may be repeated.
    List(Items),
    /// Texts by name, from a config file.
    Map {
        /// Whether this name with this text will do.
        check: fn(&str, &str) -> Result<(), String>,
    },
    /// A word of this list, in any case.
    Choice(fn() -> Vec<&'static str>),
}

/// The lists a setting takes.
#[derive(Clone, Copy, Debug)]
pub struct Items {
    /// Whether an empty list will do.
    pub may_be_empty: bool,
    /// Whether this item will do.
    pub check: Check,
    /// Where a mapping in a config file may stand for an item, how to read it.
    pub from_map: Option<FromMap>,
}

/// The numbers a setting takes, both ends included.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The greatest, if there is one.
    pub max: Option<u64>,
    /// Whether 0 will do as well, whatever the least is.
    pub or_zero: bool,
}

/// A default, as the table spells it.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// None.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A count, bytes or seconds.
    Number(u64),
    /// A text.
    Text(&'static str),
    /// A list of texts.
    List(&'static [&'static str]),
    /// Texts by name.
    Map(&'static [(&'static str, &'static str)]),
}

/// `min` and all above it.
pub(super) const fn from(min: u64) -> Range {
    let (max, or_zero) = (None, false);
    Range { min, max, or_zero }
}

/// As many as are given and all above, or 0. A smaller number can only be one whose unit was forgotten.
pub(super) const fn zero_or_from(min: u64) -> Range {
    let (max, or_zero) = (None, true);
    Range { min, max, or_zero }
}

/// `min` to `max`, both included.
pub(super) const fn between(min: u64, max: u64) -> Range {
    let (max, or_zero) = (Some(max), false);
    Range { min, max, or_zero }
}

impl Range {
    pub(super) fn holds(self, number: u64) -> bool {
        let is_zero = self.or_zero && number == 0;
        is_zero || number >= self.min && self.max.is_none_or(|max| number <= max)
    }

    /// False for what is no number at all (NaN), as every comparison with it is.
    #[allow(clippy::cast_precision_loss)] // the ends of ranges of time are small
    pub(super) fn holds_seconds(self, seconds: f64) -> bool {
        seconds >= self.min as f64 && self.max.is_none_or(|max| seconds <= max as f64)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.max {
            Some(max) => write!(out, "from {} to {max}", self.min),
            None => write!(out, ">= {}", self.min),
        }
    }
}

impl From<Preset> for Value {
    fn from(preset: Preset) -> Self {
        match preset {
            Preset::Null => Value::Null,
            Preset::Bool(value) => value.into(),
            Preset::Number(number) => number.into(),
            Preset::Text(text) => text.into(),
            Preset::List(items) => items.to_vec().into(),
            Preset::Map(items) => items.iter().copied().collect(),
        }
    }
}
