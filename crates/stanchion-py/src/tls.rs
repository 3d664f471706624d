//! The facts about a request's TLS connection that the app gets.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use stanchion_record::tls_values;

use crate::strings::text;

/// Requests have one of these values if a client has shown a certificate: then the values belong to that client alone, and are not kept.
const OF_CLIENTS: [&str; 2] = ["SSL_CLIENT_CERT", "client_cert_chain"];

/// Variables of environs, kept while requests come over connections with the same TLS facts.
#[derive(Default)]
pub(crate) struct TlsVariables {
    sent: Vec<u8>,
    made: Vec<(Py<PyString>, Py<PyString>)>,
}

impl TlsVariables {
    /// Adds the variables to an environ.
    pub(crate) fn show(&mut self, environ: &Bound<'_, PyDict>, sent: &[u8]) -> PyResult<()> {
        let py = environ.py();
        if self.sent == sent {
            let mut made = self.made.iter();
            return made.try_for_each(|(name, value)| environ.set_item(name, value));
        }
        let is_kept = !is_of_client(sent);
        if is_kept {
            self.made.clear();
            self.sent.clear();
            self.sent.extend_from_slice(sent);
        }
        for (name, value) in tls_values(sent) {
            let (name, value) = (PyString::intern(py, name), text(py, value));
            environ.set_item(&name, &value)?;
            if is_kept {
                self.made.push((name.unbind(), value.unbind()));
            }
        }
        Ok(())
    }
}

/// ASGI's extension `tls`, kept in the same way.
#[derive(Default)]
pub(crate) struct TlsExtension {
    sent: Vec<u8>,
    made: Option<Py<PyDict>>,
}

impl TlsExtension {
    /// Makes the extension for one scope, because the app may change it.
    pub(crate) fn make<'py>(
        &mut self,
        py: Python<'py>,
        sent: &[u8],
    ) -> PyResult<Bound<'py, PyDict>> {
        if let Some(made) = &self.made
            && self.sent == sent
        {
            let extension = made.bind(py).copy()?;
            extension.set_item(intern!(py, "client_cert_chain"), PyList::empty(py))?;
            return Ok(extension);
        }
        let extension = extension(py, sent)?;
        if !is_of_client(sent) {
            self.made = Some(extension.copy()?.unbind());
            self.sent.clear();
            self.sent.extend_from_slice(sent);
        }
        Ok(extension)
    }
}

fn extension<'py>(py: Python<'py>, sent: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let (extension, chain) = (PyDict::new(py), PyList::empty(py));
    for name in [
        "server_cert",
        "client_cert_name",
        // Always None: a client whose certificate is refused is not served.
        "client_cert_error",
        "tls_version",
        "cipher_suite",
    ] {
        extension.set_item(name, py.None())?;
    }
    for (name, value) in tls_values(sent) {
        let value = String::from_utf8_lossy(value);
        match (name, value.parse::<u16>()) {
            ("client_cert_chain", _) => chain.append(&*value)?,
            ("tls_version" | "cipher_suite", Ok(number)) => extension.set_item(name, number)?,
            _ => extension.set_item(name, &*value)?,
        }
    }
    extension.set_item("client_cert_chain", chain)?;
    Ok(extension)
}

fn is_of_client(sent: &[u8]) -> bool {
    tls_values(sent).any(|(name, _)| OF_CLIENTS.contains(&name))
}
