//! However bytes are cut into pieces, their meaning stays the same; and garbage never panics.

mod connection;

use connection::{ALL, rewritten};
use proptest::prelude::*;
use proptest::sample::Index;
use stanchion_http::{Decoded, Decoder, Fault, Framing, Head, HeadReader, HeadRules, Permits};

const LIMITS: HeadRules = HeadRules {
    line_bytes: 60,
    field_bytes: 40,
    fields: 5,
    head_bytes: 120,
    permits: Permits::NONE,
};

/// The same limits, with every fault permitted.
const LAX: HeadRules = HeadRules {
    permits: ALL,
    ..LIMITS
};

/// Everything that the reader understands of a head.
type Understood = (
    String,
    Vec<u8>,
    Vec<(Vec<u8>, Vec<u8>)>,
    Framing,
    [bool; 2],
    usize,
);

fn understood(head: &Head, len: usize) -> Understood {
    let fields = head.fields();
    let fields = fields.map(|(name, value)| (name.to_vec(), value.to_vec()));
    (
        head.method().to_owned(),
        head.target().to_vec(),
        fields.collect(),
        head.framing(),
        [head.expects_continue(), head.keeps_alive()],
        len,
    )
}

/// Reads with the bytes up to each of `ends`, and then with all of them.
fn read(rules: &HeadRules, bytes: &[u8], ends: &[usize]) -> Result<Option<Understood>, Fault> {
    let (mut reader, mut head) = (HeadReader::default(), Head::default());
    for end in ends.iter().copied().chain([bytes.len()]) {
        if let Some(len) = reader.read(&bytes[..end], rules, &mut head)? {
            return Ok(Some(understood(&head, len)));
        }
    }
    Ok(None)
}

fn decode(framing: Framing, bytes: &[u8], ends: &[usize]) -> Result<(Vec<u8>, bool, usize), Fault> {
    let (mut decoder, mut body, mut start) = (Decoder::new(framing), Vec::new(), 0);
    for end in ends.iter().copied().chain([bytes.len()]) {
        let mut input = &bytes[start..end];
        while let Decoded::Data(data) = decoder.decode(&mut input)? {
            assert!(!data.is_empty());
            body.extend_from_slice(data);
        }
        start = end - input.len();
    }
    Ok((body, decoder.is_over(), start))
}

fn cuts(bytes: &[u8], cuts: &[Index]) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.sort_unstable();
    ends
}

fn bytes_of(words: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        20 => proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
    ];
    proptest::collection::vec(word, 0..most).prop_map(|words| words.concat())
}

/// Bytes that are almost a head.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    const BEGINNINGS: &[&str] = &[
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "\r\nPOST /b?c HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\n",
        "OPTIONS * HTTP/1.0\r\n",
        "get / HTTP/3.7\r\nHost: a\r\nX:",
        "POST / HTTP/0.9\r\nContent-Length: 5\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: b\r\n",
        "",
    ];
    const WORDS: &[&str] = &[
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        " ",
        "\t",
        ":",
        "a",
        "X-A: 1\r\n",
        "X-B: \r\n",
        "Host: b\r\n",
        "\r\n ",
        "\r\n\t",
        "b : ",
        "Content-Length : 5\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "GET / HTTP/1.1\r\n",
        "\x01",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x01\n",
    ];
    (proptest::sample::select(BEGINNINGS), bytes_of(WORDS, 12))
        .prop_map(|(beginning, rest)| [beginning.as_bytes(), &rest].concat())
}

/// Bytes that are almost a chunked body.
fn chunks() -> impl Strategy<Value = Vec<u8>> {
    bytes_of(
        &[
            "5\r\nhello\r\n",
            "1;a=\"b\"\r\nx\r\n",
            "0\r\n",
            "\r\n",
            "\r\n",
            "X: 1\r\n",
            "3",
            ";",
            "a",
            "=",
            "\"",
            "\\",
            " ",
            "\r",
            "\n",
        ],
        12,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_head_in_pieces_is_the_same_head(bytes in heads(), at in proptest::collection::vec(any::<Index>(), 0..6)) {
        for rules in [&LIMITS, &LAX] {
            let whole = read(rules, &bytes, &[]);
            prop_assert_eq!(&read(rules, &bytes, &cuts(&bytes, &at)), &whole);
            let every: Vec<usize> = (0..bytes.len()).collect();
            prop_assert_eq!(read(rules, &bytes, &every), whole);
        }
    }

    #[test]
    fn a_body_in_pieces_is_the_same_body(bytes in chunks(), length in 0..40_u64, at in proptest::collection::vec(any::<Index>(), 0..6)) {
        for framing in [Framing::Chunked, Framing::Length(length), Framing::Empty] {
            let whole = decode(framing, &bytes, &[]);
            prop_assert_eq!(&decode(framing, &bytes, &cuts(&bytes, &at)), &whole);
            let every: Vec<usize> = (0..bytes.len()).collect();
            prop_assert_eq!(decode(framing, &bytes, &every), whole);
        }
    }

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&LIMITS, &bytes, &[]);
        let _ = read(&LAX, &bytes, &[]);
        let _ = decode(Framing::Chunked, &bytes, &[]);
        let _ = stanchion_http::check(&bytes, false);
        let _ = stanchion_http::split_target(&bytes);
        let _ = stanchion_http::percent_decoded(&bytes);
    }

    /// A head that is written again from the parsed one has the same meaning, also if only methods and versions are permitted: folds and spaces are
    /// gone.
    #[test]
    fn a_head_that_is_written_again_is_the_same_head(bytes in heads()) {
        for rules in [&LIMITS, &LAX] {
            let (mut reader, mut head) = (HeadReader::default(), Head::default());
            let Ok(Some(_)) = reader.read(&bytes, rules, &mut head) else { continue };
            let again = rewritten(&head);
            let expected = understood(&head, again.len());
            reader.reset();
            let permits = Permits { obsolete_folding: false, header_spaces: false, ..rules.permits };
            let rules = HeadRules { permits, ..*rules };
            let len = reader.read(&again, &rules, &mut head);
            prop_assert_eq!(len, Ok(Some(again.len())));
            prop_assert_eq!(understood(&head, again.len()), expected);
        }
    }

    /// Permits only add heads that are accepted: they do not change how the others are read.
    #[test]
    fn what_is_read_without_permits_is_the_same_with_all(bytes in heads()) {
        let upper_case = |method: &str| method.to_ascii_uppercase() == method;
        if let Ok(Some(strict)) = read(&LIMITS, &bytes, &[]) {
            prop_assert!(upper_case(&strict.0));
            prop_assert_eq!(read(&LAX, &bytes, &[]), Ok(Some(strict)));
        }
    }
}
