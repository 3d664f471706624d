//! The environ of a request (PEP 3333, with gunicorn's additions).

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};
use stanchion_http::gateway::{percent_decoded, separator, split_host, split_mount, split_target};
use stanchion_server::record::{BodyRecord, RequestRecord};
use stanchion_server::{Taken, Worker};

use crate::errors::ErrorLog;
use crate::file_wrapper::FileWrapper;
use crate::names::{Name, Names, Role, Seen, environ_key};
use crate::strings::{Strings, text};

/// Makes the environs of one seat's requests, each as a copy of one that has all keys already that
/// every environ has. Most of what it says of one request is true of the next one as well.
pub(crate) struct Environs {
    template: Py<PyDict>,
    shown: Shown,
    names: Names,
    strings: Strings,
    bytes_io: Py<PyAny>,
    open: Py<PyAny>,
    /// `SCRIPT_NAME` of the process's own environment, as gunicorn has it.
    script_name: String,
    /// The key of the field that carries requests' names, if they have any.
    request_id_key: Option<Py<PyString>>,
}

/// A value of the template, and the bytes that it was made of.
struct Value {
    key: Py<PyString>,
    bytes: Vec<u8>,
}

impl Value {
    fn new(template: &Bound<'_, PyDict>, key: &str) -> PyResult<Self> {
        let py = template.py();
        let key = PyString::intern(py, key);
        template.set_item(&key, "")?;
        let (key, bytes) = (key.unbind(), Vec::new());
        Ok(Self { key, bytes })
    }

    fn show(&mut self, template: &Bound<'_, PyDict>, bytes: &[u8]) -> PyResult<()> {
        if self.bytes != bytes {
            let py = template.py();
            template.set_item(&self.key, text(py, bytes))?;
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }
}

/// What the template says of the request that was shown last.
struct Shown {
    method: Value,
    raw_uri: Value,
    path_info: Value,
    query_string: Value,
    protocol: Value,
    scheme: Value,
    remote_addr: Value,
    server_name: Value,
    server_port: Value,
    /// 0 if there is none.
    peer_port: u16,
}

impl Shown {
    fn new(template: &Bound<'_, PyDict>) -> PyResult<Self> {
        let value = |key| Value::new(template, key);
        Ok(Self {
            method: value("REQUEST_METHOD")?,
            raw_uri: value("RAW_URI")?,
            path_info: value("PATH_INFO")?,
            query_string: value("QUERY_STRING")?,
            protocol: value("SERVER_PROTOCOL")?,
            scheme: value("wsgi.url_scheme")?,
            remote_addr: value("REMOTE_ADDR")?,
            server_name: value("SERVER_NAME")?,
            server_port: value("SERVER_PORT")?,
            peer_port: 0,
        })
    }

    /// Has the template say it of this client. On a unix socket there is no such key.
    fn show_peer_port(
        &mut self,
        template: &Bound<'_, PyDict>,
        port: u16,
        strings: &mut Strings,
    ) -> PyResult<()> {
        if port != self.peer_port {
            let py = template.py();
            let key = intern!(py, "REMOTE_PORT");
            if port == 0 {
                template.del_item(key)?;
            } else {
                template.set_item(key, strings.port(py, port))?;
            }
            self.peer_port = port;
        }
        Ok(())
    }

    /// Has the template say it of this request.
    fn show(
        &mut self,
        template: &Bound<'_, PyDict>,
        request: &RequestRecord<'_>,
        script_name: &[u8],
    ) -> PyResult<()> {
        let facts = &request.facts;
        let protocol = match request.minor_version {
            0 => "HTTP/1.0",
            _ => "HTTP/1.1",
        };
        self.method.show(template, request.method.as_bytes())?;
        self.protocol.show(template, protocol.as_bytes())?;
        let scheme = if facts.is_https { "https" } else { "http" };
        self.scheme.show(template, scheme.as_bytes())?;
        self.remote_addr.show(template, facts.peer_address)?;
        // On a unix socket the Host field says it.
        if !facts.server_port.is_empty() {
            self.server_name.show(template, facts.server_name)?;
            self.server_port.show(template, facts.server_port)?;
        }
        if self.raw_uri.bytes != request.target {
            let (path, query) = split_target(request.target);
            let path = percent_decoded(path);
            self.path_info
                .show(template, below_mount(&path, script_name))?;
            self.query_string.show(template, query)?;
            self.raw_uri.show(template, request.target)?;
        }
        Ok(())
    }
}

/// A path outside the mount point is left whole: the app will not find it.
fn below_mount<'p>(path: &'p [u8], script_name: &[u8]) -> &'p [u8] {
    split_mount(path, script_name).unwrap_or(path)
}

