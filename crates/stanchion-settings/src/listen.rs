//! One item of the `bind` setting: an address, and options of the listener there.

use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::coerce::{coerce, expected};
use super::kind::{Kind, Range};
use super::{BindAddress, Seconds};

/// The longest pause between two attempts to bind.
const DELAY_S_MAX: u64 = 3_600;
/// How long a connection may be kept back until it sends something; far beyond any use.
const DEFER_ACCEPT_S_MAX: u64 = 3_600;

/// An address with the options of its listener: `127.0.0.1:8000?backlog=64&tries=-1`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Bind {
    /// Where to listen.
    pub address: BindAddress,
    /// The options of this listener.
    pub options: ListenOptions,
    /// The options, as they are written back.
    given: Map<String, Value>,
}

/// Options of one listener; `None` where the settings of the whole server, or their defaults, count.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenOptions {
    /// Connections the kernel may hold unaccepted.
    pub backlog: Option<u32>,
    /// Attempts to bind an address that is in use; -1 = for ever.
    pub tries: Option<i64>,
    /// How long to wait between two of them.
    pub delay: Option<Seconds>,
    /// Send small segments at once.
    pub tcp_nodelay: Option<bool>,
    /// Seconds that a connection is kept back until it sends something.
    pub defer_accept: Option<u32>,
    /// Have the kernel ask whether an idle client is still there.
    pub keepalive: Option<bool>,
    /// Let other servers bind the address too.
    pub reuseport: Option<bool>,
    /// Take no IPv4 clients on an IPv6 address.
    pub ipv6only: Option<bool>,
    /// Bytes of the receive buffer.
    pub rcvbuf: Option<u32>,
    /// Bytes of the send buffer.
    pub sndbuf: Option<u32>,
    /// Permissions of a unix socket's file.
    pub mode: Option<u32>,
    /// User whose the file is, a name or a number.
    pub owner: Option<String>,
    /// Group whose the file is, a name or a number.
    pub group: Option<String>,
    /// Bits that the file's mode lacks.
    pub umask: Option<u32>,
    /// Whether clients speak TLS, if any are to.
    pub tls: Option<bool>,
}

/// The values that an option takes, and the listeners that it makes sense for.
struct ListenOption {
    name: &'static str,
    takes: Takes,
    at: At,
}

enum Takes {
    Plain(Kind),
    /// A whole number from 1, or -1.
    Tries,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Any,
    /// Wherever we make the socket.
    Bound,
    /// TCP, also where another process made the socket.
    Tcp,
    /// TCP, where we make it.
    BoundTcp,
    /// A unix socket with a file that we make.
    File,
}

const SIZE: Kind = Kind::Bytes(Range::between(1, i32::MAX as u64));
const MODE: Kind = Kind::Octal(Range::between(0, 0o777));

const OPTIONS: &[ListenOption] = &[
    option(
        "backlog",
        Kind::Int(Range::between(1, i32::MAX as u64)),
        At::Any,
    ),
    ListenOption {
        name: "tries",
        takes: Takes::Tries,
        at: At::Bound,
    },
    option(
        "delay",
        Kind::Seconds(Range::between(0, DELAY_S_MAX)),
        At::Bound,
    ),
    option("tcp_nodelay", Kind::Bool, At::Tcp),
    option(
        "defer_accept",
        Kind::Int(Range::between(0, DEFER_ACCEPT_S_MAX)),
        At::Tcp,
    ),
    option("keepalive", Kind::Bool, At::Tcp),
    option("reuseport", Kind::Bool, At::BoundTcp),
    option("ipv6only", Kind::Bool, At::BoundTcp),
    option("rcvbuf", SIZE, At::Any),
    option("sndbuf", SIZE, At::Any),
    option("mode", MODE, At::File),
    option("owner", Kind::Account, At::File),
    option("group", Kind::Account, At::File),
    option("umask", MODE, At::File),
    option("tls", Kind::Bool, At::Any),
];

const fn option(name: &'static str, kind: Kind, at: At) -> ListenOption {
    ListenOption {
        name,
        takes: Takes::Plain(kind),
        at,
    }
}

