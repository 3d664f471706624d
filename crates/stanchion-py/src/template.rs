//! The templates that environs are copies of. Most entries of one request's environ hold for the next request as well.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use stanchion_http::gateway::{percent_decoded, split_host, split_mount, split_target};
use stanchion_record::{RequestFacts, RequestRecord};
use stanchion_settings::Settings;

use crate::names::{FieldName, Role};
use crate::strings::{KEPT_BYTES_MAX, Strings, text};

/// Up to this length a request's bytes are remembered.
const SENT_BYTES_MAX: usize = 1024;

/// An environ that has all keys already, for requests with the same fields in the same order.
pub(crate) struct Template {
    pub(crate) dict: Py<PyDict>,
    shown: Shown,
    fields: Vec<TemplateField>,
    /// The bytes of the request that was shown last. Empty if they are too long, or if the template does not show all of the request.
    sent: Vec<u8>,
}

/// How a request fits a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It equals the request that was shown last.
    Whole,
    /// It has the template's fields.
    Names,
}

/// A field of requests that fit the template.
struct TemplateField {
    /// Its name, as clients send it.
    sent: Box<[u8]>,
    is_host: bool,
    shown: ShownField,
}

enum ShownField {
    /// In the template, because its value is likely to come again.
    Usual(Value),
    /// In each environ only. It may be a secret, so it is not kept.
    Other(Py<PyString>),
}

/// Entries of an environ that its template lacks, by key.
type Unkept<'py> = Vec<(Bound<'py, PyString>, Bound<'py, PyString>)>;

/// A value of a template, and the bytes that it was made of. Both are empty while the value is not kept.
struct Value {
    key: Py<PyString>,
    bytes: Vec<u8>,
}

impl Value {
    fn new(dict: &Bound<'_, PyDict>, key: &Bound<'_, PyString>) -> PyResult<Self> {
        dict.set_item(key, "")?;
        let (key, bytes) = (key.clone().unbind(), Vec::new());
        Ok(Self { key, bytes })
    }

    fn show<'py>(
        &mut self,
        dict: &Bound<'py, PyDict>,
        bytes: &[u8],
        unkept: &mut Unkept<'py>,
    ) -> PyResult<()> {
        self.show_with(dict, bytes, unkept, |py| text(py, bytes))
    }

    /// Shows a value in the template; a value that is too long to keep goes to `unkept`.
    fn show_with<'py>(
        &mut self,
        dict: &Bound<'py, PyDict>,
        bytes: &[u8],
        unkept: &mut Unkept<'py>,
        text: impl FnOnce(Python<'py>) -> Bound<'py, PyString>,
    ) -> PyResult<()> {
        if bytes.len() > KEPT_BYTES_MAX {
            return self.withhold(dict, text(dict.py()), unkept);
        }
        if self.bytes != bytes {
            dict.set_item(&self.key, text(dict.py()))?;
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn withhold<'py>(
        &mut self,
        dict: &Bound<'py, PyDict>,
        text: Bound<'py, PyString>,
        unkept: &mut Unkept<'py>,
    ) -> PyResult<()> {
        if !self.bytes.is_empty() {
            dict.set_item(&self.key, "")?;
            self.bytes.clear();
        }
        unkept.push((self.key.bind(dict.py()).clone(), text));
        Ok(())
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            key: self.key.clone_ref(py),
            bytes: self.bytes.clone(),
        }
    }
}

