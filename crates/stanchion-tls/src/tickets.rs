//! Session tickets (RFC 8446 section 4.6.1, RFC 5077), sealed by keys that the caller provides: so tickets outlive the process that issued them.
//!
//! A client that resumes a session shows no certificate again. So a ticket is valid only where the server verifies clients in the same way as the
//! server that issued it: the sealing key is derived from the caller's key and from that way of verifying, its *scope*. The ticket holds the time at
//! which it was issued, and until when the client's certificate is valid: a client that comes too late makes a full handshake.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

use crate::remembering::GoodUntil;

/// Bytes of one key.
pub const TICKET_KEY_BYTES: usize = 32;
/// The number of keys whose tickets are accepted. The first of them seals new tickets.
pub const TICKET_KEYS_MAX: usize = 3;

const NAME_BYTES: usize = 16;
/// The version of the content of tickets. Keys are derived from it and from the scope, so that a ticket of another version is refused.
const FORM: &[u8] = b"2";

/// A key in the form in which the caller provides it.
pub type TicketKey = [u8; TICKET_KEY_BYTES];

/// Issues tickets and accepts them back. A clone is another handle of the same state.
#[derive(Clone)]
pub(crate) struct Tickets(Arc<Issuer>);

struct Issuer {
    keys: RwLock<Vec<ScopedKey>>,
    /// The version of the content, and the way of verifying clients that these tickets are valid for.
    scope: Vec<u8>,
    /// How long a ticket is accepted.
    lifetime_s: u32,
    clock: Arc<dyn TimeProvider>,
}

/// Issues the tickets of one connection, or of all connections if clients show no certificates.
#[derive(Debug)]
struct Counter {
    tickets: Tickets,
    good_until: GoodUntil,
}

/// The times in front of a session in its ticket, in seconds since 1970.
#[derive(Clone, Copy)]
struct TicketTimes {
    issued_s: u64,
    /// The last second in which the client's certificate is valid.
    good_until_s: u64,
}

struct ScopedKey {
    /// The name at the start of its tickets.
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

impl Tickets {
    /// For tickets that clients may keep for this long. None are issued without a key.
    pub(crate) fn new(lifetime_s: u32, scope: &[u8], clock: Arc<dyn TimeProvider>) -> Self {
        Self(Arc::new(Issuer {
            keys: RwLock::default(),
            scope: [FORM, scope].concat(),
            lifetime_s,
            clock,
        }))
    }

    /// Replaces the keys; the first is the newest.
    pub(crate) fn set_keys(&self, keys: &[TicketKey]) {
        let keys = keys.iter().take(TICKET_KEYS_MAX);
        let keys = keys.filter_map(|key| ScopedKey::new(key, &self.0.scope));
        let keys = keys.collect();
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// The issuer for a connection whose client's certificate is valid until then.
    pub(crate) fn producer(&self, good_until: GoodUntil) -> Arc<dyn ProducesTickets> {
        let tickets = self.clone();
        Arc::new(Counter {
            tickets,
            good_until,
        })
    }

    fn now_s(&self) -> Option<u64> {
        self.0.clock.current_time().map(|time| time.as_secs())
    }
}

impl TicketTimes {
    fn bytes(self) -> [[u8; 8]; 2] {
        [self.issued_s, self.good_until_s].map(u64::to_le_bytes)
    }

    /// The times in a ticket, and the session behind them.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (issued_s, rest) = bytes.split_first_chunk()?;
        let (good_until_s, session) = rest.split_first_chunk()?;
        let times = Self {
            issued_s: u64::from_le_bytes(*issued_s),
            good_until_s: u64::from_le_bytes(*good_until_s),
        };
        Some((times, session))
    }

