//! The names and values that CGI and PEP 3333 derive from a request.

use stanchion_http::{
    FieldDecision, FieldRules, Head, HeaderMap, environ_name, percent_decoded, separator,
    split_host, split_mount, split_target,
};

#[test]
fn targets_are_split_as_the_reader_of_heads_splits_them() {
    for (target, path, query) in [
        ("/", "/", ""),
        ("/a?b?c", "/a", "b?c"),
        ("/a?", "/a", ""),
        ("//a", "//a", ""),
        ("/http://b/?c", "/http://b/", "c"),
        ("http://h", "/", ""),
        ("http://h?b", "/", "b"),
        ("http://h:8080/a?b", "/a", "b"),
        ("*", "*", ""),
    ] {
        let split = split_target(target.as_bytes());
        assert_eq!(split, (path.as_bytes(), query.as_bytes()), "{target}");
        let head = Head::of("OPTIONS", target, &[]);
        assert_eq!((head.path(), head.query()), split, "{target}");
        assert_eq!(head.target(), target.as_bytes());
    }
}

#[test]
fn paths_are_decoded_once() {
    for (path, expected) in [
        ("/plain", &b"/plain"[..]),
        ("/a%2Fb%2fc", b"/a/b/c"),
        ("/caf%C3%A9", b"/caf\xc3\xa9"),
        ("/%2541", b"/%41"),
        ("/%00", b"/\0"),
        ("/100%", b"/100%"),
        ("/%4", b"/%4"),
        ("/%zz%4g%41", b"/%zz%4gA"),
        ("/%%41", b"/%A"),
        ("/+", b"/+"),
    ] {
        assert_eq!(percent_decoded(path.as_bytes()), expected, "{path}");
    }
}

#[test]
fn names_in_an_environ() {
    let mut name = String::from("of the one before");
    for (field, expected) in [
        ("Host", "HTTP_HOST"),
        ("x-Forwarded-For", "HTTP_X_FORWARDED_FOR"),
        ("content-type", "CONTENT_TYPE"),
        ("Content-Length", "CONTENT_LENGTH"),
        ("Content-Types", "HTTP_CONTENT_TYPES"),
        ("a.b~1", "HTTP_A.B~1"),
    ] {
        environ_name(field.as_bytes(), &mut name);
        assert_eq!(name, expected);
    }
    for (field, expected) in [("Cookie", "; "), ("cookie", "; "), ("Accept", ",")] {
        assert_eq!(separator(field.as_bytes()), expected, "{field}");
    }
}

#[test]
fn names_with_an_underscore() {
    use FieldDecision::{Dropped, Refused, Shown};
    use HeaderMap::{Dangerous, Drop, Refuse};
    // (forwarder_headers, name; the fate if a trusted proxy sends it and if another client does, for each header_map)
    let table = [
        (
            "",
            "X-Real-IP",
            [(Shown, Shown), (Shown, Shown), (Shown, Shown)],
        ),
        (
            "",
            "X_Real_IP",
            [(Dropped, Dropped), (Refused, Refused), (Shown, Shown)],
        ),
        (
            "",
            "_",
            [(Dropped, Dropped), (Refused, Refused), (Shown, Shown)],
        ),
        (
            "SCRIPT_NAME, REMOTE_USER",
            "Remote_User",
            [(Shown, Dropped), (Shown, Refused), (Shown, Shown)],
        ),
        (
            "SCRIPT_NAME,REMOTE_USER",
            "Script_Name",
            [(Shown, Dropped), (Shown, Refused), (Shown, Shown)],
        ),
        (
            "SCRIPT_NAME",
            "Remote_User",
            [(Dropped, Dropped), (Refused, Refused), (Shown, Shown)],
        ),
        (
            "*",
            "Remote_User",
            [(Shown, Dropped), (Shown, Refused), (Shown, Shown)],
        ),
        (
            "*",
            "Content_Length",
            [(Dropped, Dropped), (Refused, Refused), (Dropped, Dropped)],
        ),
        (
            "TRANSFER_ENCODING",
            "transfer_Encoding",
            [(Dropped, Dropped), (Refused, Refused), (Dropped, Dropped)],
        ),
    ];
    for (forwarder_headers, name, expected) in table {
        let fates = [Drop, Refuse, Dangerous].map(|map| {
            let rules = FieldRules::new(map, forwarder_headers);
            let head = Head::of("GET", "/", &[("A", "1"), (name, "2")]);
            let fates = [true, false].map(|from_proxy| {
                let fate = rules.fate(name.as_bytes(), from_proxy);
                assert_eq!(
                    rules.refused(&head, from_proxy).is_some(),
                    fate == Refused,
                    "{name}"
                );
                fate
            });
            (fates[0], fates[1])
        });
        assert_eq!(fates, expected, "{name} with {forwarder_headers:?}");
    }
}

#[test]
fn a_mount_point_ends_where_a_segment_of_the_path_ends() {
    for (path, script_name, expected) in [
        ("/a/b", "", Some("/a/b")),
        ("/a/b", "/a", Some("/b")),
        ("/a", "/a", Some("")),
        ("/a/", "/a", Some("/")),
        ("/ab", "/a", None),
        ("/b", "/a", None),
        ("*", "", None),
    ] {
        let rest = split_mount(path.as_bytes(), script_name.as_bytes());
        let expected = expected.map(str::as_bytes);
        assert_eq!(rest, expected, "{path} below {script_name}");
    }
}

#[test]
fn hosts_and_ports() {
    for (host, expected) in [
        ("a", ("a", "80")),
        ("a:8080", ("a", "8080")),
        ("a:", ("a", "")),
        ("", ("", "80")),
        ("[::1]", ("[::1]", "80")),
        ("[::1]:8080", ("[::1]", "8080")),
    ] {
        let split = split_host(host.as_bytes(), b"80");
        let expected = (expected.0.as_bytes(), expected.1.as_bytes());
        assert_eq!(split, expected, "{host}");
    }
}
