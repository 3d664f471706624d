//! The environ of a request (PEP 3333, with gunicorn's additions).
//!
//! Each seat keeps a few prepared dicts (`super::template`; no relation to the process of that name), and an environ is
//! a copy of one of them.
//!
//! - The first of these dicts has only the keys that every environ has. The others also have the keys of header fields
//!   that requests often send together.
//! - A prepared dict has the values of its last request. For the next request only values that differ are made again;
//!   if the head is exactly the same, its fields are not looked at. Long values, and values that may be secret, such as
//!   queries, are not kept.
//! - Strings of values that clients repeat, of ports, and of names of fields are kept in tables with a fixed number of
//!   entries and a limit on the length of each. Each seat has its own tables, so there are no locks.

use std::hash::Hasher;

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};
use stanchion_http::gateway::{is_script_name, percent_decoded, separator, split_target};
use stanchion_record::{BodyRecord, RequestRecord};
use stanchion_server::Taken;
use stanchion_settings::Settings;

use crate::errors::ErrorStream;
use crate::file_wrapper::FileWrapper;
use crate::input::{EmptyInput, bytes_io, register};
use crate::kept;
use crate::names::{FieldName, NameHasher, Names, Role, SeenNames, environ_key};
use crate::response::Response;
use crate::strings::{Strings, request_start, text};
use crate::template::{Template, below_mount, mount_point};
use crate::tls::TlsVariables;

/// How many templates a seat keeps, besides the one without fields: clients of one kind send the same fields.
const TEMPLATES: usize = 8;
/// How many heads that fit no template are remembered.
const UNKNOWN: usize = 8;

/// Makes the environs of one seat's requests, each as a copy of a template.
pub(crate) struct Environs {
    /// The template without fields.
    bare: Template,
    /// Templates with the fields of requests that came twice in a short time, or whose names hash alike.
    templates: Vec<Template>,
    /// Counts on and on; modulo the number of places it is the next template to replace.
    template_turn: usize,
    /// Hashes of the names in the last heads for which there was no template.
    unknown: [u64; UNKNOWN],
    /// Counts on and on; modulo the number of places it is the next hash to replace.
    unknown_turn: usize,
    /// The input in all templates.
    empty_input: Py<EmptyInput>,
    names: Names,
    strings: Strings,
    tls: TlsVariables,
    open: Py<PyAny>,
    /// The path where the app is mounted, unless a proxy gives another one.
    script_name: String,
    /// The key of the field with the request's ID, if requests have IDs.
    request_id_key: Option<Py<PyString>>,
}

/// Makes the objects that all environs share. The template process calls it before it forks workers, so that they share the memory.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    static PREPARED: PyOnceLock<()> = PyOnceLock::new();
    let prepared = PREPARED.get_or_try_init(py, || {
        register(py)?;
        PyType::new::<ErrorStream>(py);
        PyType::new::<FileWrapper>(py);
        PyType::new::<Response>(py);
        kept::prepare(py)?;
        bytes_io(py).map(drop)
    });
    prepared.map(drop)
}

