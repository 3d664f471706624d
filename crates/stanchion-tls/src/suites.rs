//! Cipher suites by their names: those that rustls has, and OpenSSL's names for them.

use rustls::crypto::ring::ALL_CIPHER_SUITES;
use rustls::{CipherSuite, SupportedCipherSuite};

/// OpenSSL's names, which operators write in `ciphers` of other servers, for suites whose IANA names differ.
const OPENSSL_NAMES: [(CipherSuite, &str); 6] = [
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

/// The name of a suite in OpenSSL, which apps also expect.
pub(crate) fn name_of(suite: CipherSuite) -> String {
    let named = OPENSSL_NAMES.iter().find(|(known, _)| *known == suite);
    match (named, suite.as_str()) {
        (Some((_, name)), _) => (*name).to_owned(),
        // rustls has names of its own for the suites of TLS 1.3.
        (None, Some(name)) => name.replacen("TLS13_", "TLS_", 1),
        (None, None) => format!("{:04X}", u16::from(suite)),
    }
}

/// The names of all suites, the best first.
fn suite_names() -> Vec<String> {
    let suites = ALL_CIPHER_SUITES.iter();
    suites.map(|suite| name_of(suite.suite())).collect()
}

/// Checks a list of suites, separated by colons, commas or spaces.
///
/// # Errors
/// The operator names a suite that is unknown here; the text lists all suites.
pub fn check_suites(text: &str) -> Result<(), String> {
    suites(text).map(drop)
}

/// The suites of such a list, in its order.
pub(crate) fn suites(text: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let words = text.split([':', ',', ' ']).filter(|word| !word.is_empty());
    let suites: Vec<_> = words.map(find).collect::<Result<_, _>>()?;
    if suites.is_empty() {
        return Err(format!("names no cipher suite (known: {})", there_are()));
    }
    Ok(suites)
}

fn find(word: &str) -> Result<SupportedCipherSuite, String> {
    let suite = ALL_CIPHER_SUITES.iter().find(|suite| {
        let iana = suite.suite().as_str().unwrap_or_default();
        name_of(suite.suite()).eq_ignore_ascii_case(word) || iana.eq_ignore_ascii_case(word)
    });
    suite.copied().ok_or_else(|| {
        format!(
            "'{word}' is no cipher suite that is safe and known here (known: {})",
            there_are()
        )
    })
}

fn there_are() -> String {
    suite_names().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_go_by_the_names_of_openssl_and_of_iana() {
        let names = suite_names();
        assert_eq!(names.len(), 9);
        for name in &names {
            assert_eq!(suites(name).unwrap().len(), 1, "{name}");
        }
        let given = "ECDHE-RSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256,tls_ecdhe_rsa_with_aes_256_gcm_sha384";
        let found: Vec<_> = suites(given).unwrap();
        let found: Vec<_> = found.iter().map(|suite| name_of(suite.suite())).collect();
        assert_eq!(
            found,
            [
                "ECDHE-RSA-AES128-GCM-SHA256",
                "TLS_AES_128_GCM_SHA256",
                "ECDHE-RSA-AES256-GCM-SHA384"
            ]
        );
    }

    #[test]
    fn what_is_not_known_is_told_with_what_is() {
        for text in ["HIGH:!aNULL", "AES128-SHA", " : "] {
            let why = check_suites(text).unwrap_err();
            assert!(why.contains("TLS_AES_256_GCM_SHA384, "), "{why}");
        }
    }
}
