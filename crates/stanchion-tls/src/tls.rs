//! One connection's TLS: bytes of the socket in, plaintext out, and back. All buffers are bounded: received plaintext that was not read by
//! [`PLAINTEXT_BYTES_MAX`] and a record, ciphertext to send by [`CIPHERTEXT_BYTES_MAX`] and its framing, and the bytes of an incomplete record by
//! rustls (64 KiB in a handshake, else the longest record).

use std::io::{self, BufRead as _, IoSlice, Write as _};

use rustls::crypto::SupportedKxGroup;
use rustls::{NamedGroup, ProtocolVersion, ServerConnection, SupportedCipherSuite};
use rustls_pki_types::CertificateDer;

use crate::config::{Choice, Config};
use crate::suites::name_of;

/// The most bytes that may wait to be sent: twice the initial size of a socket's buffer, and enough records for one writev(2).
pub const CIPHERTEXT_BYTES_MAX: usize = 64 << 10;
/// While more plaintext than this is unread, [`Tls::take`] takes nothing in. rustls has the same limit, and fails beyond it.
const PLAINTEXT_BYTES_MAX: usize = 16 << 10;
/// The most plaintext in a record (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 16 << 10;
/// A connection starts to end in an orderly way when its keys are good for fewer records than this.
const RECORDS_TO_END: u64 = 1 << 16;
/// Records reserved under the keys for traffic other than the answers' plaintext: the handshake, alerts, and the records of one write.
const RECORDS_KEPT_BACK: u64 = 64;

/// The reason why a connection cannot go on: a fault of the client, which an alert reports to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsFault(String);

/// TLS of one connection.
#[allow(
    clippy::struct_excessive_bools,
    reason = "what came and what was said are told apart, each by itself"
)]
pub struct Tls {
    inner: ServerConnection,
    choice: Choice,
    /// Bytes of plaintext that were decrypted and not read.
    unread: usize,
    /// Bytes of ciphertext that wait to be sent.
    waiting: usize,
    /// The client has said that it sends no more (`close_notify`).
    is_over: bool,
    /// The client's bytes were faulty, and no more are taken.
    has_failed: bool,
    /// The server has announced that it sends no more (`close_notify`).
    is_closed: bool,
    /// No byte has come yet.
    is_fresh: bool,
    /// The number of records of plaintext that were written.
    records: u64,
}

impl Tls {
    /// The TLS of a connection whose client has sent nothing yet.
    ///
    /// # Errors
    /// The kernel gives no random bytes, which does not happen in practice; or the config is contradictory.
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

