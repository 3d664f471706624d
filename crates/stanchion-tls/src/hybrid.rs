//! The key exchange X25519MLKEM768 of TLS 1.3 (draft-ietf-tls-ecdhe-mlkem), for a server. An attacker has to break both halves: ML-KEM-768 (FIPS 203)
//! is designed to withstand quantum computers, and X25519 all other attacks.

use libcrux_ml_kem::mlkem768::{MlKem768PublicKey, encapsulate, validate_public_key};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup,
};
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

/// A client sends its ML-KEM key of this length first, and then its X25519 key.
const ENCAPSULATION_KEY_BYTES: usize = 1184;
const SECRET_BYTES: usize = 32;

/// The group. Its ML-KEM is libcrux's, which is proved to follow FIPS 203.
#[derive(Debug)]
pub(crate) struct X25519MlKem768;

impl SupportedKxGroup for X25519MlKem768 {
    /// Only a client starts an exchange.
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Err(Error::General(
            "X25519MLKEM768 is implemented for servers only".to_owned(),
        ))
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let mut secret = [0; SECRET_BYTES];
        let random = SystemRandom::new().fill(&mut secret);
        random.map_err(|_| Error::from(GetRandomFailed))?;
        exchange(client_share, secret)
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

/// Answers a client's share. ML-KEM makes its secret of `random`.
fn exchange(
    client_share: &[u8],
    random: [u8; SECRET_BYTES],
) -> Result<CompletedKeyExchange, Error> {
    let (ml_kem, x25519) = client_share
        .split_first_chunk::<ENCAPSULATION_KEY_BYTES>()
        .ok_or(PeerMisbehaved::InvalidKeyShare)?;
    let key = MlKem768PublicKey::from(ml_kem);
    // FIPS 203 section 7.2 requires this check.
    if !validate_public_key(&key) {
        return Err(PeerMisbehaved::InvalidKeyShare.into());
    }
    let classical = X25519.start_and_complete(x25519)?;
    let (ciphertext, secret) = encapsulate(&key, random);
    Ok(CompletedKeyExchange {
        group: NamedGroup::X25519MLKEM768,
        pub_key: [&ciphertext.as_slice()[..], &classical.pub_key].concat(),
        secret: SharedSecret::from([&secret[..], classical.secret.secret_bytes()].concat()),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use libcrux_ml_kem::mlkem768::{
        MlKem768Ciphertext, MlKem768KeyPair, decapsulate, generate_key_pair,
    };

    use super::*;

    /// The client's side of the group, which no server needs.
    #[derive(Debug)]
    pub(crate) struct Client;

    struct Begun {
        keys: MlKem768KeyPair,
        classical: Box<dyn ActiveKeyExchange>,
        share: Vec<u8>,
    }

    impl SupportedKxGroup for Client {
        fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
            let mut seed = [0; 64];
            SystemRandom::new().fill(&mut seed).unwrap();
            let keys = generate_key_pair(seed);
            let classical = X25519.start()?;
            let share = [&keys.pk()[..], classical.pub_key()].concat();
            Ok(Box::new(Begun {
                keys,
                classical,
                share,
            }))
        }

        fn name(&self) -> NamedGroup {
            NamedGroup::X25519MLKEM768
        }
    }

    impl ActiveKeyExchange for Begun {
        fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
            let (ciphertext, x25519) = share.split_first_chunk::<1088>().unwrap();
            let ciphertext = MlKem768Ciphertext::from(ciphertext);
            let secret = decapsulate(self.keys.private_key(), &ciphertext);
            let classical = self.classical.complete(x25519)?;
            Ok(SharedSecret::from(
                [&secret[..], classical.secret_bytes()].concat(),
            ))
        }

        fn pub_key(&self) -> &[u8] {
            &self.share
        }

        fn group(&self) -> NamedGroup {
            NamedGroup::X25519MLKEM768
        }
    }

    #[test]
    fn both_sides_have_the_same_secret() {
        let begun = Client.start().unwrap();
        let answered = X25519MlKem768.start_and_complete(begun.pub_key()).unwrap();
        assert_eq!(
            (begun.pub_key().len(), answered.pub_key.len()),
            (1184 + 32, 1088 + 32)
        );
        let secret = begun.complete(&answered.pub_key).unwrap();
        assert_eq!(secret.secret_bytes().len(), 64);
        assert_eq!(secret.secret_bytes(), answered.secret.secret_bytes());
    }

    #[test]
    fn it_answers_as_published_vectors_say() {
        const VECTORS: &str = include_str!("../tests/vectors/ml_kem_768_encapsulation.txt");
        let classical = X25519.start().unwrap();
        let lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
        let fields: Vec<Vec<u8>> = lines.map(bytes_of).collect();
        for vector in fields.chunks(4) {
            let [key, random, ciphertext, secret] = vector else {
                panic!("a vector has four lines");
            };
            let share = [key, classical.pub_key()].concat();
            let answered = exchange(&share, random.as_slice().try_into().unwrap());
            if ciphertext.is_empty() {
                assert!(answered.is_err());
                continue;
            }
            let answered = answered.unwrap();
            assert!(answered.pub_key.starts_with(ciphertext));
            assert!(answered.secret.secret_bytes().starts_with(secret));
        }
        assert_eq!(fields.len(), 3 * 4);
    }

    /// Bytes of hexadecimal digits; `-` stands for no bytes.
    fn bytes_of(digits: &str) -> Vec<u8> {
        let pairs = digits.as_bytes().chunks_exact(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        pairs.map(byte).collect()
    }

    #[test]
    fn a_share_that_is_none_is_the_clients_fault() {
        let begun = Client.start().unwrap();
        let good = begun.pub_key();
        // A coefficient that is not below the modulus 3329 (FIPS 203 section 7.2).
        let too_large = [&[0xff, 0xff], &good[2..]].concat();
        for share in [
            &good[..good.len() - 1],
            &[good, b"x"].concat(),
            &too_large,
            b"",
        ] {
            let answered = X25519MlKem768.start_and_complete(share);
            let error = answered.err().expect("it is no share");
            let fault = Error::from(PeerMisbehaved::InvalidKeyShare);
            assert_eq!(error, fault, "{}", share.len());
        }
    }
}
