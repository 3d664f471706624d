//! The TLS settings of a server: its certificates, versions and suites, and the clients that it accepts.

use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::version::{TLS12, TLS13};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion, WantsVerifier};
use rustls_pki_types::ServerName;

use crate::credentials::{Credentials, Flaw, certificates, provider};
use crate::remembering::{GoodUntil, Remembering};
use crate::suites::suites;
use crate::tickets::{TicketKey, Tickets};

/// The oldest version of TLS that the server accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2 (RFC 5246), with its safe suites only.
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// Whether clients show certificates, and which issuers the server trusts.
#[derive(Clone, Debug)]
pub struct ClientAuth {
    /// Certificates of the trusted issuers, in PEM.
    pub authorities: Vec<u8>,
    /// A client without a certificate is refused.
    pub is_required: bool,
}

/// The parts of a [`Config`].
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// At least one. A client gets the certificate for the name that it asks for, else the first.
    pub credentials: Vec<Credentials>,
    /// The oldest version.
    pub oldest: Version,
    /// Names of the permitted suites; without them all are permitted.
    pub suites: Option<String>,
    /// Protocols above TLS (RFC 7301), the best first.
    pub alpn: Vec<Vec<u8>>,
    /// The verification of clients, if the server verifies them.
    pub clients: Option<ClientAuth>,
    /// How long a client may keep a ticket.
    pub ticket_lifetime_s: u32,
}

/// The state that a server's connections share. A clone is another handle of the same state.
#[derive(Clone, Debug)]
pub struct Config {
    kept: Arc<ConfigParts>,
    /// The config that all connections share, unless each connection needs its own.
    shared: Option<(Arc<ServerConfig>, Choice)>,
}

/// The parts from which the config of a connection is built.
#[derive(Debug)]
struct ConfigParts {
    builder: ConfigBuilder<ServerConfig, WantsVerifier>,
    /// The verification of clients, if the server verifies them.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    credentials: Arc<[Credentials]>,
    alpn: Vec<Vec<u8>>,
    tickets: Tickets,
}

impl Config {
    /// Builds a config.
    ///
    /// # Errors
    /// A mistake in the operator's settings.
    pub fn new(options: TlsOptions) -> Result<Self, Flaw> {
        Self::with_clock(options, Arc::new(DefaultTimeProvider))
    }

    pub(crate) fn with_clock(
        options: TlsOptions,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, Flaw> {
        let mut provider = provider();
        if let Some(names) = &options.suites {
            provider.cipher_suites = suites(names).map_err(|_| Flaw::NoSuite)?;
        }
        let builder =
            ServerConfig::builder_with_details(Arc::new(provider.clone()), Arc::clone(&clock))
                .with_protocol_versions(versions(options.oldest))
                .map_err(|_| Flaw::NoSuite)?;
        let clients = options.clients.as_ref();
        let verifier = clients.map(|clients| verifier(clients, provider));
        let tickets = Tickets::new(options.ticket_lifetime_s, &scope(clients), clock);
        let kept = ConfigParts {
            builder,
            verifier: verifier.transpose()?,
            credentials: options.credentials.into(),
            alpn: options.alpn,
            tickets,
        };
        let is_same_for_all = kept.credentials.len() == 1 && kept.verifier.is_none();
        Ok(Self {
            shared: is_same_for_all.then(|| kept.server()),
            kept: Arc::new(kept),
        })
    }

    /// The config for one connection, and a handle to the certificate that its client gets, because rustls does not report it.
    pub(crate) fn for_connection(&self) -> (Arc<ServerConfig>, Choice) {
        let shared = self.shared.clone();
        shared.unwrap_or_else(|| self.kept.server())
    }

    /// Has the first of these keys issue tickets from now on, and accepts tickets of all of them. The config has no keys before.
    pub fn set_ticket_keys(&self, keys: &[TicketKey]) {
        self.kept.tickets.set_keys(keys);
    }
}

impl ConfigParts {
    fn server(&self) -> (Arc<ServerConfig>, Choice) {
        let good_until = GoodUntil::default();
        let builder = self.builder.clone();
        let builder = match &self.verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(Arc::new(Remembering {
                inner: Arc::clone(verifier),
                good_until: good_until.clone(),
            })),
        };
        let choice = Choice::among(&self.credentials);
        let mut config = builder.with_cert_resolver(Arc::new(choice.clone()));
        config.alpn_protocols.clone_from(&self.alpn);
        // Sessions are kept in tickets only, and not in memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = self.tickets.producer(good_until);
        (Arc::new(config), choice)
    }
}

