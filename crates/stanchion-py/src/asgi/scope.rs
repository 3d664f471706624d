//! The scope of a request (ASGI 3, HTTP 2.3, WebSocket 2.5).

use std::collections::HashMap;
use std::net::IpAddr;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use stanchion_http::gateway::{FieldDecision, FieldRules, percent_decoded, split_target};
use stanchion_http::{REQUEST_START, VARIABLE};
use stanchion_record::RequestRecord;
use stanchion_server::Worker;
use stanchion_settings::Believed;

use super::extensions::Extensions;
use crate::strings::{request_start, text};
use crate::template::mount_point;
use crate::tls::TlsExtension;

/// How many heads have their scopes kept: clients that stay send the same head again and again.
const KEPT: usize = 8;
/// The scope of a longer head is not kept.
const KEPT_BYTES_MAX: usize = 4 * 1024;
/// How many names of fields are remembered; a client cannot make a worker keep more.
const NAMES_MAX: usize = 256;
/// A longer name is not remembered.
const NAME_BYTES_MAX: usize = 64;

/// The version of the specification in scopes of HTTP. With a later version Starlette does not listen for its client to leave, but waits for `send`
/// to raise, which leaves generators of streams suspended: Python finalizes them at some later time, with errors that lead nowhere. uvicorn, for
/// which apps are written, has this version too.
const HTTP_VERSION: &str = "2.3";
/// The version in scopes of `WebSocket`s: their `send` raises, as the specification requires since 2.4.
const WEBSOCKET_VERSION: &str = "2.5";

/// Fields that keep a scope from being kept, in lower case.
const PERSONAL: [&[u8]; 10] = [
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"x-api-key",
    b"x-request-id",
    b"x-request-start",
    b"traceparent",
    b"x-forwarded-for",
    b"forwarded",
    b":REMOTE_ADDR",
];

/// Makes scopes, and keeps those that are likely to be wanted again.
pub(crate) struct Scopes {
    /// The entries that every scope has.
    bare: Py<PyDict>,
    asgi: Py<PyDict>,
    root_path: Vec<u8>,
    /// The trusted proxies, and the field in which they give the client's address.
    believed: Believed,
    rules: FieldRules,
    /// Names of fields in lower case, by the names that clients sent.
    names: HashMap<Box<[u8]>, Py<PyBytes>>,
    kept: Vec<CachedScope>,
    tls: TlsExtension,
    /// The name of the field that each request has in addition, unless a proxy has set it.
    request_start: Py<PyBytes>,
    turn: usize,
    /// The state of the app's lifespan, of which each request gets a copy.
    state: Option<Py<PyDict>>,
    /// The event by which requests learn that their worker leaves.
    leaving: Option<Py<PyAny>>,
}

/// The scope that was made of a head, without the entries that belong to one request only.
struct CachedScope {
    as_sent: Box<[u8]>,
    is_from_proxy: bool,
    scope: Py<PyDict>,
    headers: Py<PyList>,
}

impl Scopes {
    pub(crate) fn new(py: Python<'_>, worker: &Worker) -> PyResult<Self> {
        let settings = worker.settings();
        let root_path = mount_point(settings);
        let bare = PyDict::new(py);
        bare.set_item("type", "http")?;
        bare.set_item("root_path", &root_path)?;
        let asgi = PyDict::new(py);
        asgi.set_item("version", "3.0")?;
        asgi.set_item("spec_version", HTTP_VERSION)?;
        Ok(Self {
            bare: bare.unbind(),
            asgi: asgi.unbind(),
            believed: settings.believed(),
            root_path: root_path.into_bytes(),
            rules: settings.field_rules(),
            names: HashMap::new(),
            kept: Vec::new(),
            tls: TlsExtension::default(),
            request_start: PyBytes::new(py, REQUEST_START.as_bytes()).unbind(),
            turn: 0,
            state: None,
            leaving: None,
        })
    }

