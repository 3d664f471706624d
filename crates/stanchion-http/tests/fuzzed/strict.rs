//! A strict client, which shares no code with the code that it checks.

/// An answer that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    /// Its status.
    pub(crate) status: u16,
    /// Its fields, names in lower case.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its body.
    pub(crate) body: &'a [u8],
}

/// The first answer in `bytes` and the rest, if the client can read it without doubt. If `has_body` is false the answer has no body, whatever its
/// Content-Length.
pub(crate) fn read_answer(bytes: &[u8], has_body: bool) -> Option<(Answer<'_>, &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let rest = &bytes[end + 4..];
    let head: String = bytes[..end].iter().map(|&byte| char::from(byte)).collect();
    if head.replace("\r\n", "").contains(['\r', '\n', '\0']) {
        return None;
    }
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let fields: Vec<_> = lines.map(read_field).collect::<Option<_>>()?;
    let values = |name: &[u8]| -> Vec<&[u8]> {
        let fields = fields.iter().filter(|field| field.0 == name);
        fields.map(|field| &field.1[..]).collect()
    };
    if !values(b"transfer-encoding").is_empty() || !values(b"connection").is_empty() {
        return None;
    }
    let len = match values(b"content-length")[..] {
        [] => 0,
        [len] => std::str::from_utf8(len).ok()?.parse().ok()?,
        _ => return None,
    };
    let (body, rest) = rest.split_at_checked(if has_body { len } else { 0 })?;
    let status = status.parse().ok()?;
    let answer = Answer {
        status,
        fields,
        body,
    };
    Some((answer, rest))
}

fn read_field(line: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let latin_1 = |text: &str| -> Vec<u8> { text.chars().map(|char| char as u8).collect() };
    let (name, value) = line.split_once(':')?;
    if name.is_empty() || name.contains(|char: char| !char.is_ascii_graphic()) {
        return None;
    }
    let value = value.trim_matches([' ', '\t']);
    Some((latin_1(&name.to_ascii_lowercase()), latin_1(value)))
}
