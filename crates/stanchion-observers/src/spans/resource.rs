//! The service that the spans are of, as the environment names it (OpenTelemetry specification, "Resource SDK", section
//! "Specifying resource information via an environment variable").

use std::collections::BTreeMap;
use std::ffi::OsStr;

use stanchion_http::percent_decoded;
use thiserror::Error;

/// The name of a service for which there is no better one.
const SERVICE: &str = "stanchion";
const SERVICE_NAME: &str = "service.name";

/// The longest variable, which each message carries: as long as what every system must pass on of W3C Baggage, whose
/// format it has.
const BYTES_MAX: usize = 8192;

/// Why the variable counts for nothing: the specification wants all of it or none.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum Unusable {
    #[error("it is longer than {BYTES_MAX} bytes")]
    TooLong,
    #[error("it is not UTF-8")]
    NotText,
    #[error("entry {0} is not KEY=VALUE")]
    NoPair(usize),
    #[error("entry {0} is not percent-encoded UTF-8")]
    NotEncoded(usize),
}

/// All attributes: those in the variable, and the name that the setting gives to the service.
pub(super) fn attributes(
    variable: Option<&OsStr>,
    service: Option<&str>,
) -> (BTreeMap<String, String>, Option<Unusable>) {
    let (mut attributes, unusable) = match variable.map(parse).transpose() {
        Ok(attributes) => (attributes.unwrap_or_default(), None),
        Err(unusable) => (BTreeMap::new(), Some(unusable)),
    };
    if let Some(service) = service {
        attributes.insert(SERVICE_NAME.to_owned(), service.to_owned());
    } else {
        let name = attributes.entry(SERVICE_NAME.to_owned());
        name.or_insert_with(|| SERVICE.to_owned());
    }
    (attributes, unusable)
}

/// Reads `KEY=VALUE,KEY=VALUE`; of a key that comes twice the last value counts.
fn parse(variable: &OsStr) -> Result<BTreeMap<String, String>, Unusable> {
    if variable.len() > BYTES_MAX {
        return Err(Unusable::TooLong);
    }
    let text = variable.to_str().ok_or(Unusable::NotText)?;
    let mut attributes = BTreeMap::new();
    for (entry, number) in text.split(',').zip(1..) {
        if entry.trim().is_empty() {
            continue; // lists of HTTP, from which the format is, may have empty elements (RFC 9110 section 5.6.1.2)
        }
        let (key, value) = entry.split_once('=').ok_or(Unusable::NoPair(number))?;
        let decoded = |text: &str| decoded(text.trim()).ok_or(Unusable::NotEncoded(number));
        let key = decoded(key)?;
        if key.is_empty() {
            return Err(Unusable::NoPair(number));
        }
        attributes.insert(key, decoded(value)?);
    }
    Ok(attributes)
}

/// Decodes percent-encoding (RFC 3986 section 2.1), if all of it is well formed.
fn decoded(text: &str) -> Option<String> {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let is_encoded = |rest: &[u8]| is_hex(rest.first()) && is_hex(rest.get(1));
    let mut behind_percents = text.as_bytes().split(|&byte| byte == b'%').skip(1);
    if !behind_percents.all(is_encoded) {
        return None;
    }
    String::from_utf8(percent_decoded(text.as_bytes()).into_owned()).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn the_variable_is_read_as_specified() {
        for (variable, pairs) in [
            ("", &[][..]),
            (",, ,", &[]),
            ("a=1", &[("a", "1")]),
            (" a = 1 ,\tb=2,", &[("a", "1"), ("b", "2")]),
            ("a=1,a=2", &[("a", "2")]),
            ("a=", &[("a", "")]),
            ("a=b c", &[("a", "b c")]),
            // The specification allows neither unencoded, but they can mean nothing else.
            ("a=SGk=", &[("a", "SGk=")]),
            ("a=1;b=2", &[("a", "1;b=2")]),
            ("a%2Cb=x%3Dy%2cz", &[("a,b", "x=y,z")]),
            ("a=%20x%20", &[("a", " x ")]),
            ("a=%C3%A9,%C3%A9=é", &[("a", "é"), ("é", "é")]),
            ("a=%2541", &[("a", "%41")]),
            ("a=1+1", &[("a", "1+1")]),
        ] {
            let pairs = pairs
                .iter()
                .map(|&(key, value)| (key.to_owned(), value.to_owned()));
            assert_eq!(parse(variable.as_ref()), Ok(pairs.collect()), "{variable}");
        }
    }

    #[test]
    fn an_error_leaves_nothing_of_it() {
        let long = format!("a={}", "x".repeat(BYTES_MAX - 1));
        for (variable, unusable) in [
            (&b"a"[..], Unusable::NoPair(1)),
            (b"a=1,b", Unusable::NoPair(2)),
            (b"a=1,=2", Unusable::NoPair(2)),
            (b"a=%", Unusable::NotEncoded(1)),
            (b"a=%4", Unusable::NotEncoded(1)),
            (b"a=%4g", Unusable::NotEncoded(1)),
            (b"a=%+4", Unusable::NotEncoded(1)),
            (b"a=1,,%zz=2", Unusable::NotEncoded(3)),
            (b"a=%FF", Unusable::NotEncoded(1)),
            (b"a=%C3", Unusable::NotEncoded(1)),
            (b"a=%\xc3\xa9", Unusable::NotEncoded(1)),
            (b"a=\xff", Unusable::NotText),
            (long.as_bytes(), Unusable::TooLong),
        ] {
            let variable = OsStr::from_bytes(variable);
            assert_eq!(parse(variable), Err(unusable), "{}", variable.display());
        }
        let longest = &long[..BYTES_MAX];
        assert!(parse(longest.as_ref()).is_ok());
        let (attributes, unusable) = attributes(Some("a=1,b".as_ref()), Some("shop"));
        assert_eq!(unusable, Some(Unusable::NoPair(2)));
        assert_eq!(attributes.len(), 1);
    }

    #[test]
    fn a_service_has_one_name() {
        for (variable, setting, name) in [
            (None, None, "stanchion"),
            (Some("a=1"), None, "stanchion"),
            (Some("service.name=a"), None, "a"),
            (Some("service.name=a"), Some("b"), "b"),
            (None, Some("b"), "b"),
            (Some("service.name=%"), None, "stanchion"),
        ] {
            let (attributes, _) = attributes(variable.map(OsStr::new), setting);
            assert_eq!(attributes[SERVICE_NAME], name, "{variable:?} {setting:?}");
        }
    }
}