impl Template {
    /// A template without fields. `dict` holds the entries that are the same for every request.
    pub(crate) fn new(dict: Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self {
            shown: Shown::new(&dict)?,
            fields: Vec::new(),
            sent: Vec::new(),
            dict: dict.unbind(),
        })
    }

    /// A template for requests that have these fields as well, no two of which have the same key.
    pub(crate) fn with_fields<'n>(
        &self,
        py: Python<'_>,
        names: impl Iterator<Item = (&'n [u8], &'n FieldName)>,
    ) -> PyResult<Self> {
        let dict = self.dict.bind(py).copy()?;
        let fields = names.map(|(sent, name)| {
            let key = name.key.bind(py);
            let value = Value::new(&dict, key)?;
            Ok(TemplateField {
                sent: sent.into(),
                is_host: name.role == Role::Host,
                shown: if name.is_usual {
                    ShownField::Usual(value)
                } else {
                    ShownField::Other(value.key)
                },
            })
        });
        Ok(Self {
            fields: fields.collect::<PyResult<_>>()?,
            shown: self.shown.clone_ref(py),
            dict: dict.unbind(),
            sent: Vec::new(),
        })
    }

    /// How the request fits the template; `None` if its fields differ.
    pub(crate) fn fit(&self, request: &RequestRecord<'_>) -> Option<Fit> {
        // No record is empty. On a unix socket the server's name comes from the Host field, so an environ then needs a look at the fields.
        if self.sent == request.as_sent && !request.facts.server_port.is_empty() {
            return Some(Fit::Whole);
        }
        let sent = request.fields();
        let is_fitting = sent.len() == self.fields.len()
            && sent
                .zip(&self.fields)
                .all(|((name, _), field)| *field.sent == *name);
        is_fitting.then_some(Fit::Names)
    }

    /// Makes the environ of this request, which fits the template in this way.
    pub(crate) fn environ_of<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
        fit: Fit,
        strings: &mut Strings,
        script_name: &[u8],
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = self.dict.bind(py);
        let (mut host, mut unkept) = (None, Unkept::new());
        if fit == Fit::Whole {
            self.shown
                .show_connection(dict, request, strings, host, &mut unkept)?;
            return environ_with(dict, unkept);
        }
        self.sent.clear();
        for ((_, value), field) in request.fields().zip(&mut self.fields) {
            if field.is_host {
                host = Some(value);
            }
            match &mut field.shown {
                ShownField::Usual(shown) => {
                    shown.show_with(dict, value, &mut unkept, |py| strings.text(py, value))?;
                }
                ShownField::Other(key) => {
                    unkept.push((key.bind(py).clone(), text(py, value)));
                }
            }
        }
        self.shown
            .show_request(dict, request, script_name, &mut unkept)?;
        self.shown
            .show_connection(dict, request, strings, host, &mut unkept)?;
        if unkept.is_empty() && request.as_sent.len() <= SENT_BYTES_MAX {
            self.sent.extend_from_slice(request.as_sent);
        }
        environ_with(dict, unkept)
    }

    /// Makes the environ of this request; of its fields it has only those in `unkept`. `host` is the value of its Host field.
    pub(crate) fn environ_without_fields<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
        strings: &mut Strings,
        script_name: &[u8],
        host: Option<&[u8]>,
        mut unkept: Unkept<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = self.dict.bind(py);
        self.shown
            .show_request(dict, request, script_name, &mut unkept)?;
        self.shown
            .show_connection(dict, request, strings, host, &mut unkept)?;
        environ_with(dict, unkept)
    }
}

/// A copy of the template with these entries in addition.
fn environ_with<'py>(
    dict: &Bound<'py, PyDict>,
    unkept: Unkept<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let environ = dict.copy()?;
    for (key, value) in unkept {
        environ.set_item(key, value)?;
    }
    Ok(environ)
}

/// The values in a template that come from the request that was shown last.
struct Shown {
    method: Value,
    raw_uri: Value,
    path_info: Value,
    /// Its key alone: the value may hold a secret, so it is empty in templates.
    query_string: Py<PyString>,
    protocol: Value,
    /// `None` if no request was shown.
    is_https: Option<bool>,
    remote_addr: Value,
    server_name: Value,
    server_port: Value,
    /// 0 if the request has none.
    peer_port: u16,
}

impl Shown {
    fn new(dict: &Bound<'_, PyDict>) -> PyResult<Self> {
        let value = |key| Value::new(dict, &PyString::intern(dict.py(), key));
        let py = dict.py();
        let query_string = intern!(py, "QUERY_STRING");
        for key in [query_string, intern!(py, "wsgi.url_scheme")] {
            dict.set_item(key, "")?;
        }
        Ok(Self {
            method: value("REQUEST_METHOD")?,
            raw_uri: value("RAW_URI")?,
            path_info: value("PATH_INFO")?,
            query_string: query_string.clone().unbind(),
            protocol: value("SERVER_PROTOCOL")?,
            is_https: None,
            remote_addr: value("REMOTE_ADDR")?,
            server_name: value("SERVER_NAME")?,
            server_port: value("SERVER_PORT")?,
            peer_port: 0,
        })
    }

