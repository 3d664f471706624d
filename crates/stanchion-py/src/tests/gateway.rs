use pyo3::prelude::*;
use stanchion_record::RequestFacts;
use stanchion_server::Seat;

use super::rig::{self, Answered, FACTS, Rig, TAKES_HINTS, failed, module, with_python};
use crate::wsgi::{App, Gateway};

/// The beginning of each app's module.
const PRELUDE: &str = r#"
import sys

TEXT = ("Content-Type", "text/plain")
seen = []

class Closing:
    """Chunks, and a note of each close(); one of them may fail, or close() may."""

    def __init__(self, chunks, fails_at=None, close_fails=False):
        self.chunks, self.fails_at, self.close_fails = chunks, fails_at, close_fails

    def __iter__(self):
        for number, chunk in enumerate(self.chunks):
            if number == self.fails_at:
                raise RuntimeError(f"chunk {number} fails")
            yield chunk

    def close(self):
        seen.append("closed")
        if self.close_fails:
            raise RuntimeError("close fails")

def tried(call, *arguments):
    """Notes what a call raises."""
    try:
        return call(*arguments)
    except Exception as raised:
        seen.append(f"{type(raised).__name__}: {raised}")

def app(environ, start_response):
"#;

/// One seat of a worker, with an app of which each test gives the body.
struct Served<'r, 'py> {
    rig: &'r mut Rig,
    seat: Seat<'static>,
    gateway: Gateway,
    app: App,
    module: Bound<'py, PyModule>,
}

impl<'r, 'py> Served<'r, 'py> {
    fn new(py: Python<'py>, rig: &'r mut Rig, body: &str) -> Self {
        let lines = body.lines().map(|line| format!("    {line}\n"));
        let code = PRELUDE.to_owned() + &lines.collect::<String>();
        let module = module(py, &code);
        let app = module.getattr("app").expect("an app").unbind();
        Self {
            seat: rig.worker.seat(0),
            gateway: Gateway::new(py, rig.worker.settings(), None).expect("memory"),
            app: App::new(app, rig.worker, None),
            rig,
            module,
        }
    }

    fn ask(&mut self, method: &str, target: &str, facts: &RequestFacts<'_>) -> Answered {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n\r\n");
        let slot = self.rig.submit(&rig::head(head), facts, b"");
        let taken = self.seat.take().expect("it is ready");
        self.gateway
            .answer(self.module.py(), &self.app, &self.seat, taken);
        self.rig.answered(slot)
    }

    fn get(&mut self) -> Answered {
        self.ask("GET", "/", &FACTS)
    }

    /// The app's notes so far.
    fn seen(&self) -> Vec<String> {
        let seen = self.module.getattr("seen").expect("a list");
        let noted = seen.extract().expect("text");
        seen.call_method0("clear").expect("a list");
        noted
    }
}

/// The body of an app, its answer to GET, and what it has noted.
type Row<'r> = (&'r str, Answered, &'r [&'r str]);

/// The seat serves the same app twice, because it keeps objects from one request to the next.
fn assert_answers(rows: &[Row<'_>]) {
    with_python(|py| {
        let mut rig = Rig::new("{}");
        for (app, expected, noted) in rows {
            let mut served = Served::new(py, &mut rig, app);
            for _ in 0..2 {
                assert_eq!(served.get(), *expected, "{app}");
                assert_eq!(served.seen(), *noted, "{app}");
            }
        }
    });
}

fn text(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{body}")
}

fn text_of_length(len: usize, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len}\r\n\r\n{body}")
}

