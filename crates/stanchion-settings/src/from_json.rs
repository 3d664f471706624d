//! Settings from the values that are set, over the defaults of the table.

use serde_json::{Map, Value};

use super::resolve::{Layer, resolve};
use super::{Settings, SettingsError};

impl Settings {
    /// Reads `{name: value}`, the values that are set, over the defaults, with every check of the table.
    pub fn from_json(text: &str) -> Result<Self, SettingsError> {
        Self::from_values(serde_json::from_str(text)?)
    }

    fn from_values(values: Map<String, Value>) -> Result<Self, SettingsError> {
        let resolution = resolve(&[Layer {
            origin: "settings".into(),
            values,
        }]);
        let mut errors = resolution.errors;
        errors.extend(resolution.unknown.iter().map(ToString::to_string));
        if !errors.is_empty() {
            return Err(SettingsError::Invalid(errors));
        }
        let preload = &resolution.values["preload_app"];
        let is_preload_asked_for = !preload.is_default() && preload.value == Value::Bool(true);
        let bounds_clients_by_default = resolution.values["max_client_memory"].is_default();
        let values = resolution
            .values
            .into_iter()
            .map(|(name, one)| (name.to_owned(), one.value));
        let settings: Self = serde_json::from_value(Value::Object(values.collect()))?;
        Ok(Self {
            is_preload_asked_for,
            bounds_clients_by_default,
            ..settings
        })
    }
}

impl Default for Settings {
    /// The defaults of the table.
    fn default() -> Self {
        Self::from_values(Map::new()).expect("the table's defaults pass the table's own checks")
    }
}