    /// Takes in bytes of the socket, and returns how many: fewer than all if the caller has to read plaintext first, or if the client has announced
    /// that it sends no more. After [`Tls::close`] the bytes are discarded, because no alert about a fault in them could follow.
    ///
    /// # Errors
    /// A fault of the client. The alert about it waits to be sent.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, TlsFault> {
        if self.is_closed {
            return Ok(bytes.len());
        }
        let mut rest = bytes;
        self.is_fresh &= bytes.is_empty();
        while !rest.is_empty() && !self.is_over && self.unread <= PLAINTEXT_BYTES_MAX {
            // rustls fails only if its buffer is full, and the condition above prevents that.
            let read = self.inner.read_tls(&mut rest);
            if read.map_err(|error| self.failed(error.to_string()))? == 0 {
                break;
            }
            self.process()?;
        }
        Ok(bytes.len() - rest.len())
    }

    fn process(&mut self) -> Result<(), TlsFault> {
        let state = self.inner.process_new_packets();
        let state = state.map_err(|error| self.failed(error.to_string()))?;
        self.unread = state.plaintext_bytes_to_read();
        self.waiting = state.tls_bytes_to_write();
        self.is_over = state.peer_has_closed();
        Ok(())
    }

    fn failed(&mut self, why: String) -> TlsFault {
        self.has_failed = true;
        TlsFault(why)
    }

    /// Whether the client's bytes were faulty. The alert about that may still wait to be sent.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether no byte has come yet.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Bytes of plaintext that can be read.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Whether the client has announced that it sends no more, after the plaintext that is unread.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Appends plaintext to `into`, as far as its capacity permits; returns how much.
    pub fn read(&mut self, into: &mut Vec<u8>) -> usize {
        let before = into.len();
        while self.unread > 0 && into.len() < into.capacity() {
            let room = into.capacity() - into.len();
            let mut reader = self.inner.reader();
            // There is plaintext, so the reader neither blocks nor reports the end.
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

    /// Encrypts as much of `slices`, in their order, as there is room for; returns how many bytes, which is 0 while there is no room.
    ///
    /// # Errors
    /// The connection has failed (rustls refuses to encrypt from then on), or has used up its keys.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, TlsFault> {
        if self.records_left() == 0 {
            return Err(self.failed("the keys of this connection are used up".to_owned()));
        }
        let written = self.inner.writer().write_vectored(slices);
        let len = written.map_err(|error| self.failed(error.to_string()))?;
        self.records += len.div_ceil(RECORD_BYTES_MAX) as u64;
        self.count();
        Ok(len)
    }

    /// Whether the keys are almost used up, so that the connection should end after its current requests.
    pub fn is_worn(&self) -> bool {
        self.records_left() < RECORDS_TO_END
    }

    /// How many records may still be sent. rustls renews the keys of TLS 1.3. In TLS 1.2 it cannot: beyond the limit it drops plaintext and still
    /// reports it as written (RFC 9325 section 4.4 has the limits).
    fn records_left(&self) -> u64 {
        let Some(SupportedCipherSuite::Tls12(suite)) = self.inner.negotiated_cipher_suite() else {
            return u64::MAX;
        };
        let limit = suite.common.confidentiality_limit;
        limit.saturating_sub(RECORDS_KEPT_BACK + self.records)
    }

    /// Updates [`Tls::waiting`]. Without new input rustls does nothing else here.
    fn count(&mut self) {
        if let Ok(state) = self.inner.process_new_packets() {
            self.waiting = state.tls_bytes_to_write();
        }
    }

    /// Whether ciphertext waits to be sent.
    pub fn waits(&self) -> bool {
        self.inner.wants_write()
    }

    /// The bytes that wait to be sent, without an alert.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Sends the waiting bytes, as far as `out` takes them; returns how many.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn send(&mut self, out: &mut dyn io::Write) -> io::Result<usize> {
        let sent = self.inner.write_tls(out)?;
        self.waiting = self.waiting.saturating_sub(sent);
        Ok(sent)
    }

    /// Announces that the server sends no more (`close_notify`), after everything that was written. After a fault the client has an alert instead.
    pub fn close(&mut self) {
        if !self.has_failed && !std::mem::replace(&mut self.is_closed, true) {
            self.inner.send_close_notify();
            self.count();
        }
    }

    /// Whether the handshake is incomplete, so that no plaintext can be written or read yet.
    pub fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    /// The protocol that client and server have agreed on (RFC 7301).
    pub fn alpn(&self) -> Option<&[u8]> {
        self.inner.alpn_protocol()
    }

    /// The name of the server that the client has asked for.
    pub fn server_name(&self) -> Option<&str> {
        self.inner.server_name()
    }

    /// The version in OpenSSL's words, such as `TLSv1.3`.
    pub fn version(&self) -> &'static str {
        match self.inner.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "",
        }
    }

    /// The suite in OpenSSL's words, such as `TLS_AES_256_GCM_SHA384`.
    pub fn suite(&self) -> String {
        let suite = self.inner.negotiated_cipher_suite();
        suite
            .map(|suite| name_of(suite.suite()))
            .unwrap_or_default()
    }

    /// The group of the key exchange, if there was one.
    fn group(&self) -> Option<NamedGroup> {
        let group = self.inner.negotiated_key_exchange_group();
        group.map(SupportedKxGroup::name)
    }

    /// Whether the key exchange withstands quantum computers.
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

    /// The certificate that the client gets, in DER.
    pub fn own_certificate(&self) -> Option<&[u8]> {
        self.choice.shown()
    }

    /// The certificates that the client has shown, its own first, in DER. They were verified; for a resumed session, when the session began.
    pub fn client_chain(&self) -> impl Iterator<Item = &[u8]> {
        let chain = self.inner.peer_certificates().unwrap_or_default();
        chain.iter().map(CertificateDer::as_ref)
    }
}

#[cfg(test)]
mod tests;
