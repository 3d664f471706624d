//! A lane of the line as an operator writes it: the requests that belong in it, and what it gets.

use stanchion_http::Head;
use stanchion_http::rules::is_token;

/// The lane of requests that are in no other.
pub(super) const DEFAULT: &str = "default";
/// The priority of a lane that names none.
const PRIORITY: u32 = 10;
/// Most lanes there can be: each request is held against one after the other.
pub(super) const LANES_MAX: usize = 32;
/// Longest name, in bytes: it stands in log lines.
const NAME_BYTES_MAX: usize = 32;

/// `NAME=PATH method=… header=… priority=… seats=… seats_max=… waiting=…`: the requests of the lane by path, method and fields, and what it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Lower-case letters, digits, `-` and `_`.
    pub name: String,
    /// The smaller goes first.
    pub priority: u32,
    /// Seats that the other lanes together cannot take.
    pub seats: usize,
    /// The seats that it takes at most; `None` = as many as are free.
    pub seats_max: Option<usize>,
    /// How many may wait in it, apart from `max_waiting`; `None` = the operator has not said, see [`super::Settings::lanes`].
    pub waiting: Option<usize>,
    /// Of each kind that has any, one must hold.
    paths: Vec<String>,
    methods: Vec<String>,
    fields: Vec<HeaderCondition>,
}

/// A header field that a request has, whatever it says if there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeaderCondition {
    /// In lower case.
    name: String,
    value: Option<String>,
}

impl Lane {
    /// Reads it. The error says what is wrong, without naming the setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let first = words.next().ok_or("it begins with a name")?;
        let (name, paths) = match first.split_once('=') {
            Some((name, paths)) => (name, Some(paths)),
            None => (first, None),
        };
        let mut lane = Self::new(checked_name(name)?);
        let (mut priority, mut seats, mut seats_max, mut waiting) = (None, None, None, None);
        let pairs = words.map(|word| {
            let pair = word.split_once('=');
            pair.ok_or_else(|| format!("'{word}' is not KEY=VALUE"))
        });
        for pair in paths
            .map(|paths| Ok(("path", paths)))
            .into_iter()
            .chain(pairs)
        {
            match pair? {
                ("path", values) => extend(&mut lane.paths, values, path)?,
                ("method", values) => extend(&mut lane.methods, values, method)?,
                ("header", values) => extend(&mut lane.fields, values, field)?,
                ("priority", value) => set(&mut priority, "priority", value, 0)?,
                ("seats", value) => set(&mut seats, "seats", value, 1)?,
                ("seats_max", value) => set(&mut seats_max, "seats_max", value, 1)?,
                ("waiting", value) => set(&mut waiting, "waiting", value, 1)?,
                (key, _) => {
                    return Err(format!(
                        "'{key}' is not one of path, method, header, priority, seats, seats_max, waiting"
                    ));
                }
            }
        }
        lane.priority = priority.unwrap_or(PRIORITY);
        lane.seats = seats.unwrap_or(0) as usize;
        lane.seats_max = seats_max.map(|seats_max| seats_max as usize);
        lane.waiting = waiting.map(|waiting| waiting as usize);
        lane.check()?;
        Ok(lane)
    }

    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            priority: PRIORITY,
            seats: 0,
            seats_max: None,
            waiting: None,
            paths: Vec::new(),
            methods: Vec::new(),
            fields: Vec::new(),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.seats_max.is_some_and(|max| max < self.seats) {
            return Err("'seats_max' is no smaller than 'seats'".into());
        }
        let unconditional =
            self.paths.is_empty() && self.methods.is_empty() && self.fields.is_empty();
        match (self.is_default(), unconditional) {
            (true, false) => Err(format!(
                "'{DEFAULT}' is the lane of requests that are in no other; it takes no path, method or header"
            )),
            (true, true) if self.waiting.is_some() => {
                Err(format!("the bound of '{DEFAULT}' is max_waiting"))
            }
            (false, true) => Err("a lane needs a path, method or header".into()),
            _ => Ok(()),
        }
    }

    pub(super) fn is_default(&self) -> bool {
        self.name == DEFAULT
    }

    /// Whether a request is this lane's.
    pub fn takes(&self, head: &Head) -> bool {
        let has = |field: &HeaderCondition| {
            let mut values = head.all(&field.name);
            field.is_among(&mut values)
        };
        (self.paths.is_empty()
            || self
                .paths
                .iter()
                .any(|prefix| is_under(head.path(), prefix)))
            && (self.methods.is_empty() || self.methods.iter().any(|one| one == head.method()))
            && (self.fields.is_empty() || self.fields.iter().any(has))
    }
}

impl HeaderCondition {
    /// Looks among the values of all fields of its name.
    fn is_among<'v>(&self, values: &mut impl Iterator<Item = &'v [u8]>) -> bool {
        match &self.value {
            None => values.next().is_some(),
            Some(expected) => values.any(|value| value == expected.as_bytes()),
        }
    }
}

/// Whole segments: `/healthz` is above `/healthz/db`, not above `/healthzzz`.
fn is_under(path: &[u8], prefix: &str) -> bool {
    path.strip_prefix(prefix.as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// With commas between; each time a key comes it adds to what it said before.
fn extend<T>(
    values: &mut Vec<T>,
    text: &str,
    read: fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    for value in text.split(',') {
        values.push(read(value)?);
    }
    Ok(())
}

fn set(number: &mut Option<u32>, key: &str, text: &str, min: u32) -> Result<(), String> {
    if number.is_some() {
        return Err(format!("'{key}' comes twice"));
    }
    let read = text.parse().ok().filter(|&read| read >= min);
    *number = Some(read.ok_or_else(|| format!("'{key}' is a whole number >= {min}"))?);
    Ok(())
}

fn checked_name(name: &str) -> Result<&str, String> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        return Err(format!(
            "'{name}' is not a name: 1 to {NAME_BYTES_MAX} of a-z, 0-9, - and _"
        ));
    }
    Ok(name)
}

