//! Conditional requests (RFC 9110 section 13) and requests for ranges (section 14).

use crate::head::Head;
use crate::octets::{number, trimmed};

/// The most ranges in one answer; a client that asks for more gets the whole file, as RFC 9110 section 14.2 permits.
const RANGES_MAX: usize = 16;

/// The validators of the file that a server may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validators<'v> {
    /// A strong entity tag, in its quotes.
    pub etag: &'v str,
    /// The time of its last change, in seconds of Unix time.
    pub modified_s: u64,
}

/// How the conditions of a GET or HEAD change its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The server answers as if there were no condition.
    Met,
    /// The client has this version: 304.
    NotModified,
    /// The client does not want this version: 412.
    Failed,
}

/// Which part of the file a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// All of it.
    Whole,
    /// These parts: for each the offset of its first byte, and the offset behind its last.
    Parts(Vec<(u64, u64)>),
    /// Only parts that do not exist: 416.
    Unsatisfiable,
}

/// Checks the conditions of a request against the file, in the order of RFC 9110 section 13.2.2. `date_s` parses an HTTP date; a malformed date is
/// ignored (section 13.1.3).
pub fn condition(
    head: &Head,
    there: Validators<'_>,
    date_s: impl Fn(&[u8]) -> Option<u64>,
) -> Condition {
    let date = |name: &str| head.only(name).and_then(&date_s);
    if let Some(any) = names_tag(head, "if-match", there.etag, Comparison::Strong) {
        if !any {
            return Condition::Failed;
        }
    } else if date("if-unmodified-since").is_some_and(|date_s| there.modified_s > date_s) {
        return Condition::Failed;
    }
    match names_tag(head, "if-none-match", there.etag, Comparison::Weak) {
        Some(true) => Condition::NotModified,
        None if date("if-modified-since").is_some_and(|date_s| there.modified_s <= date_s) => {
            Condition::NotModified
        }
        _ => Condition::Met,
    }
}

/// The ranges that a GET asks for in a file of `len` bytes, if `If-Range` permits it (RFC 9110 section 13.1.5). A range in another unit is ignored
/// (section 14.2); a malformed range is refused, as in nginx.
pub fn ranges(
    head: &Head,
    there: Validators<'_>,
    len: u64,
    date_s: impl Fn(&[u8]) -> Option<u64>,
) -> Ranges {
    let Some(asked) = head.only("range") else {
        return Ranges::Whole;
    };
    let is_meant = match head.only("if-range") {
        None => head.first("if-range").is_none(),
        Some(tag) if tag.starts_with(b"\"") => tag == there.etag.as_bytes(),
        Some(date) => date_s(date) == Some(there.modified_s),
    };
    if !is_meant {
        return Ranges::Whole;
    }
    match asked.split_at_checked(b"bytes=".len()) {
        Some((unit, set)) if unit.eq_ignore_ascii_case(b"bytes=") => parts(set, len),
        _ => Ranges::Whole,
    }
}

/// A list of ranges (RFC 9110 section 14.1.2).
fn parts(set: &[u8], len: u64) -> Ranges {
    let (mut parts, mut bytes, mut count) = (Vec::new(), 0u64, 0);
    for range in set.split(|&byte| byte == b',').map(trimmed) {
        // An empty element of a list means nothing (RFC 9110 section 5.6.1.2).
        if range.is_empty() {
            continue;
        }
        count += 1;
        let Some((start, end)) = bounds(range, len) else {
            return Ranges::Unsatisfiable;
        };
        if start < end {
            bytes = bytes.saturating_add(end - start);
            parts.push((start, end));
        }
    }
    if parts.is_empty() {
        Ranges::Unsatisfiable
    } else if count > RANGES_MAX || bytes > len {
        // The ranges overlap and add up to more than the whole file, or are more than any real client asks for.
        Ranges::Whole
    } else {
        Ranges::Parts(parts)
    }
}