    /// Gives every request a copy of this state, and this event, from now on.
    pub(crate) fn share(&mut self, state: Option<Py<PyDict>>, leaving: Py<PyAny>) {
        self.state = state;
        self.leaving = Some(leaving);
    }

    pub(crate) fn make<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
        offered: Extensions,
    ) -> PyResult<Bound<'py, PyDict>> {
        let facts = &request.facts;
        let scope = self.of_head(py, request)?;
        let scheme = match (facts.is_websocket, facts.is_https) {
            (false, false) => intern!(py, "http"),
            (false, true) => intern!(py, "https"),
            (true, false) => intern!(py, "ws"),
            (true, true) => intern!(py, "wss"),
        };
        scope.set_item(intern!(py, "scheme"), scheme)?;
        // Each scope has a copy of its own, because the app may change it.
        let asgi = self.asgi.bind(py).copy()?;
        // Each scope also has extensions of its own, and an app may add to each of them.
        let extensions = PyDict::new(py);
        if let Some(leaving) = &self.leaving {
            let own = PyDict::new(py);
            own.set_item(intern!(py, "leaving"), leaving)?;
            extensions.set_item(intern!(py, "stanchion"), own)?;
        }
        if facts.is_websocket {
            make_websocket(&scope, request)?;
            asgi.set_item(intern!(py, "spec_version"), WEBSOCKET_VERSION)?;
            extensions.set_item(intern!(py, "websocket.http.response"), PyDict::new(py))?;
        }
        offered.name_in(&extensions)?;
        if !facts.tls.is_empty() {
            extensions.set_item(intern!(py, "tls"), self.tls.make(py, facts.tls)?)?;
        }
        scope.set_item(intern!(py, "asgi"), asgi)?;
        scope.set_item(intern!(py, "extensions"), extensions)?;
        if facts.trusted_peer && scope.contains(intern!(py, "client"))? {
            // The client is the one in the head's field.
        } else if facts.peer_address.is_empty() {
            scope.set_item(intern!(py, "client"), py.None())?;
        } else {
            let client = (text(py, facts.peer_address), facts.peer_port);
            scope.set_item(intern!(py, "client"), client)?;
        }
        let port = std::str::from_utf8(facts.server_port).ok();
        let port = port.and_then(|port| port.parse::<u16>().ok());
        let server = (text(py, facts.server_name), port);
        scope.set_item(intern!(py, "server"), server)?;
        if let Some(state) = &self.state {
            scope.set_item(intern!(py, "state"), state.bind(py).copy()?)?;
        }
        Ok(scope)
    }

    /// The entries that depend on the head, and on when the request arrived.
    fn of_head<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let facts = &request.facts;
        let known = self.kept.iter().find(|kept| {
            kept.is_from_proxy == facts.trusted_peer && *kept.as_sent == *request.as_sent
        });
        let (scope, headers) = match known {
            Some(kept) => {
                let scope = kept.scope.bind(py).copy()?;
                // A copy, because the app may change the list.
                let headers = kept.headers.bind(py);
                (scope, headers.get_slice(0, headers.len()))
            }
            None => self.make_anew(py, request)?,
        };
        if let Some(us) = facts.request_start_us {
            let start = request_start(us, |value| PyBytes::new(py, value));
            headers.append((self.request_start.bind(py), start))?;
        }
        scope.set_item(intern!(py, "headers"), headers)?;
        Ok(scope)
    }

    /// Makes the entries that depend on the head alone, for a request of HTTP, and the list of its fields, which is for the
    /// caller to put in.
    fn make_anew<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyList>)> {
        let scope = self.bare.bind(py).copy()?;
        let (path, query) = split_target(request.target);
        // As in uvicorn and hypercorn: the whole path, which begins with `root_path`.
        let decoded = percent_decoded(path);
        let shown = String::from_utf8_lossy(&decoded);
        let root = String::from_utf8_lossy(&self.root_path);
        let below = shown.strip_prefix(&*root);
        let full = if below.is_some_and(|below| below.is_empty() || below.starts_with('/')) {
            shown
        } else {
            format!("{root}{shown}").into()
        };
        scope.set_item(intern!(py, "path"), full)?;
        if let Some(root_path) = request.variable("SCRIPT_NAME") {
            scope.set_item(intern!(py, "root_path"), String::from_utf8_lossy(root_path))?;
        }
        scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, path))?;
        scope.set_item(intern!(py, "query_string"), PyBytes::new(py, query))?;
        let method = PyString::new(py, &String::from_utf8_lossy(request.method));
        scope.set_item(intern!(py, "method"), method)?;
        let version = request
            .protocol
            .strip_prefix(b"HTTP/")
            .unwrap_or(request.protocol);
        // ASGI's specification writes "2", although it writes "1.1".
        let version = if version == b"2.0" { b"2" } else { version };
        scope.set_item(intern!(py, "http_version"), text(py, version))?;
        let headers = PyList::empty(py);
        for (name, value) in request.fields() {
            if name.starts_with(&[VARIABLE]) {
                continue;
            }
            if self.rules.fate(name, request.facts.trusted_peer) == FieldDecision::Shown {
                headers.append((self.name(py, name), PyBytes::new(py, value)))?;
            }
        }
        if let Some(client) = self.forwarded_client(request) {
            // As in uvicorn: the port is 0, because proxies do not give it.
            let client = (text(py, client.to_string().as_bytes()), 0);
            scope.set_item(intern!(py, "client"), client)?;
        }
        // As with environs, a scope is not kept if it may hold a secret or belongs to one client alone.
        let is_public = query.is_empty() && !request.fields().any(|(name, _)| is_personal(name));
        if is_public && request.as_sent.len() <= KEPT_BYTES_MAX {
            let kept = CachedScope {
                as_sent: request.as_sent.into(),
                is_from_proxy: request.facts.trusted_peer,
                scope: scope.copy()?.unbind(),
                headers: headers.get_slice(0, headers.len()).unbind(),
            };
            let place = self.turn % KEPT;
            self.turn += 1;
            match self.kept.get_mut(place) {
                Some(old) => *old = kept,
                None => self.kept.push(kept),
            }
        }
        Ok((scope, headers))
    }

    /// The client's address, if a trusted proxy gives it.
    fn forwarded_client(&self, request: &RequestRecord<'_>) -> Option<IpAddr> {
        if !request.facts.trusted_peer {
            return None;
        }
        let (by, fields) = (self.believed.field, request.fields());
        let said = fields.filter(|(name, _)| name.eq_ignore_ascii_case(by.name().as_bytes()));
        let said: Vec<_> = said.map(|(_, value)| value).collect();
        by.nearest(said.into_iter(), |ip| self.believed.peers.lists(ip))
    }

    /// A field's name in lower case.
    fn name(&mut self, py: Python<'_>, sent: &[u8]) -> Py<PyBytes> {
        if let Some(name) = self.names.get(sent) {
            return name.clone_ref(py);
        }
        let name = PyBytes::new(py, &sent.to_ascii_lowercase()).unbind();
        if self.names.len() < NAMES_MAX && sent.len() <= NAME_BYTES_MAX {
            self.names.insert(sent.into(), name.clone_ref(py));
        }
        name
    }
}

/// Whether the value of a field may be a secret, or differs in each request.
fn is_personal(name: &[u8]) -> bool {
    PERSONAL
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// Turns the scope of a request into the scope of its WebSocket.
fn make_websocket(scope: &Bound<'_, PyDict>, request: &RequestRecord<'_>) -> PyResult<()> {
    let py = scope.py();
    scope.set_item(intern!(py, "type"), intern!(py, "websocket"))?;
    scope.del_item(intern!(py, "method"))?;
    let subprotocols = PyList::empty(py);
    for (name, value) in request.fields() {
        if name.eq_ignore_ascii_case(b"sec-websocket-protocol") {
            for subprotocol in value.split(|byte| *byte == b',') {
                subprotocols.append(text(py, subprotocol.trim_ascii()))?;
            }
        }
    }
    scope.set_item(intern!(py, "subprotocols"), subprotocols)
}
