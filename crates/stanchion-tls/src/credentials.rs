//! A certificate with its key, as an operator configures them; the server checks them before any client sees them.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::certificate::Certificate;
use crate::hybrid::X25519MlKem768;

/// The text at the beginning of an encrypted key, in each of the two formats.
const ENCRYPTED: [&str; 2] = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

/// The reason why the server cannot use an operator's file. Each text says what to do; the caller adds the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The file of certificates has none.
    #[error("has no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// A certificate in the file is damaged.
    #[error("is damaged: a certificate in it cannot be read ({0})")]
    BadCertificate(String),
    /// The file has no key.
    #[error("has no private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// The key needs a password, which a server cannot type.
    #[error(
        "has an encrypted key: decrypt it with `openssl pkey -in KEY -out NEW`, and let only the server's user read NEW"
    )]
    EncryptedKey,
    /// The key is damaged, or of a kind that is not supported.
    #[error(
        "has a key that cannot be used: it must be RSA of 2048 to 8192 bits, ECDSA (P-256, P-384) or Ed25519 ({0})"
    )]
    BadKey(String),
    /// The key belongs to another certificate.
    #[error(
        "does not fit: the key is not that of the first certificate, which must be the server's own"
    )]
    OtherKey,
    /// The certificates for verifying clients are unusable.
    #[error("has no certificate by which clients could be verified ({0})")]
    BadAuthorities(String),
    /// The server cannot use any of the suites.
    #[error("leaves no cipher suite for any version of TLS that is served")]
    NoSuite,
}

/// A certificate with its chain and its key.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(crate) key: Arc<CertifiedKey>,
    /// The fields of the certificate.
    pub certificate: Certificate,
}

impl Credentials {
    /// Reads a chain of certificates in PEM, the server's own first, and its key.
    ///
    /// # Errors
    /// A mistake in the operator's files.
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

    /// Whether clients may use the certificate for a server of this name.
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
/// A mistake in the operator's file.
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

/// The cryptography that every connection uses: ring's, and [`X25519MlKem768`].
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
        // The chain is in reverse order.
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
