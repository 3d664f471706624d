//! A certificate with its key, as an operator gives them: checked before any client sees them.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::certificate::Certificate;
use crate::hybrid::X25519MlKem768;

/// What begins a key that is encrypted, in one of the two ways in which keys are.
const ENCRYPTED: [&str; 2] = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

/// Why what an operator gave cannot be used. Each says what to do; which file it is the caller knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The file of certificates has none.
    #[error("has no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// One of them is damaged.
    #[error("is damaged: what stands in its certificates cannot be read ({0})")]
    BadCertificate(String),
    /// The file has no key.
    #[error("has no private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// The key needs a password, which nobody is there to type.
    #[error(
        "has a key that is encrypted: decrypt it with `openssl pkey -in KEY -out NEW`, and let nobody else read it"
    )]
    EncryptedKey,
    /// The key is damaged, or of a kind that is not supported.
    #[error(
        "has a key that cannot be used: it is to be RSA of 2048 to 8192 bits, ECDSA (P-256, P-384) or Ed25519 ({0})"
    )]
    BadKey(String),
    /// The key is that of another certificate.
    #[error(
        "does not fit: the key is not that of the first certificate, which is to be the server's own"
    )]
    OtherKey,
    /// What is said of how clients are to be verified makes no sense.
    #[error("has no certificate by which clients could be verified ({0})")]
    BadAuthorities(String),
    /// None of the suites can be used.
    #[error("leaves no cipher suite for any version of TLS that is served")]
    NoSuite,
}

/// A certificate with its chain and its key.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(crate) key: Arc<CertifiedKey>,
    /// What the certificate says of itself.
    pub certificate: Certificate,
}

impl Credentials {
    /// Reads a chain of certificates in PEM, the server's own first, and its key.
    ///
    /// # Errors
    /// The operator's.
    pub fn read(chain: &[u8], key: &[u8]) -> Result<Self, Flaw> {
        let chain = certificates(chain)?;
        let own = Certificate::read(&chain[0]).ok_or_else(|| bad("its fields"))?;
        let key = private_key(key)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Flaw::OtherKey,
            Error::InvalidCertificate(why) => Flaw::BadCertificate(format!("{why:?}")),
            other => Flaw::BadKey(other.to_string()),
        })?;
        Ok(Self {
            key: Arc::new(key),
            certificate: own,
        })
    }

    /// Whether it is for a server that clients call so.
    pub(crate) fn is_for(&self, name: &ServerName<'_>) -> bool {
        let Some(own) = self.key.cert.first() else {
            return false;
        };
        let parsed = ParsedCertificate::try_from(own);
        parsed.is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, name).is_ok())
    }
}

fn bad(what: &str) -> Flaw {
    Flaw::BadCertificate(what.to_owned())
}

/// The certificates of a text in PEM, in their order; at least one.
///
/// # Errors
/// The operator's.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Flaw> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| Flaw::BadCertificate(error.to_string()))?;
    if read.is_empty() {
        return Err(Flaw::NoCertificate);
    }
    for one in &read {
        ParsedCertificate::try_from(one).map_err(|error| bad(&error.to_string()))?;
    }
    Ok(read)
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Flaw> {
    let is_encrypted = ENCRYPTED.iter().any(|words| {
        let mut windows = pem.windows(words.len());
        windows.any(|window| window == words.as_bytes())
    });
    if is_encrypted {
        return Err(Flaw::EncryptedKey);
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        rustls_pki_types::pem::Error::NoItemsFound => Flaw::NoKey,
        other => Flaw::BadKey(other.to_string()),
    })
}

/// What all cryptography is done by.
pub(crate) fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.kx_groups.insert(0, &X25519MlKem768);
    provider
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = include_bytes!("../tests/keys/one.pem");
    const ONE_KEY: &[u8] = include_bytes!("../tests/keys/one.key");
    const TWO: &[u8] = include_bytes!("../tests/keys/two.pem");
    const TWO_KEY: &[u8] = include_bytes!("../tests/keys/two.key");
    const ROOT: &[u8] = include_bytes!("../tests/keys/root.pem");
    const ENCRYPTED_KEY: &[u8] = include_bytes!("../tests/keys/encrypted.key");

    #[test]
    fn a_certificate_and_its_key_may_be_in_one_file_in_any_order() {
        let read = Credentials::read(ONE, ONE_KEY).unwrap();
        assert_eq!(read.certificate.subject, r"O=One\, Inc.,CN=one.test");
        assert!(Credentials::read(TWO, TWO_KEY).is_ok());
        for both in [[TWO_KEY, TWO].concat(), [TWO, ROOT, TWO_KEY].concat()] {
            let read = Credentials::read(&both, &both).unwrap();
            assert_eq!(read.certificate.subject, "CN=two.test");
        }
    }

    #[test]
    fn whose_fault_it_is_is_told() {
        let read = |chain: &[u8], key: &[u8]| Credentials::read(chain, key).unwrap_err();
        assert_eq!(read(b"", ONE_KEY), Flaw::NoCertificate);
        assert_eq!(read(ONE_KEY, ONE_KEY), Flaw::NoCertificate);
        assert_eq!(read(ONE, ONE), Flaw::NoKey);
        assert_eq!(read(ONE, TWO_KEY), Flaw::OtherKey);
        // The chain stands the wrong way round.
        assert_eq!(read(&[ROOT, ONE].concat(), ONE_KEY), Flaw::OtherKey);
        assert_eq!(read(TWO, ENCRYPTED_KEY), Flaw::EncryptedKey);
        let cut = &ONE[..ONE.len() - 200];
        assert!(matches!(read(cut, ONE_KEY), Flaw::BadCertificate(_)));
        let cut = [&TWO_KEY[..500], b"\n-----END PRIVATE KEY-----\n"].concat();
        assert!(matches!(read(TWO, &cut), Flaw::BadKey(_)));
        let other = b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
        assert!(matches!(read(other, ONE_KEY), Flaw::BadCertificate(_)));
    }

    #[test]
    fn names_of_a_certificate_are_those_that_it_lists() {
        let read = Credentials::read(ONE, ONE_KEY).unwrap();
        for (name, expected) in [
            ("one.test", true),
            ("ONE.test", true),
            ("a.one.test", true),
            ("a.b.one.test", false),
            ("two.test", false),
            ("127.0.0.1", true),
        ] {
            let name = ServerName::try_from(name).unwrap();
            assert_eq!(read.is_for(&name), expected, "{name:?}");
        }
    }
}
