//! The uwsgi protocol: requests as packets of variables, as nginx's `uwsgi_pass` sends them.
//!
//! A packet becomes a [`Head`] of HTTP/1.0, because an answer ends with its connection and is not chunked. The client's fields (`HTTP_*`) become
//! fields again, under the same rules as in HTTP. The head keeps the packet's other entries as *variables*: their names begin with a colon, as no
//! field's name does.

use crate::fault::Fault;
use crate::gateway::{percent_decoded, split_target};
use crate::head::{Head, VARIABLE};
use crate::head_rules::HeadRules;
use crate::octets::put_decoded_path;
use crate::writer::HeadWriter;

/// The most variables in one packet.
pub const UWSGI_VARIABLES_MAX: usize = 1024;
/// modifier1, size of the variables, modifier2.
const PACKET_HEAD_BYTES: usize = 4;
/// modifier1 of a request for Python, which nginx also sends by default.
const REQUEST: u8 = 0;
/// Fields of the hop between the client and nginx: the server does not act on them, but the app sees them.
const OF_ONE_HOP: [&[u8]; 5] = [b"CONNECTION", b"EXPECT", b"KEEP_ALIVE", b"TE", b"UPGRADE"];
/// Fields that would repeat or contradict what the packet's own variables say about the message.
const OF_MESSAGE: [&[u8]; 3] = [b"CONTENT_LENGTH", b"CONTENT_TYPE", b"TRANSFER_ENCODING"];

type Variables<'b> = Vec<(&'b [u8], &'b [u8])>;

/// Reads a packet into `head`. `bytes` is all that has come of it. Returns `None` while the packet is incomplete; then its length, without the body
/// that follows.
///
/// # Errors
/// The bytes are no packet, or the packet is no request.
pub fn read_packet(
    bytes: &[u8],
    rules: &HeadRules,
    head: &mut Head,
) -> Result<Option<usize>, Fault> {
    if bytes.first().is_some_and(|&modifier1| modifier1 != REQUEST) {
        return Err(Fault::BadRequest(
            "not a request of the uwsgi protocol (modifier1 is not 0)",
        ));
    }
    let Some((&[_, low, high, _], rest)) = bytes.split_first_chunk::<PACKET_HEAD_BYTES>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_le_bytes([low, high]));
    let Some(block) = rest.get(..len) else {
        return Ok(None);
    };
    write(&variables(block)?, rules, head)?;
    Ok(Some(PACKET_HEAD_BYTES + len))
}

/// The variables of a packet. If a variable came twice its last value counts, as in uWSGI; but repeated fields are all kept, because they form a
/// list.
fn variables(mut block: &[u8]) -> Result<Variables<'_>, Fault> {
    let mut variables = Variables::new();
    while !block.is_empty() {
        let (name, value);
        (name, block) = text(block)?;
        (value, block) = text(block)?;
        let known = variables.iter_mut().find(|(known, _)| *known == name);
        match known.filter(|_| !name.starts_with(b"HTTP_")) {
            Some(known) => known.1 = value,
            None => variables.push((name, value)),
        }
        if variables.len() > UWSGI_VARIABLES_MAX {
            return Err(Fault::HeadTooLarge);
        }
    }
    Ok(variables)
}

/// Bytes that follow their length, and the rest of the block.
fn text(block: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let split = block
        .split_first_chunk::<2>()
        .and_then(|(len, rest)| rest.split_at_checked(usize::from(u16::from_le_bytes(*len))));
    split.ok_or(Fault::BadRequest(
        "a uwsgi packet whose variables do not fit it",
    ))
}

