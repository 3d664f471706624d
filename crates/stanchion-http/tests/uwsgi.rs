//! Requests of the uwsgi protocol: the heads they become, and packets that are refused.

use stanchion_http::{
    Fault, Framing, Head, HeadRules, Permits, UWSGI_VARIABLES_MAX, environ_name, read_packet,
};

const RULES: HeadRules = HeadRules {
    line_bytes: 200,
    field_bytes: 100,
    fields: 10,
    head_bytes: 1000,
    permits: Permits::NONE,
};

type Said<'a> = (&'a str, &'a str);

fn packet(variables: &[Said<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    for text in variables.iter().flat_map(|(name, value)| [name, value]) {
        block.extend_from_slice(&(text.len() as u16).to_le_bytes());
        block.extend_from_slice(text.as_bytes());
    }
    let len = (block.len() as u16).to_le_bytes();
    [&[0, len[0], len[1], 0], &block[..]].concat()
}

fn read(bytes: &[u8]) -> Result<Option<(usize, Head)>, Fault> {
    let mut head = Head::default();
    let len = read_packet(bytes, &RULES, &mut head)?;
    Ok(len.map(|len| (len, head)))
}

/// The head of a packet, which has to be read whole.
#[track_caller]
fn head_of(variables: &[Said<'_>]) -> Head {
    let packet = packet(variables);
    let (len, head) = read(&packet).expect("a request").expect("all of it");
    assert_eq!(len, packet.len());
    head
}

/// The names and values in a head.
fn told(head: &Head) -> Vec<(String, String)> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    head.fields()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

const GET: [Said<'_>; 3] = [
    ("REQUEST_METHOD", "GET"),
    ("REQUEST_URI", "/"),
    ("PATH_INFO", "/"),
];

#[test]
fn what_nginx_sends_becomes_a_head() {
    let head = head_of(&[
        ("QUERY_STRING", "b=c"),
        ("REQUEST_METHOD", "POST"),
        ("CONTENT_TYPE", "text/x"),
        ("CONTENT_LENGTH", "3"),
        ("REQUEST_URI", "/%61?b=c"),
        ("PATH_INFO", "/a"),
        ("SERVER_PROTOCOL", "HTTP/2.0"),
        ("HTTPS", "on"),
        ("REMOTE_ADDR", "192.0.2.1"),
        ("HTTP_HOST", "example.org"),
        ("HTTP_X_REQUEST_ID", "1"),
        ("HTTP_CONNECTION", "close"),
    ]);
    assert_eq!((head.method(), head.target()), ("POST", &b"/%61?b=c"[..]));
    assert_eq!((head.protocol(), head.minor_version()), ("HTTP/2.0", 0));
    assert_eq!(
        (head.framing(), head.keeps_alive()),
        (Framing::Length(3), false)
    );
    let expected = [
        ("CONTENT-TYPE", "text/x"),
        ("CONTENT-LENGTH", "3"),
        ("HOST", "example.org"),
        ("X-REQUEST-ID", "1"),
        (":REQUEST_URI", "/%61?b=c"),
        (":PATH_INFO", "/a"),
        (":HTTPS", "on"),
        (":REMOTE_ADDR", "192.0.2.1"),
        (":HTTP_CONNECTION", "close"),
    ];
    assert_eq!(
        told(&head),
        expected.map(|(name, value)| (name.into(), value.into()))
    );
    assert_eq!(head.variable("REMOTE_ADDR"), Some(&b"192.0.2.1"[..]));
    assert_eq!(
        (head.variable("REMOTE"), head.variable("HOST")),
        (None, None)
    );
    let mut name = String::new();
    environ_name(b":REMOTE_ADDR", &mut name);
    assert_eq!(name, "REMOTE_ADDR");
}

#[test]
fn the_target_means_the_path_and_the_query_that_nginx_says() {
    for (uri, script_name, path_info, query, target) in [
        ("/a%2Fb?c", "", Some("/a/b"), "c", "/a%2Fb?c"),
        ("/shop/%78", "/shop", Some("/x"), "", "/shop/%78"),
        ("/shop/x", "/shop", Some("/shop/x"), "", "/shop/x"),
        ("/a", "", None, "", "/a"),
        ("", "", None, "", "/"),
        ("", "", Some(""), "q", "/?q"),
        // nginx has rewritten these.
        ("//a/../b", "", Some("/b"), "", "/b"),
        ("/old?x", "", Some("/new"), "y=z", "/new?y=z"),
        (
            "/old",
            "/s",
            Some("/n w?#%41\u{e9}\n"),
            "",
            "/s/n%20w%3F%23%2541%C3%A9%0A",
        ),
        ("/old?x", "", Some("/old"), "", "/old"),
    ] {
        let mut said = vec![
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_URI", uri),
            ("QUERY_STRING", query),
        ];
        said.push(("SCRIPT_NAME", script_name));
        said.extend(path_info.map(|path| ("PATH_INFO", path)));
        let head = head_of(&said);
        assert_eq!(String::from_utf8_lossy(head.target()), target, "{said:?}");
    }
}

#[test]
fn what_says_something_of_the_message_says_it_once() {
    // Fields of these names from a client do not frame the message, and the server does not act on them.
    let with = |more: &[Said<'_>]| head_of(&[&GET[..], more].concat());
    let head = with(&[
        ("HTTP_CONTENT_LENGTH", "7"),
        ("HTTP_content-length", "7"),
        ("HTTP_Content_Length", "7"),
        ("HTTP_TRANSFER_ENCODING", "chunked"),
        ("HTTP_CONTENT_TYPE", "text/x"),
        ("HTTP_EXPECT", "100-continue"),
        ("HTTP_CONNECTION", "keep-alive"),
        ("HTTP_UPGRADE", "websocket"),
    ]);
    assert_eq!(head.framing(), Framing::Empty);
    assert!(!head.expects_continue() && !head.keeps_alive());
    let names: Vec<_> = told(&head).into_iter().map(|(name, _)| name).collect();
    let expected = [
        ":REQUEST_URI",
        ":PATH_INFO",
        ":HTTP_EXPECT",
        ":HTTP_CONNECTION",
        ":HTTP_UPGRADE",
    ];
    assert_eq!(names, expected);
    // An empty value is no length, and the app sees it as it is.
    let head = with(&[("CONTENT_LENGTH", ""), ("CONTENT_TYPE", "")]);
    assert_eq!(
        (head.framing(), head.variable("CONTENT_LENGTH")),
        (Framing::Empty, Some(&b""[..]))
    );
    // If a variable came twice its last value counts.
    let head = with(&[
        ("CONTENT_LENGTH", "7"),
        ("REMOTE_ADDR", "a"),
        ("CONTENT_LENGTH", "8"),
        ("REMOTE_ADDR", "b"),
    ]);
    assert_eq!(
        (head.framing(), head.variable("REMOTE_ADDR")),
        (Framing::Length(8), Some(&b"b"[..]))
    );
    assert_eq!(
        head.fields()
            .filter(|(name, _)| *name == b":REMOTE_ADDR")
            .count(),
        1
    );
    let head = with(&[("HTTP_ACCEPT", "a"), ("HTTP_ACCEPT", "b")]);
    assert_eq!(head.all("accept").count(), 2);
}

#[test]
fn what_uwsgi_is_told_to_load_and_keys_of_servers_are_nobodys_business() {
    let head = head_of(
        &[
            &GET[..],
            &[
                ("UWSGI_FILE", "/etc/passwd"),
                ("UWSGI_SCRIPT", "os"),
                ("UWSGI_MODULE", "os"),
                ("UWSGI_SETENV", "A=b"),
                ("UWSGI_SCHEME", "https"),
                ("wsgi.input", "x"),
                ("stanchion.queue_wait", "x"),
                ("", "x"),
                ("A B", "x"),
                ("my_own", "x"),
            ],
        ]
        .concat(),
    );
    let names: Vec<_> = told(&head).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [":REQUEST_URI", ":PATH_INFO", ":UWSGI_SCHEME", ":my_own"]
    );
}

#[test]
fn what_is_no_request_is_refused() {
    const FIT: &str = "a uwsgi packet whose variables do not fit it";
    let method = "a uwsgi packet without REQUEST_METHOD";
    let modifier = "not a request of the uwsgi protocol (modifier1 is not 0)";
    for (bytes, reason) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), modifier),
        (vec![5], modifier),
        (packet(&[]), method),
        (packet(&[("REQUEST_METHOD", "")]), method),
        (vec![0, 1, 0, 0, 1], FIT),
        (vec![0, 3, 0, 0, 1, 0, b'A'], FIT),
        (vec![0, 4, 0, 0, 1, 0, b'A', 0], FIT),
        (vec![0, 5, 0, 0, 1, 0, b'A', 1, 0], FIT),
        (vec![0, 3, 0, 0, 0xff, 0xff, b'A'], FIT),
        (
            packet(&[("REQUEST_METHOD", "GET /x HTTP/1.1\r\nX:")]),
            "the method is not a token",
        ),
        (
            packet(&[&GET[..], &[("HTTP_A", "b\r\nX: y")]].concat()),
            "a control character in the head",
        ),
        (
            packet(&[&GET[..], &[("HTTP_A:", "b")]].concat()),
            "a field whose name is not a token",
        ),
        (
            packet(&[&GET[..], &[("CONTENT_LENGTH", "-1")]].concat()),
            "the Content-Length is not a length",
        ),
        (
            packet(&[&GET[..], &[("HTTP_HOST", "a/b")]].concat()),
            "the Host field is not a host",
        ),
    ] {
        let fault = read(&bytes).expect_err(reason);
        assert_eq!((fault.status(), fault.reason()), (400, reason), "{bytes:?}");
    }
    let long = "x".repeat(200);
    for (more, status) in [
        (vec![("HTTP_A", &*long)], 431),
        (vec![("HTTP_A", "b"); 11], 431),
        (vec![("QUERY_STRING", &*long)], 414),
    ] {
        let fault = read(&packet(&[&GET[..], &more].concat())).expect_err("too much");
        assert_eq!(fault.status(), status, "{more:?}");
    }
    let names: Vec<String> = (0..=UWSGI_VARIABLES_MAX)
        .map(|number| format!("V{number}"))
        .collect();
    let many: Vec<Said<'_>> = names.iter().map(|name| (&**name, "")).collect();
    assert_eq!(read(&packet(&many)), Err(Fault::HeadTooLarge));
    let as_many = [&GET[..], &many[..UWSGI_VARIABLES_MAX - 3]].concat();
    assert!(matches!(read(&packet(&as_many)), Ok(Some(_))));
}

#[test]
fn it_may_come_byte_by_byte_and_what_follows_is_not_its_own() {
    let whole = packet(&[&GET[..], &[("CONTENT_LENGTH", "2")]].concat());
    for len in 0..whole.len() {
        assert_eq!(read(&whole[..len]), Ok(None), "{len}");
    }
    let (len, _) = read(&[&whole[..], b"hi"].concat())
        .expect("a request")
        .expect("all of it");
    assert_eq!(len, whole.len());
}
