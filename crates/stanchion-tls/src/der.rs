//! A reader for as much of DER (ITU-T X.690) as the fields of a certificate need that rustls does not read. webpki has read the certificate before,
//! so this reader treats whatever it does not understand as absent.

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DerElement<'d> {
    pub(crate) tag: u8,
    pub(crate) content: &'d [u8],
    /// The element with its tag and length.
    pub(crate) whole: &'d [u8],
}

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OID: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Takes the first element off `bytes`.
pub(crate) fn take<'d>(bytes: &mut &'d [u8]) -> Option<DerElement<'d>> {
    let whole = *bytes;
    let (&tag, rest) = whole.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // A certificate in a chain has less than 16 MiB (RFC 8446 section 4.4.2).
        0x81..=0x83 => {
            let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let fold = |len: usize, byte: &u8| len << 8 | usize::from(*byte);
            (len.iter().fold(0, fold), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some(DerElement {
        tag,
        content,
        whole: &whole[..whole.len() - rest.len()],
    })
}

/// Takes the first element if it has this tag.
pub(crate) fn take_tagged<'d>(bytes: &mut &'d [u8], tag: u8) -> Option<DerElement<'d>> {
    let mut rest = *bytes;
    let element = take(&mut rest).filter(|element| element.tag == tag)?;
    *bytes = rest;
    Some(element)
}

/// All elements up to the first malformed one.
pub(crate) fn elements(mut bytes: &[u8]) -> impl Iterator<Item = DerElement<'_>> {
    std::iter::from_fn(move || take(&mut bytes))
}

/// A time in a certificate (RFC 5280 section 4.1.2.5), in seconds since 1970. A time before 1970 is 0.
pub(crate) fn unix_s(time: DerElement<'_>) -> Option<u64> {
    let text = std::str::from_utf8(time.content).ok()?;
    let text = text.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match time.tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let part = |index: usize| rest[2 * index..2 * index + 2].parse::<i64>().ok();
    let (month, day) = (part(0)?, part(1)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let clock_s = part(2)? * 3600 + part(3)? * 60 + part(4)?;
    let since_s = days_since_1970(year, month, day) * 86_400 + clock_s;
    Some(u64::try_from(since_s).unwrap_or(0))
}

/// Days in the proleptic Gregorian calendar. Years begin in March, so that a leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_told_apart_whatever_their_lengths() {
        let long = [&[0x04, 0x82, 0x01, 0x00][..], &[7; 256], b"\x05\x00rest"].concat();
        let mut rest = &long[..];
        let first = take(&mut rest).unwrap();
        assert_eq!(
            (first.tag, first.content.len(), first.whole.len()),
            (4, 256, 260)
        );
        assert_eq!(take_tagged(&mut rest, SEQUENCE), None);
        assert_eq!(take_tagged(&mut rest, 5).unwrap().whole, b"\x05\x00");
        assert_eq!(rest, b"rest");
        for broken in [
            &b""[..],
            b"\x30",
            b"\x30\x02\x00",
            b"\x30\x80\x00\x00",
            b"\x30\x84\x00\x00\x00\x00",
            b"\x30\x82\x01",
        ] {
            assert_eq!(take(&mut &*broken), None, "{broken:?}");
        }
        assert_eq!(elements(b"\x02\x01\x01\x02\x01\x02\x02\x09").count(), 2);
    }

    #[test]
    fn times_are_seconds() {
        let time = |tag, text: &'static str| {
            unix_s(DerElement {
                tag,
                content: text.as_bytes(),
                whole: b"",
            })
        };
        assert_eq!(time(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(time(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(time(UTC_TIME, "500101000000Z"), Some(0));
        assert_eq!(
            time(GENERALIZED_TIME, "20240229120000Z"),
            Some(1_709_208_000)
        );
        assert_eq!(
            time(GENERALIZED_TIME, "21261030084114Z"),
            Some(4_949_023_274)
        );
        for nonsense in [
            "20240229120000",
            "2024022912000Z",
            "20241329120000Z",
            "2024-0229120000Z",
            "Z",
        ] {
            assert_eq!(time(GENERALIZED_TIME, nonsense), None, "{nonsense}");
        }
        assert_eq!(time(INTEGER, "700101000000Z"), None);
    }
}
