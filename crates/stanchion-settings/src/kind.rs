//! The kinds of values that settings take.

/// A check of a text: what is wrong with it, without naming the setting.
pub type Check = fn(&str) -> Result<(), String>;

/// The text that a mapping stands for, or what is wrong with it.
pub type FromMap = fn(&serde_json::Map<String, serde_json::Value>) -> Result<String, String>;

/// Which values a setting takes.
#[derive(Debug)]
pub enum Kind {
    /// A whole number.
    Int(Range),
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
    List {
        /// Whether an empty list will do.
        may_be_empty: bool,
        /// Whether this item will do.
        check: Check,
        /// The text for a mapping in a config file, where a mapping may stand for an item.
        from_map: Option<FromMap>,
    },
    /// Texts by name, from a config file.
    Map {
        /// Whether this name with this text will do.
        check: fn(&str, &str) -> Result<(), String>,
    },
    /// A word of this list, in any case.
    Choice(&'static [&'static str]),
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
#[derive(Debug)]
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

impl Range {
    /// `min` and all above it.
    pub(super) const fn from(min: u64) -> Self {
        Self {
            min,
            max: None,
            or_zero: false,
        }
    }

    /// As many as are given and all above, or 0. A smaller number can only be one whose unit was forgotten.
    pub(super) const fn zero_or_from(min: u64) -> Self {
        Self {
            or_zero: true,
            ..Self::from(min)
        }
    }

    /// `min` to `max`, both included.
    pub(super) const fn between(min: u64, max: u64) -> Self {
        Self {
            min,
            max: Some(max),
            or_zero: false,
        }
    }
}