fn verifier(
    clients: &ClientAuth,
    provider: CryptoProvider,
) -> Result<Arc<dyn ClientCertVerifier>, Flaw> {
    let roots = Arc::new(roots(&clients.authorities)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::new(provider));
    let verifier = if clients.is_required {
        verifier
    } else {
        verifier.allow_unauthenticated()
    };
    verifier.build().map_err(|error| bad_authorities(&error))
}

/// All settings that decide whether a client's certificate is accepted: a client that resumes a session is not asked for its certificate again.
fn scope(clients: Option<&ClientAuth>) -> Vec<u8> {
    clients.map_or_else(Vec::new, |clients| {
        let kind = [1 + u8::from(clients.is_required)];
        [&kind[..], &clients.authorities].concat()
    })
}

fn versions(oldest: Version) -> &'static [&'static SupportedProtocolVersion] {
    const FROM_1_2: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
    const FROM_1_3: &[&SupportedProtocolVersion] = &[&TLS13];
    match oldest {
        Version::Tls12 => FROM_1_2,
        Version::Tls13 => FROM_1_3,
    }
}

fn bad_authorities(error: &impl ToString) -> Flaw {
    Flaw::BadAuthorities(error.to_string())
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Flaw> {
    let mut roots = RootCertStore::empty();
    for one in certificates(pem)? {
        roots.add(one).map_err(|error| bad_authorities(&error))?;
    }
    Ok(roots)
}

/// The certificate that a client gets. A clone is another handle of the same choice.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    all: Arc<[Credentials]>,
    /// The key of the certificate that the client has got.
    chosen: Arc<OnceLock<Arc<CertifiedKey>>>,
}

impl Choice {
    fn among(all: &Arc<[Credentials]>) -> Self {
        Self {
            all: Arc::clone(all),
            chosen: Arc::default(),
        }
    }

    /// The certificate that its client gets, in DER.
    pub(crate) fn shown(&self) -> Option<&[u8]> {
        let chain = &self.chosen.get()?.cert;
        chain.first().map(AsRef::as_ref)
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = match &*self.all {
            [only] => only,
            several => choose(several, &hello)?,
        };
        // A client that must restart its handshake gets the same certificate.
        Some(Arc::clone(
            self.chosen.get_or_init(|| Arc::clone(&chosen.key)),
        ))
    }
}

/// The first certificate for the name that the client asks for and in an algorithm that the client can verify, because there may be one with ECDSA
/// and one with RSA. Else the first for that name, or the first of all: a client that asks for an unknown name should fail by its own check of the
/// name.
fn choose<'c>(all: &'c [Credentials], hello: &ClientHello<'_>) -> Option<&'c Credentials> {
    let schemes = hello.signature_schemes();
    let fits = |one: &&Credentials| one.key.key.choose_scheme(schemes).is_some();
    let name = hello
        .server_name()
        .and_then(|name| ServerName::try_from(name).ok());
    let named = name.map(|name| {
        all.iter()
            .filter(|one| one.is_for(&name))
            .collect::<Vec<_>>()
    });
    let named = named.filter(|named| !named.is_empty());
    let candidates = named.unwrap_or_else(|| all.iter().collect());
    let fitting = candidates.iter().copied().find(fits);
    fitting.or_else(|| candidates.first().copied())
}
