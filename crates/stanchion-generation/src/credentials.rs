//! The files of TLS on their way to the acceptor. The master opens them, as it may read what others may not, and has the kernel copy them: their
//! content is in no memory of its own, so template and workers, which are forks, cannot have it either. The acceptor alone reads the copies, also an
//! acceptor that takes the place of another, when the files may be gone.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use stanchion_sys::clock::wall_s;
use stanchion_sys::memory::CopiedFile;
use stanchion_tls::{ClientAuth, Config, Credentials, Flaw, TlsOptions, Version};

use crate::expiry::ServedCertificate;
use crate::ticket_keys::TICKET_LIFETIME_S;
use stanchion_settings::{OldestTls, Settings};

/// A chain of certificates has some KiB, and all authorities of a distribution half a MiB.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The protocols that are offered to clients by ALPN (RFC 7301, RFC 9113 section 3.2).
pub const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Copies of all that the settings name.
#[derive(Debug, Default)]
pub struct KeyFiles {
    /// Until the acceptor takes them, or a process that is not the acceptor drops them.
    copies: Mutex<Copies>,
}

/// In the order of the settings.
#[derive(Debug, Default)]
pub struct Copies {
    certificates: Vec<Pair>,
    authorities: Option<Copied>,
}

/// A certificate and its key.
#[derive(Debug)]
struct Pair {
    chain: Copied,
    /// If that is another file.
    key: Option<Copied>,
}

#[derive(Debug)]
struct Copied {
    setting: &'static str,
    path: PathBuf,
    copy: CopiedFile,
}

impl KeyFiles {
    /// Copies them.
    ///
    /// # Errors
    /// The operator's: what cannot be read, and why.
    pub fn copy(settings: &Settings) -> Result<Self, String> {
        Self::copy_from(Path::new(""), settings)
    }

    /// The same, with paths that begin nowhere else from this directory on.
    fn copy_from(directory: &Path, settings: &Settings) -> Result<Self, String> {
        let copied = |setting, path: &Path| Copied::of(setting, directory.join(path));
        let mut copies = Copies::default();
        for (chain, key) in settings.certificates() {
            let key = key.map(|key| copied("keyfile", key));
            copies.certificates.push(Pair {
                chain: copied("certfile", chain)?,
                key: key.transpose()?,
            });
        }
        if settings.verifies_clients() {
            let authorities = settings.tls.ca_certs.as_deref();
            let authorities = authorities.map(|path| copied("ca_certs", path));
            copies.authorities = authorities.transpose()?;
        }
        Ok(Self {
            copies: Mutex::new(copies),
        })
    }

    /// For the acceptor; and for a process that is to have none of it, to drop them.
    pub fn take(&self) -> Copies {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *copies)
    }
}

impl Copied {
    fn of(setting: &'static str, path: PathBuf) -> Result<Self, String> {
        let copy = File::open(&path).and_then(|file| CopiedFile::of(&file, FILE_BYTES_MAX));
        match copy {
            Ok(copy) => Ok(Self {
                setting,
                path,
                copy,
            }),
            Err(error) => Err(format!(
                "setting `{setting}`: {} cannot be read: {error}{}",
                path.display(),
                advice(&error)
            )),
        }
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        self.copy.read().map_err(|error| self.says(&error))
    }

    /// Something is wrong with it.
    fn says(&self, why: &impl std::fmt::Display) -> String {
        format!("setting `{}`: {} {why}", self.setting, self.path.display())
    }
}

/// The operator's next step, where that is not plain.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (the master reads it, at the start and at each reload: make it readable for its user, or start it as root with --user)"
        }
        _ => "",
    }
}

impl Copies {
    /// How TLS is served with these; `None` if it is not.
    ///
    /// # Errors
    /// The operator's: which file cannot be used, and why.
    pub fn config(
        &self,
        settings: &Settings,
    ) -> Result<Option<(Config, Vec<ServedCertificate>)>, String> {
        if self.certificates.is_empty() {
            return Ok(None);
        }
        let credentials = self.certificates.iter().map(Pair::read);
        let credentials: Vec<_> = credentials.collect::<Result<_, _>>()?;
        let paths = self.certificates.iter().map(|pair| &pair.chain.path);
        let served = paths.zip(&credentials);
        let served =
            served.map(|(path, one)| ServedCertificate::new(path.clone(), &one.certificate));
        let served = served.collect();
        let clients = self.authorities.as_ref().map(|authorities| {
            authorities.read().map(|pem| ClientAuth {
                authorities: pem,
                is_required: settings.requires_client_certificates(),
            })
        });
        let options = TlsOptions {
            credentials,
            oldest: match settings.tls.tls_min_version {
                OldestTls::Tls12 => Version::Tls12,
                OldestTls::Tls13 => Version::Tls13,
            },
            suites: settings.tls.ciphers.clone(),
            alpn: protocols(settings),
            clients: clients.transpose()?,
            ticket_lifetime_s: TICKET_LIFETIME_S,
        };
        match (Config::new(options), &self.authorities) {
            (Ok(config), _) => Ok(Some((config, served))),
            (Err(Flaw::NoSuite), _) => Err(format!(
                "settings `ciphers` and `tls_min_version`: they {}",
                Flaw::NoSuite
            )),
            (Err(flaw), Some(authorities)) => Err(authorities.says(&flaw)),
            (Err(flaw), None) => Err(flaw.to_string()),
        }
    }
}

/// The protocols above TLS, the best first.
fn protocols(settings: &Settings) -> Vec<Vec<u8>> {
    let http_2 = settings.speaks_http2().then_some(HTTP_2);
    let all = http_2.into_iter().chain([HTTP_1_1]);
    all.map(<[u8]>::to_vec).collect()
}

impl Pair {
    fn read(&self) -> Result<Credentials, String> {
        let chain = self.chain.read()?;
        let key = self.key.as_ref().map(Copied::read).transpose()?;
        let read = Credentials::read(&chain, key.as_deref().unwrap_or(&chain));
        read.map_err(|flaw| {
            let is_of_key = matches!(
                flaw,
                Flaw::NoKey | Flaw::EncryptedKey | Flaw::BadKey(_) | Flaw::OtherKey
            );
            let culprit = self.key.as_ref().filter(|_| is_of_key);
            culprit.unwrap_or(&self.chain).says(&flaw)
        })
    }
}

/// Checks the files that the settings name, as a server that is started would, by a process that stays in its directory. Gives the faults that
/// clients will find with certificates that can be used, now or soon.
///
/// # Errors
/// The operator's.
pub fn check_credentials(settings: &Settings) -> Result<Vec<String>, String> {
    let directory = settings.app.chdir.as_deref().unwrap_or(Path::new(""));
    let copies = KeyFiles::copy_from(directory, settings)?.take();
    let config = copies.config(settings)?;
    let served = config.map(|(_, served)| served).unwrap_or_default();
    let now_s = wall_s();
    Ok(served.iter().filter_map(|one| one.concern(now_s)).collect())
}
