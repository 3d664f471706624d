//! The environ of a request (PEP 3333, with gunicorn's additions).

use std::collections::HashMap;
use std::sync::Mutex;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};
use stanchion_server::Worker;
use stanchion_server::record::{BodyRecord, RequestLine, RequestRecord, percent_decoded};

use crate::errors::ErrorLog;
use crate::file_wrapper::FileWrapper;

/// Names of fields whose environ keys are remembered; a client cannot make us keep more.
const NAMES_MAX: usize = 256;

/// Makes environs: what is the same for all requests is made once and copied.
pub(crate) struct EnvironFactory {
    base: Py<PyDict>,
    bytes_io: Py<PyAny>,
    open: Py<PyAny>,
    /// `SCRIPT_NAME` of the process's own environment, as gunicorn has it.
    script_name: String,
    /// The key of the field that carries requests' names, if they have any.
    request_id_key: Option<Py<PyString>>,
    /// `HTTP_...` keys by the field's name.
    names: Mutex<HashMap<Vec<u8>, Py<PyString>>>,
}

impl EnvironFactory {
    pub(crate) fn new(py: Python<'_>, worker: &Worker) -> PyResult<Self> {
        let base = PyDict::new(py);
        base.set_item("wsgi.version", (1, 0))?;
        base.set_item("wsgi.errors", Py::new(py, ErrorLog)?)?;
        base.set_item("wsgi.multithread", worker.seats() > 1)?;
        base.set_item("wsgi.multiprocess", worker.settings().workers > 1)?;
        base.set_item("wsgi.run_once", false)?;
        base.set_item("wsgi.input_terminated", true)?;
        base.set_item("wsgi.file_wrapper", PyType::new::<FileWrapper>(py))?;
        base.set_item(
            "SERVER_SOFTWARE",
            concat!("stanchion/", env!("CARGO_PKG_VERSION")),
        )?;
        let io = py.import("io")?;
        let header = worker.settings().request_id_header.as_deref();
        let request_id_key = header.map(|name| environ_key(py, name.as_bytes()).unbind());
        Ok(Self {
            base: base.unbind(),
            bytes_io: io.getattr("BytesIO")?.unbind(),
            open: io.getattr("open")?.unbind(),
            script_name: std::env::var("SCRIPT_NAME").unwrap_or_default(),
            request_id_key,
            names: Mutex::default(),
        })
    }

    /// The environ of one request.
    pub(crate) fn make<'py>(
        &self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let environ = self.base.bind(py).copy()?;
        let line = &request.line;
        let protocol = if line.minor_version == 0 {
            intern!(py, "HTTP/1.0")
        } else {
            intern!(py, "HTTP/1.1")
        };
        environ.set_item(
            intern!(py, "REQUEST_METHOD"),
            text(py, line.method.as_bytes()),
        )?;
        environ.set_item(intern!(py, "RAW_URI"), text(py, line.target))?;
        environ.set_item(intern!(py, "SERVER_PROTOCOL"), protocol)?;
        environ.set_item(
            intern!(py, "REMOTE_ADDR"),
            text(py, line.peer_address.as_bytes()),
        )?;
        if line.peer_port != 0 {
            let port = line.peer_port.to_string();
            environ.set_item(intern!(py, "REMOTE_PORT"), text(py, port.as_bytes()))?;
        }
        let scheme = if line.scheme == "https" {
            intern!(py, "https")
        } else {
            intern!(py, "http")
        };
        environ.set_item(intern!(py, "wsgi.url_scheme"), scheme)?;
        environ.set_item(intern!(py, "wsgi.input"), self.input(py, request)?)?;