impl Environs {
    pub(crate) fn new(py: Python<'_>, settings: &Settings) -> PyResult<Self> {
        let template = PyDict::new(py);
        template.set_item("wsgi.version", (1, 0))?;
        template.set_item("wsgi.errors", Py::new(py, ErrorStream)?)?;
        template.set_item("wsgi.multithread", settings.seats_per_worker() > 1)?;
        template.set_item("wsgi.multiprocess", settings.workers.workers.max > 1)?;
        template.set_item("wsgi.run_once", false)?;
        template.set_item("wsgi.input_terminated", true)?;
        template.set_item("wsgi.file_wrapper", PyType::new::<FileWrapper>(py))?;
        template.set_item(
            "SERVER_SOFTWARE",
            concat!("stanchion/", env!("CARGO_PKG_VERSION")),
        )?;
        let script_name = mount_point(settings);
        template.set_item("SCRIPT_NAME", text(py, script_name.as_bytes()))?;
        prepare(py)?;
        let empty_input = Py::new(py, EmptyInput::new())?;
        template.set_item(intern!(py, "wsgi.input"), &empty_input)?;
        // These keys are in the template so that its copies have room for them, under the very key objects that are used later.
        template.set_item(intern!(py, "stanchion.queue_wait"), py.None())?;
        template.set_item(intern!(py, "HTTP_X_REQUEST_START"), py.None())?;
        let header = settings.http.request_id_header.as_deref();
        let request_id_key = header.map(|name| environ_key(py, name.as_bytes()));
        if let Some(key) = &request_id_key {
            template.set_item(key, py.None())?;
            template.set_item(intern!(py, "stanchion.request_id"), py.None())?;
        }
        Ok(Self {
            bare: Template::new(template)?,
            templates: Vec::new(),
            template_turn: 0,
            unknown: [0; UNKNOWN],
            unknown_turn: 0,
            empty_input,
            names: Names::new(settings.field_rules()),
            strings: Strings::new(),
            tls: TlsVariables::default(),
            open: py.import("io")?.getattr("open")?.unbind(),
            script_name,
            request_id_key,
        })
    }

    /// Sets a key in all templates, and so in every environ from now on.
    pub(crate) fn set_in_all(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyString>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut all = self.templates.iter().chain([&self.bare]);
        all.try_for_each(|template| template.dict.bind(py).set_item(key, value))
    }

    /// The number of templates; each of them refers to every value of [`Environs::set_in_all`].
    pub(crate) fn templates(&self) -> usize {
        self.templates.len() + 1
    }