/// The offset of a range's first byte and the offset behind its last, cut off at the end of the file; `None` if the range is malformed.
fn bounds(range: &[u8], len: u64) -> Option<(u64, u64)> {
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    if first.is_empty() {
        return Some((len.saturating_sub(number(last)?), len));
    }
    let start = number(first)?;
    if last.is_empty() {
        return Some((start, len));
    }
    let last = number(last)?;
    (start <= last).then_some((start, last.saturating_add(1).min(len)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a field that lists entity tags names this tag, or any with `*`; `None` if the request lacks the field.
fn names_tag(head: &Head, field: &str, etag: &str, comparison: Comparison) -> Option<bool> {
    head.first(field)?;
    Some(head.all(field).any(|list| {
        trimmed(list) == b"*"
            || tags(list).any(|(is_weak, tag)| {
                tag == etag.as_bytes() && (comparison == Comparison::Weak || !is_weak)
            })
    }))
}

/// The entity tags of a list, with their quotes, and whether each is weak, up to the first that is malformed (RFC 9110 section 8.8.3). A tag may
/// contain a comma.
fn tags(mut list: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    std::iter::from_fn(move || {
        let is_between = |byte: &u8| matches!(byte, b' ' | b'\t' | b',');
        let start = list.iter().position(|byte| !is_between(byte))?;
        list = &list[start..];
        let is_weak = list.starts_with(b"W/");
        let tag = if is_weak { &list[2..] } else { list };
        let inside = tag.strip_prefix(b"\"")?;
        let len = inside.iter().position(|&byte| byte == b'"')? + 2;
        list = &tag[len..];
        Some((is_weak, &tag[..len]))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THERE: Validators<'_> = Validators {
        etag: "\"5-a\"",
        modified_s: 1_000,
    };

    /// Dates are plain numbers here.
    fn date_s(value: &[u8]) -> Option<u64> {
        std::str::from_utf8(value).ok()?.parse().ok()
    }

    fn met(fields: &[(&str, &str)]) -> Condition {
        condition(&Head::of("GET", "/", fields), THERE, date_s)
    }

    #[test]
    fn conditions_are_held_against_what_there_is() {
        use Condition::{Failed, Met, NotModified};
        for (fields, expected) in [
            (&[][..], Met),
            (&[("If-None-Match", "\"5-a\"")], NotModified),
            (&[("If-None-Match", "W/\"5-a\"")], NotModified),
            (&[("If-None-Match", "*")], NotModified),
            (
                &[("If-None-Match", "\"x\", W/\"y,z\" ,\"5-a\"")],
                NotModified,
            ),
            (
                &[("If-None-Match", "\"x\""), ("If-None-Match", "\"5-a\"")],
                NotModified,
            ),
            (&[("If-None-Match", "\"5-b\"")], Met),
            (&[("If-None-Match", "5-a")], Met),
            (&[("If-None-Match", "\"5-a")], Met),
            (&[("If-None-Match", "\"x,\"5-a\"\"")], Met),
            (&[("If-Modified-Since", "1000")], NotModified),
            (&[("If-Modified-Since", "1001")], NotModified),
            (&[("If-Modified-Since", "999")], Met),
            (&[("If-Modified-Since", "yesterday")], Met),
            (
                &[("If-Modified-Since", "1000"), ("If-Modified-Since", "1000")],
                Met,
            ),
            // Section 13.1.3: the tag counts, and the date is ignored.
            (
                &[("If-None-Match", "\"x\""), ("If-Modified-Since", "1000")],
                Met,
            ),
            (
                &[("If-None-Match", "\"5-a\""), ("If-Modified-Since", "1")],
                NotModified,
            ),
            (&[("If-Match", "\"5-a\"")], Met),
            (&[("If-Match", "*")], Met),
            (&[("If-Match", "W/\"5-a\"")], Failed),
            (&[("If-Match", "\"x\"")], Failed),
            (&[("If-Match", "")], Failed),
            (
                &[("If-Match", "\"x\""), ("If-None-Match", "\"5-a\"")],
                Failed,
            ),
            (
                &[("If-Match", "\"5-a\""), ("If-None-Match", "\"5-a\"")],
                NotModified,
            ),
            (&[("If-Unmodified-Since", "1000")], Met),
            (&[("If-Unmodified-Since", "999")], Failed),
            (&[("If-Unmodified-Since", "never")], Met),
            // Section 13.1.4: the tag counts, and the date is ignored.
            (
                &[("If-Match", "\"5-a\""), ("If-Unmodified-Since", "1")],
                Met,
            ),
        ] {
            assert_eq!(met(fields), expected, "{fields:?}");
        }
    }

    fn asked(fields: &[(&str, &str)]) -> Ranges {
        ranges(&Head::of("GET", "/", fields), THERE, 100, date_s)
    }

    #[test]
    fn ranges_are_parts_of_what_there_is() {
        use Ranges::{Parts, Unsatisfiable, Whole};
        for (range, expected) in [
            ("bytes=0-0", Parts(vec![(0, 1)])),
            ("bytes=0-", Parts(vec![(0, 100)])),
            ("Bytes=10-19", Parts(vec![(10, 20)])),
            ("bytes=10-1000", Parts(vec![(10, 100)])),
            ("bytes=10-18446744073709551615", Parts(vec![(10, 100)])),
            ("bytes=-1", Parts(vec![(99, 100)])),
            ("bytes=-100", Parts(vec![(0, 100)])),
            ("bytes=-1000", Parts(vec![(0, 100)])),
            ("bytes=99-", Parts(vec![(99, 100)])),
            (
                "bytes=0-1, 5-6 ,,-1",
                Parts(vec![(0, 2), (5, 7), (99, 100)]),
            ),
            ("bytes=5-6,0-1", Parts(vec![(5, 7), (0, 2)])),
            ("bytes=0-1,100-", Parts(vec![(0, 2)])),
            ("bytes=100-", Unsatisfiable),
            ("bytes=100-200,300-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=2-1", Unsatisfiable),
            ("bytes=0-1,2-1", Unsatisfiable),
            ("bytes=", Unsatisfiable),
            ("bytes=,", Unsatisfiable),
            ("bytes=-", Unsatisfiable),
            ("bytes=a-b", Unsatisfiable),
            ("bytes=+1-2", Unsatisfiable),
            ("bytes=0-18446744073709551616", Unsatisfiable),
            ("bytes 0-1", Whole),
            ("lines=0-1", Whole),
            ("bytes=0-99,0-99", Whole),
            ("byt", Whole),
        ] {
            assert_eq!(asked(&[("Range", range)]), expected, "{range}");
        }
        assert_eq!(asked(&[]), Whole);
        assert_eq!(
            asked(&[("Range", "bytes=0-1"), ("Range", "bytes=0-1")]),
            Whole
        );
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        let all = Parts(vec![(0, 1); RANGES_MAX]);
        assert_eq!(asked(&[("Range", &many(RANGES_MAX))]), all);
        assert_eq!(asked(&[("Range", &many(RANGES_MAX + 1))]), Whole);
    }

    #[test]
    fn a_range_counts_only_of_what_its_client_has_a_part_of() {
        let range = ("Range", "bytes=0-1");
        let part = Ranges::Parts(vec![(0, 2)]);
        for (condition, expected) in [
            ("\"5-a\"", &part),
            ("1000", &part),
            ("W/\"5-a\"", &Ranges::Whole),
            ("\"x\"", &Ranges::Whole),
            ("999", &Ranges::Whole),
            ("1001", &Ranges::Whole),
            ("", &Ranges::Whole),
        ] {
            let found = asked(&[range, ("If-Range", condition)]);
            assert_eq!(&found, expected, "{condition}");
        }
        let twice = [range, ("If-Range", "\"5-a\""), ("If-Range", "\"5-a\"")];
        assert_eq!(asked(&twice), Ranges::Whole);
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_is_there(value in "[0-9,-]{0,30}|\\PC{0,20}", len in 0u64..2_000) {
            if let Ranges::Parts(parts) = parts(value.as_bytes(), len) {
                prop_assert!(!parts.is_empty() && parts.len() <= RANGES_MAX);
                prop_assert!(parts.iter().all(|&(start, end)| start < end && end <= len));
                prop_assert!(parts.iter().map(|&(start, end)| end - start).sum::<u64>() <= len);
            }
        }

        #[test]
        fn lists_of_tags_come_to_an_end(list in "[W/\", a\\\\*]{0,40}") {
            prop_assert!(tags(list.as_bytes()).count() <= list.len());
        }
    }
}