    /// The same values, for a copy of the template.
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            method: self.method.clone_ref(py),
            raw_uri: self.raw_uri.clone_ref(py),
            path_info: self.path_info.clone_ref(py),
            query_string: self.query_string.clone_ref(py),
            protocol: self.protocol.clone_ref(py),
            is_https: self.is_https,
            remote_addr: self.remote_addr.clone_ref(py),
            server_name: self.server_name.clone_ref(py),
            server_port: self.server_port.clone_ref(py),
            peer_port: self.peer_port,
        }
    }

    /// Shows the protocol, method and target of a request.
    fn show_request<'py>(
        &mut self,
        dict: &Bound<'py, PyDict>,
        request: &RequestRecord<'_>,
        script_name: &[u8],
        unkept: &mut Unkept<'py>,
    ) -> PyResult<()> {
        let py = dict.py();
        self.protocol.show(dict, request.protocol, unkept)?;
        self.method.show(dict, request.method, unkept)?;
        if self.raw_uri.bytes != request.target {
            let (path, query) = split_target(request.target);
            let path = percent_decoded(path);
            let path_info = below_mount(&path, script_name);
            self.path_info.show(dict, path_info, unkept)?;
            if query.is_empty() {
                self.raw_uri.show(dict, request.target, unkept)?;
            } else {
                let raw_uri = text(py, request.target);
                self.raw_uri.withhold(dict, raw_uri, unkept)?;
                unkept.push((self.query_string.bind(py).clone(), text(py, query)));
            }
        }
        Ok(())
    }

    /// Shows where the request came from and how. `host` is the value of its Host field.
    fn show_connection<'py>(
        &mut self,
        dict: &Bound<'py, PyDict>,
        request: &RequestRecord<'_>,
        strings: &mut Strings,
        host: Option<&[u8]>,
        unkept: &mut Unkept<'py>,
    ) -> PyResult<()> {
        let facts = &request.facts;
        if self.is_https != Some(facts.is_https) {
            let scheme = if facts.is_https { "https" } else { "http" };
            dict.set_item(intern!(dict.py(), "wsgi.url_scheme"), scheme)?;
            self.is_https = Some(facts.is_https);
        }
        self.remote_addr.show(dict, facts.peer_address, unkept)?;
        let (name, port) = server_of(facts, host);
        self.server_name
            .show_with(dict, name, unkept, |py| strings.text(py, name))?;
        self.server_port
            .show_with(dict, port, unkept, |py| strings.text(py, port))?;
        self.show_peer_port(dict, facts.peer_port, strings)
    }

    /// Shows the client's port. On a unix socket the environ has no such key.
    fn show_peer_port(
        &mut self,
        dict: &Bound<'_, PyDict>,
        port: u16,
        strings: &mut Strings,
    ) -> PyResult<()> {
        if port != self.peer_port {
            let py = dict.py();
            let key = intern!(py, "REMOTE_PORT");
            if port == 0 {
                dict.del_item(key)?;
            } else {
                dict.set_item(key, strings.port(py, port))?;
            }
            self.peer_port = port;
        }
        Ok(())
    }
}

/// Name and port of the listener; on a unix socket those in the Host field, as in gunicorn.
fn server_of<'r>(facts: &RequestFacts<'r>, host: Option<&'r [u8]>) -> (&'r [u8], &'r [u8]) {
    if !facts.server_port.is_empty() {
        return (facts.server_name, facts.server_port);
    }
    let default_port: &[u8] = if facts.is_https { b"443" } else { b"80" };
    let own = (facts.server_name, default_port);
    host.map_or(own, |host| split_host(host, default_port))
}

/// Where the app is mounted: if the settings do not say, the process's `SCRIPT_NAME` does, as in gunicorn.
pub(crate) fn mount_point(settings: &Settings) -> String {
    let root_path = &settings.app.root_path;
    if root_path.is_empty() {
        return std::env::var("SCRIPT_NAME").unwrap_or_default();
    }
    root_path.clone()
}

/// The path below the mount point. A path outside the mount point is returned whole: the app will not find it.
pub(crate) fn below_mount<'p>(path: &'p [u8], script_name: &[u8]) -> &'p [u8] {
    split_mount(path, script_name).unwrap_or(path)
}
