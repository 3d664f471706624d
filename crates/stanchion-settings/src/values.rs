//! The value of each setting, and the place that it came from.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Where the values of the table come from, in `stanchion check`.
const TABLE_ORIGIN: &str = "default";

/// One value for each setting of the table, by name.
pub(super) type Values = BTreeMap<&'static str, Resolved>;

/// A value and the place that it came from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// The value, of the setting's kind.
    pub value: Value,
    /// The [`super::Layer::origin`], or "default".
    pub origin: String,
}

impl Resolved {
    /// The value of the table.
    pub(super) fn default(value: Value) -> Self {
        let origin = TABLE_ORIGIN.into();
        Self { value, origin }
    }

    /// Whether no layer has set it.
    pub(super) fn is_default(&self) -> bool {
        self.origin == TABLE_ORIGIN
    }
}
