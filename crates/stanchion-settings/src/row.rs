//! The rows of the table of settings, and the words in which they are written.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::Seconds;
use super::kind::{Check, FromMap, Items, Preset, Range, ValueKind, between, from, zero_or_from};
use super::text::{FromText, check};
use super::values::{Resolved, Values};
use super::words::{Worded, meaning, words};
use super::worker_count::WorkerCount;

/// The longest time a setting takes, about 30 years: far below where adding it to a clock
/// overflows.
const SECONDS_MAX: u64 = 1_000_000_000;

/// The least limit of a size but for 0: of a smaller number the unit was forgotten, as in 80 for 80 MB.
const SIZE_BYTES_MIN: u64 = 512;

/// The facts on one setting, but for its type and its help.
#[derive(Debug)]
pub struct Setting {
    /// Its name in a config file and in `stanchion check`.
    pub name: &'static str,
    /// Its flags, and the word for the value: `-t --timeout SECONDS`.
    flags: &'static str,
    /// The environment variable that gives a default.
    pub env: Option<Env>,
    /// Which values it takes.
    pub kind: ValueKind,
    /// Its value where no layer sets it.
    pub default: Preset,
    /// Whether gunicorn has a setting of this name and meaning.
    pub gunicorn: bool,
    /// The effect of a reload on a change of it.
    pub on_reload: OnReload,
}

/// An environment variable that supplies a default, below the config file as in gunicorn.
#[derive(Debug)]
pub struct Env {
    /// The variable's name.
    pub name: &'static str,
    /// The value it gives, with `{}` where the variable's text goes.
    pub format: &'static str,
}

/// The effect of a reload on a change of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReload {
    /// The new generation goes by the new value.
    Applies,
    /// Nothing: it is the master's, and a master lives until the server is restarted.
    Stays,
    /// Nothing for this part of the error log, which is the master's; all else goes by the new value.
    StaysInErrorLog(&'static str),
}

impl Setting {
    /// The flags, the preferred long one first after a short one; none: config file only. A flag
    /// of a [`ValueKind::Bool`] that begins with `--no-` switches it off.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let words = self.flags.split_whitespace();
        words.filter(|word| word.starts_with('-'))
    }

    /// The word for the value in the help, such as `SECONDS`; empty if there are no flags, or if they take none.
    pub fn metavar(&self) -> &'static str {
        let last = self.flags.split_whitespace().last();
        last.filter(|word| !word.starts_with('-')).unwrap_or("")
    }
}

/// One row: the facts on a setting whose values are `T`.
#[derive(Debug)]
pub(super) struct Row<T> {
    pub(super) setting: Setting,
    /// From a value of the setting's kind.
    read: fn(&Value) -> Option<T>,
}

impl<T> Row<T> {
    const fn new(kind: ValueKind, default: Preset, read: fn(&Value) -> Option<T>) -> Self {
        let setting = Setting {
            name: "",
            flags: "",
            env: None,
            kind,
            default,
            gunicorn: false,
            on_reload: OnReload::Applies,
        };
        Self { setting, read }
    }

    /// The name, unless it has one: a field cannot be called `loop`.
    pub(super) const fn named(mut self, name: &'static str) -> Self {
        if self.setting.name.is_empty() {
            self.setting.name = name;
        }
        self
    }

    pub(super) const fn flags(mut self, flags: &'static str) -> Self {
        self.setting.flags = flags;
        self
    }

    pub(super) const fn env(mut self, name: &'static str, format: &'static str) -> Self {
        self.setting.env = Some(Env { name, format });
        self
    }

    /// gunicorn has a setting of this name and meaning.
    pub(super) const fn of_gunicorn(mut self) -> Self {
        self.setting.gunicorn = true;
        self
    }

    /// A reload does not change it.
    pub(super) const fn stays(mut self) -> Self {
        self.setting.on_reload = OnReload::Stays;
        self
    }

    /// A reload does not change it in the error log.
    pub(super) const fn stays_in_error_log(mut self, part: &'static str) -> Self {
        self.setting.on_reload = OnReload::StaysInErrorLog(part);
        self
    }

    /// Each text has to pass this check, and no other.
    pub(super) const fn checked(mut self, new: Check) -> Self {
        if let ValueKind::Text { check, .. } | ValueKind::List(Items { check, .. }) =
            &mut self.setting.kind
        {
            *check = new;
        }
        self
    }

    /// The list is not empty.
    pub(super) const fn at_least_one(mut self) -> Self {
        if let ValueKind::List(items) = &mut self.setting.kind {
            items.may_be_empty = false;
        }
        self
    }

