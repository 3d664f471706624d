//! Remembers until when a client's certificate is valid. A client that resumes a session shows no certificate again, so its ticket has to record
//! that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::certificate::Certificate;

/// The last second, since 1970, in which the certificate of a connection's client is valid. A clone is another handle of the same.
#[derive(Clone, Debug)]
pub(crate) struct GoodUntil(Arc<AtomicU64>);

impl GoodUntil {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, unix_s: u64) {
        self.0.store(unix_s, Ordering::Relaxed);
    }
}

impl Default for GoodUntil {
    /// A client without a certificate has nothing that expires.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

/// Verifies the client of one connection with `inner`, and remembers until when its certificate is valid.
#[derive(Debug)]
pub(crate) struct Remembering {
    pub(crate) inner: Arc<dyn ClientCertVerifier>,
    pub(crate) good_until: GoodUntil,
}

impl ClientCertVerifier for Remembering {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        // A certificate that cannot be read here gives tickets that have expired already.
        let until_s = Certificate::read(end_entity).map_or(0, |read| read.not_after_s);
        self.good_until.set(until_s);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