impl Bind {
    /// Reads `ADDRESS` or `ADDRESS?OPTION=VALUE&OPTION=VALUE`. The error says what is wrong, without
    /// naming the setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((address, rest)) = text.split_once('?') else {
            return Self::new(text, Map::new());
        };
        let mut given = Map::new();
        for assignment in rest.split('&') {
            let Some((name, value)) = assignment.split_once('=') else {
                return Err(format!("'{assignment}' is not OPTION=VALUE"));
            };
            if given.insert(name.into(), value.into()).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        Self::new(address, given)
    }

    /// Reads what a config file may hold instead: `{"address": "…", "backlog": 64}`.
    pub fn from_map(map: &Map<String, Value>) -> Result<Self, String> {
        let mut given = map.clone();
        match given.remove("address") {
            Some(Value::String(address)) => Self::new(&address, given),
            Some(_) => Err("its address is not a string".into()),
            None => Err("it has no address".into()),
        }
    }

    /// Reads either of the two, as JSON.
    pub fn from_json(text: &str) -> Result<Self, String> {
        match serde_json::from_str(text) {
            Ok(Value::String(text)) => Self::parse(&text),
            Ok(Value::Object(map)) => Self::from_map(&map),
            Ok(_) => Err("neither a string nor a dict".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Why there cannot be both of two listeners; `None` if there can.
    pub(super) fn clash(&self, other: &Self) -> Option<String> {
        if self.address.is_one_with(&other.address) {
            return Some(format!(
                "expected each address once, got {self} and {other}: they are the same"
            ));
        }
        // Listeners whose ports the kernel chooses are known by how they are spelled.
        let speaks_tls = |bind: &Self| bind.options.tls.unwrap_or(true);
        let is_told_apart = self.address != other.address || speaks_tls(self) == speaks_tls(other);
        (!is_told_apart).then(|| {
            format!(
                "expected one value of tls for {}, got {self} and {other}: give one of them a port of its own",
                self.address
            )
        })
    }

    /// The same listener at another address of the same kind.
    #[must_use]
    pub fn moved_to(&self, address: BindAddress) -> Self {
        Self {
            address,
            ..self.clone()
        }
    }

    fn new(address: &str, raw: Map<String, Value>) -> Result<Self, String> {
        if address.contains('?') {
            return Err("an address holds no '?', which begins the options".into());
        }
        let address = BindAddress::parse(address)?;
        let mut given = Map::new();
        for (name, raw) in raw {
            given.insert(name.clone(), checked(&name, &raw, &address)?);
        }
        if given.contains_key("mode") && given.contains_key("umask") {
            return Err("mode says all that umask could; give one of them".into());
        }
        let options = ListenOptions::deserialize(Value::Object(given.clone()))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            address,
            options,
            given,
        })
    }
}

/// The value of an option, of its kind.
fn checked(name: &str, raw: &Value, address: &BindAddress) -> Result<Value, String> {
    let Some(option) = OPTIONS.iter().find(|option| option.name == name) else {
        let known: Vec<_> = OPTIONS.iter().map(|option| option.name).collect();
        return Err(format!(
            "there is no option '{name}' (there are {})",
            known.join(", ")
        ));
    };
    option.at.check(name, address)?;
    let value = match &option.takes {
        Takes::Plain(kind) => coerce(kind, raw).ok().filter(|value| !value.is_null()),
        Takes::Tries => tries(raw),
    };
    match value {
        // It would begin the next option where the value is written back.
        Some(Value::String(text)) if text.contains('&') => Err(format!("{name} holds no '&'")),
        Some(value) => Ok(value),
        None => Err(format!("{name} is {}", option.takes.expected())),
    }
}

