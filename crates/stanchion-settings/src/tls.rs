//! TLS by the settings: which listeners speak it, and with which certificates.

use std::path::{Path, PathBuf};

use stanchion_sys::listener::{Listener, ListenerAddress, Provenance, SocketOrigin};

use super::{HttpsPort, Protocol, Settings};

/// Whether clients show certificates, by the numbers of Python's ssl module.
const CERT_NONE: u8 = 0;
const CERT_REQUIRED: u8 = 2;

/// The name that a service manager gives to its sockets that are not for TLS (`FileDescriptorName=` in systemd.socket(5)).
const PLAIN_SOCKET: &str = "http";

impl Settings {
    /// The files of each certificate: its chain, and its key if that is in another file. The first one is for clients that
    /// ask for no name, or for one that none is for.
    pub fn certificates(&self) -> impl Iterator<Item = (&Path, Option<&Path>)> {
        let keys = given(&self.tls.keyfile).map(Some);
        given(&self.tls.certfile).zip(keys.chain(std::iter::repeat(None)))
    }

    /// How many files there are of certificates, and of keys.
    pub(super) fn certificate_files(&self) -> (usize, usize) {
        (
            given(&self.tls.certfile).count(),
            given(&self.tls.keyfile).count(),
        )
    }

    /// Refuses settings with which clients would be served in plain though the operator means otherwise, or that make no sense together.
    pub fn check_tls(&self) -> Result<(), String> {
        if !self.serves_tls() && given(&self.tls.keyfile).next().is_some() {
            return Err(
                "setting `keyfile`: there is no `certfile`, whose key it would be".to_owned(),
            );
        }
        if self.serves_tls() && self.proxies.protocol == Protocol::Uwsgi {
            return Err(
                "setting `certfile`: TLS is for HTTP, and `protocol` says uwsgi: leave one of them out".to_owned(),
            );
        }
        if self.tls.redirect_to_https == Some(HttpsPort::OfTls) && !self.serves_tls() {
            return Err(
                "setting `redirect_to_https`: there is no `certfile`, so no listener speaks TLS: name the port that does, such as 443".to_owned(),
            );
        }
        Ok(())
    }

    /// Refuses a redirect that has no port to send clients in clear text on to.
    pub fn check_redirect<'a>(
        &self,
        listeners: impl IntoIterator<Item = &'a Listener>,
    ) -> Result<(), String> {
        if self.tls.redirect_to_https.is_some() && self.https_port(listeners).is_none() {
            return Err(
                "setting `redirect_to_https`: auto finds no port here that speaks TLS, neither of `bind` nor of a service manager's sockets: name the port that does, such as 443".to_owned(),
            );
        }
        Ok(())
    }

    /// The port that clients in clear text are sent on to, if any.
    pub fn https_port<'a>(&self, listeners: impl IntoIterator<Item = &'a Listener>) -> Option<u16> {
        match self.tls.redirect_to_https? {
            HttpsPort::Is(port) => Some(port),
            HttpsPort::OfTls => {
                let mut ports = listeners
                    .into_iter()
                    .filter(|listener| self.speaks_tls(listener))
                    .filter_map(|listener| match listener.address() {
                        ListenerAddress::Tcp(address) => Some(address.port()),
                        _ => None,
                    });
                ports.next()
            }
        }
    }

    /// Whether any client is served over TLS.
    pub fn serves_tls(&self) -> bool {
        given(&self.tls.certfile).next().is_some()
    }

    /// Whether clients of this listener are to speak TLS. The listeners of `admin` and `agent`, and the ports of single workers are asked from nearby.
    pub fn speaks_tls(&self, listener: &Listener) -> bool {
        if !self.is_for_clients(listener) || self.worker_of(listener.address()).is_some() {
            return false;
        }
        let Provenance { origin, asked, .. } = listener.provenance();
        if *origin == SocketOrigin::Activated && asked == PLAIN_SOCKET {
            return false;
        }
        let bind = self
            .listen
            .bind
            .iter()
            .find(|bind| bind.address.to_string() == *asked);
        self.serves_tls() && bind.and_then(|bind| bind.options.tls).unwrap_or(true)
    }

    /// Whether clients are asked for certificates.
    pub fn verifies_clients(&self) -> bool {
        self.tls.cert_reqs != CERT_NONE
    }

    /// Whether a client that shows none is turned away.
    pub fn requires_client_certificates(&self) -> bool {
        self.tls.cert_reqs == CERT_REQUIRED
    }
}

/// gunicorn takes an empty one for none.
fn given(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    let paths = paths.iter().filter(|path| !path.as_os_str().is_empty());
    paths.map(PathBuf::as_path)
}
