//! The extensions of HTTP that a scope names: messages that an app may send in addition.

use std::fmt;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_http::HTTP2;
use stanchion_record::RequestRecord;
use stanchion_settings::Settings;

const FILES: &str = "http.response.pathsend";
const TRAILERS: &str = "http.response.trailers";
const HINTS: &str = "http.response.early_hint";

/// The extensions of one request.
#[derive(Clone, Copy)]
pub(super) struct Extensions {
    pub(super) files: bool,
    pub(super) trailers: bool,
    pub(super) hints: bool,
}

impl Extensions {
    pub(super) fn of(record: &RequestRecord<'_>, settings: &Settings) -> Self {
        let is_http = !record.facts.is_websocket;
        Self {
            files: is_http && settings.answers.pathsend,
            trailers: is_http && record.protocol == HTTP2.as_bytes(),
            hints: is_http && record.facts.takes_hints,
        }
    }

    /// Names them in a scope, each with a dict of its own, which the app may change.
    pub(super) fn name_in(self, extensions: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = extensions.py();
        if self.files {
            extensions.set_item(intern!(py, FILES), PyDict::new(py))?;
        }
        if self.trailers {
            extensions.set_item(intern!(py, TRAILERS), PyDict::new(py))?;
        }
        if self.hints {
            extensions.set_item(intern!(py, HINTS), PyDict::new(py))?;
        }
        Ok(())
    }

    fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.files, FILES),
            (self.trailers, TRAILERS),
            (self.hints, HINTS),
        ];
        all.into_iter()
            .filter(|(is_offered, _)| *is_offered)
            .map(|(_, name)| name)
    }
}

/// The log adds this to the report of an incomplete answer: a middleware may have dropped the rest of it.
impl fmt::Display for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        if names.is_empty() {
            return Ok(());
        }
        let names = names.join(", ");
        write!(
            f,
            " (its scope offered {names}: a middleware may drop such a message and what it goes with"
        )?;
        if self.files {
            write!(f, "; the server offers {FILES} only with `pathsend`")?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_what_was_offered_and_the_setting_for_it() {
        let said = |files, trailers, hints| {
            let offered = Extensions {
                files,
                trailers,
                hints,
            };
            offered.to_string()
        };
        assert_eq!(said(false, false, false), "");
        assert_eq!(
            said(false, true, true),
            " (its scope offered http.response.trailers, http.response.early_hint: a middleware may drop such a \
             message and what it goes with)"
        );
        assert_eq!(
            said(true, false, false),
            " (its scope offered http.response.pathsend: a middleware may drop such a message and what it goes with; \
             the server offers http.response.pathsend only with `pathsend`)"
        );
    }
}