fn tries(raw: &Value) -> Option<Value> {
    let number = match raw {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let possible = number.filter(|&tries| tries == -1 || tries >= 1);
    possible.map(Value::from)
}

impl Takes {
    fn expected(&self) -> String {
        match self {
            Self::Plain(kind) => expected(kind),
            Self::Tries => "a whole number >= 1, or -1 for ever".into(),
        }
    }
}

impl At {
    /// The error says where the option belongs.
    fn check(self, name: &str, address: &BindAddress) -> Result<(), String> {
        let (fits, place) = match self {
            Self::Any => (true, ""),
            Self::Bound => (!matches!(address, BindAddress::Fd(_)), "a socket made here"),
            Self::Tcp => (
                matches!(address, BindAddress::Tcp { .. } | BindAddress::Fd(_)),
                "a TCP address",
            ),
            Self::BoundTcp => (matches!(address, BindAddress::Tcp { .. }), "a TCP address"),
            Self::File => (matches!(address, BindAddress::Unix(_)), "unix:PATH"),
        };
        if fits {
            Ok(())
        } else {
            Err(format!("{name} is an option of {place}"))
        }
    }
}

impl fmt::Display for Bind {
    /// The spelling that [`Bind::parse`] reads.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(out)?;
        let given = OPTIONS
            .iter()
            .filter_map(|option| Some((option, self.given.get(option.name)?)));
        for (number, (option, value)) in given.enumerate() {
            out.write_char(if number == 0 { '?' } else { '&' })?;
            match (&option.takes, value) {
                (Takes::Plain(Kind::Octal(_)), Value::Number(number)) => {
                    let bits = number.as_u64().unwrap_or_default();
                    write!(out, "{}={bits:#o}", option.name)?;
                }
                (_, Value::String(text)) => write!(out, "{}={text}", option.name)?,
                (_, value) => write!(out, "{}={value}", option.name)?,
            }
        }
        Ok(())
    }
}

impl From<BindAddress> for Bind {
    /// Without any option.
    fn from(address: BindAddress) -> Self {
        Self {
            address,
            options: ListenOptions::default(),
            given: Map::new(),
        }
    }
}

