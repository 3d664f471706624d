//! Words of the table that stand for types of other crates.

use serde::{Deserialize, Deserializer};
use stanchion_http::{ClientField, HeaderMap, ProxyVersions};

/// How fields with an underscore are treated.
pub(super) fn header_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<HeaderMap, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase", remote = "HeaderMap")]
    enum Word {
        Drop,
        Refuse,
        Dangerous,
    }
    Word::deserialize(deserializer)
}

/// The field in which proxies name the client of a request.
pub(super) fn client_field<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ClientField, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case", remote = "ClientField")]
    enum Word {
        XForwardedFor,
        Forwarded,
    }
    Word::deserialize(deserializer)
}

/// Which PROXY headers there may be; `off` is none.
pub(super) fn proxy_versions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ProxyVersions>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Off,
        V1,
        V2,
        Auto,
    }
    Ok(match Word::deserialize(deserializer)? {
        Word::Off => None,
        Word::V1 => Some(ProxyVersions::V1),
        Word::V2 => Some(ProxyVersions::V2),
        Word::Auto => Some(ProxyVersions::Auto),
    })
}

/// Whether HTTP/2 may begin without TLS; other ways to begin are refused before.
pub(super) fn prior_knowledge<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<bool, D::Error> {
    Ok(String::deserialize(deserializer)? == "prior-knowledge")
}
