//! Heads that came in another form than HTTP/1.1 have to keep the same rules.

use stanchion_http::{Fault, Framing, Head, HeadRules, HeadWriter, Permits};

const RULES: HeadRules = HeadRules {
    line_bytes: 100,
    field_bytes: 100,
    fields: 5,
    head_bytes: 300,
    permits: Permits::NONE,
};

type Fields<'a> = &'a [(&'a str, &'a str)];

fn written(method: &str, target: &str, fields: Fields<'_>) -> Result<Head, Fault> {
    let mut writer = HeadWriter::begin(method.as_bytes(), target.as_bytes(), 1)?;
    for (name, value) in fields {
        writer.field(name.as_bytes(), value.as_bytes())?;
    }
    let mut head = Head::default();
    writer.read(&RULES, &mut head)?;
    Ok(head)
}

#[test]
fn a_head_is_what_it_would_be_as_text() {
    let fields = [
        ("host", "a"),
        ("Content-Length", "2"),
        ("X-Latin", "\u{e9}"),
        ("X-Empty", ""),
    ];
    let mut head = written("POST", "/a?b", &fields).unwrap();
    assert_eq!(
        (head.method(), head.path(), head.query()),
        ("POST", &b"/a"[..], &b"b"[..])
    );
    assert_eq!(head.framing(), Framing::Length(2));
    let told: Vec<_> = head.fields().collect();
    let expected = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    assert_eq!(told, expected);
    head.set_protocol("HTTP/2");
    assert_eq!(
        (head.protocol(), head.method(), head.target()),
        ("HTTP/2", "POST", &b"/a?b"[..])
    );
    assert_eq!(head.minor_version(), 1);
}

#[test]
fn no_part_can_be_taken_for_two() {
    let host: Fields<'_> = &[("Host", "a")];
    for method in ["", "GET /x HTTP/1.1\r\nX:", "G T", "GET\r\n", "G\0T"] {
        assert!(written(method, "/", host).is_err(), "{method:?}");
    }
    for target in [
        "",
        "/ HTTP/1.0",
        "/\r\nX: y",
        "/\n",
        "/\0",
        "/a b",
        "/\t",
        "/\x7f",
        "x",
    ] {
        assert!(written("GET", target, host).is_err(), "{target:?}");
    }
    for byte in 0..=u8::MAX {
        let target = [b'/', byte];
        let is_one = matches!(byte, b'!'..=b'~' | 0x80..);
        let begun = HeadWriter::begin(b"GET", &target, 1);
        match begun.map_err(Fault::reason) {
            Ok(_) => assert!(is_one, "{byte:#x}"),
            Err(reason) => {
                assert!(!is_one, "{byte:#x}");
                let how = format!("write it as %{byte:02X}");
                assert!(reason.ends_with(&how), "{reason}");
            }
        }
    }
    for name in ["", "X Y", "X:", "X: y\r\nZ", "X\r\n", "\u{e9}"] {
        assert!(
            written("GET", "/", &[("Host", "a"), (name, "v")]).is_err(),
            "{name:?}"
        );
    }
    for value in [
        "a\r\nX: y",
        "a\n b",
        "a\rb",
        "a\0b",
        "\r\n\r\nGET /x HTTP/1.1",
        "a\x7f",
    ] {
        assert!(
            written("GET", "/", &[("Host", "a"), ("X", value)]).is_err(),
            "{value:?}"
        );
    }
}

#[test]
fn its_rules_and_limits_are_those_of_text() {
    let long = "x".repeat(101);
    let six = [
        ("Host", "a"),
        ("A", ""),
        ("B", ""),
        ("C", ""),
        ("D", ""),
        ("E", ""),
    ];
    for (target, fields, expected) in [
        (
            &*format!("/{long}"),
            &[("Host", "a")][..],
            Fault::LineTooLong.status(),
        ),
        (
            "/",
            &[("Host", "a"), ("X", &*long)],
            Fault::FieldTooLarge.status(),
        ),
        ("/", &six, Fault::HeadTooLarge.status()),
        ("/", &[], 400),
        ("/", &[("Host", "a"), ("Host", "b")], 400),
        ("/", &[("Host", "a/b")], 400),
        ("/", &[("Host", "a"), ("Content-Length", "-1")], 400),
        (
            "/",
            &[
                ("Host", "a"),
                ("Content-Length", "1"),
                ("Content-Length", "2"),
            ],
            400,
        ),
        (
            "/",
            &[
                ("Host", "a"),
                ("Content-Length", "1"),
                ("Transfer-Encoding", "chunked"),
            ],
            400,
        ),
    ] {
        let fault = written("GET", target, fields).unwrap_err();
        assert_eq!(fault.status(), expected, "{target} {fields:?}");
    }
}