    /// Whether a ticket is accepted. A ticket from the future is refused: the clock was set back, so the ticket's age is unknown.
    fn are_good(self, now_s: u64, lifetime_s: u32) -> bool {
        let age_s = now_s.checked_sub(self.issued_s);
        age_s.is_some_and(|age_s| age_s < u64::from(lifetime_s)) && now_s <= self.good_until_s
    }
}

impl ScopedKey {
    fn new(key: &TicketKey, scope: &[u8]) -> Option<Self> {
        // HMAC derives one key for each scope, and none of them reveals another (RFC 5869 section 2.3).
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

    /// Decrypts the part of a ticket behind its name.
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

impl ProducesTickets for Counter {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.tickets.0.lifetime_s
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let times = TicketTimes {
            issued_s: self.tickets.now_s()?,
            good_until_s: self.good_until.get(),
        };
        let [issued_s, good_until_s] = times.bytes();
        let keys = &self.tickets.0.keys;
        let keys = keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.first()?
            .seal(&[&issued_s[..], &good_until_s, session].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_first_chunk()?;
        let Issuer {
            keys, lifetime_s, ..
        } = &*self.tickets.0;
        let keys = keys.read().unwrap_or_else(PoisonError::into_inner);
        let plain = keys.iter().find(|key| key.name == *name)?.open(sealed)?;
        let (times, session) = TicketTimes::read(&plain)?;
        if !times.are_good(self.tickets.now_s()?, *lifetime_s) {
            return None;
        }
        // The tickets that this connection issues stand for the same certificate.
        self.good_until.set(times.good_until_s);
        Some(session.to_vec())
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tickets")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use rustls_pki_types::UnixTime;

    use super::*;

    /// A clock that moves only when the test sets it.
    #[derive(Debug)]
    pub(crate) struct SetClock(AtomicU64);

    impl SetClock {
        pub(crate) fn at(unix_s: u64) -> Arc<Self> {
            Arc::new(Self(AtomicU64::new(unix_s)))
        }

        pub(crate) fn set(&self, unix_s: u64) {
            self.0.store(unix_s, Ordering::Relaxed);
        }
    }

    impl TimeProvider for SetClock {
        fn current_time(&self) -> Option<UnixTime> {
            let since = Duration::from_secs(self.0.load(Ordering::Relaxed));
            Some(UnixTime::since_unix_epoch(since))
        }
    }

    fn key(byte: u8) -> TicketKey {
        [byte; TICKET_KEY_BYTES]
    }

    fn tickets() -> Tickets {
        of_scope(b"scope", &SetClock::at(1000))
    }

    fn of_scope(scope: &[u8], clock: &Arc<SetClock>) -> Tickets {
        Tickets::new(60, scope, Arc::clone(clock) as Arc<_>)
    }

    fn encrypt(tickets: &Tickets, session: &[u8]) -> Option<Vec<u8>> {
        tickets.producer(GoodUntil::default()).encrypt(session)
    }

    fn decrypt(tickets: &Tickets, ticket: &[u8]) -> Option<Vec<u8>> {
        tickets.producer(GoodUntil::default()).decrypt(ticket)
    }

    #[test]
    fn tickets_are_taken_by_whoever_has_the_key() {
        let (one, other) = (tickets(), tickets());
        assert_eq!(encrypt(&one, b"state"), None);
        one.set_keys(&[key(1)]);
        let ticket = encrypt(&one, b"state").unwrap();
        assert_ne!(encrypt(&one, b"state").unwrap(), ticket);
        assert_eq!(decrypt(&other, &ticket), None);
        other.set_keys(&[key(3), key(2), key(1), key(4)]);
        assert_eq!(decrypt(&other, &ticket).unwrap(), b"state");
        // The newest key issues; the fourth is one too many.
        let newer = encrypt(&other, b"").unwrap();
        assert_eq!(decrypt(&one, &newer), None);
        one.set_keys(&[key(4)]);
        let fourth = encrypt(&one, b"").unwrap();
        assert_eq!(decrypt(&other, &fourth), None);
        assert_eq!(decrypt(&one, &ticket), None);
    }

    #[test]
    fn tickets_are_of_no_use_where_clients_are_verified_in_another_way() {
        let (one, other) = (tickets(), of_scope(b"other", &SetClock::at(1000)));
        one.set_keys(&[key(1)]);
        other.set_keys(&[key(1)]);
        let ticket = encrypt(&one, b"state").unwrap();
        assert_eq!(decrypt(&one, &ticket).unwrap(), b"state");
        assert_eq!(decrypt(&other, &ticket), None);
    }

    #[test]
    fn tickets_are_taken_for_as_long_as_clients_are_told_and_what_was_shown_is_good() {
        let clock = SetClock::at(1000);
        let tickets = of_scope(b"", &clock);
        tickets.set_keys(&[key(1)]);
        for (good_until_s, now_s, expected) in [
            (u64::MAX, 999, false),
            (u64::MAX, 1000, true),
            (u64::MAX, 1059, true),
            (u64::MAX, 1060, false),
            (1030, 1030, true),
            (1030, 1031, false),
            (999, 1000, false),
        ] {
            clock.set(1000);
            let shown = GoodUntil::default();
            shown.set(good_until_s);
            let ticket = tickets.producer(shown).encrypt(b"state").unwrap();
            clock.set(now_s);
            let came_again = GoodUntil::default();
            let session = tickets.producer(came_again.clone()).decrypt(&ticket);
            assert_eq!(session.is_some(), expected, "{good_until_s} {now_s}");
            // The tickets that it gets now do not extend the validity.
            let known_s = if expected { good_until_s } else { u64::MAX };
            assert_eq!(came_again.get(), known_s);
        }
    }

    #[test]
    fn what_is_no_ticket_of_ours_is_none() {
        let tickets = tickets();
        tickets.set_keys(&[key(1)]);
        let ticket = encrypt(&tickets, b"state").unwrap();
        for len in 0..ticket.len() {
            assert_eq!(decrypt(&tickets, &ticket[..len]), None, "{len}");
        }
        for index in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[index] ^= 1;
            assert_eq!(decrypt(&tickets, &changed), None, "{index}");
        }
    }
}