#[test]
fn the_length_of_a_body_is_told_where_it_is_known() {
    assert_answers(&[
        (
            "start_response('200 OK', [TEXT])\nreturn [b'alone']",
            Answered::whole(text_of_length(5, "alone")),
            &[],
        ),
        (
            "start_response('200 OK', [TEXT])\nreturn (b'alone',)",
            Answered::whole(text_of_length(5, "alone")),
            &[],
        ),
        (
            "start_response('200 OK', [TEXT])\nreturn [b'']",
            Answered::whole(text_of_length(0, "")),
            &[],
        ),
        (
            "start_response('200 OK', [TEXT])\nreturn []",
            Answered::whole(text_of_length(0, "")),
            &[],
        ),
        (
            "start_response('200 OK', [TEXT])\nreturn iter([])",
            Answered::whole(text_of_length(0, "")),
            &[],
        ),
        (
            "start_response('200 OK', [TEXT])\nreturn [b'one,', b'', b'two']",
            Answered::whole(text("one,two")),
            &[],
        ),
        (
            "start_response('200 OK', [TEXT])\nreturn iter([b'alone'])",
            Answered::whole(text("alone")),
            &[],
        ),
        (
            "start_response('200 OK', [TEXT])\nreturn [type('Own', (bytes,), {})(b'own')]",
            Answered::whole(text_of_length(3, "own")),
            &[],
        ),
        (
            "start_response('204 No Content', [])\nreturn [b'not sent']",
            Answered::whole("HTTP/1.1 204 No Content\r\n\r\n"),
            &[],
        ),
        (
            "start_response('304 Not Modified', [('Content-Length', '5')])\nreturn [b'not sent']",
            Answered::whole("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
            &[],
        ),
    ]);
}

#[test]
fn a_body_is_cut_to_its_length_and_broken_off_where_it_is_shorter() {
    let length = "start_response('200 OK', [TEXT, ('Content-Length', '4')])\n";
    let app = |body: &str| length.to_owned() + body;
    assert_answers(&[
        (
            &app("return [b'four']"),
            Answered::whole(text_of_length(4, "four")),
            &[],
        ),
        (
            &app("return [b'fo', b'ur and more', b'still more']"),
            Answered::whole(text_of_length(4, "four")),
            &[],
        ),
        (
            &app("return [b'fou', b'']"),
            Answered::broken(text_of_length(4, "fou")),
            &[],
        ),
        (
            &app("return []"),
            Answered::broken(text_of_length(4, "")),
            &[],
        ),
    ]);
}

#[test]
fn head_has_the_head_of_get_and_no_body() {
    with_python(|py| {
        let mut rig = Rig::new("{}");
        for (app, expected) in [
            (
                "start_response('200 OK', [TEXT])\nreturn [b'alone']",
                text_of_length(5, ""),
            ),
            // An app may leave out the body, so nothing is known of its length.
            ("start_response('200 OK', [TEXT])\nreturn []", text("")),
            (
                "start_response('200 OK', [TEXT])\nreturn iter([b'a', b'b'])",
                text(""),
            ),
            (
                "start_response('200 OK', [TEXT, ('Content-Length', '10')])\nreturn [b'four']",
                text_of_length(10, ""),
            ),
        ] {
            let came = Served::new(py, &mut rig, app).ask("HEAD", "/", &FACTS);
            assert_eq!(came, Answered::whole(expected), "{app}");
        }
    });
}

#[test]
fn start_response_is_called_once_or_again_with_exc_info() {
    let again = "start_response('200 OK', [TEXT])\n\
        try:\n    raise RuntimeError('on second thoughts')\n\
        except RuntimeError:\n    tried(start_response, '503 Second Thoughts', [('X-Second', '2')], sys.exc_info())\n";
    let late = "def chunks():\n    start_response('200 OK', [TEXT])\n    yield b'sent'\n    try:\n        raise RuntimeError('too late')\n    \
        except RuntimeError as raised:\n        first = raised\n        try:\n            \
        start_response('500 Too Late', [TEXT], sys.exc_info())\n        except RuntimeError as again:\n            \
        seen.append(f'{again} {again is first}')\n            raise\n    yield b'never'\nreturn chunks()";
    assert_answers(&[
        (
            "start_response('200 OK', [TEXT])\ntried(start_response, '201 Again', [])\nreturn [b'first']",
            Answered::whole(text_of_length(5, "first")),
            &["AssertionError: start_response was called already"],
        ),
        (
            &(again.to_owned() + "return [b'second']"),
            Answered::whole(
                "HTTP/1.1 503 Second Thoughts\r\nX-Second: 2\r\nContent-Length: 6\r\n\r\nsecond",
            ),
            &[],
        ),
        (
            // An empty chunk does not send the head.
            "def chunks():\n    start_response('200 OK', [TEXT])\n    yield b''\n    try:\n        raise RuntimeError\n    \
             except RuntimeError:\n        start_response('503 Second Thoughts', [('X-Second', '2')], sys.exc_info())\n    \
             yield b'second'\nreturn chunks()",
            Answered::whole("HTTP/1.1 503 Second Thoughts\r\nX-Second: 2\r\n\r\nsecond"),
            &[],
        ),
        (late, Answered::broken(text("sent")), &["too late True"]),
        (
            "def chunks():\n    start_response('200 OK', [TEXT])\n    yield b'late'\nreturn chunks()",
            Answered::whole(text("late")),
            &[],
        ),
        (
            // If the second head is no head, the first one stays.
            "start_response('200 OK', [TEXT])\ntry:\n    raise RuntimeError\nexcept RuntimeError:\n    \
             tried(start_response, 'OK', [], sys.exc_info())\nreturn [b'first']",
            Answered::whole(text_of_length(5, "first")),
            &["ValueError: not a status such as '200 OK': 'OK'"],
        ),
        (
            "tried(start_response, '200 OK', None)\nstart_response('200 OK', [TEXT])\nreturn [b'first']",
            Answered::whole(text_of_length(5, "first")),
            &["TypeError: the headers must be a list of (name, value) pairs"],
        ),
        (
            "tried(start_response, '200 OK')\nreturn [b'never']",
            failed(),
            &[
                "TypeError: Response.start_response() missing 1 required positional argument: 'headers'",
            ],
        ),
    ]);
}

#[test]
fn what_the_app_gives_to_start_response_may_call_the_response() {
    let by = |call: &str| {
        format!(
            "class Header:\n    def __repr__(self):\n        {call}\n        return 'a header that calls back'\n\
             tried(start_response, '200 OK', [Header()])\nreturn [b'now']"
        )
    };
    let after_the_head = "class Triple(tuple):\n    def __getitem__(self, at):\n        environ['stanchion.client_gone']()\n        \
        return super().__getitem__(at)\n\
        def chunks():\n    start_response('200 OK', [TEXT])\n    yield b'sent'\n    try:\n        raise RuntimeError('late')\n    \
        except RuntimeError:\n        start_response('500 Too Late', [TEXT], Triple(sys.exc_info()))\nreturn chunks()";
    let complaint = "TypeError: not a pair of a name and a value: a header that calls back";
    assert_answers(&[
        (
            &by("environ['stanchion.client_gone']()"),
            failed(),
            &[complaint],
        ),
        (
            &by("start_response('200 OK', [TEXT])"),
            Answered::whole(text_of_length(3, "now")),
            &[complaint],
        ),
        (after_the_head, Answered::broken(text("sent")), &[]),
    ]);
}

#[test]
fn what_is_written_comes_before_what_is_returned() {
    let write = "write = start_response('200 OK', [TEXT])\n";
    let app = |body: &str| write.to_owned() + body;
    assert_answers(&[
        (
            &app("write(b'written,')\nwrite(b'')\nwrite(b'again,')\nreturn [b'returned']"),
            Answered::whole(text("written,again,returned")),
            &[],
        ),
        (
            &app(
                "for wrong in ('text', 5, None, bytearray(b'x')):\n    try:\n        write(wrong)\n    except TypeError:\n        \
                  seen.append(type(wrong).__name__)\nreturn [b'returned']",
            ),
            Answered::whole(text_of_length(8, "returned")),
            &["str", "int", "NoneType", "bytearray"],
        ),
    ]);
}

#[test]
fn an_app_that_breaks_the_protocol_before_its_answer_has_a_500() {
    let apps = [
        "return [b'no status']",
        "return []",
        "return iter([b'no status'])",
        "start_response('200 OK', [TEXT])",
        "start_response('200 OK', [TEXT])\nreturn 5",
        "start_response('200 OK', [TEXT])\nreturn ['text']",
        "start_response('200 OK', [TEXT])\nreturn 'text'",
        "start_response('200 OK', [TEXT])\nreturn b'bytes are numbers'",
        "start_response('200 OK', [TEXT])\nreturn iter(['text'])",
        "start_response('200 OK', [TEXT])\nreturn [bytearray(b'x')]",
        "start_response('200 OK', [TEXT])\nreturn [memoryview(b'x')]",
        "start_response('200 OK', [TEXT])\nreturn [None]",
        "raise RuntimeError('at once')",
        "raise KeyboardInterrupt",
        "start_response('200 OK', [TEXT, ('X-From', 'app')])\nraise RuntimeError('after the head was given')",
        "start_response('200 OK', [('X-A', 'a' * 65536)])\nreturn [b'too much']",
    ];
    let rows = apps.map(|app| (app, failed(), &[] as &[&str]));
    assert_answers(&rows);
}

#[test]
fn an_iterable_is_closed_once_whatever_happens() {
    let closing = |arguments: &str| {
        format!("start_response('200 OK', [TEXT, ('X-From', 'app')])\nreturn Closing({arguments})")
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-From: app\r\n\r\n";
    let closed: &[&str] = &["closed"];
    assert_answers(&[
        (
            &closing("[b'one', b'two']"),
            Answered::whole(head.to_owned() + "onetwo"),
            closed,
        ),
        (&closing("[b'never'], fails_at=0"), failed(), closed),
        (
            &closing("[b'one', b'never'], fails_at=1"),
            Answered::broken(head.to_owned() + "one"),
            closed,
        ),
        (
            &closing("[b'one', 'text']"),
            Answered::broken(head.to_owned() + "one"),
            closed,
        ),
        (
            // Its client has all of the answer by then.
            &closing("[b'one'], close_fails=True"),
            Answered::whole(head.to_owned() + "one"),
            closed,
        ),
        (
            &closing("[b'one', b'never'], fails_at=1, close_fails=True"),
            Answered::broken(head.to_owned() + "one"),
            closed,
        ),
        ("return Closing([b'no status'])", failed(), closed),
        (
            "class Own(list):\n    def close(self):\n        seen.append('closed')\n\
             start_response('200 OK', [TEXT])\nreturn Own([b'own'])",
            Answered::whole(text("own")),
            closed,
        ),
    ]);
}

#[test]
fn a_deadline_is_extended_by_seconds_of_a_month_at_most() {
    let app = "for seconds in (0, 2592000, 0.5, -1, 2592001, float('nan'), 'x'):\n    \
        tried(environ['stanchion.extend_deadline'], seconds)\nstart_response('200 OK', [])\nreturn [b'x']";
    let complaint = |given: &str| {
        format!(
            "ValueError: extend_deadline takes seconds from 0 to 2592000 (30 days), not {given}"
        )
    };
    with_python(|py| {
        let mut rig = Rig::new("{}");
        let mut served = Served::new(py, &mut rig, app);
        served.get();
        let mut seen = served.seen();
        let of_text = seen.pop().expect("text is no number");
        assert_eq!(
            seen,
            [complaint("-1"), complaint("2592001"), complaint("NaN")]
        );
        assert!(of_text.starts_with("TypeError: "), "{of_text}");
    });
}

#[test]
fn hints_go_ahead_of_the_answer_of_a_client_that_takes_them() {
    let one = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    let hint = "tried(environ['wsgi.early_hints'], [('Link', '</a.css>')])\n";
    let start = "start_response('200 OK', [TEXT])\n";
    with_python(|py| {
        let mut rig = Rig::new("{}");
        for (app, hints) in [
            (format!("{hint}{start}return [b'x']"), one.to_owned()),
            (format!("{start}{hint}{hint}return [b'x']"), one.repeat(2)),
            (
                format!("write = {start}write(b'x')\n{hint}return []"),
                String::new(),
            ),
            (
                format!("environ['wsgi.early_hints']([])\n{start}return [b'x']"),
                String::new(),
            ),
        ] {
            let mut served = Served::new(py, &mut rig, &app);
            let came = served.ask("GET", "/", &TAKES_HINTS).text;
            let (ahead, answer) = came.split_at(hints.len());
            assert_eq!(ahead, hints, "{app}");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{app}: {answer}");
            assert!(
                served.get().text.starts_with("HTTP/1.1 200 OK\r\n"),
                "{app}"
            );
            assert_eq!(served.seen(), [""; 0], "{app}");
        }
        let wrong = "tried(environ['wsgi.early_hints'], [('Link', 5)])\nstart_response('200 OK', [])\nreturn [b'x']";
        let mut served = Served::new(py, &mut rig, wrong);
        assert!(
            served
                .ask("GET", "/", &TAKES_HINTS)
                .text
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
        let complaint = "TypeError: a name or a value of a hint must be a str, not <class 'int'>";
        assert_eq!(served.seen(), [complaint]);
        // Where no hint would go out, nothing is looked at.
        served.get();
        assert_eq!(served.seen(), [""; 0]);
    });
}

#[test]
fn what_an_app_has_kept_has_no_part_in_a_later_request() {
    let app = "kept = globals().setdefault('kept', {})\n\
        write = start_response('200 OK', [TEXT])\n\
        mine = {'start_response': start_response, 'write': write, **{name: environ[name] for name in\n    \
        ('stanchion.client_gone', 'stanchion.extend_deadline', 'wsgi.early_hints')}}\n\
        uses = {'start_response': ('404 Not Found', []), 'write': (b'from the past',), 'stanchion.client_gone': (),\n    \
        'stanchion.extend_deadline': (5,), 'wsgi.early_hints': ([('Link', 'x')],)}\n\
        way = environ['PATH_INFO'][1:]\n\
        if way in kept:\n    was = kept.pop(way)\n    \
        seen.append(f'{was is mine[way]} {tried(was, *uses[way])}')\n\
        else:\n    kept[way] = mine[way]\n\
        return [b'now']";
    with_python(|py| {
        let mut rig = Rig::new("{}");
        let mut served = Served::new(py, &mut rig, app);
        for (way, expected) in [
            (
                "start_response",
                &[
                    "AssertionError: start_response was called already",
                    "False None",
                ] as &[&str],
            ),
            ("write", &["False None"]),
            ("stanchion.client_gone", &["False True"]),
            ("stanchion.extend_deadline", &["False None"]),
            ("wsgi.early_hints", &["False None"]),
        ] {
            for noted in [&[] as &[&str], expected] {
                let came = served.ask("GET", &format!("/{way}"), &TAKES_HINTS);
                assert_eq!(came, Answered::whole(text_of_length(3, "now")), "{way}");
                assert_eq!(served.seen(), noted, "{way}");
            }
        }
    });
}

/// Each head in turn with each other one, twice: a worker knows a head of the same objects again.
#[test]
fn each_head_is_its_own_whatever_came_before() {
    let app = "KIND, BY = TEXT, ('X-By', 'the app')\n\
        heads = globals().setdefault('heads', {\n\
        'usual': ('200 OK', [KIND, BY]), 'other-status': ('404 Not Found', [KIND, BY]),\n\
        'other-name': ('200 OK', [KIND, ('X-For', 'the app')]), 'other-value': ('200 OK', [KIND, ('X-By', 'another')]),\n\
        'other-order': ('200 OK', [BY, KIND]), 'fewer': ('200 OK', [KIND]), 'more': ('200 OK', [KIND, BY, BY]),\n\
        'none': ('200 OK', []), 'told': ('200 OK', [KIND, BY, ('Content-Length', '4')]),\n\
        'closes': ('200 OK', [KIND, BY, ('Connection', 'close')]), 'many': ('200 OK', [BY] * 40),\n\
        'own': ('200 OK', [(type('Text', (str,), {})('X-By'), 'the app')]), 'no-content': ('204 No Content', [KIND, BY]),\n\
        'long': ('200 OK', [BY, ('X-Long', 'a' * 8192)]), 'half': ('200 OK', [KIND, ('X-By',)]),\n\
        'three': ('200 OK', [KIND, ('X-By', 'x', 'y')]), 'a-list': ('200 OK', [KIND, ['X-By', 'x']]),\n\
        'not-a-name': ('200 OK', [KIND, ('X By', 'x')]), 'not-a-length': ('200 OK', [('Content-Length', 'x')])})\n\
        status, headers = heads[environ['PATH_INFO'][1:]]\n\
        start_response(status, list(headers))\nreturn [b'four']";
    let (kind, by) = ("Content-Type: text/plain\r\n", "X-By: the app\r\n");
    let ok = |fields: &str| {
        Answered::whole(format!(
            "HTTP/1.1 200 OK\r\n{fields}Content-Length: 4\r\n\r\nfour"
        ))
    };
    let closes = "Content-Length: 4\r\nConnection: close\r\n\r\nfour";
    let heads = [
        ("usual", ok(&format!("{kind}{by}"))),
        (
            "other-status",
            Answered::whole(format!(
                "HTTP/1.1 404 Not Found\r\n{kind}{by}Content-Length: 4\r\n\r\nfour"
            )),
        ),
        ("other-name", ok(&format!("{kind}X-For: the app\r\n"))),
        ("other-value", ok(&format!("{kind}X-By: another\r\n"))),
        ("other-order", ok(&format!("{by}{kind}"))),
        ("fewer", ok(kind)),
        ("more", ok(&format!("{kind}{by}{by}"))),
        ("none", ok("")),
        ("told", ok(&format!("{kind}{by}"))),
        (
            "closes",
            Answered::whole(format!("HTTP/1.1 200 OK\r\n{kind}{by}{closes}")),
        ),
        ("many", ok(&by.repeat(40))),
        ("own", ok(by)),
        (
            "no-content",
            Answered::whole(format!("HTTP/1.1 204 No Content\r\n{kind}{by}\r\n")),
        ),
        ("long", ok(&format!("{by}X-Long: {}\r\n", "a".repeat(8192)))),
        ("half", failed()),
        ("three", failed()),
        ("a-list", failed()),
        ("not-a-name", failed()),
        ("not-a-length", failed()),
    ];
    with_python(|py| {
        let mut rig = Rig::new("{}");
        let mut served = Served::new(py, &mut rig, app);
        for (first, of_first) in &heads {
            for (second, of_second) in &heads {
                for (name, expected) in [
                    (first, of_first),
                    (first, of_first),
                    (second, of_second),
                    (second, of_second),
                ] {
                    let came = served.ask("GET", &format!("/{name}"), &FACTS);
                    assert_eq!(came, *expected, "{name}, of {first} and {second}");
                }
            }
        }
    });
}
