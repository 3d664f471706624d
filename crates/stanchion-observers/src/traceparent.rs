//! The trace that a request belongs to, as its sender says (W3C Trace Context section 3.2).

use stanchion_http::Head;

use stanchion_dispatch::random::hexadecimal;

/// The field in which the sender names the trace and its span.
pub(super) const TRACEPARENT: &str = "traceparent";
/// The field in which the systems on the way have noted facts for themselves.
pub(super) const TRACESTATE: &str = "tracestate";

/// The flag that says that the sender may have recorded its span.
pub(super) const SAMPLED: u8 = 1;
/// The flags that are defined: `SAMPLED`, and the flag that says that the trace id is random (Trace Context level 2).
/// The rest must not be passed on (section 3.2.2.5.2).
const FLAGS_KNOWN: u8 = 0b11;

/// The sender's span, as it was sent and found to be in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traceparent<'h> {
    /// 32 hexadecimal digits, not all of them zero.
    pub(super) trace: &'h str,
    /// 16 hexadecimal digits, not all of them zero.
    span: &'h str,
    pub(super) flags: u8,
}

impl<'h> Traceparent<'h> {
    /// Reads the fields of a request; `None` if they say nothing, or nothing that is valid.
    pub(super) fn of(head: &'h Head) -> Option<Self> {
        let value = head.only(TRACEPARENT).filter(|value| value.is_ascii())?;
        Self::parse(std::str::from_utf8(value).ok()?)
    }

    /// Versions to come may append fields.
    fn parse(value: &'h str) -> Option<Self> {
        let mut parts = value.splitn(5, '-');
        let (version, trace) = (parts.next()?, parts.next()?);
        let (span, flags) = (parts.next()?, parts.next()?);
        let more = parts.next().is_some();
        let is_known = is_hex(version, 2) && version != "ff" && !(version == "00" && more);
        let is_in_order = is_known && is_id(trace, 32) && is_id(span, 16) && is_hex(flags, 2);
        is_in_order.then_some(Self {
            trace,
            span,
            flags: u8::from_str_radix(flags, 16).ok()? & FLAGS_KNOWN,
        })
    }

    pub(super) fn trace_id(&self) -> [u8; 16] {
        u128::from_str_radix(self.trace, 16)
            .expect("its digits were looked at")
            .to_be_bytes()
    }

    pub(super) fn span_id(&self) -> [u8; 8] {
        u64::from_str_radix(self.span, 16)
            .expect("its digits were looked at")
            .to_be_bytes()
    }
}

/// The value of the field for the next system on the way.
pub(super) fn traceparent(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> [u8; 55] {
    let mut text = *b"00-................................-................-..";
    text[3..35].copy_from_slice(&hexadecimal::<16, 32>(&trace_id));
    text[36..52].copy_from_slice(&hexadecimal::<8, 16>(&span_id));
    text[53..].copy_from_slice(&hexadecimal::<1, 2>(&[flags]));
    text
}

fn is_hex(text: &str, len: usize) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == len && text.bytes().all(is_digit)
}

fn is_id(text: &str, len: usize) -> bool {
    is_hex(text, len) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn the_senders_span_is_read() {
        for (flags, known) in [("00", 0), ("01", 1), ("02", 2), ("03", 3), ("fd", 1)] {
            for value in [
                format!("00-{TRACE}-{SPAN}-{flags}"),
                format!("01-{TRACE}-{SPAN}-{flags}"),
                format!("cc-{TRACE}-{SPAN}-{flags}-more-of-it"),
            ] {
                let parsed = Traceparent::parse(&value).expect("valid");
                assert_eq!(
                    (parsed.trace, parsed.span, parsed.flags),
                    (TRACE, SPAN, known)
                );
                assert_eq!(parsed.trace_id()[..3], [0x0a, 0xf7, 0x65]);
                assert_eq!(parsed.span_id()[6..], [0x33, 0x31]);
            }
        }
    }

    #[test]
    fn what_is_not_in_order_is_none() {
        for nonsense in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}0-01"),
            format!("00 {TRACE} {SPAN} 01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(Traceparent::parse(&nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn two_of_them_are_none() {
        let value = format!("00-{TRACE}-{SPAN}-01");
        let field = (TRACEPARENT, &*value);
        let is_some = |fields: &[_]| Traceparent::of(&Head::of("GET", "/", fields)).is_some();
        assert!(is_some(&[field]));
        assert!(!is_some(&[field, field]));
        assert!(!is_some(&[(TRACEPARENT, "")]));
        let more = format!("01-{TRACE}-{SPAN}-01-\u{e9}");
        assert!(!is_some(&[(TRACEPARENT, &more)]));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (trace_id, span_id) = ([0xab; 16], [7; 8]);
        let mut head = Head::of("GET", "/", &[("Traceparent", "mine")]);
        head.set(TRACEPARENT, &traceparent(trace_id, span_id, SAMPLED));
        let read = Traceparent::of(&head).expect("valid");
        assert_eq!((read.trace_id(), read.span_id()), (trace_id, span_id));
        assert_eq!(read.flags, SAMPLED);
    }
}