fn write(variables: &Variables<'_>, rules: &HeadRules, head: &mut Head) -> Result<(), Fault> {
    let find = |wanted: &str| {
        let found = variables
            .iter()
            .find(|(name, _)| *name == wanted.as_bytes());
        found.map(|(_, value)| *value)
    };
    let method = find("REQUEST_METHOD").filter(|method| !method.is_empty());
    let method = method.ok_or(Fault::BadRequest("a uwsgi packet without REQUEST_METHOD"))?;
    let target = target(
        find("REQUEST_URI").unwrap_or_default(),
        find("SCRIPT_NAME").unwrap_or_default(),
        find("PATH_INFO"),
        find("QUERY_STRING").unwrap_or_default(),
    );
    let mut writer = HeadWriter::begin(method, &target, 0)?;
    let mut rest = Variables::new();
    for &(name, value) in variables {
        match EntryKind::of(name, value) {
            EntryKind::Field(name) => writer.field(&dashed(name), value)?,
            EntryKind::Variable => rest.push((name, value)),
            EntryKind::Nothing => {}
        }
    }
    writer.read(rules, head)?;
    for (name, value) in rest {
        head.push(&[&[VARIABLE], name].concat(), value);
    }
    if let Some(protocol) = find("SERVER_PROTOCOL").and_then(protocol) {
        head.set_protocol(protocol);
    }
    Ok(())
}

/// The kind of an entry in a packet.
enum EntryKind<'n> {
    /// A field of this name, in which underscores stand for dashes.
    Field(&'n [u8]),
    /// A variable for the app.
    Variable,
    /// Dropped: the head has it already, it would have uWSGI load something, or its name is no word.
    Nothing,
}

impl<'n> EntryKind<'n> {
    fn of(name: &'n [u8], value: &[u8]) -> Self {
        let is_word = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'_';
        match name {
            b"REQUEST_METHOD" | b"QUERY_STRING" | b"SERVER_PROTOCOL" => Self::Nothing,
            b"CONTENT_LENGTH" | b"CONTENT_TYPE" if !value.is_empty() => Self::Field(name),
            b"UWSGI_SCHEME" => Self::Variable,
            _ if name.starts_with(b"UWSGI_") => Self::Nothing,
            _ => match name.strip_prefix(b"HTTP_") {
                Some(field) if is_one_of(&OF_MESSAGE, field) => Self::Nothing,
                Some(field) if is_one_of(&OF_ONE_HOP, field) => Self::Variable,
                Some(field) => Self::Field(field),
                None if !name.is_empty() && name.iter().all(is_word) => Self::Variable,
                None => Self::Nothing,
            },
        }
    }
}

/// Whether one of `names` is the field's name; case does not matter, and underscores equal dashes.
fn is_one_of(names: &[&[u8]], field: &[u8]) -> bool {
    let field = dashed(field);
    names
        .iter()
        .any(|name| dashed(name).eq_ignore_ascii_case(&field))
}

/// `X-REQUEST-ID` for `X_REQUEST_ID`.
fn dashed(name: &[u8]) -> Vec<u8> {
    let dash = |&byte: &u8| if byte == b'_' { b'-' } else { byte };
    name.iter().map(dash).collect()
}

/// The target as the client sent it, if it has this path and this query; else a target made of them, because nginx may have rewritten them.
fn target(uri: &[u8], script_name: &[u8], path_info: Option<&[u8]>, query: &[u8]) -> Vec<u8> {
    let (sent, sent_query) = split_target(uri);
    let sent = percent_decoded(sent);
    let whole = [script_name, path_info.unwrap_or_default()].concat();
    let is_same = path_info.is_none_or(|path_info| *sent == *path_info || *sent == *whole);
    if !uri.is_empty() && is_same && sent_query == query {
        return uri.to_vec();
    }
    let mut target = String::with_capacity(whole.len() + 1 + query.len());
    put_decoded_path(&mut target, &whole);
    let mut target = target.into_bytes();
    if target.is_empty() {
        target.push(b'/');
    }
    if !query.is_empty() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

/// The protocol that the client spoke with nginx, if it has the form of HTTP's versions.
fn protocol(text: &[u8]) -> Option<&str> {
    let is_one = matches!(
        text,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9']
            | [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']
    );
    std::str::from_utf8(text).ok().filter(|_| is_one)
}
