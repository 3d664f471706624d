//! Tests hold the server's bytes to the rules of the protocols. The bytes may end anywhere: clients leave, and apps fail.

/// The framing of an HTTP/1.1 body.
enum BodyForm {
    Nothing,
    Bytes(usize),
    Chunks,
    ToEnd,
}

struct AnswerTold {
    status: u16,
    form: BodyForm,
    is_last: bool,
}

/// The start of an HTTP/1.1 answer; its last digit may be another one.
const ANSWER: &[u8] = b"HTTP/1.";

/// Whether the server answers in HTTP/1.1, which it may do to a client that speaks HTTP/2, and the other way round.
pub(super) fn is_answer(heard: &[u8]) -> bool {
    heard.starts_with(ANSWER)
}

/// Counts the final answers of HTTP/1.1. With `asks_head` any of them may have no body.
pub(super) fn answers(mut heard: &[u8], asks_head: bool) -> usize {
    let mut count = 0;
    while !heard.is_empty() {
        let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") else {
            let is_start = is_answer(heard) || ANSWER.starts_with(heard);
            assert!(is_start, "no answer begins so: {}", shown(heard));
            return count;
        };
        let answer = read_head(&heard[..end + 2]);
        heard = &heard[end + 4..];
        match answer.status {
            101 => {
                frames_of_websocket(heard);
                return count + 1;
            }
            100..200 => continue,
            _ => count += 1,
        }
        let has_none = asks_head && (heard.is_empty() || is_answer(heard));
        match answer.form {
            _ if has_none => {}
            BodyForm::Nothing => {}
            BodyForm::Bytes(len) => heard = heard.get(len..).unwrap_or_default(),
            BodyForm::Chunks => heard = behind_chunks(heard),
            BodyForm::ToEnd => return count,
        }
        assert!(
            !answer.is_last || heard.is_empty(),
            "more comes behind the last answer: {}",
            shown(heard)
        );
    }
    count
}

fn shown(heard: &[u8]) -> String {
    String::from_utf8_lossy(&heard[..heard.len().min(200)]).into_owned()
}

/// Reads a head, each line with its end.
fn read_head(head: &[u8]) -> AnswerTold {
    let text = std::str::from_utf8(head).expect("a head of UTF-8");
    let mut lines = text.strip_suffix("\r\n").expect("an end").split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.1 ");
    let status = status.or_else(|| first.strip_prefix("HTTP/1.0 "));
    let status = status.and_then(|rest| rest.get(..3));
    let status = status.and_then(|status| status.parse().ok());
    let status: u16 = status.unwrap_or_else(|| panic!("no line of a status: {first:?}"));
    let (mut length, mut is_chunked, mut is_last) = (None, false, false);
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .unwrap_or_else(|| panic!("no field: {line:?}"));
        let is_token =
            |byte: u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte);
        assert!(!name.is_empty() && name.bytes().all(is_token), "{line:?}");
        assert!(!value.contains(['\r', '\n', '\0']), "{line:?}");
        let value = value.trim();
        match &name.to_ascii_lowercase()[..] {
            "content-length" => {
                let len = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
                assert_eq!(length.replace(len), None, "two lengths: {text:?}");
            }
            "transfer-encoding" => {
                assert!(!is_chunked && value == "chunked", "{text:?}");
                is_chunked = true;
            }
            "connection" => is_last |= value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    assert!(length.is_none() || !is_chunked, "two lengths: {text:?}");
    let form = match (length, status) {
        (_, 204 | 304) => BodyForm::Nothing,
        (Some(len), _) => BodyForm::Bytes(len),
        _ if is_chunked => BodyForm::Chunks,
        _ => BodyForm::ToEnd,
    };
    AnswerTold {
        status,
        form,
        is_last,
    }
}

/// The bytes behind a chunked body and its trailers.
fn behind_chunks(mut heard: &[u8]) -> &[u8] {
    loop {
        let Some(end) = heard.windows(2).position(|two| two == b"\r\n") else {
            return &[];
        };
        let size = std::str::from_utf8(&heard[..end]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.unwrap_or_else(|| panic!("no size of a chunk: {}", shown(heard)));
        heard = &heard[end + 2..];
        if size == 0 {
            break;
        }
        let Some(rest) = heard.get(size..) else {
            return &[];
        };
        let len = rest.len().min(2);
        assert_eq!(
            rest[..len],
            b"\r\n"[..len],
            "a chunk is longer than it says"
        );
        heard = &rest[len..];
    }
    loop {
        let Some(end) = heard.windows(2).position(|two| two == b"\r\n") else {
            return &[];
        };
        let line = &heard[..end];
        heard = &heard[end + 2..];
        if line.is_empty() {
            return heard;
        }
        assert!(line.contains(&b':'), "no trailer: {}", shown(line));
    }
}

/// Checks frames of a WebSocket (RFC 6455 section 5): none is masked, and none follows a close frame.
fn frames_of_websocket(mut heard: &[u8]) {
    let mut is_open = false;
    while let [first, second, rest @ ..] = heard {
        let (is_final, opcode) = (first & 0x80 != 0, first & 0xf);
        assert_eq!(second & 0x80, 0, "the server masks: {}", shown(heard));
        assert_eq!(
            first & 0x30,
            0,
            "bits of no extension that was agreed on: {first:x}"
        );
        let (len, rest) = match (second & 0x7f, rest) {
            (126, [high, low, rest @ ..]) => (usize::from(u16::from_be_bytes([*high, *low])), rest),
            (127, rest) => {
                let Some((len, rest)) = rest.split_first_chunk() else {
                    return;
                };
                let len = u64::from_be_bytes(*len);
                (usize::try_from(len).expect("a length"), rest)
            }
            (126, _) => return,
            (len, rest) => (usize::from(len), rest),
        };
        match opcode {
            0 => assert!(is_open, "nothing goes on"),
            1 | 2 => assert!(!is_open, "a message begins within another one"),
            8..=10 => assert!(is_final && len < 126, "a long frame of control"),
            _ => panic!("no frame: {opcode}"),
        }
        if opcode < 8 {
            is_open = !is_final;
        }
        let Some(rest) = rest.get(len..) else {
            return;
        };
        assert!(opcode != 8 || rest.is_empty(), "more comes behind the end");
        heard = rest;
    }
}

/// Checks frames of HTTP/2 (RFC 9113), and counts the streams whose answer has ended. No frame follows on such a stream.
pub(super) fn streams(mut heard: &[u8]) -> usize {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const END_STREAM: u8 = 1;
    let mut ended = Vec::new();
    while let Some((head, rest)) = heard.split_first_chunk::<9>() {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
        let len = u32::from_be_bytes([0, *l0, *l1, *l2]) as usize;
        let stream = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
        assert!(*kind <= 9, "no frame: {kind}");
        if matches!(*kind, DATA | HEADERS) {
            assert_eq!(stream % 2, 1, "a stream that no client opens");
            assert!(!ended.contains(&stream), "more comes behind the end");
            if flags & END_STREAM != 0 {
                ended.push(stream);
            }
        }
        let Some(rest) = rest.get(len..) else {
            break;
        };
        heard = rest;
    }
    ended.len()
}