        let mut script_name = self.script_name.as_bytes();
        let mut host = None;
        for (name, value) in request.fields() {
            match name {
                b"content-length" => {
                    environ.set_item(intern!(py, "CONTENT_LENGTH"), text(py, value))?;
                }
                b"content-type" => {
                    environ.set_item(intern!(py, "CONTENT_TYPE"), text(py, value))?;
                }
                // A proxy we believe says where the app is mounted (gunicorn's forwarder_headers).
                b"script_name" if line.trusted_peer => script_name = value,
                // `X_Real_IP` would become the same key as `X-Real-IP`, which a proxy vouches for.
                _ if name.contains(&b'_') => {}
                _ => {
                    if name == b"host" {
                        host = Some(value);
                    }
                    self.add_field(py, &environ, name, value)?;
                }
            }
        }
        self.add_names(py, &environ, line)?;
        Self::add_target(py, &environ, line.target, script_name)?;
        Self::add_server(
            py,
            &environ,
            line.server_name,
            line.server_port,
            line.scheme,
            host,
        )?;
        Ok(environ)
    }

    /// What the request is called, also in place of what a client says it is, and how long it took
    /// to get here.
    fn add_names(
        &self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        line: &RequestLine<'_>,
    ) -> PyResult<()> {
        if let Some(key) = &self.request_id_key {
            let id = text(py, line.request_id.as_bytes());
            environ.set_item(key, &id)?;
            environ.set_item(intern!(py, "stanchion.request_id"), id)?;
        }
        if let Some(proxy_us) = line.proxy_us {
            let proxy_s = proxy_us as f64 / 1e6;
            environ.set_item(intern!(py, "stanchion.proxy_wait"), proxy_s)?;
        }
        Ok(())
    }

    /// The whole body has arrived, so a file of Python's own serves: `BytesIO` for what is in
    /// memory, a `BufferedReader` for what is in the spool.
    fn input<'py>(
        &self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match request.body {
            BodyRecord::Memory([]) => self.bytes_io.bind(py).call0(),
            // `BytesIO` shares the bytes until somebody writes.
            BodyRecord::Memory(bytes) => self.bytes_io.bind(py).call1((PyBytes::new(py, bytes),)),
            BodyRecord::Spooled { path, .. } => self.open.bind(py).call1((path, "rb")),
        }
    }

    fn add_field(
        &self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        name: &[u8],
        value: &[u8],
    ) -> PyResult<()> {
        let key = self.key(py, name);
        // Repeated fields are one list (RFC 9110 section 5.2); cookies have their own separator
        // (RFC 6265 section 4.2.1).
        let joined = match environ.get_item(&key)? {
            Some(earlier) => {
                let separator = if name == b"cookie" { "; " } else { "," };
                let value = text(py, value);
                let joined = format!("{}{separator}{}", earlier.str()?.to_str()?, value.to_str()?);
                PyString::new(py, &joined)
            }
            None => text(py, value),
        };
        environ.set_item(key, joined)
    }

    fn key<'py>(&self, py: Python<'py>, name: &[u8]) -> Bound<'py, PyString> {
        let mut names = self
            .names
            .lock_py_attached(py)
            .expect("nothing panics while it is held");
        if let Some(key) = names.get(name) {
            return key.bind(py).clone();
        }
        let key = environ_key(py, name);
        if names.len() < NAMES_MAX {
            names.insert(name.to_vec(), key.clone().unbind());
        }
        key
    }

    fn add_target(
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        target: &[u8],
        script_name: &[u8],
    ) -> PyResult<()> {
        let (path, query) = split_target(target);
        let path = percent_decoded(path);
        let mut path_info: &[u8] = &path;
        // A path outside the mount point is left whole: the app will not find it.
        if let Some(rest @ ([] | [b'/', ..])) = path_info.strip_prefix(script_name) {
            path_info = rest;
        }
        environ.set_item(intern!(py, "SCRIPT_NAME"), text(py, script_name))?;
        environ.set_item(intern!(py, "PATH_INFO"), text(py, path_info))?;
        environ.set_item(intern!(py, "QUERY_STRING"), text(py, query))
    }

    /// A listener's own address; on a unix socket, what the Host field says, as in gunicorn.
    fn add_server(
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        name: &str,
        port: &str,
        scheme: &str,
        host: Option<&[u8]>,
    ) -> PyResult<()> {
        let default_port = if scheme == "https" { "443" } else { "80" };
        let (name, port): (&[u8], &[u8]) = match (port, host) {
            ("", Some(host)) => split_host(host, default_port.as_bytes()),
            ("", None) => (name.as_bytes(), default_port.as_bytes()),
            _ => (name.as_bytes(), port.as_bytes()),
        };
        environ.set_item(intern!(py, "SERVER_NAME"), text(py, name))?;
        environ.set_item(intern!(py, "SERVER_PORT"), text(py, port))
    }
}

/// `HTTP_X_REQUEST_ID` for `X-Request-Id`.
fn environ_key<'py>(py: Python<'py>, name: &[u8]) -> Bound<'py, PyString> {
    let mut key = String::with_capacity("HTTP_".len() + name.len());
    key.push_str("HTTP_");
    key.extend(name.iter().map(|&byte| match byte {
        b'-' => '_',
        byte => char::from(byte.to_ascii_uppercase()),
    }));
    PyString::intern(py, &key)
}

/// Bytes as PEP 3333 wants them: a str whose characters are the bytes (latin-1).
pub(crate) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(bytes) {
        Ok(ascii) if ascii.is_ascii() => PyString::new(py, ascii),
        _ => PyString::new(
            py,
            &bytes
                .iter()
                .map(|&byte| char::from(byte))
                .collect::<String>(),
        ),
    }
}

/// Path and query of a target in any of its forms (RFC 9112 section 3.2).
fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    let mut rest = target;
    if !rest.starts_with(b"/")
        && let Some(at) = rest.windows(3).position(|window| window == b"://")
    {
        let authority = &rest[at + 3..];
        let path = authority
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?'));
        rest = path.map_or(b"/", |path| &authority[path..]);
    }
    match rest.iter().position(|&byte| byte == b'?') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, b""),
    }
}

fn split_host<'h>(host: &'h [u8], default_port: &'h [u8]) -> (&'h [u8], &'h [u8]) {
    match host.iter().rposition(|&byte| byte == b':') {
        // A colon inside the brackets belongs to an IPv6 address.
        Some(at) if !host[at..].contains(&b']') => (&host[..at], &host[at + 1..]),
        _ => (host, default_port),
    }
}