impl Environs {
    pub(crate) fn new(py: Python<'_>, worker: &Worker) -> PyResult<Self> {
        let template = PyDict::new(py);
        template.set_item("wsgi.version", (1, 0))?;
        template.set_item("wsgi.errors", Py::new(py, ErrorLog)?)?;
        template.set_item("wsgi.multithread", worker.seats() > 1)?;
        template.set_item("wsgi.multiprocess", worker.settings().workers > 1)?;
        template.set_item("wsgi.run_once", false)?;
        template.set_item("wsgi.input_terminated", true)?;
        template.set_item("wsgi.file_wrapper", PyType::new::<FileWrapper>(py))?;
        template.set_item(
            "SERVER_SOFTWARE",
            concat!("stanchion/", env!("CARGO_PKG_VERSION")),
        )?;
        // As gunicorn has it.
        let script_name = std::env::var("SCRIPT_NAME").unwrap_or_default();
        template.set_item("SCRIPT_NAME", &script_name)?;
        let shown = Shown::new(&template)?;
        // So that the copies have room for them, under the very keys that will be looked for.
        for key in [
            intern!(py, "wsgi.input"),
            intern!(py, "stanchion.queue_wait"),
        ] {
            template.set_item(key, py.None())?;
        }
        let header = worker.settings().request_id_header.as_deref();
        let request_id_key = header.map(|name| environ_key(py, name.as_bytes()));
        if let Some(key) = &request_id_key {
            template.set_item(key, py.None())?;
            template.set_item(intern!(py, "stanchion.request_id"), py.None())?;
        }
        let io = py.import("io")?;
        Ok(Self {
            template: template.unbind(),
            shown,
            names: Names::new(),
            strings: Strings::new(),
            bytes_io: io.getattr("BytesIO")?.unbind(),
            open: io.getattr("open")?.unbind(),
            script_name,
            request_id_key,
        })
    }

    /// What every environ begins as.
    pub(crate) fn template<'py>(&self, py: Python<'py>) -> &Bound<'py, PyDict> {
        self.template.bind(py)
    }

    /// The environ of one request, but for what its answer is to be asked for.
    pub(crate) fn make<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
        taken: &Taken<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let template = self.template.bind(py);
        self.shown
            .show(template, request, self.script_name.as_bytes())?;
        let port = request.facts.peer_port;
        self.shown
            .show_peer_port(template, port, &mut self.strings)?;
        let environ = template.copy()?;
        let wait_s = taken.wait_us() as f64 / 1e6;
        environ.set_item(intern!(py, "stanchion.queue_wait"), wait_s)?;
        let input = self.input(py, request, taken)?;
        environ.set_item(intern!(py, "wsgi.input"), input)?;
        self.add_fields(py, &environ, request)?;
        self.add_names(py, &environ, request)?;
        Ok(environ)
    }

    /// What the request is called, also in place of what a client says it is, and how long it took
    /// to get here.
    fn add_names(
        &self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        request: &RequestRecord<'_>,
    ) -> PyResult<()> {
        let facts = &request.facts;
        if let Some(key) = &self.request_id_key {
            let id = text(py, facts.request_id);
            environ.set_item(key, &id)?;
            environ.set_item(intern!(py, "stanchion.request_id"), id)?;
        }
        if let Some(proxy_us) = facts.proxy_us {
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
        taken: &Taken<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match request.body {
            BodyRecord::Memory { len: 0, .. } => self.bytes_io.bind(py).call0(),
            // `BytesIO` shares the bytes until somebody writes.
            BodyRecord::Memory { at, len } => {
                let bytes = PyBytes::new_with(py, len, |bytes| {
                    if taken.read_request(at, bytes) < len {
                        return Err(PyOSError::new_err("the body has changed its length"));
                    }
                    Ok(())
                })?;
                self.bytes_io.bind(py).call1((bytes,))
            }
            BodyRecord::Spooled { path, .. } => self.open.bind(py).call1((path, "rb")),
        }
    }

    fn add_fields(
        &mut self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        request: &RequestRecord<'_>,
    ) -> PyResult<()> {
        let (mut seen, mut host, mut mount) = (Seen::default(), None, None);
        for (sent, value) in request.fields() {
            let name = self.names.get(py, sent);
            match name.role {
                Role::Hidden => continue,
                Role::Mount => {
                    mount = Some(value).filter(|_| request.facts.trusted_peer).or(mount);
                    continue;
                }
                Role::Host => host = Some(value),
                Role::Content | Role::Other => {}
            }
            if seen.again(name) && name.role != Role::Content {
                join(py, environ, name, sent, value)?;
            } else if name.is_usual {
                environ.set_item(&name.key, self.strings.text(py, value))?;
            } else {
                environ.set_item(&name.key, text(py, value))?;
            }
        }
        if let Some(script_name) = mount {
            let (path, _) = split_target(request.target);
            let path = percent_decoded(path);
            let path_info = text(py, below_mount(&path, script_name));
            environ.set_item(intern!(py, "SCRIPT_NAME"), text(py, script_name))?;
            environ.set_item(intern!(py, "PATH_INFO"), path_info)?;
        }
        if request.facts.server_port.is_empty() {
            self.add_server(py, environ, request, host)?;
        }
        Ok(())
    }

    /// On a unix socket, what the Host field says, as in gunicorn.
    fn add_server(
        &mut self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        request: &RequestRecord<'_>,
        host: Option<&[u8]>,
    ) -> PyResult<()> {
        let facts = &request.facts;
        let default_port: &[u8] = if facts.is_https { b"443" } else { b"80" };
        let own = (facts.server_name, default_port);
        let (name, port) = host.map_or(own, |host| split_host(host, default_port));
        let name = self.strings.text(py, name);
        environ.set_item(intern!(py, "SERVER_NAME"), name)?;
        let port = self.strings.text(py, port);
        environ.set_item(intern!(py, "SERVER_PORT"), port)
    }
}

/// Adds a field of which there may be one already: they are one list.
fn join(
    py: Python<'_>,
    environ: &Bound<'_, PyDict>,
    name: &Name,
    sent: &[u8],
    value: &[u8],
) -> PyResult<()> {
    let value = text(py, value);
    let Some(earlier) = environ.get_item(&name.key)? else {
        return environ.set_item(&name.key, value);
    };
    let (earlier, separator) = (earlier.str()?, separator(sent));
    let joined = format!("{}{separator}{}", earlier.to_str()?, value.to_str()?);
    environ.set_item(&name.key, joined)
}