    /// The environ of one request.
    pub(crate) fn make<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
        taken: &Taken<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let environ = self.make_without_body(py, request, taken.wait_us())?;
        if let Some(input) = self.input(py, request, taken)? {
            environ.set_item(intern!(py, "wsgi.input"), input)?;
        }
        Ok(environ)
    }

    /// The environ of a request as if it had no body. `wait_us` is how long it waited in the line.
    pub(crate) fn make_without_body<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
        wait_us: u64,
    ) -> PyResult<Bound<'py, PyDict>> {
        if !EmptyInput::is_untouched(&self.empty_input, py, self.templates() + 1) {
            let input = Bound::new(py, EmptyInput::new())?;
            self.set_in_all(py, intern!(py, "wsgi.input"), &input)?;
            self.empty_input = input.unbind();
        }
        let mut templates = self.templates.iter_mut();
        let fitting = templates.find_map(|known| known.fit(request).map(|fit| (known, fit)));
        let script_name = self.script_name.as_bytes();
        let environ = match fitting {
            Some((known, fit)) => {
                known.environ_of(py, request, fit, &mut self.strings, script_name)?
            }
            None => self.make_without_template(py, request)?,
        };
        let wait_s = wait_us as f64 / 1e6;
        environ.set_item(intern!(py, "stanchion.queue_wait"), wait_s)?;
        // A proxy that is believed has set the field itself, or the acceptor has made room for this one.
        if let Some(us) = request.facts.request_start_us {
            let start = request_start(us, |value| text(py, value));
            environ.set_item(intern!(py, "HTTP_X_REQUEST_START"), start)?;
        }
        self.add_names(py, &environ, request)?;
        if !request.facts.tls.is_empty() {
            self.tls.show(&environ, request.facts.tls)?;
        }
        Ok(environ)
    }

    /// Makes the environ of a request whose fields fit no template. If the same fields come again soon, they get a template.
    fn make_without_template<'py>(
        &mut self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let hosts = request.fields().map(|(name, value)| {
            let is_host = name.eq_ignore_ascii_case(b"host");
            is_host.then_some(value)
        });
        let (host, script_name) = (hosts.flatten().last(), self.script_name.as_bytes());
        let (strings, unkept) = (&mut self.strings, Vec::new());
        let environ =
            self.bare
                .environ_without_fields(py, request, strings, script_name, host, unkept)?;
        let is_simple = self.add_fields(py, &environ, request)?;
        if is_simple {
            self.learn(py, request)?;
        }
        Ok(environ)
    }

    /// Makes a template for the fields of a request, if a recent request had the same ones. If two sets of names have the same hash, the template is
    /// made too early, which does no harm.
    fn learn(&mut self, py: Python<'_>, request: &RequestRecord<'_>) -> PyResult<()> {
        let mut hasher = NameHasher::default();
        for (name, _) in request.fields() {
            hasher.write(name);
        }
        let hash = hasher.finish();
        let Some(known) = self.unknown.iter_mut().find(|known| **known == hash) else {
            self.unknown[self.unknown_turn % UNKNOWN] = hash;
            self.unknown_turn += 1;
            return Ok(());
        };
        *known = 0;
        let mut keys = Vec::new();
        for (name, _) in request.fields() {
            keys.push(self.names.get(py, name).clone_ref(py));
        }
        let names = request.fields().map(|(name, _)| name).zip(&keys);
        let made = self.bare.with_fields(py, names)?;
        let place = self.template_turn % TEMPLATES;
        self.template_turn += 1;
        match self.templates.get_mut(place) {
            Some(old) => *old = made,
            None => self.templates.push(made),
        }
        Ok(())
    }

    /// Adds the request's ID, which replaces one that a client sent, and the time that the request spent in proxies.
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

    /// The `wsgi.input` of a request. The whole body has arrived, so Python's own files suffice: `BytesIO` for a body in memory, a `BufferedReader`
    /// for a body in the spool. `None` if there is no body.
    fn input<'py>(
        &self,
        py: Python<'py>,
        request: &RequestRecord<'_>,
        taken: &Taken<'_>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match request.body {
            BodyRecord::Memory { len: 0, .. } => Ok(None),
            // `BytesIO` shares the bytes until the app writes to it.
            BodyRecord::Memory { at, len } => {
                let bytes = PyBytes::new_with(py, len, |bytes| {
                    if taken.read_request(at, bytes) < len {
                        return Err(PyOSError::new_err("the body has changed its length"));
                    }
                    Ok(())
                })?;
                bytes_io(py)?.call1((bytes,)).map(Some)
            }
            BodyRecord::Begun { .. } => Err(PyOSError::new_err(
                "a body that is still coming, which is our fault",
            )),
            BodyRecord::Spooled { path, .. } => self.open.bind(py).call1((path, "rb")).map(Some),
        }
    }

    /// Adds the request's fields. Returns whether each is an ordinary field with a key of its own, so that a template may hold them.
    fn add_fields(
        &mut self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        request: &RequestRecord<'_>,
    ) -> PyResult<bool> {
        let (mut seen, mut mount, mut is_simple) = (SeenNames::default(), None, true);
        let is_mounted = request.variable("SCRIPT_NAME").is_some();
        for (sent, value) in request.fields() {
            let name = self.names.get(py, sent);
            match name.role {
                Role::Underscored { proxy, anybody } => {
                    is_simple = false;
                    let is_said = proxy && request.facts.trusted_peer;
                    if is_said && is_script_name(sent) {
                        mount = Some(value);
                    } else if !is_said && !anybody {
                        continue;
                    }
                }
                Role::Variable => {
                    is_simple = false;
                    let value = match sent {
                        // Below the app's mount point, unless the proxy gave a mount point itself.
                        b":PATH_INFO" if !is_mounted => {
                            below_mount(value, self.script_name.as_bytes())
                        }
                        _ => value,
                    };
                    environ.set_item(&name.key, text(py, value))?;
                    continue;
                }
                Role::Host | Role::Content | Role::Other => {}
            }
            let again = seen.again(name);
            is_simple &= !again;
            if again && name.role != Role::Content {
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
        Ok(is_simple)
    }
}

/// Adds a field whose key may be there already: repeated fields form one list.
fn join(
    py: Python<'_>,
    environ: &Bound<'_, PyDict>,
    name: &FieldName,
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
