//! One connection's TLS: bytes of the socket in, plaintext out, and back. All buffers are bounded: what came and was not
//! read by [`PLAINTEXT_BYTES_MAX`] and a record, what is to be sent by [`CIPHERTEXT_BYTES_MAX`] and its framing, and what
//! came of a record that is not whole by rustls (64 KiB in a handshake, else the longest record).

use std::fmt;
use std::io::{self, BufRead as _, IoSlice, Write as _};

use rustls::crypto::SupportedKxGroup;
use rustls::{NamedGroup, ProtocolVersion, ServerConnection, SupportedCipherSuite};
use rustls_pki_types::CertificateDer;

use crate::config::{Choice, Config};
use crate::suites::name_of;

/// So much may wait to be sent. It is twice what a socket's buffer has at first, and enough records for one writev(2).
pub const CIPHERTEXT_BYTES_MAX: usize = 64 << 10;
/// While more than this is not read, no more is taken in. rustls has the same limit, beyond which it refuses to.
const PLAINTEXT_BYTES_MAX: usize = 16 << 10;
/// A record holds so much (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 16 << 10;
/// A connection ends in an orderly way while its keys are good for so many more.
const RECORDS_TO_END: u64 = 1 << 16;
/// Records that the keys are good for and that carry no plaintext of ours: those of the handshake, alerts, and one write's.
const RECORDS_KEPT_BACK: u64 = 64;

/// Why a connection cannot go on: the client's fault, who is told by an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(String);

/// TLS of one connection.
#[allow(
    clippy::struct_excessive_bools,
    reason = "what came and what was said are told apart, each by itself"
)]
pub struct Tls {
    inner: ServerConnection,
    choice: Choice,
    /// Bytes of plaintext that have come and were not read.
    unread: usize,
    /// Bytes of ciphertext that wait to be sent.
    waiting: usize,
    /// The client has said that it sends no more (`close_notify`).
    is_over: bool,
    /// What came makes no sense, and nothing more is taken.
    has_failed: bool,
    /// We have said that we send no more.
    is_closed: bool,
    /// Nothing has come yet.
    is_fresh: bool,
    /// So many records of plaintext were written.
    records: u64,
}

impl Tls {
    /// One that waits for its client's first words.
    ///
    /// # Errors
    /// There is no randomness, which no kernel refuses; or the config makes no sense.
    pub fn new(config: &Config) -> io::Result<Self> {
        let (server, choice) = config.for_connection();
        let inner = ServerConnection::new(server);
        let mut inner = inner.map_err(io::Error::other)?;
        inner.set_buffer_limit(Some(CIPHERTEXT_BYTES_MAX));
        Ok(Self {
            inner,
            choice,
            unread: 0,
            waiting: 0,
            is_over: false,
            has_failed: false,
            is_closed: false,
            is_fresh: true,
            records: 0,
        })
    }