/// Without the slash at the end, so that what is left of a path below it begins with one.
fn path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') || text.contains(['?', '#']) {
        return Err(format!("'{text}' is not a path that begins with /"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn method(text: &str) -> Result<String, String> {
    if !is_token(text.as_bytes()) {
        return Err(format!("'{text}' is not a method"));
    }
    Ok(text.to_ascii_uppercase())
}

fn field(text: &str) -> Result<HeaderCondition, String> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if !is_token(name.as_bytes()) {
        return Err(format!("'{name}' is not the name of a header field"));
    }
    let name = name.to_ascii_lowercase();
    Ok(HeaderCondition { name, value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whose_a_lane_is() {
        let get = |target: &str| Head::of("GET", target, &[]);
        let with = |name: &str, value: &str| Head::of("GET", "/", &[(name, value)]);
        // (lane, request, whether it is in it)
        let table = [
            ("h=/healthz", get("/healthz"), true),
            ("h=/healthz", get("/healthz/"), true),
            ("h=/healthz", get("/healthz/db?x=1"), true),
            ("h=/healthz", get("/healthz?x=1"), true),
            ("h=/healthz", get("/healthzzz"), false),
            ("h=/healthz", get("/a/healthz"), false),
            ("h=/healthz", get("/%68ealthz"), false),
            ("h=/healthz", get("http://test/healthz"), true),
            ("h=/healthz/", get("/healthz"), true),
            ("h=/a,/b", get("/b/c"), true),
            ("h=/a path=/b", get("/b/c"), true),
            ("h path=/a", get("/b"), false),
            ("all=/", get("/"), true),
            ("all=/", get("/x"), true),
            ("w method=POST,put", Head::of("PUT", "/", &[]), true),
            ("w method=POST,put", get("/"), false),
            ("w=/api method=POST", Head::of("POST", "/api/x", &[]), true),
            ("w=/api method=POST", Head::of("POST", "/", &[]), false),
            ("w=/api method=POST", get("/api/x"), false),
            ("p header=X-Priority:high", with("x-priority", "high"), true),
            ("p header=X-Priority:high", with("x-priority", "low"), false),
            ("p header=X-Priority", with("x-priority", "low"), true),
            ("p header=X-Priority", get("/"), false),
            ("p header=A:1,B:2", with("b", "2"), true),
            ("p header=A:1 header=B", with("b", "3"), true),
            ("p=/x header=A:1", with("a", "1"), false),
        ];
        for (lane, head, expected) in table {
            let lane = Lane::parse(lane).unwrap();
            assert_eq!(lane.takes(&head), expected, "{lane:?} {head:?}");
        }
    }

    #[test]
    fn what_a_lane_gets() {
        let gets = |text| {
            let lane = Lane::parse(text).unwrap();
            (lane.priority, lane.seats, lane.seats_max, lane.waiting)
        };
        let lane = "health=/healthz priority=0 seats=1 seats_max=2 waiting=64";
        assert_eq!(gets(lane), (0, 1, Some(2), Some(64)));
        assert_eq!(Lane::parse(lane).unwrap().name, "health");
        assert_eq!(gets("x=/"), (10, 0, None, None));
        assert_eq!(gets("x=/ seats=2 seats_max=2"), (10, 2, Some(2), None));
        assert_eq!(gets("default seats_max=3"), (10, 0, Some(3), None));
    }

    #[test]
    fn mistakes_are_told() {
        for (text, wrong) in [
            ("", "it begins with a name"),
            (
                "Health=/x",
                "'Health' is not a name: 1 to 32 of a-z, 0-9, - and _",
            ),
            ("=/x", "'' is not a name: 1 to 32 of a-z, 0-9, - and _"),
            ("h=x", "'x' is not a path that begins with /"),
            ("h=/x,", "'' is not a path that begins with /"),
            ("h=/x?y", "'/x?y' is not a path that begins with /"),
            ("h", "a lane needs a path, method or header"),
            ("h priority=1", "a lane needs a path, method or header"),
            ("h=/x now", "'now' is not KEY=VALUE"),
            (
                "h=/x prio=1",
                "'prio' is not one of path, method, header, priority, seats, seats_max, waiting",
            ),
            ("h=/x seats=0", "'seats' is a whole number >= 1"),
            ("h=/x seats_max=0", "'seats_max' is a whole number >= 1"),
            ("h=/x seats_max=50%", "'seats_max' is a whole number >= 1"),
            ("h=/x seats_max=1 seats_max=1", "'seats_max' comes twice"),
            (
                "h=/x seats_max=1 seats=2",
                "'seats_max' is no smaller than 'seats'",
            ),
            ("h=/x waiting=0", "'waiting' is a whole number >= 1"),
            ("h=/x priority=-1", "'priority' is a whole number >= 0"),
            ("h=/x seats=1 seats=2", "'seats' comes twice"),
            ("h method=P(", "'P(' is not a method"),
            ("h header=:x", "'' is not the name of a header field"),
            (
                "default=/",
                "'default' is the lane of requests that are in no other; it takes no path, method or header",
            ),
            ("default waiting=5", "the bound of 'default' is max_waiting"),
        ] {
            assert_eq!(Lane::parse(text), Err(wrong.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parse_never_panics(text in r"[a-z]{1,4}(=/[a-z/,]{0,8})?( [a-z]{0,8}=[0-9a-zA-Z:,/]{0,8}){0,3}|\PC{0,20}") {
            let _ = Lane::parse(&text);
        }
    }
}