    /// A mapping in a config file may stand for an item.
    pub(super) const fn or_map(mut self, read: FromMap) -> Self {
        if let ValueKind::List(items) = &mut self.setting.kind {
            items.from_map = Some(read);
        }
        self
    }

    /// The value as `values` has it.
    pub(super) fn of(&self, values: &Values) -> T {
        let Resolved { value, .. } = &values[self.setting.name];
        (self.read)(value).expect("the setting's kind has checked it")
    }
}

/// A count. One beyond what `T` holds is as many as it holds.
pub(super) const fn int<T: TryFrom<u64> + Most>(default: u64, range: Range) -> Row<T> {
    Row::new(ValueKind::Int(range), Preset::Number(default), number)
}

/// A number of workers, or a range.
pub(super) const fn worker_count(default: u64) -> Row<WorkerCount> {
    let kind = ValueKind::Workers(from(1));
    Row::new(kind, Preset::Number(default), WorkerCount::read)
}

/// A number of bytes.
pub(super) const fn bytes<T: TryFrom<u64> + Most>(default: u64, range: Range) -> Row<T> {
    Row::new(ValueKind::Bytes(range), Preset::Number(default), number)
}

/// A limit of bytes, or 0.
pub(super) const fn size<T: TryFrom<u64> + Most>(default: u64) -> Row<T> {
    bytes(default, zero_or_from(SIZE_BYTES_MIN))
}

/// Bits of a mode.
pub(super) const fn octal(default: u64, range: Range) -> Row<u32> {
    Row::new(ValueKind::Octal(range), Preset::Number(default), number)
}

/// Any length of time.
pub(super) const fn seconds(default: u64) -> Row<Seconds> {
    let kind = ValueKind::Seconds(between(0, SECONDS_MAX));
    Row::new(kind, Preset::Number(default), |value| {
        Seconds::new(value.as_f64()?)
    })
}

/// Yes or no.
pub(super) const fn switch(default: bool) -> Row<bool> {
    Row::new(ValueKind::Bool, Preset::Bool(default), Value::as_bool)
}

/// A user or a group.
pub(super) const fn account() -> Row<Option<String>> {
    Row::new(ValueKind::Account, Preset::Null, maybe)
}

/// A word from a short list.
pub(super) const fn word<T: Worded>(default: &'static str) -> Row<T> {
    Row::new(
        ValueKind::Choice(words::<T>),
        Preset::Text(default),
        |value| meaning(value.as_str()?),
    )
}

/// A text that there always is.
pub(super) const fn text<T: FromText>(default: &'static str) -> Row<T> {
    let (nullable, check) = (false, check::<T>);
    let kind = ValueKind::Text { nullable, check };
    Row::new(kind, Preset::Text(default), |value| {
        T::read(value.as_str()?).ok()
    })
}

/// A text or none, which is the default.
pub(super) const fn optional<T: FromText>() -> Row<Option<T>> {
    let (nullable, check) = (true, check::<T>);
    Row::new(ValueKind::Text { nullable, check }, Preset::Null, maybe)
}

/// A text, or none if it is empty.
pub(super) const fn text_or_none<T: FromText>(default: &'static str) -> Row<Option<T>> {
    let mut row = optional();
    row.setting.default = Preset::Text(default);
    row
}

/// Texts.
pub(super) const fn list<T: FromText>(default: &'static [&'static str]) -> Row<Vec<T>> {
    let items = Items {
        may_be_empty: true,
        check: check::<T>,
        from_map: None,
    };
    Row::new(ValueKind::List(items), Preset::List(default), |value| {
        let items = value.as_array()?.iter();
        items.map(|item| T::read(item.as_str()?).ok()).collect()
    })
}

/// Texts by name.
pub(super) const fn map(
    default: &'static [(&'static str, &'static str)],
    check: fn(&str, &str) -> Result<(), String>,
) -> Row<BTreeMap<String, String>> {
    Row::new(ValueKind::Map { check }, Preset::Map(default), |value| {
        BTreeMap::deserialize(value).ok()
    })
}

/// The greatest value of a type of numbers.
pub(super) trait Most {
    const MOST: Self;
}

macro_rules! most {
    ($($type:ty),*) => { $(impl Most for $type { const MOST: Self = Self::MAX; })* };
}

most!(u8, u16, u32, i32, u64, usize);

fn number<T: TryFrom<u64> + Most>(value: &Value) -> Option<T> {
    Some(T::try_from(value.as_u64()?).unwrap_or(T::MOST))
}

#[allow(clippy::option_option)] // none is a value, too
fn maybe<T: FromText>(value: &Value) -> Option<Option<T>> {
    match value {
        Value::Null => Some(None),
        text => T::read(text.as_str()?).ok().map(Some),
    }
}
