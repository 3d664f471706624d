//! Session tickets (RFC 8446 section 4.6.1, RFC 5077), by keys of the caller's: so they outlive who has issued them.
//!
//! Who resumes a session shows no certificate again. So a ticket is of use only where clients are verified in the same way
//! as where it was issued: what it is encrypted with is made of a key and of that way, its *scope*.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;

/// Bytes of one key.
pub const TICKET_KEY_BYTES: usize = 32;
/// Keys whose tickets are taken. With the first of them new ones are issued.
pub const TICKET_KEYS_MAX: usize = 3;

const NAME_BYTES: usize = 16;

/// As whoever issues tickets is given it.
pub type TicketKey = [u8; TICKET_KEY_BYTES];

/// Issues tickets, and takes them back. A clone is another handle of the same.
#[derive(Clone)]
pub(crate) struct Tickets(Arc<Issuer>);

struct Issuer {
    keys: RwLock<Vec<ScopedKey>>,
    /// How clients are verified where these tickets are of use.
    scope: Vec<u8>,
    /// How long a client may keep one.
    lifetime_s: u32,
}

struct ScopedKey {
    /// What its tickets bear.
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

impl Tickets {
    /// For tickets that clients may keep for so long. None are issued as long as there is no key.
    pub(crate) fn new(lifetime_s: u32, scope: Vec<u8>) -> Self {
        Self(Arc::new(Issuer {
            keys: RwLock::default(),
            scope,
            lifetime_s,
        }))
    }

    /// From now on these keys count, the first of which is the newest. Others are forgotten.
    pub(crate) fn set_keys(&self, keys: &[TicketKey]) {
        let keys = keys.iter().take(TICKET_KEYS_MAX);
        let keys = keys.filter_map(|key| ScopedKey::new(key, &self.0.scope));
        let keys = keys.collect();
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    pub(crate) fn producer(&self) -> Arc<dyn ProducesTickets> {
        Arc::clone(&self.0) as Arc<dyn ProducesTickets>
    }
}

impl ScopedKey {
    fn new(key: &TicketKey, scope: &[u8]) -> Option<Self> {
        // HMAC makes of one key as many as there are scopes, none of which tells of another (RFC 5869 section 2.3).
        let made = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA512, key), scope);
        let (name, rest) = made.as_ref().split_first_chunk()?;
        let (key, _) = rest.split_at_checked(CHACHA20_POLY1305.key_len())?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).ok()?;
        Some(Self {
            name: *name,
            key: LessSafeKey::new(key),
        })
    }

    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut ticket = [&self.name[..], &nonce, plain].concat();
        let tag = self.key.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(self.name),
            &mut ticket[NAME_BYTES + NONCE_LEN..],
        );
        ticket.extend_from_slice(tag.ok()?.as_ref());
        Some(ticket)
    }

    /// What is behind the name of a ticket.
    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk()?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(self.name), &mut plain);
        let len = opened.ok()?.len();
        plain.truncate(len);
        Some(plain)
    }
}

impl ProducesTickets for Issuer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime_s
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.first()?.seal(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_first_chunk()?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().find(|key| key.name == *name)?.open(sealed)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tickets")
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Issuer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> TicketKey {
        [byte; TICKET_KEY_BYTES]
    }

    fn tickets() -> Tickets {
        Tickets::new(60, b"scope".to_vec())
    }

    #[test]
    fn tickets_are_taken_by_whoever_has_the_key() {
        let (one, other) = (tickets(), tickets());
        assert_eq!(one.producer().encrypt(b"state"), None);
        one.set_keys(&[key(1)]);
        let ticket = one.producer().encrypt(b"state").unwrap();
        assert_ne!(one.producer().encrypt(b"state").unwrap(), ticket);
        assert_eq!(other.producer().decrypt(&ticket), None);
        other.set_keys(&[key(3), key(2), key(1), key(4)]);
        assert_eq!(other.producer().decrypt(&ticket).unwrap(), b"state");
        // The newest issues; the fourth is one too many.
        let newer = other.producer().encrypt(b"").unwrap();
        assert_eq!(one.producer().decrypt(&newer), None);
        one.set_keys(&[key(4)]);
        let fourth = one.producer().encrypt(b"").unwrap();
        assert_eq!(other.producer().decrypt(&fourth), None);
        assert_eq!(one.producer().decrypt(&ticket), None);
    }

    #[test]
    fn tickets_are_of_no_use_where_clients_are_verified_in_another_way() {
        let (one, other) = (tickets(), Tickets::new(60, b"other".to_vec()));
        one.set_keys(&[key(1)]);
        other.set_keys(&[key(1)]);
        let ticket = one.producer().encrypt(b"state").unwrap();
        assert_eq!(one.producer().decrypt(&ticket).unwrap(), b"state");
        assert_eq!(other.producer().decrypt(&ticket), None);
    }

    #[test]
    fn what_is_no_ticket_of_ours_is_none() {
        let tickets = tickets();
        tickets.set_keys(&[key(1)]);
        let ticket = tickets.producer().encrypt(b"state").unwrap();
        for len in 0..ticket.len() {
            assert_eq!(tickets.producer().decrypt(&ticket[..len]), None, "{len}");
        }
        for index in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[index] ^= 1;
            assert_eq!(tickets.producer().decrypt(&changed), None, "{index}");
        }
    }
}