    /// Takes in what has come; gives how much of it: not all if plaintext is to be read first, or the client has said that
    /// there is none to come. After [`Tls::close`] it is thrown away, since no alert about a fault in it could follow.
    ///
    /// # Errors
    /// The client's. What it is told of that waits to be sent.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if self.is_closed {
            return Ok(bytes.len());
        }
        let mut rest = bytes;
        self.is_fresh &= bytes.is_empty();
        while !rest.is_empty() && !self.is_over && self.unread <= PLAINTEXT_BYTES_MAX {
            // It fails only with more than it has room for, which the condition above keeps from it.
            let read = self.inner.read_tls(&mut rest);
            if read.map_err(|error| self.failed(error.to_string()))? == 0 {
                break;
            }
            self.process()?;
        }
        Ok(bytes.len() - rest.len())
    }

    fn process(&mut self) -> Result<(), Fault> {
        let state = self.inner.process_new_packets();
        let state = state.map_err(|error| self.failed(error.to_string()))?;
        self.unread = state.plaintext_bytes_to_read();
        self.waiting = state.tls_bytes_to_write();
        self.is_over = state.peer_has_closed();
        Ok(())
    }

    fn failed(&mut self, why: String) -> Fault {
        self.has_failed = true;
        Fault(why)
    }

    /// Whether what came made no sense. What the client is told of that may still wait to be sent.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether nothing has come yet.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Bytes of plaintext that can be read.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Whether the client has said that it sends no more, behind what is unread.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads plaintext behind what is in `into`, as far as that has room without growing; gives how much.
    pub fn read(&mut self, into: &mut Vec<u8>) -> usize {
        let before = into.len();
        while self.unread > 0 && into.len() < into.capacity() {
            let room = into.capacity() - into.len();
            let mut reader = self.inner.reader();
            // There is something, so it says neither that it would block nor that all is over.
            let Ok(chunk) = reader.fill_buf() else { break };
            let len = chunk.len().min(room);
            if len == 0 {
                break;
            }
            into.extend_from_slice(&chunk[..len]);
            reader.consume(len);
            self.unread -= len;
        }
        into.len() - before
    }

    /// Encrypts what there is room for, of all of `slices` in turn; gives how much of them, which is nothing while there is
    /// no room.
    ///
    /// # Errors
    /// The connection has failed (rustls refuses to encrypt from then on), or has used up its keys.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Fault> {
        if self.records_left() == 0 {
            return Err(self.failed("the keys of this connection are used up".to_owned()));
        }
        let written = self.inner.writer().write_vectored(slices);
        let len = written.map_err(|error| self.failed(error.to_string()))?;
        self.records += len.div_ceil(RECORD_BYTES_MAX) as u64;
        self.count();
        Ok(len)
    }

    /// Whether the keys are almost used up, so that the connection is to end with what is under way.
    pub fn is_worn(&self) -> bool {
        self.records_left() < RECORDS_TO_END
    }

    /// How many records may still be sent. rustls renews the keys of TLS 1.3. It has no others in TLS 1.2, where it drops
    /// what is written beyond the limit and says that it took it (RFC 9325 section 4.4 has the limits).
    fn records_left(&self) -> u64 {
        let Some(SupportedCipherSuite::Tls12(suite)) = self.inner.negotiated_cipher_suite() else {
            return u64::MAX;
        };
        let limit = suite.common.confidentiality_limit;
        limit.saturating_sub(RECORDS_KEPT_BACK + self.records)
    }

    /// Counts what waits. Without anything that has come, rustls does nothing else.
    fn count(&mut self) {
        if let Ok(state) = self.inner.process_new_packets() {
            self.waiting = state.tls_bytes_to_write();
        }
    }

    /// Whether something waits to be sent.
    pub fn waits(&self) -> bool {
        self.inner.wants_write()
    }

    /// How much that is, but for an alert.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Sends what waits, as far as `out` takes it; gives how much.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn send(&mut self, out: &mut dyn io::Write) -> io::Result<usize> {
        let sent = self.inner.write_tls(out)?;
        self.waiting = self.waiting.saturating_sub(sent);
        Ok(sent)
    }

    /// Says that we send no more (`close_notify`), behind what was written. Who has been told of a fault hears no more.
    pub fn close(&mut self) {
        if !self.has_failed && !std::mem::replace(&mut self.is_closed, true) {
            self.inner.send_close_notify();
            self.count();
        }
    }

    /// Whether nothing can be written or read yet.
    pub fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    /// The protocol that client and server have agreed on (RFC 7301).
    pub fn alpn(&self) -> Option<&[u8]> {
        self.inner.alpn_protocol()
    }

    /// The name by which the client has asked for this server.
    pub fn server_name(&self) -> Option<&str> {
        self.inner.server_name()
    }

    /// Such as `TLSv1.3`, as OpenSSL calls it.
    pub fn version(&self) -> &'static str {
        match self.inner.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "",
        }
    }

    /// Such as `TLS_AES_256_GCM_SHA384`, as OpenSSL calls it.
    pub fn suite(&self) -> String {
        let suite = self.inner.negotiated_cipher_suite();
        suite
            .map(|suite| name_of(suite.suite()))
            .unwrap_or_default()
    }

    /// By which keys were exchanged, if they were.
    fn group(&self) -> Option<NamedGroup> {
        let group = self.inner.negotiated_key_exchange_group();
        group.map(SupportedKxGroup::name)
    }

    /// Whether the keys were exchanged in a way that withstands quantum computers.
    pub fn is_post_quantum(&self) -> bool {
        self.group() == Some(NamedGroup::X25519MLKEM768)
    }

    /// The number of the version (RFC 8446 section 4.2.1).
    pub fn version_number(&self) -> Option<u16> {
        self.inner.protocol_version().map(u16::from)
    }

    /// The number of the suite (RFC 8446 appendix B.4).
    pub fn suite_number(&self) -> Option<u16> {
        let suite = self.inner.negotiated_cipher_suite();
        suite.map(|suite| u16::from(suite.suite()))
    }

    /// The certificate that the client is shown, in DER.
    pub fn own_certificate(&self) -> Option<&[u8]> {
        self.choice.shown()
    }

    /// The certificates that the client has shown, its own first, in DER. They were verified; of a session that is resumed
    /// when that began.
    pub fn client_chain(&self) -> impl Iterator<Item = &[u8]> {
        let chain = self.inner.peer_certificates().unwrap_or_default();
        chain.iter().map(CertificateDer::as_ref)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests;
