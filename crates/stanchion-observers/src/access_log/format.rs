//! Formats of the access log: gunicorn's atoms, and stanchion's own.

use stanchion_http::rules::is_token;

/// A piece of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FormatPiece {
    Text(String),
    Atom(Atom),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    Address,
    User,
    Time,
    RequestLine,
    Method,
    Path,
    Query,
    Protocol,
    Status,
    Bytes,
    Referer,
    Agent,
    Seconds,
    Milliseconds,
    Microseconds,
    DecimalSeconds,
    Worker,
    /// A field of the request or of the answer, by its name in lower case.
    RequestField(String),
    AnswerField(String),
    Environ(String),
    Own(Own),
}

/// Atoms that gunicorn does not have: `%({name}x)s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    WaitUs,
    ServiceUs,
    ProxyUs,
    Lane,
    Worker,
    Client,
    Outcome,
    RequestId,
    TraceId,
    CloseCode,
    MessagesReceived,
    MessagesSent,
    CpuUs,
    CoreUs,
    GilUs,
    ArrivedUs,
}

/// The names of these.
pub(super) const OWN: [(&str, Own); 16] = [
    ("wait_us", Own::WaitUs),
    ("service_us", Own::ServiceUs),
    ("proxy_us", Own::ProxyUs),
    ("lane", Own::Lane),
    ("worker", Own::Worker),
    ("client", Own::Client),
    ("outcome", Own::Outcome),
    ("request_id", Own::RequestId),
    ("trace_id", Own::TraceId),
    ("close_code", Own::CloseCode),
    ("messages_received", Own::MessagesReceived),
    ("messages_sent", Own::MessagesSent),
    ("cpu_us", Own::CpuUs),
    ("core_us", Own::CoreUs),
    ("gil_us", Own::GilUs),
    ("arrived_us", Own::ArrivedUs),
];

/// Reads a format. Python's `%(name)s` is all there is of Python's formatting; as in gunicorn, an atom that does not
/// exist shows as `-`, unless it has the form of stanchion's own.
pub(super) fn parse(format: &str) -> Result<Vec<FormatPiece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let (name, after) = rest
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(")s"))
            .ok_or_else(|| format!("access log format: '%{rest}' does not begin with %(name)s"))?;
        match atom(name)? {
            None => text.push('-'),
            Some(atom) => {
                if !text.is_empty() {
                    pieces.push(FormatPiece::Text(std::mem::take(&mut text)));
                }
                pieces.push(FormatPiece::Atom(atom));
            }
        }
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(FormatPiece::Text(text));
    }
    Ok(pieces)
}

/// The atom that a name means; `None` if it means none.
fn atom(name: &str) -> Result<Option<Atom>, String> {
    if let Some((inner, kind)) = name.strip_prefix('{').and_then(|name| name.split_once('}')) {
        let lower_case = inner.to_ascii_lowercase();
        // Text that cannot be the name of a field means none.
        let is_name = is_token(inner.as_bytes());
        return Ok(match kind {
            "i" => is_name.then_some(Atom::RequestField(lower_case)),
            "o" => is_name.then_some(Atom::AnswerField(lower_case)),
            "e" => Some(Atom::Environ(lower_case)),
            "x" => Some(Atom::Own(own(inner)?)),
            _ => None,
        });
    }
    Ok(Some(match name {
        "h" => Atom::Address,
        "u" => Atom::User,
        "t" => Atom::Time,
        "r" => Atom::RequestLine,
        "m" => Atom::Method,
        "U" => Atom::Path,
        "q" => Atom::Query,
        "H" => Atom::Protocol,
        "s" => Atom::Status,
        "B" | "b" => Atom::Bytes,
        "f" => Atom::Referer,
        "a" => Atom::Agent,
        "T" => Atom::Seconds,
        "M" => Atom::Milliseconds,
        "D" => Atom::Microseconds,
        "L" => Atom::DecimalSeconds,
        "p" => Atom::Worker,
        _ => return Ok(None),
    }))
}

fn own(name: &str) -> Result<Own, String> {
    let found = OWN.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, own)| *own)
        .ok_or_else(|| format!("access log format: there is no %({{{name}}}x)s"))
}

/// Puts the time into the pieces: for a second it is text like any other.
pub(super) fn at(pieces: &[FormatPiece], time: &str) -> Vec<FormatPiece> {
    let mut now: Vec<FormatPiece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let text = match piece {
            FormatPiece::Text(text) => text,
            FormatPiece::Atom(Atom::Time) => time,
            FormatPiece::Atom(atom) => {
                now.push(FormatPiece::Atom(atom.clone()));
                continue;
            }
        };
        match now.last_mut() {
            Some(FormatPiece::Text(before)) => before.push_str(text),
            _ => now.push(FormatPiece::Text(text.to_owned())),
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> FormatPiece {
        FormatPiece::Text(text.to_owned())
    }

    #[test]
    fn formats_are_read_as_gunicorn_reads_them() {
        let pieces = parse("%(h)s 100%% \"%({X-Id}i)s\" %(nonsense)s!").expect("a good format");
        let expected = [
            FormatPiece::Atom(Atom::Address),
            text(" 100% \""),
            FormatPiece::Atom(Atom::RequestField("x-id".to_owned())),
            text("\" -!"),
        ];
        assert_eq!(pieces, expected);
        let ours = [FormatPiece::Atom(Atom::Own(Own::WaitUs))];
        assert_eq!(parse("%({wait_us}x)s").expect("ours"), ours);
        assert_eq!(parse("%({a b}i)s"), Ok(vec![text("-")]));
        assert_eq!(parse("%(l)s%({a b}o)s%({x}y)s"), Ok(vec![text("---")]));
        assert!(parse("%({wait}x)s").is_err(), "a slip of the pen");
        assert!(parse("%h").is_err());
        assert!(parse("%(h)d").is_err());
    }

    #[test]
    fn for_a_second_the_time_is_text() {
        let pieces = parse("%(h)s - %(t)s \"%(r)s\" %(t)s").expect("a good format");
        let expected = [
            FormatPiece::Atom(Atom::Address),
            text(" - [now] \""),
            FormatPiece::Atom(Atom::RequestLine),
            text("\" [now]"),
        ];
        assert_eq!(at(&pieces, "[now]"), expected);
    }

    /// docs/logs.md has a row for each atom, and no other.
    #[test]
    fn the_page_has_every_atom() {
        let page = include_str!("../../../../docs/logs.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `%("));
        let mut listed: Vec<_> = rows
            .filter_map(|row| Some(row.split_once(")s`")?.0))
            .collect();
        let own = OWN.iter().map(|(name, _)| format!("{{{name}}}x"));
        let letters = ('A'..='z').map(String::from);
        let known = letters.filter(|letter| matches!(atom(letter), Ok(Some(_))));
        let others = ["{name}i", "{name}o", "{name}e", "l"].map(String::from);
        let mut expected: Vec<_> = known.chain(own).chain(others).collect();
        expected.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, expected);
    }
}