impl TryFrom<String> for Bind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_option_is_read_and_written_back() {
        for (text, options) in [
            ("127.0.0.1:80", ListenOptions::default()),
            (
                "127.0.0.1:80?backlog=64&tries=-1&delay=0.5",
                ListenOptions {
                    backlog: Some(64),
                    tries: Some(-1),
                    delay: Some(Duration::from_millis(500).into()),
                    ..ListenOptions::default()
                },
            ),
            (
                "[::1]:80?tcp_nodelay=false&defer_accept=5&keepalive=false&reuseport=true\
                 &ipv6only=false&rcvbuf=65536&sndbuf=1",
                ListenOptions {
                    tcp_nodelay: Some(false),
                    defer_accept: Some(5),
                    keepalive: Some(false),
                    reuseport: Some(true),
                    ipv6only: Some(false),
                    rcvbuf: Some(65_536),
                    sndbuf: Some(1),
                    ..ListenOptions::default()
                },
            ),
            (
                "unix:/s?mode=0o660&owner=www&group=33",
                ListenOptions {
                    mode: Some(0o660),
                    owner: Some("www".into()),
                    group: Some("33".into()),
                    ..ListenOptions::default()
                },
            ),
            (
                "unix:/s?umask=0o7",
                ListenOptions {
                    umask: Some(7),
                    ..ListenOptions::default()
                },
            ),
            (
                "fd://3?backlog=7",
                ListenOptions {
                    backlog: Some(7),
                    ..ListenOptions::default()
                },
            ),
        ] {
            let bind = Bind::parse(text).unwrap();
            assert_eq!(bind.options, options, "{text}");
            assert_eq!(bind.to_string(), text);
            let (address, _) = text.split_once('?').unwrap_or((text, ""));
            assert_eq!(bind.address.to_string(), address);
        }
    }

    #[test]
    fn a_dict_says_the_same() {
        for (map, text) in [
            (json!({"address": ":80"}), "0.0.0.0:80"),
            (
                json!({"tries": 3, "address": ":80", "backlog": "64", "keepalive": true, "rcvbuf": "64K"}),
                "0.0.0.0:80?backlog=64&tries=3&keepalive=true&rcvbuf=65536",
            ),
            (
                json!({"address": "unix:/s", "mode": 0o660, "owner": 33}),
                "unix:/s?mode=0o660&owner=33",
            ),
        ] {
            let bind = Bind::from_map(map.as_object().unwrap()).unwrap();
            assert_eq!(Bind::from_json(&map.to_string()).as_ref(), Ok(&bind));
            assert_eq!(
                Bind::from_json(&json!(text).to_string()).as_ref(),
                Ok(&bind)
            );
            assert_eq!(bind.to_string(), text);
            assert_eq!(Bind::parse(text), Ok(bind));
        }
    }

    #[test]
    fn two_listeners_that_cannot_both_be_are_told() {
        for (one, other, part) in [
            (":80", "0.0.0.0:80?tls=false", Some("each address once")),
            (":80", ":80", Some("got 0.0.0.0:80 and 0.0.0.0:80")),
            ("LOCALHOST:80", "localhost:80", Some("the same")),
            ("[::1]:80", "[0:0::1]:80?backlog=5", Some("the same")),
            ("unix:/a/b", "unix:/a//./b", Some("the same")),
            ("unix:@a", "unix:@a", Some("the same")),
            ("fd://3", "fd://3", Some("the same")),
            (":80", ":81", None),
            (":80", "127.0.0.1:80", None),
            ("unix:a", "unix:@a", None),
            ("localhost:0", "localhost:0?backlog=5", None),
            ("localhost:0?tls=true", "localhost:0", None),
            ("localhost:0?tls=false", "127.0.0.1:0", None),
            (
                "localhost:0",
                "localhost:0?tls=false",
                Some("one value of tls for localhost:0"),
            ),
        ] {
            let [a, b] = [one, other].map(|text| Bind::parse(text).unwrap());
            let (clash, turned) = (a.clash(&b), b.clash(&a));
            assert_eq!(clash.is_some(), part.is_some(), "{one} {other}");
            assert_eq!(turned.is_some(), part.is_some(), "{other} {one}");
            let clash = clash.unwrap_or_default();
            assert!(clash.contains(part.unwrap_or("")), "{clash}");
        }
    }

    #[test]
    fn every_mistake_is_told_apart() {
        for (text, part) in [
            (
                ":80?backlogs=1",
                "no option 'backlogs' (there are backlog, tries, ",
            ),
            (":80?backlog", "'backlog' is not OPTION=VALUE"),
            (":80?", "'' is not OPTION=VALUE"),
            (":80?backlog=1&backlog=2", "backlog is given twice"),
            (
                ":80?backlog=0",
                "backlog is a whole number from 1 to 2147483647",
            ),
            (
                ":80?tries=0",
                "tries is a whole number >= 1, or -1 for ever",
            ),
            (":80?tries=-2", "tries is"),
            (
                ":80?delay=-1",
                "delay is a number of seconds from 0 to 3600",
            ),
            (":80?keepalive=on", "keepalive is true or false"),
            (":80?mode=0600", "mode is an option of unix:PATH"),
            ("unix:@a?mode=0600", "mode is an option of unix:PATH"),
            ("unix:/a?mode=0999", "mode is a number from 0o0 to 0o777"),
            ("unix:/a?mode=0600&umask=0", "give one of them"),
            (
                "unix:/a?tcp_nodelay=true",
                "tcp_nodelay is an option of a TCP address",
            ),
            ("unix:/a?owner=", "owner is a name or a number"),
            ("fd://3?tries=2", "tries is an option of a socket made here"),
            (
                "fd://3?reuseport=true",
                "reuseport is an option of a TCP address",
            ),
            ("unix:/a?b?c=1", "'b?c'"),
            ("8000?backlog=1", "written :8000"),
        ] {
            let error = Bind::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        for (map, part) in [
            (json!({}), "it has no address"),
            (json!({"address": 80}), "its address is not a string"),
            (json!({"address": "a?b:80"}), "an address holds no '?'"),
            (json!({"address": ":80", "backlog": null}), "backlog is"),
            (
                json!({"address": "unix:/s", "owner": "a&b"}),
                "owner holds no '&'",
            ),
        ] {
            let error = Bind::from_map(map.as_object().unwrap()).expect_err(part);
            assert!(error.contains(part), "{map}: {error}");
        }
    }
}
