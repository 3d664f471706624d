//! One item of the `bind` setting: an address, and options of the listener there.

use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::coerce::{coerce, expected};
use super::kind::{ValueKind, between};
use super::{BindAddress, Seconds};

/// The longest pause between two attempts to bind.
const DELAY_S_MAX: u64 = 3_600;
/// How long a connection may be kept back until it sends something; far beyond any use.
const DEFER_ACCEPT_S_MAX: u64 = 3_600;

/// An address with the options of its listener: `127.0.0.1:8000?backlog=64&tries=-1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Bind {
    /// Where to listen.
    pub address: BindAddress,
    /// The options of this listener.
    pub options: ListenOptions,
    /// The options, as they are written back.
    given: Map<String, Value>,
}

/// The values that an option takes, and the listeners that it makes sense for.
struct ListenOption {
    name: &'static str,
    kind: ValueKind,
    at: At,
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

const SIZE: ValueKind = ValueKind::Bytes(between(1, i32::MAX as u64));
const MODE: ValueKind = ValueKind::Octal(between(0, 0o777));

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $kind:expr, $at:ident;)*) => {
        /// Options of one listener; `None` where the settings of the whole server, or their defaults, count.
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct ListenOptions {
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        const OPTIONS: &[ListenOption] = &[$(ListenOption {
            name: stringify!($name),
            kind: $kind,
            at: At::$at,
        }),*];
    };
}

options! {
    /// Connections the kernel may hold unaccepted.
    backlog: u32 = ValueKind::Int(between(1, i32::MAX as u64)), Any;
    /// Attempts to bind an address that is in use; -1 = for ever.
    tries: i64 = ValueKind::Tries, Bound;
    /// How long to wait between two of them.
    delay: Seconds = ValueKind::Seconds(between(0, DELAY_S_MAX)), Bound;
    /// Send small segments at once.
    tcp_nodelay: bool = ValueKind::Bool, Tcp;
    /// Seconds that a connection is kept back until it sends something.
    defer_accept: u32 = ValueKind::Int(between(0, DEFER_ACCEPT_S_MAX)), Tcp;
    /// Have the kernel ask whether an idle client is still there.
    keepalive: bool = ValueKind::Bool, Tcp;
    /// Let other servers bind the address too.
    reuseport: bool = ValueKind::Bool, BoundTcp;
    /// Take no IPv4 clients on an IPv6 address.
    ipv6only: bool = ValueKind::Bool, BoundTcp;
    /// Bytes of the receive buffer.
    rcvbuf: u32 = SIZE, Any;
    /// Bytes of the send buffer.
    sndbuf: u32 = SIZE, Any;
    /// Permissions of a unix socket's file.
    mode: u32 = MODE, File;
    /// User whose the file is, a name or a number.
    owner: String = ValueKind::Account, File;
    /// Group whose the file is, a name or a number.
    group: String = ValueKind::Account, File;
    /// Bits that the file's mode lacks.
    umask: u32 = MODE, File;
    /// Whether clients speak TLS, if any are to.
    tls: bool = ValueKind::Bool, Any;
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

    /// The text for such a mapping.
    pub(super) fn text_of_map(map: &Map<String, Value>) -> Result<String, String> {
        let text = Self::from_map(map)?.to_string();
        // A host may look like another kind of address: `tcp://unix:80` is written as `unix:80`.
        Self::parse(&text).map(|_| text)
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
    let value = coerce(&option.kind, raw).unwrap_or_default();
    match value {
        Value::Null => Err(format!("{name} is {}", expected(&option.kind))),
        // It would begin the next option where the value is written back.
        Value::String(text) if text.contains('&') => Err(format!("{name} holds no '&'")),
        value => Ok(value),
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
            match (option.kind, value) {
                (ValueKind::Octal(_), Value::Number(number)) => {
                    let bits = number.as_u64().unwrap_or_default();
                    write!(out, "{}=0{bits:o}", option.name)?;
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

#[cfg(test)]
mod tests {
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
                    delay: Seconds::new(0.5),
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
                "unix:/s?mode=0660&owner=www&group=33",
                ListenOptions {
                    mode: Some(0o660),
                    owner: Some("www".into()),
                    group: Some("33".into()),
                    ..ListenOptions::default()
                },
            ),
            (
                "unix:/s?umask=07",
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
                "unix:/s?mode=0660&owner=33",
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
}
